/**
 * Inodes and names as of the last operation: what memory is ahead of, what it remembers, and the rows of the database where it
 * knows nothing. What ends in `Here` is for whoever runs exclusively.
 */
import { BoundedCache } from './bounded-cache.ts';
import { DirtyInodes } from './dirty-inodes.ts';
import { DirtyNames } from './dirty-names.ts';
import type { SqlDriver, SqlRow } from './driver.ts';
import { type Inode, inodeColumns, inodeOfRow } from './inode.ts';
import type { StoreLimits } from './limits.ts';
import type { Place } from './namespace.ts';
import type { Overlay } from './overlay.ts';
import { isDirectory } from './schema.ts';

/** Directories whose names are known to be all in memory. */
const wholeDirectories = 10_000;

/** The group that rows are written into. */
export interface OpenGroup {
  readonly sql: SqlDriver;
  beginHere(rows: number): Promise<void>;
  orLoseHere(write: () => Promise<void>): Promise<void>;
}

export class CurrentTree {
  readonly dirty = new DirtyInodes();
  readonly dirtyNames = new DirtyNames();
  readonly inodes: BoundedCache<number, Inode>;
  readonly names: BoundedCache<string, number>;
  /** The directory that an inode was last seen in; what a file with several names has here is one of them. */
  readonly parents: BoundedCache<number, number>;
  /** Where a thing was last seen. Kept over a pull, which may take away what tells it (repair.ts). */
  readonly places: BoundedCache<number, Place>;
  readonly #group: OpenGroup;
  readonly #overlay: Overlay;
  /** Directories all of whose names memory has. */
  readonly #whole = new Set<number>();

