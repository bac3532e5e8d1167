/** For tests: random operations, each on the store and on the model, with the same results and the same errors. */
import { expect } from 'bun:test';
import { FileError } from './errors.ts';
import type { OrganizationFiles } from './files.ts';
import { History, snapshotOf } from './history.fixture.ts';
import { rootIno } from './ids.ts';
import type { Inode } from './inode.ts';
import { Model, type ModelNode, seeded } from './model.fixture.ts';
import { contentDifferences, differences, hasContents, isThat, type RealNode, readTree } from './real-tree.fixture.ts';
import { isRegular, modeRegular } from './schema.ts';
import { seek } from './seek.ts';

const names = ['a', 'b', 'c', 'd', 'é', '.hidden', 'long'.repeat(20)];
const chunk = 65_536;
const mostDirectories = 25;
const mostOpen = 8;
/** Holders that open files of the same tree: each open counts for itself. */
const holders = 2;

interface Descriptor {
  readonly holder: number;
  readonly node: ModelNode;
}

export class Walk {
  files: OrganizationFiles;
  readonly model = new Model();
  readonly history = new History(this.model.root);
  readonly random: (below: number) => number;
  readonly inos = new Map<ModelNode, number>([[this.model.root, rootIno]]);
  open: Descriptor[] = [];
  /** How often each operation succeeded, to see that none is refused always. */
  readonly done = new Map<string, number>();

  constructor(files: OrganizationFiles, seed: number) {
    this.files = files;
    this.random = seeded(seed);
  }

