/** Rows of `fs_data`, with a bounded memory of those that were read or written lately. */
import { BoundedCache } from './bounded-cache.ts';
import { bytesAsSql } from './driver.ts';
import type { Store } from './store.ts';
import type { Transaction } from './transaction.ts';

const nothing = new Uint8Array(0);

export class ContentRows {
  readonly #store: Store;
  /** An empty one is a hole. */
  readonly #remembered: BoundedCache<string, Uint8Array>;

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
    const row = await this.#store.driver.get('SELECT data FROM fs_data WHERE ino = ? AND chunk_index = ?', ino, index);
    const bytes = row ? asBytes(row.data) : nothing;
    this.#remembered.set(rowKey(ino, index), bytes);
    return bytes;
  }

  /** Reads rows `first`…`last` at once where several are not remembered. */
  async load(ino: number, first: number, last: number): Promise<void> {
    let [from, to] = [first, last];
    while (from <= to && this.remembered(ino, from)) from += 1;
    while (to >= from && this.remembered(ino, to)) to -= 1;
    if (from >= to) return;
    const rows = await this.#store.driver.all(
      'SELECT chunk_index, data FROM fs_data WHERE ino = ? AND chunk_index BETWEEN ? AND ?',
      ino,
      from,
      to,
    );
    for (let index = from; index <= to; index++) this.#remembered.set(rowKey(ino, index), nothing);
    for (const row of rows) this.#remembered.set(rowKey(ino, Number(row.chunk_index)), asBytes(row.data));
  }

  async write(transaction: Transaction, ino: number, index: number, bytes: Uint8Array): Promise<void> {
    const { expression, value } = bytesAsSql(bytes);
    await transaction.driver.run(
      `INSERT INTO fs_data (ino, chunk_index, data) VALUES (?, ?, ${expression}) ` +
        'ON CONFLICT(ino, chunk_index) DO UPDATE SET data = excluded.data',
      ino,
      index,
      value,
    );
    // The caller may still own the bytes; only what it hands over after the commit is remembered.
    transaction.afterCommit(() => this.#remembered.delete(rowKey(ino, index)));
  }

  /** Remembers what was committed. The bytes must not change any more. */
  remember(ino: number, index: number, bytes: Uint8Array): void {
    this.#remembered.set(rowKey(ino, index), bytes);
  }

  /** Forgets the first `count` rows of a file. */
  forget(ino: number, count: number): void {
    if (count > 4096) this.#remembered.clear();
    else for (let index = 0; index < count; index++) this.#remembered.delete(rowKey(ino, index));
  }

  forgetAll(): void {
    this.#remembered.clear();
  }
}

const rowKey = (ino: number, index: number): string => `${ino}:${index}`;

function asBytes(value: unknown): Uint8Array {
  if (value instanceof Uint8Array) return value;
  // The SDK's text rows, should there be any, are their UTF-8.
  return new TextEncoder().encode(String(value));
}
