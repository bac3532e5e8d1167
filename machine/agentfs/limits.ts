/** What an organization may have, and how much of the machine its store may take. */
import type { Usage } from './usage.ts';

export interface StoreLimits {
  /** Bytes that one file may have (EFBIG beyond). */
  readonly largestFile: number;
  /** What the organization may have in all (ENOSPC beyond), and each conversation of it (EDQUOT beyond). */
  readonly organization: Usage;
  readonly conversation: Usage;
  /** Bytes of written data that wait in memory for the group's end, of one file and of all. */
  readonly unwrittenOfOneFile: number;
  readonly unwritten: number;
  /** A file with more unwritten bytes than this goes to the spool. */
  readonly spooledFrom: number;
  /** Bytes of written data that wait in the spool file; who writes more waits for the database. */
  readonly spool: number;
  /** How long others wait, about, while usage is counted: a slice of the count. */
  readonly countSliceMs: number;
  /** Bytes of read data kept in memory. */
  readonly readCache: number;
  /** Inodes and names kept in memory. */
  readonly cachedInodes: number;
  readonly cachedNames: number;
  /** Rows of one group: it ends when it has more. Also what one request of a push has at most, about. */
  readonly groupRows: number;
  /** How long operations wait for an fsync or the end of a work boundary before they are committed. */
  readonly commitAfterMs: number;
  /** How long nobody must have used the store before the contents of large files that are gone are removed. */
  readonly quietMs: number;
}

export const defaultLimits: StoreLimits = {
  largestFile: 4 * 1024 ** 3,
  organization: { bytes: 64 * 1024 ** 3, inodes: 10_000_000 },
  conversation: { bytes: 16 * 1024 ** 3, inodes: 1_000_000 },
  unwrittenOfOneFile: 256 * 1024,
  unwritten: 512 * 1024,
  spooledFrom: 256 * 1024,
  spool: 256 * 1024 ** 2,
  countSliceMs: 4,
  readCache: 32 * 1024 ** 2,
  cachedInodes: 100_000,
  cachedNames: 200_000,
  groupRows: 256,
  commitAfterMs: 1_000,
  quietMs: 200,
};
