/**
 * Whole files put in place in one transaction: what unpacks, checks out or stores many small files would otherwise pay a
 * commit for each. A file that had the name loses it, as by rename(2) over it.
 */
import { bytesAsSql } from './driver.ts';
import { FileError } from './errors.ts';
import type { OrganizationFiles } from './files.ts';
import { randomIno } from './ids.ts';
import { type Inode, now } from './inode.ts';
import { type Place, requireName } from './namespace.ts';
import { isDirectory, modeRegular, modeSymlink } from './schema.ts';
import type { Transaction } from './transaction.ts';

export interface NewFile {
  readonly place: Place;
  /** Permissions of a regular file; null for a symbolic link, whose target the bytes are. */
  readonly permissions: number | null;
  readonly bytes: Uint8Array;
}

/** All of them, or none. Answers with the inodes in the same order. EISDIR where a directory has the name, EFBIG, ENOSPC. */
export function putFiles(files: OrganizationFiles, list: readonly NewFile[]): Promise<Inode[]> {
  return files.store.transact(async (transaction) => {
    const inodes: Inode[] = [];
    const parents = new Set<number>();
    for (const file of list) {
      inodes.push(await putFile(files, transaction, file));
      parents.add(file.place.parent);
    }
    for (const ino of parents) {
      const stamp = now();
      await transaction.patchInode(await transaction.directory(ino), { mtime: stamp, ctime: stamp });
    }
    return inodes;
  });
}

async function putFile(files: OrganizationFiles, transaction: Transaction, file: NewFile): Promise<Inode> {
  const { place, permissions, bytes } = file;
  requireName(place.name);
  if (bytes.length > files.store.limits.largestFile) throw new FileError('EFBIG', `${bytes.length} bytes`);
  await transaction.directory(place.parent);
  const stamp = now();
  const mode = permissions === null ? modeSymlink | 0o777 : modeRegular | (permissions & 0o7777);
  const times = { atime: stamp, mtime: stamp, ctime: stamp };
  const inode: Inode = { ino: randomIno(), mode, nlink: 1, uid: 0, gid: 0, size: bytes.length, rdev: 0, ...times };
  await transaction.insertInode(inode);
  if (permissions === null) {
    const target = Buffer.from(bytes).toString('utf8');
    await transaction.driver.run('INSERT INTO fs_symlink (ino, target) VALUES (?, ?)', inode.ino, target);
  } else await insertRows(files, transaction, inode.ino, bytes);
  const replaced = await transaction.name(place.parent, place.name);
  if (replaced === 0) await transaction.insertName(place.parent, place.name, inode.ino);
  else {
    await dropName(files, transaction, replaced, place.name);
    await transaction.replaceName(place.parent, place.name, inode.ino);
  }
  return inode;
}

async function insertRows(files: OrganizationFiles, transaction: Transaction, ino: number, bytes: Uint8Array) {
  const { chunkSize } = files.store;
  for (let index = 0; index * chunkSize < bytes.length; index++) {
    const chunk = bytes.subarray(index * chunkSize, (index + 1) * chunkSize);
    const { expression, value } = bytesAsSql(chunk);
    const sql = `INSERT INTO fs_data (ino, chunk_index, data) VALUES (?, ?, ${expression})`;
    await transaction.driver.run(sql, ino, index, value);
  }
}

async function dropName(files: OrganizationFiles, transaction: Transaction, ino: number, name: string): Promise<void> {
  const inode = await transaction.inode(ino);
  if (!inode) return;
  if (isDirectory(inode.mode)) throw new FileError('EISDIR', name);
  const nlink = Math.max(0, inode.nlink - 1);
  if (nlink > 0 || files.store.isOpen(ino)) {
    await transaction.patchInode(inode, { nlink, ctime: now() });
    return;
  }
  await transaction.removeInode(inode);
  transaction.afterCommit(() => files.data.forget(ino));
}