  constructor(group: OpenGroup, overlay: Overlay, limits: Pick<StoreLimits, 'cachedInodes' | 'cachedNames'>) {
    this.#group = group;
    this.#overlay = overlay;
    this.inodes = new BoundedCache(limits.cachedInodes);
    this.names = new BoundedCache(limits.cachedNames, undefined, () => this.#whole.clear());
    this.parents = new BoundedCache(limits.cachedNames);
    this.places = new BoundedCache(limits.cachedNames / 4);
  }

  /** Rows that the open group still gets. */
  get unwrittenRows(): number {
    return this.dirty.size + this.dirtyNames.size;
  }

  /** The inode, if memory has it; undefined says nothing about its existence. */
  cachedInode(ino: number): Inode | undefined {
    return this.dirty.get(ino) ?? this.inodes.get(ino) ?? this.#overlay.node(ino)?.inode;
  }

  /** What a name is, if memory knows: 0 means that there is no such name. */
  cachedName(parent: number, name: string): number | undefined {
    const key = nameKey(parent, name);
    const known = this.#overlay.lookup(parent, name)?.inode.ino ?? this.names.get(key) ?? this.dirtyNames.get(key);
    return known ?? (this.#whole.has(parent) ? 0 : undefined);
  }

  /** The inode, or null. */
  async inodeHere(ino: number): Promise<Inode | null> {
    const cached = this.cachedInode(ino);
    if (cached) return cached;
    if (this.dirty.isGone(ino)) return null;
    const row = await this.#sql.get(`SELECT ${inodeColumns} FROM fs_inode i WHERE i.ino = ?`, ino);
    if (!row) return null;
    const inode = inodeOfRow(row);
    this.inodes.set(ino, inode);
    return inode;
  }

  /** What a name is, or 0. */
  async nameHere(parent: number, name: string): Promise<number> {
    const cached = this.cachedName(parent, name);
    if (cached !== undefined) return cached;
    const row = await this.#sql.get('SELECT ino FROM fs_dentry WHERE parent_ino = ? AND name = ?', parent, name);
    const ino = row ? Number(row.ino) : 0;
    this.names.set(nameKey(parent, name), ino);
    if (ino !== 0) {
      this.parents.set(ino, parent);
      this.places.set(ino, { parent, name });
    }
    return ino;
  }

  /** What a name leads to, or null: by one question where memory has neither. */
  async entryHere(parent: number, name: string): Promise<Inode | null> {
    const known = this.cachedName(parent, name);
    if (known !== undefined) return known === 0 ? null : this.inodeHere(known);
    const sql =
      `SELECT d.ino AS named, ${inodeColumns} FROM fs_dentry d LEFT JOIN fs_inode i ON i.ino = d.ino ` +
      'WHERE d.parent_ino = ? AND d.name = ?';
    const row = await this.#sql.get(sql, parent, name);
    if (!row) {
      this.names.set(nameKey(parent, name), 0);
      return null;
    }
    const ino = Number(row.named);
    const inode = this.inodeOf(row);
    this.remember(parent, name, ino, inode);
    this.places.set(ino, { parent, name });
    return inode;
  }

  /** The inode of a row that has `inodeColumns`, and in `named` the number, as memory has it; null where there is none. */
  inodeOf(row: SqlRow): Inode | null {
    const ino = Number(row.named);
    const isNothing = row.ino === null || this.dirty.isGone(ino);
    // One that memory is ahead of may have no row yet.
    return this.cachedInode(ino) ?? (isNothing ? null : inodeOfRow(row));
  }

  /** Remembers what a row has shown; null: the name leads to nothing. */
  remember(parent: number, name: string, ino: number, inode: Inode | null): void {
    if (this.cachedName(parent, name) === undefined) this.names.set(nameKey(parent, name), ino);
    // Whoever changes it asks for its directory, and to find that in the database is a look through all names.
    if (inode) this.parents.set(ino, parent);
    if (inode && isDirectory(inode.mode)) this.places.set(ino, { parent, name });
    if (inode && this.cachedInode(ino) === undefined) this.inodes.set(ino, inode);
  }

  /** The directory that holds a directory, or 0. */
  async parentHere(ino: number): Promise<number> {
    const cached = this.parents.get(ino) ?? this.#overlay.node(ino)?.parent;
    if (cached !== undefined) return cached;
    // The schema has no index for this; the cache spares nearly every such look through the table.
    if (this.dirtyNames.size > 0) await this.#writeOutNamesHere();
    const row = await this.#sql.get('SELECT parent_ino FROM fs_dentry WHERE ino = ? LIMIT 1', ino);
    const parent = row ? Number(row.parent_ino) : 0;
    if (parent !== 0) this.parents.set(ino, parent);
    return parent;
  }

  /** Whether the delta has a name in a directory. */
  async hasNamesHere(parent: number): Promise<boolean> {
    if (this.dirtyNames.isGivenIn(parent)) return true;
    const sql = 'SELECT name FROM fs_dentry WHERE parent_ino = ? LIMIT ?';
    const rows = await this.#sql.all(sql, parent, this.dirtyNames.removedIn(parent) + 1);
    return rows.some(({ name }) => !this.dirtyNames.isRemoved(nameKey(parent, String(name))));
  }

  /**
   * Begins a look at all names of a directory; the call that is returned ends it: memory has all of them now, unless it has
   * forgotten some meanwhile, so that what it does not have is not there.
   */
  beginWhole(parent: number): () => void {
    const { drops } = this.names;
    return () => {
      if (this.names.drops !== drops) return;
      if (this.#whole.size >= wholeDirectories) this.#whole.clear();
      this.#whole.add(parent);
    };
  }

  /** Writes what memory is ahead of into the open group. */
  async writeOutHere(): Promise<void> {
    if (this.dirty.size > 0) {
      await this.#group.beginHere(this.dirty.size);
      await this.dirty.writeOut(this.#sql, (inode) => this.inodes.set(inode.ino, inode));
    }
    if (this.dirtyNames.size > 0) await this.#writeOutNamesHere();
  }

  /** What a directory's list is read from is right then. */
  async writeOutNamesHere(parent: number): Promise<void> {
    if (this.dirtyNames.isIn(parent)) await this.#writeOutNamesHere();
  }

  /** Forgets what a pull may have changed. */
  forget(): void {
    this.inodes.clear();
    this.names.clear();
    this.parents.clear();
  }

  /** The group is lost with all that memory was ahead of. */
  lost(): void {
    this.dirty.clear();
    this.dirtyNames.clear();
    this.forget();
  }

  get #sql(): SqlDriver {
    return this.#group.sql;
  }

  #writeOutNamesHere(): Promise<void> {
    return this.#group.orLoseHere(async () => {
      await this.#group.beginHere(this.dirtyNames.size);
      await this.dirtyNames.writeOut(this.#sql);
    });
  }
}

export const nameKey = (parent: number, name: string): string => `${parent}/${name}`;
