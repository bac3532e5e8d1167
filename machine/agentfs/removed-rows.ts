/** Rows of what was removed: deleted many at once, within the open group. */
import { batches, rowsOfStatement, times } from './batches.ts';
import { breathe } from './breathe.ts';
import type { SqlDriver } from './driver.ts';
import { dentryId } from './ids.ts';
import type { Inode } from './inode.ts';
import type { Place } from './namespace.ts';
import { isRegular, isSymlink } from './schema.ts';

/** An inode that is gone. `hasRow`: the database has it, and its contents; otherwise it has a link's target at most. */
export interface RemovedInode {
  readonly inode: Inode;
  readonly hasRow: boolean;
}

/** Files with at most so many bytes share a statement that deletes so many of them: nobody waits for it longer than for one. */
const sharing = [
  { bytes: 4 * 1024, files: rowsOfStatement },
  { bytes: 32 * 1024, files: rowsOfStatement / 4 },
  { bytes: Number.POSITIVE_INFINITY, files: 1 },
] as const;

export async function deleteNames(sql: SqlDriver, places: readonly Place[]): Promise<void> {
  for (const batch of batches(places)) {
    const ids = batch.map(({ parent, name }) => dentryId(parent, name));
    const keys = batch.map(({ parent, name }) => `${parent}/${name}`);
    // A row with one of these ids may be of another name: whoever renames in the same row, as the public SDK does, keeps its id.
    const { changes } = await sql.run(
      `DELETE FROM fs_dentry WHERE id IN (${times(ids, '?')}) AND parent_ino || '/' || name IN (${times(keys, '?')})`,
      ...ids,
      ...keys,
    );
    // Names that another program gave have ids of its own.
    if (changes < batch.length) {
      for (const { parent, name } of batch)
        await sql.run('DELETE FROM fs_dentry WHERE parent_ino = ? AND name = ?', parent, name);
    }
    await breathe();
  }
}

export async function deleteInodes(sql: SqlDriver, removed: readonly RemovedInode[]): Promise<void> {
  const links = removed.filter(({ inode }) => isSymlink(inode.mode));
  await deleteByIno(sql, 'fs_symlink', links, rowsOfStatement);
  const rows = removed.filter(({ hasRow }) => hasRow);
  let from = -1;
  for (const { bytes, files } of sharing) {
    const alike = rows.filter(({ inode: { mode, size } }) => isRegular(mode) && size > from && size <= bytes);
    await deleteByIno(sql, 'fs_data', alike, files);
    from = bytes;
  }
  await deleteByIno(sql, 'fs_inode', rows, rowsOfStatement);
}

async function deleteByIno(
  sql: SqlDriver,
  table: 'fs_symlink' | 'fs_data' | 'fs_inode',
  removed: readonly RemovedInode[],
  most: number,
): Promise<void> {
  for (const batch of batches(removed, most)) {
    const inos = batch.map(({ inode }) => inode.ino);
    await sql.run(`DELETE FROM ${table} WHERE ino IN (${times(inos, '?')})`, ...inos);
    await breathe();
  }
}
