/** Rows of `fs_data`, with a bounded memory of those that were read or written lately. */
import { batches, rowsOfStatement, times } from './batches.ts';
import { BoundedCache } from './bounded-cache.ts';
import { breathe } from './breathe.ts';
import { bytesAsSql, type SqlValue } from './driver.ts';
import type { Inode } from './inode.ts';
import { ListingOrder } from './listing-order.ts';
import { isRegular } from './schema.ts';
import type { Store } from './store.ts';

const nothing = new Uint8Array(0);
/** Rows that are read beyond what was asked for, from a file that is read from one end to the other. */
const readAhead = 8;
/** Files whose reading is remembered for that. */
const readersRemembered = 1_000;
/** A file of at most so many bytes is read with others of its directory. */
const smallFileBytes = 16 * 1024;
/** Smaller rows share a statement. */
const smallBytes = 4096;
/** A row of so many bytes counts as one more of its group. */
const bytesOfGroupRow = 512;

type Expression = ReturnType<typeof bytesAsSql>['expression'];
interface SmallRow {
  readonly ino: number;
  readonly index: number;
  readonly value: SqlValue;
}

export class ContentRows {
  readonly #store: Store;
  /** An empty one is a hole. */
  readonly #remembered: BoundedCache<string, Uint8Array>;
  /** The chunk that a reader from one end to the other would read next. */
  readonly #nextRead = new BoundedCache<number, number>(readersRemembered);
  readonly #order = new ListingOrder();
  readonly #small = new Map<Expression, SmallRow[]>();

  constructor(store: Store) {
    this.#store = store;
    this.#remembered = new BoundedCache(store.limits.readCache, (bytes) => bytes.length + 64);
  }

  /** The row, if memory has it. */
  remembered(ino: number, index: number): Uint8Array | undefined {
    return this.#store.overlay.chunk(ino, index, this.#store.chunkSize) ?? this.#remembered.get(rowKey(ino, index));
  }

  /** The row; shorter than its place when the rest is zeros. For whoever runs exclusively. */
  async row(ino: number, index: number): Promise<Uint8Array> {
    const known = this.remembered(ino, index);
    if (known) return known;
    const row = await this.#store.sql.get('SELECT data FROM fs_data WHERE ino = ? AND chunk_index = ?', ino, index);
    const bytes = row ? asBytes(row.data) : nothing;
    this.#remembered.set(rowKey(ino, index), bytes);
    return bytes;
  }

