/** Rows of AgentFS as statements for the cloud, and rows of answers as objects. */
import { newNameId, newNameIdArgs } from './foreign-names.ts';
import type { ResultSet, SqlStatement } from './hrana.ts';
import { type Inode, now } from './inode.ts';
import { requireName } from './namespace.ts';

/** The names on the way to `path`. EINVAL, ENAMETOOLONG. */
export function namesOf(path: string): string[] {
  const names = path.split('/').filter((name) => name !== '');
  for (const name of names) requireName(name);
  return names;
}

/** A new inode that has one name. */
export function fresh(ino: number, mode: number, size: number): Inode {
  const stamp = now();
  return { ino, mode, nlink: 1, uid: 0, gid: 0, size, rdev: 0, atime: stamp, mtime: stamp, ctime: stamp };
}

export function insertInode(inode: Inode): SqlStatement {
  const { seconds, nanoseconds } = inode.mtime;
  return {
    sql:
      'INSERT INTO fs_inode (ino, mode, nlink, size, atime, mtime, ctime, atime_nsec, mtime_nsec, ctime_nsec) ' +
      'VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
    args: [
      inode.ino,
      inode.mode,
      inode.nlink,
      inode.size,
      seconds,
      seconds,
      seconds,
      nanoseconds,
      nanoseconds,
      nanoseconds,
    ],
  };
}

/** Fails where the name is taken. */
export function insertName(parent: number, name: string, ino: number): SqlStatement {
  return {
    sql: `INSERT INTO fs_dentry (id, name, parent_ino, ino) VALUES (${newNameId}, ?, ?, ?)`,
    args: [...newNameIdArgs(parent, name), name, parent, ino],
  };
}

/** Its contents have changed now. */
export function touch(ino: number): SqlStatement {
  const { seconds, nanoseconds } = now();
  return {
    sql: 'UPDATE fs_inode SET mtime = ?, ctime = ?, mtime_nsec = ?, ctime_nsec = ? WHERE ino = ?',
    args: [seconds, seconds, nanoseconds, nanoseconds, ino],
  };
}

/** One directory more is in it, where it counts them. */
export function holdsOneMore(ino: number): SqlStatement {
  return { sql: 'UPDATE fs_inode SET nlink = nlink + 1 WHERE ino = ? AND nlink > 1', args: [ino] };
}

export function removeFile(ino: number): SqlStatement[] {
  return [
    { sql: 'DELETE FROM fs_data WHERE ino = ?', args: [ino] },
    { sql: 'DELETE FROM fs_inode WHERE ino = ?', args: [ino] },
  ];
}

export function rowsOf({ columns, rows }: ResultSet): Record<string, ResultSet['rows'][number][number]>[] {
  return rows.map((row) => Object.fromEntries(columns.map((column, at) => [column, row[at] ?? null])));
}