  /** One operation on both sides. */
  async step(): Promise<void> {
    await this.pick(this.#operations)();
  }

  /** Closes all, as an orderly end does. */
  async closeAll(): Promise<void> {
    while (this.open.length > 0) await this.#close(this.open.pop()!);
  }

  /** Finds what a crash left among what it may leave, and goes on from there with the files opened anew. */
  async recover(files: OrganizationFiles): Promise<void> {
    this.files = files;
    this.open = [];
    const real = await readTree(this.files, rootIno);
    const contents = await this.#contents(real);
    const left = this.history.snapshots.find(
      (one) => isThat(real, this.model.root, one, this.inos) && hasContents(contents, one, this.inos),
    );
    if (!left) {
      // What was there at last says best what is wrong.
      expect(differences(real, this.model.root, this.inos)).toEqual([]);
      throw new Error(contentDifferences(contents, this.history.snapshots, this.inos).join('\n'));
    }
    this.history.restore(left);
    for (const node of this.inos.keys()) if (!left.has(node)) this.inos.delete(node);
  }

  /** The whole tree, by what the store answers. */
  async compare(): Promise<void> {
    const snapshot = snapshotOf(this.model.root);
    const real = await readTree(this.files, rootIno);
    expect(differences(real, this.model.root, this.inos)).toEqual([]);
    expect(isThat(real, this.model.root, snapshot, this.inos)).toBe(true);
    for (const node of snapshot.keys()) {
      if (node.kind === 'symlink') expect(await this.files.names.readSymlink(this.ino(node))).toBe(node.target);
      if (node.kind !== 'file') continue;
      const read = Buffer.from(await this.files.data.read(this.ino(node), 0, node.data.length + 1));
      expect({ node: this.ino(node), isSame: read.equals(node.data) }).toMatchObject({ isSame: true });
    }
  }

  readonly #operations = Object.values<() => Promise<void>>({
    create: () => this.#make('file'),
    createAgain: () => this.#make('file'),
    makeDirectory: async () => {
      if (this.directories().length < mostDirectories) await this.#make('directory');
    },
    makeSymlink: () => this.#make('symlink'),
    link: async () => {
      const { directory, place } = this.place();
      const source = this.pick([...this.inos.keys()]);
      const isOpen = this.isOpen(source);
      if (source.nlink === 0 && !isOpen) return;
      await this.both(
        'link',
        () => this.model.link(source, isOpen, directory, place.name),
        () => this.files.names.link(this.ino(source), place),
      );
    },
    unlink: () => this.#unlink(),
    unlinkAgain: () => this.#unlink(),
    unlinkOnceMore: () => this.#unlink(),
    rmdir: () => this.#rmdir(),
    rmdirAgain: () => this.#rmdir(),
    rename: async () => {
      const [from, to] = [this.place(), this.place()];
      const mode = this.pick(['replace', 'replace', 'no-replace', 'exchange'] as const);
      await this.both(
        `rename ${mode}`,
        () => this.model.rename(from.directory, from.place.name, to.directory, to.place.name, mode),
        () => this.files.names.rename(from.place, to.place, mode),
      );
    },
    nameless: async () => {
      if (this.open.length >= mostOpen) return;
      const directory = this.pick(this.directories());
      const make = () => this.files.names.openNameless(this.ino(directory), modeRegular | 0o644);
      const node = await this.#made('nameless', () => this.model.createNameless(directory), make);
      if (node) this.open.push({ holder: this.random(holders), node });
    },
    attributes: async () => {
      const node = this.pick([...this.inos.keys()].filter((one) => one.nlink > 0));
      const mode = this.pick([0o600, 0o755, 0o2755, 0o1777]);
      const owner = { uid: this.pick([0, 1000]), gid: this.pick([0, 1000, 2000]) };
      const seconds = this.pick([-5, 0, 1_700_000_000, 2 ** 33]);
      await this.both(
        'attributes',
        () => Object.assign(node, { mode, ...owner, mtime: BigInt(seconds) * 1_000_000_000n + 7n }),
        () => this.files.names.setAttributes(this.ino(node), { mode, ...owner, mtime: { seconds, nanoseconds: 7 } }),
      );
    },
    write: () => this.#write(),
    writeAgain: () => this.#write(),
    append: () => this.#write('end'),
    truncate: async () => {
      const file = this.file();
      if (!file) return;
      const size = this.offset(file);
      const real = () => this.files.data.truncate(this.ino(file), size);
      await this.both('truncate', () => this.model.truncate(file, size), real);
    },
    punch: async () => {
      const file = this.file();
      if (!file) return;
      const [offset, length] = [this.offset(file), this.pick([1, 5000, 70_000, 3 * chunk])];
      const real = () => this.files.data.punch(this.ino(file), offset, length);
      await this.both('punch', () => this.model.punch(file, offset, length), real);
    },
    read: async () => {
      const file = this.file();
      if (!file) return;
      const offset = this.offset(file);
      const read = Buffer.from(await this.files.data.read(this.ino(file), offset, 100_000));
      expect(read.equals(file.data.subarray(offset, offset + 100_000))).toBe(true);
    },
    holes: async () => {
      const file = this.file();
      if (file) await this.#checkHoles(file);
    },
    open: async () => {
      const file = this.file();
      if (!file || this.open.length >= mostOpen) return;
      await this.files.names.open(this.ino(file));
      this.open.push({ holder: this.random(holders), node: file });
    },
    close: async () => {
      if (this.open.length === 0) return;
      await this.#close(this.open.splice(this.random(this.open.length), 1)[0]!);
    },
    fsync: async () => {
      if (this.open.length === 0) return;
      await this.files.store.sync();
      this.history.sure();
    },
    list: async () => {
      const { directory, place } = this.place();
      const listed = await this.files.names.list(place.parent).catch((error: FileError) => error.errno);
      const expected = directory.nlink === 0 ? 'ENOENT' : [...directory.entries.keys()].sort(byBytes);
      expect(Array.isArray(listed) ? listed.map(({ name }) => name) : listed).toEqual(expected);
    },
    lookup: async () => {
      const { directory, place } = this.place();
      if (directory.nlink === 0) return;
      const found = await this.files.names.lookup(place.parent, place.name);
      const expected = this.model.lookup(directory, place.name);
      expect(found?.ino ?? null).toBe(expected ? this.ino(expected) : null);
    },
    settle: async () => {
      if (this.random(8) === 0) await this.files.data.settle();
    },
    commitAll: async () => {
      if (this.random(8) > 0) return;
      await this.files.data.commitAll();
      this.history.sure();
    },
  });

  async #rmdir(): Promise<void> {
    const { directory, place } = this.random(2) === 0 ? this.place() : (this.emptyDirectory() ?? this.place());
    const real = () => this.files.names.removeDirectory(place);
    await this.both('rmdir', () => this.model.rmdir(directory, place.name), real);
  }

  async #unlink(): Promise<void> {
    const { directory, place } = this.place();
    await this.both(
      'unlink',
      () => this.model.unlink(directory, place.name),
      () => this.files.names.unlink(place),
    );
  }

  async #write(where?: 'end'): Promise<void> {
    const file = this.file();
    if (!file) return;
    const [offset, bytes] = [where ?? this.offset(file), this.bytes()];
    if (file.data.length + bytes.length > 10 * chunk) return;
    const real = () => this.files.data.write(this.ino(file), offset, bytes);
    await this.both(where ? 'append' : 'write', () => this.model.write(file, offset, bytes), real);
  }

  async #close({ node }: Descriptor): Promise<void> {
    await this.files.names.close(this.ino(node));
  }

  /** Of each file that a name leads to. */
  async #contents(
    { inode, entries }: RealNode,
    into = new Map<number, Uint8Array>(),
  ): Promise<Map<number, Uint8Array>> {
    if (isRegular(inode.mode) && !into.has(inode.ino)) {
      into.set(inode.ino, await this.files.data.read(inode.ino, 0, inode.size));
    }
    for (const child of entries.values()) await this.#contents(child, into);
    return into;
  }

  /** What is no data is zeros, and the parts follow each other to the end. */
  async #checkHoles(file: ModelNode): Promise<void> {
    const size = file.data.length;
    for (let at = 0; at < size; ) {
      const from = at;
      const data: number = await seek(this.files, this.ino(file), from, 'data', 'rows').catch((error: FileError) => {
        expect(error.errno).toBe('ENXIO');
        return size;
      });
      expect(data).toBeGreaterThanOrEqual(at);
      expect(file.data.subarray(at, data).every((byte) => byte === 0)).toBe(true);
      if (data === size) return;
      at = await seek(this.files, this.ino(file), data, 'hole', 'rows');
      expect(at).toBeGreaterThan(data);
    }
  }

  async #make(kind: ModelNode['kind']): Promise<void> {
    const { directory, place } = this.place();
    const { names } = this.files;
    const real = {
      file: () => names.create(place, modeRegular | 0o644),
      directory: () => names.makeDirectory(place, 0o755),
      symlink: () => names.makeSymlink(place, 'tärget'),
    }[kind];
    await this.#made(`make ${kind}`, () => this.model.create(directory, place.name, kind, 'tärget'), real);
  }

  async #made(what: string, model: () => ModelNode, real: () => Promise<Inode>): Promise<ModelNode | undefined> {
    let made: ModelNode | undefined;
    await this.both(
      what,
      () => {
        made = model();
      },
      async () => {
        const { ino } = await real();
        if (made) this.inos.set(made, ino);
      },
    );
    return made;
  }

  /** The same on both sides. */
  async both(what: string, model: () => unknown, real: () => Promise<unknown>): Promise<void> {
    const expected = await errnoOf(async () => model());
    expect(`${what}: ${await errnoOf(real)}`).toBe(`${what}: ${expected}`);
    if (expected !== 'ok') return;
    this.done.set(what, (this.done.get(what) ?? 0) + 1);
    this.history.changed();
  }

  pick<T>(from: readonly T[]): T {
    return from[this.random(from.length)]!;
  }

  ino(node: ModelNode): number {
    return this.inos.get(node)!;
  }

  isOpen(node: ModelNode): boolean {
    return this.open.some((one) => one.node === node);
  }

  /** Those that there are, and now and then one that is gone. */
  directories(): ModelNode[] {
    const all = [...this.inos.keys()].filter((node) => node.kind === 'directory');
    const living = all.filter((node) => node.nlink > 0);
    if (this.random(50) > 0) return living;
    // The number of one that is gone may be that of one that was made in its place.
    const used = new Set(living.map((node) => this.ino(node)));
    return all.filter((node) => node.nlink > 0 || !used.has(this.ino(node)));
  }

  /** A file that has a name or is open. */
  file(): ModelNode | null {
    const files = [...this.inos.keys()].filter((node) => node.kind === 'file' && (node.nlink > 0 || this.isOpen(node)));
    return files.length > 0 ? this.pick(files) : null;
  }

  place(): { directory: ModelNode; place: { parent: number; name: string } } {
    const directory = this.pick(this.directories());
    return { directory, place: { parent: this.ino(directory), name: this.pick(names) } };
  }

  /** The name of some directory that holds nothing. */
  emptyDirectory(): { directory: ModelNode; place: { parent: number; name: string } } | null {
    for (const directory of this.directories()) {
      for (const [name, child] of directory.entries) {
        if (child.kind === 'directory' && child.entries.size === 0) {
          return { directory, place: { parent: this.ino(directory), name } };
        }
      }
    }
    return null;
  }

  bytes(): Uint8Array {
    const bytes = new Uint8Array(this.pick([1, 10, 10, 1000, 1000, 5000, chunk, chunk + 1, 3 * chunk]));
    const isText = this.random(2) === 0;
    for (let at = 0; at < bytes.length; at += 1 + this.random(1024))
      bytes[at] = isText ? 32 + this.random(90) : this.random(256);
    return bytes;
  }

  offset(node: ModelNode): number {
    const size = node.data.length;
    return this.pick([0, size, Math.floor(size / 2), Math.max(0, size - 10), chunk - 5, size + 7, size + chunk]);
  }
}

const byBytes = (a: string, b: string) => Buffer.compare(Buffer.from(a), Buffer.from(b));

async function errnoOf(work: () => Promise<unknown>): Promise<string> {
  try {
    await work();
    return 'ok';
  } catch (error) {
    if (error instanceof FileError) return error.errno;
    throw error;
  }
}
