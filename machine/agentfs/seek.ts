/** Where a file has data and where holes, as its rows tell: a row that is missing is a hole, and so is what a row is short of. */
import { FileError } from './errors.ts';
import type { OrganizationFiles } from './files.ts';
import type { Inode } from './inode.ts';

/** Rows that are looked at in one query. */
const rowsAtOnce = 1_000;

/**
 * The first byte of data, or of a hole, from `offset` on; the end of the file counts as a hole. With 'all data', and while its
 * contents are not all in rows, the file is taken as one without holes. ENXIO behind the end, and where no data follows.
 */
export function seek(
  files: OrganizationFiles,
  ino: number,
  offset: number,
  what: 'data' | 'hole',
  by: 'rows' | 'all data',
): Promise<number> {
  const look = async (inode: Inode, isInRows: boolean) => {
    if (offset >= inode.size) throw new FileError('ENXIO', `${offset} is behind the end`);
    if (by === 'all data' || !isInRows) return what === 'data' ? offset : inode.size;
    return what === 'data' ? nextData(files, inode, offset) : nextHole(files, inode, offset);
  };
  return files.data.settled(ino, look);
}

/** Bytes of the file that have data, from where a query begins, in their order. */
async function* extents(
  { store }: OrganizationFiles,
  { ino, size }: Inode,
  offset: number,
): AsyncGenerator<{ start: number; end: number }> {
  const { chunkSize } = store;
  for (let first = Math.floor(offset / chunkSize); ; ) {
    const rows = await store.sql.all(
      'SELECT chunk_index, length(CAST(data AS BLOB)) AS length FROM fs_data WHERE ino = ? AND chunk_index >= ? ' +
        'ORDER BY chunk_index LIMIT ?',
      ino,
      first,
      rowsAtOnce,
    );
    for (const row of rows) {
      const start = Number(row.chunk_index) * chunkSize;
      const end = Math.min(size, start + Number(row.length));
      if (end > start) yield { start, end };
    }
    if (rows.length < rowsAtOnce) return;
    first = Number(rows.at(-1)!.chunk_index) + 1;
  }
}

async function nextData(files: OrganizationFiles, inode: Inode, offset: number): Promise<number> {
  for await (const { start, end } of extents(files, inode, offset)) if (end > offset) return Math.max(start, offset);
  throw new FileError('ENXIO', 'no data follows');
}

async function nextHole(files: OrganizationFiles, inode: Inode, offset: number): Promise<number> {
  let covered = offset;
  for await (const { start, end } of extents(files, inode, offset)) {
    if (start > covered) break;
    covered = Math.max(covered, end);
  }
  return covered;
}