  /** Rows `first`…`last` of a file of `count` chunks. For whoever runs exclusively. */
  async read(
    ino: number,
    first: number,
    last: number,
    count: number,
  ): Promise<(index: number) => Uint8Array | undefined> {
    const found = new Map<number, Uint8Array>();
    let [from, to] = [first, last];
    for (let known = this.remembered(ino, from); from <= to && known; known = this.remembered(ino, from)) {
      found.set(from, known);
      from += 1;
    }
    if (from > to || this.#store.isNew(ino)) return (index) => found.get(index);
    if (count === 1) {
      const bytes = await this.#readWithFollowing(ino);
      return (index) => (index === 0 ? bytes : undefined);
    }
    const isSequential = from === 0 || from === this.#nextRead.get(ino);
    if (isSequential) to = Math.min(count - 1, Math.max(to, from + readAhead - 1));
    this.#nextRead.set(ino, to + 1);
    const sql = 'SELECT chunk_index, data FROM fs_data WHERE ino = ? AND chunk_index BETWEEN ? AND ?';
    for (const row of await this.#store.sql.all(sql, ino, from, to))
      found.set(Number(row.chunk_index), asBytes(row.data));
    for (let index = from; index <= to; index++) {
      const bytes = found.get(index) ?? nothing;
      found.set(index, bytes);
      this.#remembered.set(rowKey(ino, index), bytes);
    }
    return (index) => found.get(index);
  }

  /** Small files as a program sees them in a directory's list: it may read them in that order. */
  listed(inodes: readonly Inode[]): void {
    const isSmall = ({ mode, size }: Inode) => isRegular(mode) && size > 0 && size <= this.#smallFile;
    const inos = inodes.filter(isSmall).map(({ ino }) => ino);
    if (inos.length > 1) this.#order.listed(inos);
  }

  /** A file of one row, and with it those that will be read next. */
  async #readWithFollowing(ino: number): Promise<Uint8Array> {
    const following = this.#order.following(ino, (other) => {
      const inode = this.#store.cachedInode(other);
      const isThere = inode && inode.size > 0 && inode.size <= this.#smallFile && !this.#store.isNew(other);
      return isThere && !this.remembered(other, 0) ? inode.size : null;
    });
    let own: Uint8Array = nothing;
    for (const batch of batches([ino, ...following])) {
      const sql = `SELECT ino, data FROM fs_data WHERE chunk_index = 0 AND ino IN (${times(batch, '?')})`;
      for (const row of await this.#store.sql.all(sql, ...batch)) {
        const bytes = asBytes(row.data);
        if (row.ino === ino) own = bytes;
        this.#remembered.set(rowKey(Number(row.ino), 0), bytes);
      }
    }
    // A hole, when nothing was found.
    this.#remembered.set(rowKey(ino, 0), own);
    return own;
  }

  get #smallFile(): number {
    return Math.min(smallFileBytes, this.#store.chunkSize);
  }

  /** Writes a row into the open group; a small one with the next of its like (`writeSmall`). For whoever runs exclusively. */
  async write(ino: number, index: number, bytes: Uint8Array): Promise<void> {
    const { expression, value } = bytesAsSql(bytes);
    this.#remembered.delete(rowKey(ino, index));
    if (bytes.length > smallBytes) {
      await this.#insert(expression, [{ ino, index, value }]);
      await this.#store.beginHere(Math.floor(bytes.length / bytesOfGroupRow));
      return;
    }
    const rows = this.#small.get(expression) ?? [];
    rows.push({ ino, index, value });
    this.#small.set(expression, rows);
    if (rows.length === rowsOfStatement) {
      this.#small.delete(expression);
      await this.#insert(expression, rows);
    }
  }

  /** Ends what `write` has begun. */
  async writeSmall(): Promise<void> {
    for (const [expression, rows] of this.#small) {
      this.#small.delete(expression);
      for (const batch of batches(rows)) await this.#insert(expression, batch);
    }
  }

  /** Remembers what was written. The bytes must not change any more. */
  remember(ino: number, index: number, bytes: Uint8Array): void {
    this.#remembered.set(rowKey(ino, index), bytes);
  }

  /** Deletes rows `from`…`count` in the open group. For whoever runs exclusively. */
  async removeFrom(ino: number, from: number, count: number): Promise<void> {
    await this.#store.beginHere(1);
    await this.#store.sql.run('DELETE FROM fs_data WHERE ino = ? AND chunk_index >= ?', ino, from);
    this.forget(ino, from, count - from);
  }

  /** Forgets `count` rows of a file. */
  forget(ino: number, from: number, count: number): void {
    if (count > 4096) this.#remembered.clear();
    else for (let index = from; index < from + count; index++) this.#remembered.delete(rowKey(ino, index));
  }

  forgetAll(): void {
    this.#remembered.clear();
    this.#small.clear();
  }

  async #insert(expression: Expression, rows: readonly SmallRow[]): Promise<void> {
    await this.#store.beginHere(rows.length);
    await breathe();
    await this.#store.sql.run(
      `INSERT INTO fs_data (ino, chunk_index, data) VALUES ${times(rows, `(?, ?, ${expression})`)} ` +
        'ON CONFLICT(ino, chunk_index) DO UPDATE SET data = excluded.data',
      ...rows.flatMap(({ ino, index, value }): SqlValue[] => [ino, index, value]),
    );
  }
}

const rowKey = (ino: number, index: number): string => `${ino}:${index}`;

function asBytes(value: unknown): Uint8Array {
  if (value instanceof Uint8Array) return value;
  // The SDK's text rows, should there be any, are their UTF-8.
  return new TextEncoder().encode(String(value));
}
