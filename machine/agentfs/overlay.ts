/**
 * The merged view of an organization's delta and the immutable base (ADR-046 §5, AgentFS specification "Overlay Filesystem").
 *
 * A name of the delta comes first; then a whiteout hides what the base has; then comes the base. What only the base has is a
 * *lower node*: it lives in memory, costs no row and no pull, and is copied up into the delta by the first change to it
 * (`Transaction.copyUp`). Its inode number is a hash of its place and stays its number when it is copied up.
 */
import type { BaseEntry, BaseTree } from './base.ts';
import type { SqlDriver } from './driver.ts';
import { lowerIno, rootIno } from './ids.ts';
import type { Inode } from './inode.ts';
import { isDirectory, overlayTables } from './schema.ts';

/** What only the base has. */
export interface LowerNode {
  readonly entry: BaseEntry;
  readonly inode: Inode;
  /** The directory that it is in; of the delta, or a lower node too. */
  readonly parent: number;
}

/** A directory that the base has and nothing hides, whether the delta has it too or not. */
interface Merged {
  readonly entry: BaseEntry;
  readonly lower: ReadonlyMap<string, LowerNode>;
}

interface Layers {
  readonly merged: Map<number, Merged>;
  readonly lower: Map<number, LowerNode>;
}

const nothingLower: ReadonlyMap<string, LowerNode> = new Map();

export class Overlay {
  readonly #base: BaseTree;
  readonly #driver: SqlDriver;
  readonly #listeners = new Set<(inos: readonly number[]) => void>();
  #layers: Layers = { merged: new Map(), lower: new Map() };

  private constructor(base: BaseTree, driver: SqlDriver) {
    this.#base = base;
    this.#driver = driver;
  }

  /** Makes the overlay's tables where they are missing. */
  static async open(base: BaseTree, driver: SqlDriver): Promise<Overlay> {
    const overlay = new Overlay(base, driver);
    if (base.entries().length > 0 && !(await hasOverlayTables(driver))) {
      for (const sql of overlayTables) await driver.run(sql);
    }
    await overlay.attachHere();
    return overlay;
  }

  /** What only the base has under that number. */
  node(ino: number): LowerNode | undefined {
    return this.#layers.lower.get(ino);
  }

  /** The same by its place. */
  lookup(parent: number, name: string): LowerNode | undefined {
    return this.#layers.merged.get(parent)?.lower.get(name);
  }

  /** What only the base has in a directory. */
  children(ino: number): ReadonlyMap<string, LowerNode> {
    return this.#layers.merged.get(ino)?.lower ?? nothingLower;
  }

  /** What the base has at a place, hidden or not: there the delta must say what it makes and deletes. */
  baseAt(parent: number, name: string): BaseEntry | undefined {
    return this.#layers.merged.get(parent)?.entry.children.get(name);
  }

  /** Part of a file's contents that lies in the base alone; undefined for a file of the delta. */
  chunk(ino: number, index: number, chunkSize: number): Uint8Array | undefined {
    return this.node(ino)?.entry.bytes.subarray(index * chunkSize, (index + 1) * chunkSize);
  }

  /** Calls back with numbers that are the base's alone no longer; returns the call that ends this. */
  onChange(listener: (inos: readonly number[]) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Reads from the delta what it has of the base's places: at the start, after a pull, and after a change to such a place. */
  async attachHere(): Promise<void> {
    if (this.#base.entries().length === 0) return;
    const before = this.#layers.lower;
    const layers: Layers = { merged: new Map(), lower: new Map() };
    const rows = await this.#driver.all('SELECT path FROM fs_whiteout');
    await this.#attach(layers, this.#base.root, rootIno, new Set(rows.map(({ path }) => String(path))));
    this.#layers = layers;
    const gone = [...before.keys()].filter((ino) => !layers.lower.has(ino));
    if (gone.length > 0) for (const listener of this.#listeners) listener(gone);
  }

  async #attach(layers: Layers, entry: BaseEntry, ino: number, whiteouts: ReadonlySet<string>): Promise<void> {
    const lower = new Map<string, LowerNode>();
    layers.merged.set(ino, { entry, lower });
    for (const child of entry.children.values()) {
      const upper = await this.#driver.get(
        'SELECT d.ino AS ino, i.mode AS mode FROM fs_dentry d JOIN fs_inode i ON i.ino = d.ino ' +
          'WHERE d.parent_ino = ? AND d.name = ?',
        ino,
        child.name,
      );
      if (upper) {
        const isMerged = isDirectory(child.mode) && isDirectory(Number(upper.mode));
        if (isMerged) await this.#attach(layers, child, Number(upper.ino), whiteouts);
      } else if (!whiteouts.has(child.path)) {
        const node = { entry: child, inode: lowerInode(await this.#freeIno(ino, child), child), parent: ino };
        lower.set(child.name, node);
        layers.lower.set(node.inode.ino, node);
        if (isDirectory(child.mode)) await this.#attach(layers, child, node.inode.ino, whiteouts);
      }
    }
  }

  /** The number of the place, unless what was copied up from here has taken it elsewhere and the whiteout is gone. */
  async #freeIno(parent: number, { name, mode }: BaseEntry): Promise<number> {
    for (let life = 0; ; life++) {
      const ino = lowerIno(parent, name, isDirectory(mode), life);
      if (!(await this.#driver.get('SELECT 1 AS one FROM fs_inode WHERE ino = ?', ino))) return ino;
    }
  }
}

/** Whether a database has what the overlay needs. */
export async function hasOverlayTables(driver: SqlDriver): Promise<boolean> {
  const sql = "SELECT count(*) AS n FROM sqlite_schema WHERE name IN ('fs_whiteout', 'fs_origin')";
  return Number((await driver.get(sql))?.n) === 2;
}

function lowerInode(ino: number, { mode, bytes, mtime, children }: BaseEntry): Inode {
  const directories = [...children.values()].filter((child) => isDirectory(child.mode)).length;
  const nlink = isDirectory(mode) ? 2 + directories : 1;
  return { ino, mode, nlink, uid: 0, gid: 0, size: bytes.length, rdev: 0, atime: mtime, mtime, ctime: mtime };
}
