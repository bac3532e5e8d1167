/**
 * A file's contents out of the cloud, in bounded pieces that are asked for one at a time: nobody who reads slowly holds more
 * than one of them, or a stream of the database.
 */
import type { CloudSql } from './cloud.ts';
import { rowsOf } from './cloud-rows.ts';
import { FileError } from './errors.ts';
import type { Inode, Stamp } from './inode.ts';

/** Contents of one answer. */
const pieceBytes = 1024 * 1024;

/** From `start` up to, and without, `end`. */
export interface ByteRange {
  readonly start: number;
  readonly end: number;
}

// One statement, so that the version and the bytes are of the same moment, and no reader takes the lock of writers.
const piece =
  'SELECT i.size AS size, i.mtime AS mtime, i.mtime_nsec AS mtime_nsec, i.ctime AS ctime, i.ctime_nsec AS ctime_nsec, d.chunk_index AS chunk_index, d.data AS data ' +
  'FROM fs_inode i LEFT JOIN fs_data d ON d.ino = i.ino AND d.chunk_index >= ? AND d.chunk_index < ? WHERE i.ino = ?';

/**
 * The bytes of `range` of the file as `inode` was read, holes as zeros. ESTALE as soon as the contents are no longer those:
 * what was read until then is of no use. HranaError when the cloud cannot be read.
 */
export async function* contentsOf(
  sql: CloudSql,
  inode: Inode,
  chunkSize: number,
  range: ByteRange = { start: 0, end: inode.size },
): AsyncGenerator<Uint8Array> {
  const chunks = Math.max(1, Math.floor(pieceBytes / chunkSize));
  for (let at = range.start; at < range.end; ) {
    const first = Math.floor(at / chunkSize);
    const begin = first * chunkSize;
    const end = Math.min(range.end, (first + chunks) * chunkSize);
    const rows = rowsOf(await sql.execute(piece, [first, first + chunks, inode.ino]));
    const now = rows[0];
    if (!now || !isSameVersion(inode, now))
      throw new FileError('ESTALE', `file ${inode.ino} was changed while it was read`);
    const bytes = new Uint8Array(end - begin);
    for (const { chunk_index: index, data } of rows) {
      if (index === null || index === undefined) continue;
      const chunk = data instanceof Uint8Array ? data : new TextEncoder().encode(String(data));
      const place = (Number(index) - first) * chunkSize;
      if (place < bytes.length) bytes.set(chunk.subarray(0, bytes.length - place), place);
    }
    yield bytes.subarray(at - begin);
    at = end;
  }
}

function isSameVersion({ size, mtime, ctime }: Inode, row: Readonly<Record<string, unknown>>): boolean {
  const isStamp = (name: string, { seconds, nanoseconds }: Stamp) =>
    Number(row[name]) === seconds && Number(row[`${name}_nsec`]) === nanoseconds;
  return Number(row.size) === size && isStamp('mtime', mtime) && isStamp('ctime', ctime);
}
