/**
 * Records of the spool file: a header of 48 bytes, contents behind it, and a checksum over both.
 *
 * | at | bytes | what                                                                                          |
 * | -- | ----- | --------------------------------------------------------------------------------------------- |
 * | 0  | 8     | checksum of all that follows (xxHash64)                                                       |
 * | 8  | 4     | kind: 0 no longer counts, 1 contents follow, 2 contents from a place on are gone, 3 a note    |
 * | 12 | 4     | bytes of contents                                                                             |
 * | 16 | 8     | inode                                                                                         |
 * | 24 | 8     | first chunk (1), the size that is left (2), or where in the file what is not moved begins (3) |
 * | 32 | 8, 4  | when: the inode's ctime with this change, in seconds and nanoseconds                          |
 */
import type { Stamp } from './inode.ts';

export const recordHeaderBytes = 48;
/** Contents of one record. */
export const maxRecordBytes = 1024 * 1024;

const kinds = { void: 0, contents: 1, cut: 2, note: 3 } as const;

export interface SpoolRecord {
  readonly kind: keyof typeof kinds;
  readonly ino: number;
  /** The first chunk of contents, the size that is left, or where in the file what is not moved begins. */
  readonly place: number;
  readonly at: Stamp;
}

/** The header of a record with these contents behind it. */
export function encodeHeader({ kind, ino, place, at }: SpoolRecord, contents: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(recordHeaderBytes);
  const view = new DataView(bytes.buffer);
  view.setUint32(8, kinds[kind], true);
  view.setUint32(12, contents.length, true);
  view.setFloat64(16, ino, true);
  view.setFloat64(24, place, true);
  view.setFloat64(32, at.seconds, true);
  view.setUint32(40, at.nanoseconds, true);
  view.setBigUint64(0, checksum(bytes, contents), true);
  return bytes;
}

/** What a header says, before its contents are read; null for what is none. */
export function decodeHeader(bytes: Uint8Array): { record: SpoolRecord; length: number } | null {
  const view = new DataView(bytes.buffer, bytes.byteOffset, recordHeaderBytes);
  const length = view.getUint32(12, true);
  const [ino, place, seconds] = [view.getFloat64(16, true), view.getFloat64(24, true), view.getFloat64(32, true)];
  const kind = (['void', 'contents', 'cut', 'note'] as const)[view.getUint32(8, true)];
  if (!kind || length > maxRecordBytes || ![ino, place, seconds].every(Number.isSafeInteger)) return null;
  return { record: { kind, ino, place, at: { seconds, nanoseconds: view.getUint32(40, true) } }, length };
}

/** Whether header and contents are those that were written together. */
export function isWhole(header: Uint8Array, contents: Uint8Array): boolean {
  const view = new DataView(header.buffer, header.byteOffset, recordHeaderBytes);
  return view.getBigUint64(0, true) === checksum(header, contents);
}

function checksum(header: Uint8Array, contents: Uint8Array): bigint {
  return Bun.hash.xxHash64(contents, Bun.hash.xxHash64(header.subarray(8, recordHeaderBytes)));
}
