/** Thousands of random operations, on the store and on a model in memory: same results, same errors, same end. */
import { expect, test } from 'bun:test';
import { FileError } from './errors.ts';
import type { OrganizationFiles } from './files.ts';
import { rootIno } from './ids.ts';
import { openLocalFiles } from './local.fixture.ts';
import { Model, type ModelNode, seeded } from './model.fixture.ts';
import { modeDirectory, modeFormat, modeRegular } from './schema.ts';

const names = ['a', 'b', 'c', 'd', 'é', '.hidden', 'long'.repeat(20)];
const chunk = 65_536;

class Walk {
  readonly files: OrganizationFiles;
  readonly model = new Model();
  readonly random: (below: number) => number;
  readonly inos = new Map<ModelNode, number>([[this.model.root, rootIno]]);
  readonly open: ModelNode[] = [];

  constructor(files: OrganizationFiles, seed: number) {
    this.files = files;
    this.random = seeded(seed);
  }

  pick<T>(from: readonly T[]): T {
    return from[this.random(from.length)]!;
  }

  directories(): ModelNode[] {
    return [...this.inos.keys()].filter((node) => node.kind === 'directory');
  }

  regulars(): ModelNode[] {
    return [...this.inos.keys()].filter((node) => node.kind === 'file' && (node.nlink > 0 || this.open.includes(node)));
  }

  ino(node: ModelNode): number {
    return this.inos.get(node)!;
  }

  bytes(): Uint8Array {
    const sizes = [1, 10, 1000, 5000, chunk, chunk + 1, 3 * chunk];
    const bytes = new Uint8Array(this.pick(sizes));
    const isText = this.random(2) === 0;
    for (let at = 0; at < bytes.length; at += 1 + this.random(64))
      bytes[at] = isText ? 32 + this.random(90) : this.random(256);
    return bytes;
  }

  offset(node: ModelNode): number {
    const size = node.data.length;
    return this.pick([0, size, Math.floor(size / 2), Math.max(0, size - 10), chunk - 5, size + 7, size + chunk]);
  }

  /** One operation on both sides. */
  async step(): Promise<void> {
    const { files, model } = this;
    const directory = this.pick(this.directories());
    const place = { parent: this.ino(directory), name: this.pick(names) };
    const file = this.regulars().length > 0 ? this.pick(this.regulars()) : null;
    switch (this.random(14)) {
      case 0:
      case 1:
        return this.make(model, directory, place, 'file', () => files.names.create(place, modeRegular | 0o644));
      case 2:
        return this.make(model, directory, place, 'directory', () => files.names.makeDirectory(place, 0o755));
      case 3:
        return this.make(model, directory, place, 'symlink', () => files.names.makeSymlink(place, 'tärget'), 'tärget');
      case 4: {
        const source = this.pick([...this.inos.keys()]);
        if (source.kind === 'file' && source.nlink === 0) return;
        return this.both(
          () => model.link(source, directory, place.name),
          () => files.names.link(this.ino(source), place),
        );
      }
      case 5:
        return this.both(
          () => model.unlink(directory, place.name),
          () => files.names.unlink(place),
        );
      case 6:
        return this.both(
          () => model.rmdir(directory, place.name),
          () => files.names.removeDirectory(place),
        );
      case 7: {
        const target = this.pick(this.directories());
        const to = { parent: this.ino(target), name: this.pick(names) };
        const mode = this.pick(['replace', 'replace', 'no-replace', 'exchange'] as const);
        return this.both(
          () => model.rename(directory, place.name, target, to.name, mode),
          () => files.names.rename(place, to, mode),
        );
      }
      case 8:
      case 9: {
        if (!file) return;
        const [offset, bytes] = [this.offset(file), this.bytes()];
        return this.both(
          () => model.write(file, offset, bytes),
          () => files.data.write(this.ino(file), offset, bytes),
        );
      }
      case 10: {
        if (!file) return;
        const size = this.offset(file);
        return this.both(
          () => model.truncate(file, size),
          () => files.data.truncate(this.ino(file), size),
        );
      }
      case 11: {
        if (!file) return;
        const offset = this.offset(file);
        const read = Buffer.from(await files.data.read(this.ino(file), offset, 100_000));
        expect(read.equals(file.data.subarray(offset, offset + 100_000))).toBe(true);
        if (this.random(3) > 0) return;
        return this.both(
          () => model.punch(file, offset, 70_000),
          () => files.data.punch(this.ino(file), offset, 70_000),
        );
      }
      case 12: {
        if (!file) return;
        if (this.open.length < 5) {
          this.open.push(file);
          await files.names.open(this.ino(file));
        } else {
          const closed = this.open.shift()!;
          if (this.random(2) === 0) await files.data.commit(this.ino(closed));
          await files.names.close(this.ino(closed));
        }
        return;
      }
      default: {
        const end = this.random(8);
        if (end < 2) await files.data.commitAll();
        else if (end === 2) await files.data.settle();
        const listed = await files.names.list(place.parent).catch((error: FileError) => error.errno);
        const expected = directory.nlink === 0 ? 'ENOENT' : [...directory.entries.keys()].sort(byBytes);
        expect(Array.isArray(listed) ? listed.map(({ name }) => name) : listed).toEqual(expected);
      }
    }
  }

