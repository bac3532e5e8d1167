/** One row of `fs_inode`, and the clock that stamps it. */
import type { SqlRow } from './driver.ts';

/** Seconds since 1970 and nanoseconds within that second. */
export interface Stamp {
  readonly seconds: number;
  readonly nanoseconds: number;
}

/** Whom a file belongs to, by numbers. */
export interface Owner {
  readonly uid: number;
  readonly gid: number;
}

export interface Inode extends Owner {
  readonly ino: number;
  /** Type and permissions, as in stat(2). */
  readonly mode: number;
  /** Names that a file has. Of a directory: 2 and one for each directory in it, or 1 where nobody counts them. */
  readonly nlink: number;
  readonly size: number;
  /** Of a device, as the kernel encodes it. */
  readonly rdev: number;
  readonly atime: Stamp;
  readonly mtime: Stamp;
  readonly ctime: Stamp;
}

export const inodeColumns =
  'i.ino AS ino, i.mode AS mode, i.nlink AS nlink, i.uid AS uid, i.gid AS gid, i.size AS size, i.rdev AS rdev, ' +
  'i.atime AS atime, i.mtime AS mtime, i.ctime AS ctime, i.atime_nsec AS atime_nsec, i.mtime_nsec AS mtime_nsec, i.ctime_nsec AS ctime_nsec';

/** Reads what `inodeColumns` selected. */
export function inodeOfRow(row: SqlRow): Inode {
  return {
    ino: Number(row.ino),
    mode: Number(row.mode),
    nlink: Number(row.nlink),
    uid: Number(row.uid),
    gid: Number(row.gid),
    size: Number(row.size),
    rdev: Number(row.rdev),
    atime: { seconds: Number(row.atime), nanoseconds: Number(row.atime_nsec) },
    mtime: { seconds: Number(row.mtime), nanoseconds: Number(row.mtime_nsec) },
    ctime: { seconds: Number(row.ctime), nanoseconds: Number(row.ctime_nsec) },
  };
}

/** The columns of an INSERT of a whole row, and their values in that order. */
export const inodeInsertColumns = [
  'ino',
  'mode',
  'nlink',
  'uid',
  'gid',
  'size',
  'rdev',
  'atime',
  'mtime',
  'ctime',
  'atime_nsec',
  'mtime_nsec',
  'ctime_nsec',
] as const;

export function inodeInsertValues({ atime, mtime, ctime, ...inode }: Inode): number[] {
  const nanoseconds = [atime.nanoseconds, mtime.nanoseconds, ctime.nanoseconds];
  const { ino, mode, nlink, uid, gid, size, rdev } = inode;
  return [ino, mode, nlink, uid, gid, size, rdev, atime.seconds, mtime.seconds, ctime.seconds, ...nanoseconds];
}

export type InodePatch = Partial<Omit<Inode, 'ino'>>;

/** The assignments of an UPDATE that makes a row what the patch says, and their values. */
export function patchAsSql(patch: InodePatch): { assignments: string; values: number[] } {
  const assignments: string[] = [];
  const values: number[] = [];
  const set = (column: string, value: number) => {
    assignments.push(`${column} = ?`);
    values.push(value);
  };
  if (patch.mode !== undefined) set('mode', patch.mode);
  if (patch.nlink !== undefined) set('nlink', patch.nlink);
  if (patch.uid !== undefined) set('uid', patch.uid);
  if (patch.gid !== undefined) set('gid', patch.gid);
  if (patch.size !== undefined) set('size', patch.size);
  for (const name of ['atime', 'mtime', 'ctime'] as const) {
    const stamp = patch[name];
    if (!stamp) continue;
    set(name, stamp.seconds);
    set(`${name}_nsec`, stamp.nanoseconds);
  }
  return { assignments: assignments.join(', '), values };
}

export function isLater(one: Stamp, other: Stamp): boolean {
  return one.seconds > other.seconds || (one.seconds === other.seconds && one.nanoseconds > other.nanoseconds);
}

/**
 * The time of a change of an inode: now, but later than its last one, which a pull may have brought from a host whose clock
 * is ahead. The clock of this one is left alone.
 */
export function laterThan({ seconds, nanoseconds }: Stamp): Stamp {
  const stamp = now();
  if (isLater(stamp, { seconds, nanoseconds })) return stamp;
  return nanoseconds < 999_999_999
    ? { seconds, nanoseconds: nanoseconds + 1 }
    : { seconds: seconds + 1, nanoseconds: 0 };
}

let lastMs = 0;
let within = 0;

/** No later stamp of this process is earlier than this one: it was found in what a former machine left behind. */
export function stampNotBefore({ seconds, nanoseconds }: Stamp): void {
  const ms = seconds * 1000 + Math.floor(nanoseconds / 1_000_000);
  if (ms > lastMs) [lastMs, within] = [ms, nanoseconds % 1_000_000];
}

/**
 * The time of a change. Never the same twice: a kernel cache tells versions of a file apart by it. Never earlier than before
 * either, although the host's clock may be set back: the spool tells by it which contents were committed.
 */
export function now(): Stamp {
  const ms = Date.now();
  if (ms > lastMs) [lastMs, within] = [ms, 0];
  else if (within < 999_999) within += 1;
  else [lastMs, within] = [lastMs + 1, 0];
  return { seconds: Math.floor(lastMs / 1000), nanoseconds: (lastMs % 1000) * 1_000_000 + within };
}
