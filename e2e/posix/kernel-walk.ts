/**
 * Random operations through the kernel, on mounts of one tree and on a model in memory: `kernel-walk.ts <scratch directory>
 * <seed> <steps> <mounts>`. The server is another process, which is killed now and then, and started again on what it left.
 * To be run by root in a mount namespace of its own. Ends with 0 when all agreed; else it says where not.
 */
import * as fs from 'node:fs';
import { join } from 'node:path';
import { History, snapshotOf } from '../../machine/agentfs/history.fixture.ts';
import type { Inode } from '../../machine/agentfs/inode.ts';
import { Model, type ModelNode, seeded } from '../../machine/agentfs/model.fixture.ts';
import {
  contentDifferences,
  differences,
  hasContents,
  isThat,
  type RealNode,
} from '../../machine/agentfs/real-tree.fixture.ts';
import { isRegular, isSymlink } from '../../machine/agentfs/schema.ts';
import { calls, errnoOf } from './calls.ts';
import { TreeServer } from './served-tree.ts';

const names = ['a', 'b', 'c', 'd', 'é', '.hidden', 'long'.repeat(20)];
const chunk = 65_536;
const pageBytes = 4096;
const mostDirectories = 15;
const mostOpen = 8;

interface Descriptor {
  readonly fd: number;
  readonly node: ModelNode;
  readonly appends: boolean;
}

class KernelWalk {
  readonly #random: (below: number) => number;
  readonly #server: TreeServer;
  readonly #model = new Model();
  readonly #history = new History(this.#model.root);
  readonly #inos = new Map<ModelNode, number>([[this.#model.root, 1]]);
  #open: Descriptor[] = [];

  constructor(server: TreeServer, seed: number) {
    this.#server = server;
    this.#random = seeded(seed);
  }

  async run(steps: number): Promise<{ crashes: number }> {
    let crashes = 0;
    for (let step = 0; step < steps; step++) {
      try {
        this.#pick(this.#operations)();
        const event = this.#random(300);
        if (event === 0) {
          await this.#crash();
          crashes += 1;
        } else if (event === 1) await this.#remount();
        else if (event < 10) this.#compare();
      } catch (error) {
        throw new Error(`step ${step}: ${error instanceof Error ? error.message : error}`, { cause: error });
      }
    }
    await this.#remount();
    return { crashes };
  }

  readonly #operations: readonly (() => void)[] = [
    () => this.#create(),
    () => this.#create(),
    () => {
      const at = this.#place();
      if (this.#directories().length >= mostDirectories) return;
      const real = () => fs.mkdirSync(at.path, 0o755);
      this.#make(() => this.#model.create(at.directory, at.name, 'directory'), real, at.path);
    },
    () => {
      const at = this.#place();
      const real = () => fs.symlinkSync('tärget', at.path);
      this.#make(() => this.#model.create(at.directory, at.name, 'symlink', 'tärget'), real, at.path);
    },
    () => {
      const [from, to] = [this.#place(), this.#place()];
      const node = this.#model.lookup(from.directory, from.name);
      if (!node) return;
      this.#both(
        'link',
        () => this.#model.link(node, false, to.directory, to.name),
        () => fs.linkSync(from.path, this.#server.sameMount(from.path, to.path)),
      );
    },
    () => this.#unlink(),
    () => this.#unlink(),
    () => {
      const at = this.#place();
      this.#both(
        'rmdir',
        () => this.#model.rmdir(at.directory, at.name),
        () => fs.rmdirSync(at.path),
      );
    },
    () => this.#rename(),
    () => this.#rename(),
    () => this.#attributes(),
    () => this.#nameless(),
    () => {
      const file = this.#namedFile();
      if (!file || this.#open.length >= mostOpen) return;
      const appends = this.#random(3) === 0;
      this.#open.push({ fd: fs.openSync(file.path, appends ? 'a+' : 'r+'), node: file.node, appends });
    },
    () => {
      if (this.#open.length > 0) this.#close(this.#open.splice(this.#random(this.#open.length), 1)[0]!);
    },
    () => this.#write(),
    () => this.#write(),
    () => this.#write(),
    () => {
      const open = this.#descriptor();
      if (!open) return;
      const size = this.#offset(open.node);
      fs.ftruncateSync(open.fd, size);
      this.#model.truncate(open.node, size);
      this.#history.changed();
    },
    () => {
      const open = this.#descriptor();
      if (!open) return;
      const [offset, length] = [this.#offset(open.node), this.#pick([1, 5000, 70_000])];
      calls.punch(open.fd, offset, length);
      this.#model.punch(open.node, offset, length);
      this.#history.changed();
    },
    () => {
      const open = this.#descriptor();
      if (!open) return;
      const bytes = Buffer.alloc(100_000);
      const offset = this.#offset(open.node);
      const read = bytes.subarray(0, fs.readSync(open.fd, bytes, 0, bytes.length, offset));
      same('contents', read.equals(open.node.data.subarray(offset, offset + bytes.length)), true);
    },
    () => {
      const open = this.#descriptor();
      if (!open || this.#random(3) > 0) return;
      fs.fsyncSync(open.fd);
      this.#history.sure();
    },
    () => {
      const at = this.#place();
      const listed = fs.readdirSync(at.parent).sort();
      same('list', JSON.stringify(listed), JSON.stringify([...at.directory.entries.keys()].sort()));
    },
  ];

  #unlink(): void {
    const at = this.#place();
    const real = () => calls.unlink(at.path);
    this.#both('unlink', () => this.#model.unlink(at.directory, at.name), real);
  }

  #create(): void {
    const at = this.#place();
    const flags = fs.constants.O_CREAT | fs.constants.O_EXCL | fs.constants.O_RDWR;
    let fd = -1;
    const real = () => {
      fd = fs.openSync(at.path, flags, 0o644);
    };
    const node = this.#make(() => this.#model.create(at.directory, at.name, 'file'), real, at.path);
    if (node) this.#keepOpen({ fd, node, appends: false });
  }

  #nameless(): void {
    const [where, to] = [this.#place(), this.#place()];
    const fd = calls.openNameless(where.parent);
    const node = this.#model.createNameless(where.directory);
    this.#inos.set(node, fs.fstatSync(fd).ino);
    // A name on the same mount: the kernel links by descriptor.
    const path = this.#server.sameMount(where.path, to.path);
    this.#both(
      'name',
      () => this.#model.link(node, true, to.directory, to.name),
      () => calls.nameDescriptor(fd, path),
    );
    this.#keepOpen({ fd, node, appends: false });
  }

  #rename(): void {
    const [from, to] = [this.#place(), this.#place()];
    const mode = this.#pick(['replace', 'replace', 'no-replace', 'exchange'] as const);
    const path = this.#server.sameMount(from.path, to.path);
    // A directory that another mount moved is found where it is now, but not by a rename itself: the kernel says ESTALE.
    for (const looked of [from.path, path]) fs.existsSync(looked);
    const mayHoldIt = this.#model.lookup(to.directory, to.name)?.kind === 'directory';
    const model = () => this.#model.rename(from.directory, from.name, to.directory, to.name, mode);
    // Where the target holds the source, the kernel says so before it looks at what the two are.
    this.#both(
      `rename ${mode}`,
      model,
      () => calls.rename(from.path, path, mode),
      mayHoldIt ? ['EISDIR', 'ENOTEMPTY'] : null,
    );
  }

