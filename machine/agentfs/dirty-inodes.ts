/**
 * Inodes that memory is ahead of: made, changed or removed since the rows of the open group were written. A directory that
 * gets a thousand files is one row then, and a file that is written in ten pieces too.
 */
import { batches, times } from './batches.ts';
import { breathe } from './breathe.ts';
import type { SqlDriver, SqlValue } from './driver.ts';
import { type Inode, type InodePatch, inodeInsertColumns, inodeInsertValues, patchAsSql } from './inode.ts';
import { deleteInodes, type RemovedInode } from './removed-rows.ts';
import { isSymlink } from './schema.ts';

interface Dirty {
  inode: Inode;
  /** There is no row yet. */
  isNew: boolean;
  /** What the row lacks, where there is one: columns that nobody changed stay as a pull may have brought them. */
  patch: InodePatch;
}

export class DirtyInodes {
  #dirty = new Map<number, Dirty>();
  /** The database still has them. A directory that was made again at its place since is in both. */
  #removed = new Map<number, RemovedInode>();

  /** Inodes that come, change or go. */
  get size(): number {
    return this.#dirty.size + this.#removed.size;
  }

  get(ino: number): Inode | undefined {
    return this.#dirty.get(ino)?.inode;
  }

  /** Whether the database has no row of it: then it has no contents of it either. */
  isNew(ino: number): boolean {
    return this.#dirty.get(ino)?.isNew === true;
  }

  insert(inode: Inode): void {
    this.#dirty.set(inode.ino, { inode, isNew: true, patch: {} });
  }

  /** `inode` is what it is after the patch. */
  patch(inode: Inode, patch: InodePatch): void {
    const before = this.#dirty.get(inode.ino);
    this.#dirty.set(inode.ino, {
      inode,
      isNew: before?.isNew ?? false,
      patch: before?.isNew ? {} : { ...before?.patch, ...patch },
    });
  }

  /** Whether it is gone although the database has it. */
  isGone(ino: number): boolean {
    return this.#removed.has(ino) && !this.#dirty.has(ino);
  }

  remove(inode: Inode): void {
    const { ino, mode } = inode;
    const hasRow = !this.isNew(ino);
    this.#dirty.delete(ino);
    if (!this.#removed.has(ino) && (hasRow || isSymlink(mode))) this.#removed.set(ino, { inode, hasRow });
  }

  clear(): void {
    this.#dirty.clear();
    this.#removed.clear();
  }

  /** Writes the rows, within the open transaction; what is written is handed over and no longer dirty. */
  async writeOut(sql: SqlDriver, written: (inode: Inode) => void): Promise<void> {
    const [dirty, removed] = [this.#dirty, this.#removed];
    this.#dirty = new Map();
    this.#removed = new Map();
    // Handed over before the first wait: who looks meanwhile finds them.
    for (const { inode } of dirty.values()) written(inode);
    // Before the others: a directory that was made again has the same number.
    await deleteInodes(sql, [...removed.values()]);
    const fresh = [...dirty.values()].filter(({ isNew }) => isNew).map(({ inode }) => inode);
    for (const batch of batches(fresh)) {
      await insertRows(sql, batch);
      await breathe();
    }
    for (const [ino, { isNew, patch }] of dirty) {
      if (isNew) continue;
      const { assignments, values } = patchAsSql(patch);
      if (values.length > 0) await sql.run(`UPDATE fs_inode SET ${assignments} WHERE ino = ?`, ...values, ino);
    }
  }
}

async function insertRows(sql: SqlDriver, inodes: readonly Inode[]): Promise<void> {
  const values = inodes.flatMap((inode): SqlValue[] => inodeInsertValues(inode));
  const row = `(${times(inodeInsertColumns, '?')})`;
  await sql.run(`INSERT INTO fs_inode (${inodeInsertColumns.join(', ')}) VALUES ${times(inodes, row)}`, ...values);
}