  async make(
    model: Model,
    directory: ModelNode,
    place: { name: string },
    kind: ModelNode['kind'],
    real: () => Promise<{ ino: number }>,
    target?: string,
  ): Promise<void> {
    let made: ModelNode | undefined;
    await this.both(
      () => {
        made = model.create(directory, place.name, kind, target);
      },
      async () => {
        const { ino } = await real();
        if (made) this.inos.set(made, ino);
      },
    );
  }

  async both(model: () => void, real: () => Promise<unknown>): Promise<void> {
    const expected = await errnoOf(async () => model());
    expect(await errnoOf(real)).toBe(expected);
  }

  /** The whole tree, by what the store answers. */
  async compare(node: ModelNode): Promise<void> {
    const { files } = this;
    const inode = (await files.store.inode(this.ino(node)))!;
    expect({ nlink: inode.nlink, isDirectory: (inode.mode & modeFormat) === modeDirectory }).toEqual({
      nlink: node.nlink,
      isDirectory: node.kind === 'directory',
    });
    if (node.kind === 'file') {
      expect(inode.size).toBe(node.data.length);
      expect(Buffer.from(await files.data.read(inode.ino, 0, inode.size)).equals(node.data)).toBe(true);
    }
    if (node.kind === 'symlink') expect(await files.names.readSymlink(inode.ino)).toBe(node.target);
    for (const [name, child] of node.entries) {
      expect((await files.names.lookup(inode.ino, name))?.ino).toBe(this.ino(child));
      await this.compare(child);
    }
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

for (const [seed, spooledFrom] of [
  [1, 256_000],
  [2, 256_000],
  [3, 256_000],
  // Nearly everything goes through the spool.
  [4, 5_000],
  [5, 5_000],
] as const) {
  test(`1500 random operations, seed ${seed}, spooled from ${spooledFrom} bytes on`, async () => {
    // Small limits, so that every bound is met.
    const local = await openLocalFiles({
      spooledFrom,
      unwritten: 400_000,
      unwrittenOfOneFile: 200_000,
      readCache: 500_000,
      cachedInodes: 20,
      cachedNames: 20,
    });
    const walk = new Walk(local.files, seed);
    for (let step = 0; step < 1500; step++) await walk.step();
    for (const node of walk.open) await local.files.names.close(walk.ino(node));
    await walk.compare(walk.model.root);
    await local.files.flush();
    await local.files.store.exclusive(() => local.files.store.forget());
    local.files.data.forgetRead();
    await walk.compare(walk.model.root);
    // Nothing is left of what was removed.
    const alive = [...walk.inos.keys()].filter((node) => node.nlink > 0).length;
    expect(Number((await local.driver.get('SELECT count(*) AS n FROM fs_inode'))!.n)).toBe(alive);
    const orphans = await local.driver.all('SELECT ino FROM fs_data WHERE ino NOT IN (SELECT ino FROM fs_inode)');
    expect(orphans).toEqual([]);
    await local.close();
  }, 60_000);
}