  #attributes(): void {
    const at = this.#place();
    const node = this.#model.lookup(at.directory, at.name);
    if (!node || node.kind === 'symlink') return;
    const [mode, uid, gid] = [this.#pick([0o600, 0o755, 0o2755, 0o1777]), this.#pick([0, 1000]), this.#pick([0, 2000])];
    fs.chownSync(at.path, uid, gid);
    // Who gets a program does not get its group with it.
    const kept = node.kind === 'file' && (node.mode & 0o2010) === 0o2010 ? node.mode & ~0o2000 : node.mode;
    Object.assign(node, { uid, gid, mode: kept });
    this.#history.changed();
    fs.chmodSync(at.path, mode);
    node.mode = mode;
    this.#history.changed();
    const seconds = this.#pick([0, 1_700_000_000, 2 ** 33]);
    fs.utimesSync(at.path, 1, seconds);
    node.mtime = BigInt(seconds) * 1_000_000_000n;
    this.#history.changed();
  }

  #write(): void {
    const open = this.#descriptor();
    if (!open) return;
    const bytes = new Uint8Array(this.#pick([1, 10, 1000, 5000, chunk + 1, 3 * chunk])).map(
      () => 1 + this.#random(255),
    );
    if (open.node.data.length + bytes.length > 10 * chunk) return;
    const offset = open.appends ? 'end' : this.#offset(open.node);
    same('written', fs.writeSync(open.fd, bytes, 0, bytes.length, open.appends ? null : Number(offset)), bytes.length);
    // The kernel may send what lies in the first page alone: a crash comes between, as on any disk.
    const at = offset === 'end' ? open.node.data.length : offset;
    for (const part of [bytes.subarray(0, pageBytes - (at % pageBytes)), bytes]) {
      this.#model.write(open.node, at, part);
      this.#history.changed();
    }
  }

  #close({ fd }: Descriptor): void {
    fs.closeSync(fd);
  }

  #keepOpen(open: Descriptor): void {
    if (this.#open.length < mostOpen) this.#open.push(open);
    else this.#close(open);
  }

  /** Kills the server; what is open is lost. */
  async #crash(): Promise<void> {
    await this.#server.kill();
    for (const { fd } of this.#open.splice(0)) errnoOf(() => fs.closeSync(fd));
    await this.#server.start();
    const real = this.#read(this.#server.mount());
    const contents = this.#contents(this.#server.mount(), real);
    const left = this.#history.snapshots.find(
      (one) => isThat(real, this.#model.root, one, this.#inos) && hasContents(contents, one, this.#inos),
    );
    if (!left) {
      const other = contentDifferences(contents, this.#history.snapshots, this.#inos);
      throw new Error([this.#different(real).message, ...other].join('\n'));
    }
    this.#history.restore(left);
    for (const node of this.#inos.keys()) if (!left.has(node)) this.#inos.delete(node);
  }

  async #remount(): Promise<void> {
    for (const open of this.#open.splice(0)) this.#close(open);
    await this.#server.stop();
    this.#history.sure();
    await this.#server.start();
    this.#compare();
  }

  #compare(): void {
    const mount = this.#server.mount();
    const real = this.#read(mount);
    const snapshot = snapshotOf(this.#model.root);
    if (!isThat(real, this.#model.root, snapshot, this.#inos)) throw this.#different(real);
    same('contents', hasContents(this.#contents(mount, real), snapshot, this.#inos), true);
  }

  #different(real: RealNode): Error {
    return new Error(['the tree differs', ...differences(real, this.#model.root, this.#inos)].join('\n'));
  }

  /** Of each file below a path, by its number. */
  #contents(path: string, { inode, entries }: RealNode, into = new Map<number, Buffer>()): Map<number, Buffer> {
    if (isRegular(inode.mode) && !into.has(inode.ino)) into.set(inode.ino, fs.readFileSync(path));
    if (isSymlink(inode.mode)) same(path, fs.readlinkSync(path), 'tärget');
    for (const [name, child] of entries) this.#contents(join(path, name), child, into);
    return into;
  }

  #read(path: string): RealNode {
    const stat = fs.lstatSync(path, { bigint: true });
    const [ino, mode, nlink, uid, gid] = [stat.ino, stat.mode, stat.nlink, stat.uid, stat.gid].map(Number);
    const mtime = {
      seconds: Number(stat.mtimeNs / 1_000_000_000n),
      nanoseconds: Number(stat.mtimeNs % 1_000_000_000n),
    };
    const entries = stat.isDirectory() ? fs.readdirSync(path) : [];
    return {
      inode: { ino, mode, nlink, uid, gid, mtime } as Inode,
      entries: new Map(entries.map((name) => [name, this.#read(join(path, name))])),
    };
  }

  #make(model: () => ModelNode, real: () => void, path: string): ModelNode | undefined {
    let node: ModelNode | undefined;
    this.#both('make', () => (node = model()), real);
    if (node) this.#inos.set(node, fs.lstatSync(path).ino);
    return node;
  }

  #both(what: string, model: () => unknown, real: () => void, either: readonly string[] | null = null): void {
    const expected = errnoOf(model);
    const got = errnoOf(real);
    if (!(either?.includes(expected) && either.includes(got))) same(what, got, expected);
    if (expected === 'ok') this.#history.changed();
  }

  #pick<T>(from: readonly T[]): T {
    return from[this.#random(from.length)]!;
  }

  #descriptor(): Descriptor | null {
    return this.#open.length > 0 ? this.#pick(this.#open) : null;
  }

  #offset(node: ModelNode): number {
    const size = node.data.length;
    return this.#pick([0, size, Math.floor(size / 2), Math.max(0, size - 10), chunk - 5, size + 7, size + chunk]);
  }

  /** Each directory and its path from the root. */
  #directories(): { directory: ModelNode; path: string }[] {
    const found: { directory: ModelNode; path: string }[] = [];
    const add = (directory: ModelNode, path: string) => {
      found.push({ directory, path });
      for (const [name, child] of directory.entries) if (child.kind === 'directory') add(child, join(path, name));
    };
    add(this.#model.root, '');
    return found;
  }

  /** A name in some directory, seen through some mount. */
  #place(): { directory: ModelNode; parent: string; name: string; path: string } {
    const { directory, path } = this.#pick(this.#directories());
    const parent = join(this.#server.mount(this.#random), path);
    const name = this.#pick(names);
    return { directory, parent, name, path: join(parent, name) };
  }

  #namedFile(): { path: string; node: ModelNode } | null {
    for (let attempt = 0; attempt < 20; attempt++) {
      const at = this.#place();
      const node = this.#model.lookup(at.directory, at.name);
      if (node?.kind === 'file') return { path: at.path, node };
    }
    return null;
  }
}

function same(what: string, got: unknown, expected: unknown): void {
  if (got !== expected) throw new Error(`${what}: got ${got}, expected ${expected}`);
}

const [scratch, seed, steps, mounts] = process.argv.slice(2);
if (!scratch) throw new Error('say a scratch directory');
process.umask(0);
const server = new TreeServer(scratch, Number(mounts));
await server.start();
const { crashes } = await new KernelWalk(server, Number(seed)).run(Number(steps));
await server.stop();
console.log(`${steps} operations agreed, ${crashes} crashes`);
