/**
 * Inodes that memory is ahead of: made or changed since the rows of the open group were written. A directory that gets a
 * thousand files is one row then, and a file that is written in ten pieces too.
 */
import { breathe } from './breathe.ts';
import type { SqlDriver, SqlValue } from './driver.ts';
import { type Inode, type InodePatch, inodeInsertColumns, inodeInsertValues, patchAsSql } from './inode.ts';

interface Dirty {
  inode: Inode;
  /** There is no row yet. */
  isNew: boolean;
  /** What the row lacks, where there is one: columns that nobody changed stay as a pull may have brought them. */
  patch: InodePatch;
}

/** Rows of one INSERT. */
const rowsOfInsert = 32;

export class DirtyInodes {
  #dirty = new Map<number, Dirty>();

  get size(): number {
    return this.#dirty.size;
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

  delete(ino: number): void {
    this.#dirty.delete(ino);
  }

  clear(): void {
    this.#dirty.clear();
  }

  /** Writes the rows, within the open transaction; what is written is handed over and no longer dirty. */
  async writeOut(sql: SqlDriver, written: (inode: Inode) => void): Promise<void> {
    const dirty = this.#dirty;
    if (dirty.size === 0) return;
    this.#dirty = new Map();
    // Handed over before the first wait: who looks meanwhile finds them.
    for (const { inode } of dirty.values()) written(inode);
    const fresh = [...dirty.values()].filter(({ isNew }) => isNew).map(({ inode }) => inode);
    for (let at = 0; at < fresh.length; at += rowsOfInsert) {
      await insertRows(sql, fresh.slice(at, at + rowsOfInsert));
      await breathe();
    }
    for (const [ino, { isNew, patch }] of dirty) {
      if (isNew) continue;
      const { assignments, values } = patchAsSql(patch);
      if (values.length > 0) await sql.run(`UPDATE fs_inode SET ${assignments} WHERE ino = ?`, ...values, ino);
    }
  }
}

/** In powers of two, so that few statements are kept prepared. */
async function insertRows(sql: SqlDriver, inodes: readonly Inode[]): Promise<void> {
  for (let at = 0, count = rowsOfInsert; at < inodes.length; ) {
    while (count > inodes.length - at) count /= 2;
    const values = inodes.slice(at, at + count).flatMap((inode): SqlValue[] => inodeInsertValues(inode));
    const row = `(${inodeInsertColumns.map(() => '?').join(', ')})`;
    await sql.run(
      `INSERT INTO fs_inode (${inodeInsertColumns.join(', ')}) VALUES ${Array(count).fill(row).join(', ')}`,
      ...values,
    );
    at += count;
  }
}
