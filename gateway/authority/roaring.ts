/**
 * Reads the portable serialization of a 32-bit Roaring bitmap (github.com/RoaringBitmap/RoaringFormatSpec). Containers are
 * tested in place: unfolding them could take any amount of memory from a few bytes.
 */

const COOKIE_WITH_RUNS = 12347;
const COOKIE_WITHOUT_RUNS = 12346;
const NO_OFFSETS_BELOW = 4;
const ARRAY_CONTAINER_MAX = 4096;
const BITMAP_CONTAINER_BYTES = 8192;

export class RoaringError extends Error {}

type Container = { kind: 'array' | 'bitmap' | 'run'; at: number; length: number };

export class RoaringBitmap {
  readonly #view: DataView;
  readonly #containers = new Map<number, Container>();

  /** @throws RoaringError when the bytes are not such a bitmap */
  constructor(bytes: Uint8Array) {
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    try {
      this.#parse();
    } catch (error) {
      if (error instanceof RangeError) throw new RoaringError('the bitmap is cut off');
      throw error;
    }
  }

  #parse(): void {
    const view = this.#view;
    const cookie = view.getUint32(0, true);
    let at: number;
    let count: number;
    let runFlags = -1;
    if ((cookie & 0xffff) === COOKIE_WITH_RUNS) {
      count = (cookie >>> 16) + 1;
      runFlags = 4;
      at = 4 + Math.ceil(count / 8);
    } else if (cookie === COOKIE_WITHOUT_RUNS) {
      count = view.getUint32(4, true);
      at = 8;
    } else throw new RoaringError('not a Roaring bitmap');
    if (count > 65_536) throw new RoaringError('too many containers');
    const keysAt = at;
    at += count * 4;
    if (runFlags < 0 || count >= NO_OFFSETS_BELOW) at += count * 4;
    let lastKey = -1;
    for (let i = 0; i < count; i++) {
      const key = view.getUint16(keysAt + i * 4, true);
      const cardinality = view.getUint16(keysAt + i * 4 + 2, true) + 1;
      if (key <= lastKey) throw new RoaringError('containers are out of order');
      lastKey = key;
      let container: Container;
      if (runFlags >= 0 && (view.getUint8(runFlags + (i >> 3)) >> (i & 7)) & 1) {
        const runs = view.getUint16(at, true);
        container = { kind: 'run', at: at + 2, length: runs };
        at += 2 + runs * 4;
      } else if (cardinality <= ARRAY_CONTAINER_MAX) {
        container = { kind: 'array', at, length: cardinality };
        at += cardinality * 2;
      } else {
        container = { kind: 'bitmap', at, length: BITMAP_CONTAINER_BYTES };
        at += BITMAP_CONTAINER_BYTES;
      }
      if (at > view.byteLength) throw new RoaringError('the bitmap is cut off');
      this.#containers.set(key, container);
    }
  }

  has(value: number): boolean {
    const container = this.#containers.get(value >>> 16);
    if (!container) return false;
    const low = value & 0xffff;
    const view = this.#view;
    if (container.kind === 'bitmap') return ((view.getUint8(container.at + (low >> 3)) >> (low & 7)) & 1) === 1;
    // The last entry that does not lie behind `low`; entries are sorted.
    const width = container.kind === 'run' ? 4 : 2;
    let from = 0;
    let to = container.length;
    while (from < to) {
      const middle = (from + to) >> 1;
      if (view.getUint16(container.at + middle * width, true) <= low) from = middle + 1;
      else to = middle;
    }
    if (from === 0) return false;
    const entry = container.at + (from - 1) * width;
    const start = view.getUint16(entry, true);
    return container.kind === 'run' ? low <= start + view.getUint16(entry + 2, true) : start === low;
  }
}
