/** Git's index: which blobs the next commit holds, and what the files were like when they were last compared. */
import { createHash } from 'node:crypto';
import { fatal, leave } from '../endings.ts';
import { compareBinary } from '../text.ts';
import type { Status } from '../tree/status.ts';

/** The numbers of stat(2) that tell whether a file may have changed; 32 bits each. */
export interface IndexStat {
  readonly ctimeSeconds: number;
  readonly ctimeNanoseconds: number;
  readonly mtimeSeconds: number;
  readonly mtimeNanoseconds: number;
  readonly device: number;
  readonly ino: number;
  readonly uid: number;
  readonly gid: number;
  readonly size: number;
}

export interface IndexEntry {
  /** Binary, from the root of the working tree. */
  readonly path: string;
  readonly mode: number;
  readonly hash: string;
  /** 0, or 1 to 3 in a conflict: base, ours, theirs. */
  readonly stage: number;
  readonly isIntended: boolean;
  readonly stat: IndexStat;
}

const signature = 0x44495243;
const fixedBytes = 62;
const extendedFlag = 0x4000;
const assumedFlag = 0x8000;
const intendedFlag = 0x2000;
const skippedFlag = 0x4000;
/** Entries that the engine holds. */
const most = 500_000;
const holder = 1000;

export const noStat: IndexStat = {
  ctimeSeconds: 0,
  ctimeNanoseconds: 0,
  mtimeSeconds: 0,
  mtimeNanoseconds: 0,
  device: 0,
  ino: 0,
  uid: 0,
  gid: 0,
  size: 0,
};

/** What git in a holder sees of a file. */
export function statForIndex(status: Status): IndexStat {
  return {
    ctimeSeconds: status.ctime.seconds >>> 0,
    ctimeNanoseconds: status.ctime.nanoseconds,
    mtimeSeconds: status.mtime.seconds >>> 0,
    mtimeNanoseconds: status.mtime.nanoseconds,
    device: 0,
    ino: status.ino >>> 0,
    uid: holder,
    gid: holder,
    size: status.size >>> 0,
  };
}

/** Whether a file is as it was when it was put into the index. Both clocks have their own stamp for each change. */
export function sameStat(entry: IndexStat, status: Status): boolean {
  return (
    entry.mtimeSeconds === status.mtime.seconds >>> 0 &&
    entry.mtimeNanoseconds === status.mtime.nanoseconds &&
    entry.ctimeSeconds === status.ctime.seconds >>> 0 &&
    entry.ctimeNanoseconds === status.ctime.nanoseconds &&
    entry.ino === status.ino >>> 0 &&
    entry.size === status.size >>> 0
  );
}

export function parseIndex(bytes: Uint8Array): IndexEntry[] {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (buffer.length < 32 || buffer.readUInt32BE(0) !== signature) throw fatal('index file corrupt');
  const version = buffer.readUInt32BE(4);
  if (version !== 2 && version !== 3) leave(`an index of version ${version}`);
  const count = buffer.readUInt32BE(8);
  if (count > most) leave(`an index of ${count} files`);
  const entries: IndexEntry[] = [];
  let at = 12;
  for (let number = 0; number < count; number++) {
    const flags = buffer.readUInt16BE(at + 60);
    const isExtended = (flags & extendedFlag) !== 0;
    const extended = isExtended ? buffer.readUInt16BE(at + 62) : 0;
    if (flags & assumedFlag || extended & skippedFlag) leave('an index with files that are not to be looked at');
    const nameAt = at + fixedBytes + (isExtended ? 2 : 0);
    const nameEnd = (flags & 0xfff) < 0xfff ? nameAt + (flags & 0xfff) : buffer.indexOf(0, nameAt);
    entries.push({
      path: buffer.toString('latin1', nameAt, nameEnd),
      mode: buffer.readUInt32BE(at + 24),
      hash: buffer.toString('hex', at + 40, at + 60),
      stage: (flags >> 12) & 3,
      isIntended: (extended & intendedFlag) !== 0,
      stat: {
        ctimeSeconds: buffer.readUInt32BE(at),
        ctimeNanoseconds: buffer.readUInt32BE(at + 4),
        mtimeSeconds: buffer.readUInt32BE(at + 8),
        mtimeNanoseconds: buffer.readUInt32BE(at + 12),
        device: buffer.readUInt32BE(at + 16),
        ino: buffer.readUInt32BE(at + 20),
        uid: buffer.readUInt32BE(at + 28),
        gid: buffer.readUInt32BE(at + 32),
        size: buffer.readUInt32BE(at + 36),
      },
    });
    at += (nameEnd - at + 8) & ~7;
  }
  while (at + 28 <= buffer.length) {
    // A capital letter says that who does not know the extension may do without it.
    if (buffer[at]! > 0x5a) leave(`an index with "${buffer.toString('latin1', at, at + 4)}"`);
    at += 8 + buffer.readUInt32BE(at + 4);
  }
  return entries;
}

/** The file of an index; entries in any order. */
export function indexBytes(entries: readonly IndexEntry[]): Uint8Array {
  const sorted = sortedEntries(entries);
  const isExtended = sorted.some(({ isIntended }) => isIntended);
  let length = 12;
  for (const { path, isIntended } of sorted) length += (path.length + fixedBytes + (isIntended ? 2 : 0) + 8) & ~7;
  const buffer = Buffer.alloc(length + 20);
  buffer.writeUInt32BE(signature, 0);
  buffer.writeUInt32BE(isExtended ? 3 : 2, 4);
  buffer.writeUInt32BE(sorted.length, 8);
  let at = 12;
  for (const { path, mode, hash, stage, isIntended, stat } of sorted) {
    const numbers = [stat.ctimeSeconds, stat.ctimeNanoseconds, stat.mtimeSeconds, stat.mtimeNanoseconds, stat.device];
    numbers.push(stat.ino, mode, stat.uid, stat.gid, stat.size);
    for (const [place, number] of numbers.entries()) buffer.writeUInt32BE(number, at + place * 4);
    buffer.write(hash, at + 40, 'hex');
    const flags = (stage << 12) | Math.min(path.length, 0xfff) | (isIntended ? extendedFlag : 0);
    buffer.writeUInt16BE(flags, at + 60);
    if (isIntended) buffer.writeUInt16BE(intendedFlag, at + 62);
    const name = at + fixedBytes + (isIntended ? 2 : 0);
    buffer.write(path, name, 'latin1');
    at += (name + path.length - at + 8) & ~7;
  }
  createHash('sha1').update(buffer.subarray(0, at)).digest().copy(buffer, at);
  return buffer;
}

export function sortedEntries(entries: readonly IndexEntry[]): IndexEntry[] {
  return [...entries].sort((left, right) => compareBinary(left.path, right.path) || left.stage - right.stage);
}
