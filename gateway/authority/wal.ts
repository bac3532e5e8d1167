/**
 * Reads SQLite's write-ahead log next to SQLite: which pages were committed since the last look, and where each one's newest
 * content stands. Salts and checksums are verified as SQLite verifies them (sqlite.org/fileformat2.html#walformat).
 */
import { closeSync, existsSync, openSync, readSync } from 'node:fs';

export const PAGE_BYTES = 4096;
const HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;
const FRAME_BYTES = FRAME_HEADER_BYTES + PAGE_BYTES;
const MAGIC_LITTLE_ENDIAN = 0x377f0682;
const MAGIC_BIG_ENDIAN = 0x377f0683;
const FRAMES_PER_READ = 64;

/** What a log is known by: salts change whenever SQLite starts it over. */
export type WalIdentity = { salt1: number; salt2: number; frames: number };

/** Pages committed since the last `advance`, with the position of their content in the log. */
export type WalAdvance = {
  pages: Map<number, number>;
  /** Size of the database in pages; null when nothing was committed. */
  databasePages: number | null;
  /** SQLite has started the log over, so positions given before are void. */
  restarted: boolean;
};

type Checksum = { first: number; second: number };

/** Continues SQLite's checksum over `bytes` (a multiple of 8). */
function checksum(bytes: DataView, littleEndian: boolean, from: number, to: number, sum: Checksum): void {
  let { first, second } = sum;
  if (littleEndian && bytes.byteOffset % 4 === 0 && from % 4 === 0) {
    const words = new Int32Array(bytes.buffer, bytes.byteOffset + from, (to - from) / 4);
    for (let i = 0; i < words.length; i += 2) {
      first = (first + words[i]! + second) | 0;
      second = (second + words[i + 1]! + first) | 0;
    }
  } else {
    for (let at = from; at < to; at += 8) {
      first = (first + bytes.getInt32(at, littleEndian) + second) | 0;
      second = (second + bytes.getInt32(at + 4, littleEndian) + first) | 0;
    }
  }
  sum.first = first;
  sum.second = second;
}

export class WriteAheadLog {
  readonly #path: string;
  #descriptor: number | null = null;
  #salt1 = 0;
  #salt2 = 0;
  #littleEndian = true;
  #started = false;
  /** Behind the last committed frame. */
  #end = HEADER_BYTES;
  #sum: Checksum = { first: 0, second: 0 };
  readonly #buffer = new Uint8Array(FRAMES_PER_READ * FRAME_BYTES);

  constructor(path: string) {
    this.#path = path;
  }

  get identity(): WalIdentity | null {
    if (!this.#started) return null;
    return { salt1: this.#salt1, salt2: this.#salt2, frames: (this.#end - HEADER_BYTES) / FRAME_BYTES };
  }

  /** Looks at what was committed since the last call. A log that was started over is read from its beginning. */
  advance(): WalAdvance {
    const pages = new Map<number, number>();
    let databasePages: number | null = null;
    const salts = [this.#salt1, this.#salt2];
    if (!this.#readHeader()) return { pages, databasePages, restarted: false };
    const restarted = salts[0] !== this.#salt1 || salts[1] !== this.#salt2;
    let at = this.#end;
    const sum = { ...this.#sum };
    let pending: [page: number, position: number][] = [];
    for (;;) {
      const length = readSync(this.#descriptor!, this.#buffer, 0, this.#buffer.length, at);
      const view = new DataView(this.#buffer.buffer, 0, length);
      let offset = 0;
      for (; offset + FRAME_BYTES <= length; offset += FRAME_BYTES) {
        if (view.getInt32(offset + 8) !== this.#salt1 || view.getInt32(offset + 12) !== this.#salt2) break;
        checksum(view, this.#littleEndian, offset, offset + 8, sum);
        checksum(view, this.#littleEndian, offset + FRAME_HEADER_BYTES, offset + FRAME_BYTES, sum);
        if (view.getInt32(offset + 16) !== sum.first || view.getInt32(offset + 20) !== sum.second) break;
        pending.push([view.getUint32(offset), at + offset + FRAME_HEADER_BYTES]);
        const committed = view.getUint32(offset + 4);
        if (committed === 0) continue;
        for (const [page, position] of pending) pages.set(page, position);
        pending = [];
        databasePages = committed;
        this.#end = at + offset + FRAME_BYTES;
        this.#sum = { ...sum };
      }
      at += offset;
      if (offset === 0 || length < this.#buffer.length) return { pages, databasePages, restarted };
    }
  }

  /** Reads `PAGE_BYTES` at a position that `advance` gave. */
  readPage(position: number, target: Uint8Array, at: number): void {
    const length = readSync(this.#descriptor!, target, at, PAGE_BYTES, position);
    if (length !== PAGE_BYTES) throw new Error('a page of the write-ahead log is cut off');
  }

  /** Call after the databases are closed: closing drops nothing SQLite needs, but the file may be gone. */
  close(): void {
    if (this.#descriptor !== null) closeSync(this.#descriptor);
    this.#descriptor = null;
  }

  #readHeader(): boolean {
    if (this.#descriptor === null) {
      if (!existsSync(this.#path)) return false;
      this.#descriptor = openSync(this.#path, 'r');
    }
    const header = new Uint8Array(HEADER_BYTES);
    if (readSync(this.#descriptor, header, 0, HEADER_BYTES, 0) !== HEADER_BYTES) return false;
    const view = new DataView(header.buffer);
    const salt1 = view.getInt32(16);
    const salt2 = view.getInt32(20);
    if (this.#started && salt1 === this.#salt1 && salt2 === this.#salt2) return true;
    const magic = view.getUint32(0);
    if (magic !== MAGIC_LITTLE_ENDIAN && magic !== MAGIC_BIG_ENDIAN) return false;
    if (view.getUint32(8) !== PAGE_BYTES) return false;
    const littleEndian = magic === MAGIC_LITTLE_ENDIAN;
    const sum = { first: 0, second: 0 };
    checksum(view, littleEndian, 0, 24, sum);
    if (view.getInt32(24) !== sum.first || view.getInt32(28) !== sum.second) return false;
    this.#littleEndian = littleEndian;
    this.#salt1 = salt1;
    this.#salt2 = salt2;
    this.#sum = sum;
    this.#end = HEADER_BYTES;
    this.#started = true;
    return true;
  }
}
