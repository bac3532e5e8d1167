/**
 * The unwritten part of one file: whole chunks in memory, each at most as long as the database keeps it. A chunk that is
 * shorter than its place in the file ends in zeros.
 */
export class UnwrittenChunks {
  readonly #chunkSize: number;
  readonly #chunks = new Map<number, { bytes: Uint8Array; length: number }>();
  #weight = 0;

  constructor(chunkSize: number) {
    this.#chunkSize = chunkSize;
  }

  /** Bytes of memory. */
  get weight(): number {
    return this.#weight;
  }

  /** Chunks. */
  get size(): number {
    return this.#chunks.size;
  }

  get(index: number): Uint8Array | undefined {
    const chunk = this.#chunks.get(index);
    return chunk?.bytes.subarray(0, chunk.length);
  }

  has(index: number): boolean {
    return this.#chunks.has(index);
  }

  /** Puts `bytes` at `at` within the chunk; `base` is what the database has of it, when it is not here yet. */
  write(index: number, at: number, bytes: Uint8Array, base: Uint8Array | null): void {
    const end = at + bytes.length;
    let chunk = this.#chunks.get(index);
    if (!chunk) {
      const length = base?.length ?? 0;
      chunk = { bytes: new Uint8Array(this.#capacityFor(Math.max(end, length))), length };
      if (base) chunk.bytes.set(base);
      this.#chunks.set(index, chunk);
      this.#weight += chunk.bytes.length;
    }
    if (end > chunk.bytes.length) {
      const larger = new Uint8Array(this.#capacityFor(end));
      larger.set(chunk.bytes.subarray(0, chunk.length));
      this.#weight += larger.length - chunk.bytes.length;
      chunk.bytes = larger;
    }
    chunk.bytes.set(bytes, at);
    chunk.length = Math.max(chunk.length, end);
  }

  delete(index: number): void {
    this.#weight -= this.#chunks.get(index)?.bytes.length ?? 0;
    this.#chunks.delete(index);
  }

  /** Forgets chunks from `kept` on. */
  cut(kept: number): void {
    for (const index of [...this.#chunks.keys()]) if (index >= kept) this.delete(index);
  }

  *entries(): Generator<[number, Uint8Array]> {
    for (const [index, chunk] of this.#chunks) yield [index, chunk.bytes.subarray(0, chunk.length)];
  }

  #capacityFor(length: number): number {
    let capacity = 1024;
    while (capacity < length) capacity *= 2;
    return Math.min(capacity, this.#chunkSize);
  }
}
