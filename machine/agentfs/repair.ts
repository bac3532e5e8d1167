/**
 * What a pull over unpushed local changes may leave behind: the same path made twice keeps one name and leaves the other
 * file without any; a file renamed twice has two names and one link. Repaired once after such a pull; and what nobody
 * finished or closed is removed at a machine's start.
 */
import type { FileData } from './data.ts';
import { type Inode, inodeColumns, inodeOfRow, now } from './inode.ts';
import { modeDirectory, modeFormat } from './schema.ts';
import type { Store } from './store.ts';

/** An upload takes less, and so does an open file of a machine that is gone. */
const abandonedAfterSeconds = 24 * 3600;

/** Makes link counts true, and removes files without a name that nobody has open. For whoever runs exclusively. */
export async function repairHere(store: Store, data: FileData): Promise<{ relinked: number; removed: number }> {
  const rows = await store.driver.all(
    `SELECT ${inodeColumns}, coalesce(n.names, 0) AS names FROM fs_inode i ` +
      'LEFT JOIN (SELECT ino, count(*) AS names FROM fs_dentry GROUP BY ino) n ON n.ino = i.ino ' +
      'WHERE i.nlink <> coalesce(n.names, 0) AND i.nlink > 0 AND (i.mode & ?) <> ?',
    modeFormat,
    modeDirectory,
  );
  const directories = await miscounted(store);
  let removed = 0;
  let relinked = 0;
  await store.transactHere(async (transaction) => {
    for (const row of rows) {
      const inode = inodeOfRow(row);
      const names = Number(row.names);
      if (names > 0) {
        await transaction.patchInode(inode, { nlink: names });
        relinked += 1;
      } else if (store.isOpen(inode.ino)) {
        await transaction.patchInode(inode, { nlink: 0 });
      } else {
        await transaction.removeInode(inode);
        transaction.afterCommit(() => data.forget(inode.ino));
        removed += 1;
      }
    }
    for (const { inode, nlink } of directories) {
      await transaction.patchInode(inode, { nlink });
      relinked += 1;
    }
  });
  return { relinked, removed };
}

/**
 * Directories that count what they hold, and are wrong. One without a name may hold what another replica put into it: it
 * stays, unreachable.
 */
async function miscounted(store: Store): Promise<{ inode: Inode; nlink: number }[]> {
  const rows = await store.driver.all(
    `SELECT ${inodeColumns}, coalesce(n.held, 0) AS held FROM fs_inode i ` +
      'LEFT JOIN (SELECT d.parent_ino AS ino, count(*) AS held FROM fs_dentry d JOIN fs_inode c ON c.ino = d.ino ' +
      'WHERE (c.mode & ?) = ? GROUP BY d.parent_ino) n ON n.ino = i.ino ' +
      'WHERE i.nlink > 1 AND (i.mode & ?) = ? AND i.nlink <> 2 + coalesce(n.held, 0)',
    modeFormat,
    modeDirectory,
    modeFormat,
    modeDirectory,
  );
  return rows.map((row) => ({ inode: inodeOfRow(row), nlink: 2 + Number(row.held) }));
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
