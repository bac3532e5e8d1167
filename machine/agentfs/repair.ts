/**
 * What a pull over unpushed local changes may leave behind: the same path made twice keeps one name and leaves the other
 * file without any; a file renamed twice has two names and one link. Repaired once after such a pull; and what nobody
 * finished or closed is removed at a machine's start.
 */
import type { FileData } from './data.ts';
import { rootIno } from './ids.ts';
import { inodeColumns, inodeOfRow, now } from './inode.ts';
import { modeDirectory, modeFormat } from './schema.ts';
import type { Store } from './store.ts';

/** An upload takes less, and so does an open file of a machine that is gone. */
const abandonedAfterSeconds = 24 * 3600;

/** Makes link counts true, and removes files without a name that nobody has open. For whoever runs exclusively. */
export async function repairHere(store: Store, data: FileData): Promise<{ relinked: number; removed: number }> {
  const rows = await store.driver.all(
    `SELECT ${inodeColumns}, coalesce(n.names, 0) AS names FROM fs_inode i ` +
      'LEFT JOIN (SELECT ino, count(*) AS names FROM fs_dentry GROUP BY ino) n ON n.ino = i.ino ' +
      'WHERE i.nlink <> coalesce(n.names, 0) AND i.nlink > 0 AND i.ino <> ?',
    rootIno,
  );
  let removed = 0;
  let relinked = 0;
  await store.transactHere(async (transaction) => {
    for (const row of rows) {
      const inode = inodeOfRow(row);
      const names = Number(row.names);
      const isDirectory = (inode.mode & modeFormat) === modeDirectory;
      if (names > 0) {
        await transaction.patchInode(inode, { nlink: isDirectory ? 1 : names });
        relinked += 1;
      } else if (store.isOpen(inode.ino)) {
        await transaction.patchInode(inode, { nlink: 0 });
      } else if (!isDirectory) {
        await transaction.removeInode(inode);
        transaction.afterCommit(() => data.forget(inode.ino));
        removed += 1;
      }
      // A directory without a name may hold what another replica put into it: it stays, unreachable.
    }
  });
  return { relinked, removed };
}

/** Removes uploads that never got their name, and files that were unlinked while open when a machine ended. */
export async function removeAbandoned(store: Store, data: FileData): Promise<number> {
  return store.exclusive(async () => {
    const rows = await store.driver.all(
      `SELECT ${inodeColumns} FROM fs_inode i WHERE i.nlink = 0 AND i.ctime < ?`,
      now().seconds - abandonedAfterSeconds,
    );
    for (const row of rows) {
      const inode = inodeOfRow(row);
      if (store.isOpen(inode.ino)) continue;
      await store.transactHere(async (transaction) => {
        await transaction.removeInode(inode);
        transaction.afterCommit(() => data.forget(inode.ino));
      });
    }
    return rows.length;
  });
}
