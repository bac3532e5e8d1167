/**
 * Row ids that two replicas never give to two different things (ADR-046 §5: disjoint changes of two writers must both
 * survive). AUTOINCREMENT would let the later push overwrite the other's row silently.
 *
 * - A file gets a random number: two files made at once under two names stay two.
 * - A directory gets a hash of its place: the same directory made twice is one, and its contents merge.
 * - A name gets a hash of its place: the same path made twice is one row, and the last push wins.
 */
import { randomFillSync } from 'node:crypto';

export const rootIno = 1;
/** Ids have 52 bits: exact in a JavaScript number and in SQLite. */
export const maxIno = 2 ** 52 - 1;
/** Below this the public SDK may have counted up by itself in a database that it made. */
const firstIno = 2 ** 32;

const pool = Buffer.alloc(8 * 256);
let used = pool.length;
const digest = Buffer.alloc(32);

/** A new inode number for a file. Random; the chance of a collision in 10 million files is 1 in 90. */
export function randomIno(): number {
  for (;;) {
    if (used === pool.length) {
      randomFillSync(pool);
      used = 0;
    }
    const ino = fiftyTwoBits(pool, used);
    used += 8;
    if (ino >= firstIno) return ino;
  }
}

/** The inode number of the directory that is made as `name` in `parent`. */
export function directoryIno(parent: number, name: string): number {
  return Math.max(firstIno, hash('directory', parent, name));
}

/**
 * The inode number of what the immutable base has as `name` in `parent`, and of its copy in the delta: two replicas that copy
 * it up make the same rows. A directory's is that of its place, so that one which the cloud makes there is the same. `life`
 * counts up when a number is in use already.
 */
export function lowerIno(parent: number, name: string, isDirectory: boolean, life: number): number {
  if (isDirectory && life === 0) return directoryIno(parent, name);
  return Math.max(firstIno, hash(`base ${life}`, parent, name));
}

/** The id of the row that says what `name` in `parent` is. */
export function dentryId(parent: number, name: string): number {
  return Math.max(1, hash('name', parent, name));
}

function hash(kind: string, parent: number, name: string): number {
  Bun.SHA256.hash(`${kind}\0${parent}\0${name}`, digest);
  return fiftyTwoBits(digest, 0);
}

function fiftyTwoBits(bytes: Buffer, at: number): number {
  return (bytes.readUInt32BE(at) >>> 12) * 2 ** 32 + bytes.readUInt32BE(at + 4);
}
