/**
 * Contents that were written and are not in the database yet: one file beside the replica, appended to. The engine takes
 * random bytes at 10–25 MB/s; so a close and an fsync of much cost a sequential write here, and the database gets it in the
 * background in small slices, before the end of the work boundary at the latest. What was not moved when a machine died is
 * found again by the next one.
 *
 * As long as a file has anything here, all its contents come here, so that what is found always is the latest. A record counts
 * when the group of the operation that wrote it was committed. Before a pull the file itself says so of all that is in it;
 * of what came behind that, the ctime of the inode's row tells, which a pull may set to any other host's clock. The first record
 * that is not whole ends what is found.
 */
import * as fs from 'node:fs';
import { promisify } from 'node:util';
import { FileError } from './errors.ts';
import { type Inode, isLater, type Stamp, stampNotBefore } from './inode.ts';
import {
  decodeHeader,
  encodeHeader,
  isWhole,
  maxRecordBytes,
  recordHeaderBytes,
  type SpoolRecord,
} from './spool-records.ts';

/** Where a chunk lies in the file. */
export interface Spooled {
  readonly ino: number;
  readonly index: number;
  readonly offset: number;
  readonly length: number;
  /** Where in the file the record begins that made it current. */
  readonly since: number;
}

/** A record as it was found, and where it begins. */
interface Found {
  readonly record: SpoolRecord;
  readonly length: number;
  readonly since: number;
}

/** The committed row of an inode, or null when there is none. */
export type CommittedInode = (ino: number) => Promise<Pick<Inode, 'size' | 'ctime'> | null>;

const none = new Uint8Array(0);
const ever: Stamp = { seconds: 0, nanoseconds: 0 };

const [open, ftruncate, fdatasync, fstat, close] = [
  promisify(fs.open),
  promisify(fs.ftruncate),
  promisify(fs.fdatasync),
  promisify(fs.fstat),
  promisify(fs.close),
];

/** Fills `into` from there on; answers with the bytes that there were. */
function read(fd: number, into: Uint8Array, position: number): Promise<number> {
  return new Promise((resolve, reject) => {
    fs.read(fd, into, 0, into.length, position, (error, count) => (error ? reject(error) : resolve(count)));
  });
}

function writev(fd: number, parts: readonly Uint8Array[], position: number): Promise<number> {
  return new Promise((resolve, reject) => {
    fs.writev(fd, parts, position, (error, count) => (error ? reject(error) : resolve(count)));
  });
}

export class Spool {
  readonly #fd: number;
  readonly #chunkSize: number;
  #end = 0;
  /** By inode and chunk. A file stays in here until the spool is emptied. */
  readonly #files = new Map<number, Map<number, Spooled>>();
  /** In the order in which they were written; those that are no longer current are passed over. */
  #queue: Spooled[] = [];
  #first = 0;
  /** Chunks that were in the queue before it was emptied. */
  #before = 0;
  /** Of what is before this place the file says that it counts, and what of it was moved. */
  #notedUpTo = 0;
  /** Whether something was moved since. */
  #hasMoved = false;
  #isSynced = true;

  private constructor(fd: number, chunkSize: number) {
    this.#fd = fd;
    this.#chunkSize = chunkSize;
  }

  /** Opens the file, and finds what a machine that died left in it. */
  static async open(path: string, chunkSize: number, committed: CommittedInode): Promise<Spool> {
    const flags = fs.constants.O_RDWR | fs.constants.O_CREAT;
    const spool = new Spool(await open(path, flags, 0o600), chunkSize);
    await spool.find(committed);
    return spool;
  }

  /** Bytes of the file. */
  get bytes(): number {
    return this.#end;
  }

  /** Chunks appended in this spool's life. They are moved when as many are `taken`. */
  get appended(): number {
    return this.#before + this.#queue.length;
  }

  get taken(): number {
    return this.#before + this.#first;
  }

  has(ino: number): boolean {
    return this.#files.has(ino);
  }

  /** Whether something of the file is still to be moved. */
  holds(ino: number): boolean {
    return (this.#files.get(ino)?.size ?? 0) > 0;
  }

  chunk(ino: number, index: number): Spooled | undefined {
    return this.#files.get(ino)?.get(index);
  }

  /** Appends contents from the beginning of chunk `index` on: whole chunks, and the last may be shorter. */
  async append(ino: number, index: number, bytes: Uint8Array, at: Stamp): Promise<void> {
    const chunksOfRecord = Math.max(1, Math.floor(maxRecordBytes / this.#chunkSize));
    const step = chunksOfRecord * this.#chunkSize;
    for (let from = 0; from < bytes.length; from += step) {
      const part = bytes.subarray(from, from + step);
      const place = index + from / this.#chunkSize;
      const since = this.#end;
      this.#add(ino, place, await this.#write({ kind: 'contents', ino, place, at }, part), part.length, since);
    }
  }

  /** The file has `size` bytes now. Nothing to do for a file that has nothing here. */
  async cut(ino: number, size: number, at: Stamp): Promise<void> {
    if (!this.#files.has(ino)) return;
    const since = this.#end;
    await this.#write({ kind: 'cut', ino, place: size, at }, none);
    this.#forgetFrom(ino, size, since);
  }

  /** The file is gone with its row. */
  drop(ino: number): void {
    this.#files.get(ino)?.clear();
  }

  async read({ offset, length }: Spooled): Promise<Uint8Array> {
    const bytes = new Uint8Array(length);
    if ((await read(this.#fd, bytes, offset)) !== length)
      throw new FileError('EIO', 'the spool file is shorter than it was');
    return bytes;
  }

  /** The next one to be moved; null when there is none. */
  next(): Spooled | null {
    for (; this.#first < this.#queue.length; this.#first++) {
      const spooled = this.#queue[this.#first]!;
      if (this.chunk(spooled.ino, spooled.index) === spooled) return spooled;
    }
    return null;
  }

  /** It stands in the open group; or there is no such file any more. */
  moved({ ino, index }: Spooled): void {
    this.#files.get(ino)?.delete(index);
    this.#first += 1;
    this.#hasMoved = true;
  }

  /** Whether the file does not say yet how things are now. */
  get needsNote(): boolean {
    return this.#end > this.#notedUpTo || this.#hasMoved;
  }

  /**
   * Writes down durably that what is here counts, and what was moved no longer: what a pull brings from now on is later, and
   * its times are of other clocks. For when all of it is committed, and durable in the database what was moved.
   */
  async note(): Promise<void> {
    const place = this.next()?.since ?? this.#end;
    await this.#write({ kind: 'note', ino: 0, place, at: ever }, none);
    this.#notedUpTo = this.#end;
    this.#hasMoved = false;
    await this.sync();
  }

  async sync(): Promise<void> {
    if (this.#isSynced) return;
    this.#isSynced = true;
    await fdatasync(this.#fd);
  }

  /** Ends what is here: everything was moved, and the database has it durably. */
  async empty(): Promise<void> {
    await ftruncate(this.#fd, 0);
    await fdatasync(this.#fd);
    this.#clear();
  }

  /** Reads the file anew: what counts of it, now that a machine or a group was lost. */
  async find(committed: CommittedInode): Promise<void> {
    this.#clear();
    const { size } = await fstat(this.#fd);
    const header = new Uint8Array(recordHeaderBytes);
    const records: Found[] = [];
    while (this.#end + recordHeaderBytes <= size) {
      await read(this.#fd, header, this.#end);
      const decoded = decodeHeader(header);
      if (!decoded) break;
      const contents = new Uint8Array(decoded.length);
      const count = await read(this.#fd, contents, this.#end + recordHeaderBytes);
      if (count !== contents.length || !isWhole(header, contents)) break;
      records.push({ record: decoded.record, length: decoded.length, since: this.#end });
      this.#end += recordHeaderBytes + contents.length;
      if (decoded.record.kind === 'note') this.#notedUpTo = this.#end;
    }
    // What is behind is not whole: it must not be taken for a record when others are written before it.
    if (this.#end < size) await ftruncate(this.#fd, this.#end);
    for (const found of records) await this.#take(found, committed);
    for (const ino of this.#files.keys()) this.#forgetFrom(ino, (await committed(ino))?.size ?? 0, this.#end);
    this.#isSynced = false;
  }

  close(): Promise<void> {
    return close(this.#fd);
  }

  #clear(): void {
    this.#before += this.#queue.length;
    this.#end = 0;
    this.#notedUpTo = 0;
    this.#hasMoved = false;
    this.#files.clear();
    this.#queue = [];
    this.#first = 0;
  }

  async #take({ record, length, since }: Found, committed: CommittedInode): Promise<void> {
    if (record.kind === 'void') return;
    // The host's clock may be behind what it was for the machine that wrote this: an older ctime would void what was synced.
    stampNotBefore(record.at);
    if (record.kind === 'note') return this.#forgetBefore(record.place);
    const inode = await committed(record.ino);
    if (!inode || (since >= this.#notedUpTo && isLater(record.at, inode.ctime))) {
      await this.#void(record, length, since);
    } else if (record.kind === 'cut') {
      if (!this.#files.has(record.ino)) this.#files.set(record.ino, new Map());
      this.#forgetFrom(record.ino, record.place, since);
    } else this.#add(record.ino, record.place, since + recordHeaderBytes, length, since);
  }

  /** It was never done, or its file is gone. It must not count later either, when the inode has a newer ctime. */
  async #void(record: SpoolRecord, length: number, since: number): Promise<void> {
    const contents = new Uint8Array(length);
    await read(this.#fd, contents, since + recordHeaderBytes);
    await writev(this.#fd, [encodeHeader({ ...record, kind: 'void' }, contents)], since);
  }

  async #write(record: SpoolRecord, contents: Uint8Array): Promise<number> {
    const at = this.#end;
    const header = encodeHeader(record, contents);
    const length = header.length + contents.length;
    this.#isSynced = false;
    const bytesWritten = await writev(this.#fd, contents.length > 0 ? [header, contents] : [header], at);
    // The end has not moved: what was written of it is written over.
    if (bytesWritten !== length) throw new FileError('ENOSPC', 'the disk has no room for the spool file');
    this.#end = at + length;
    return at + recordHeaderBytes;
  }

  #add(ino: number, index: number, offset: number, length: number, since: number): void {
    const chunks = this.#files.get(ino) ?? new Map<number, Spooled>();
    this.#files.set(ino, chunks);
    for (let at = 0; at < length; at += this.#chunkSize) {
      const spooled = {
        ino,
        index: index + at / this.#chunkSize,
        offset: offset + at,
        length: Math.min(this.#chunkSize, length - at),
        since,
      };
      chunks.set(spooled.index, spooled);
      this.#queue.push(spooled);
    }
  }

  #forgetBefore(place: number): void {
    for (const chunks of this.#files.values())
      for (const [index, { since }] of chunks) if (since < place) chunks.delete(index);
  }

  #forgetFrom(ino: number, size: number, since: number): void {
    const chunks = this.#files.get(ino);
    if (!chunks) return;
    for (const [index, spooled] of [...chunks]) {
      const length = Math.min(spooled.length, size - index * this.#chunkSize);
      if (length <= 0) chunks.delete(index);
      else if (length < spooled.length) {
        const shorter = { ...spooled, length, since };
        chunks.set(index, shorter);
        this.#queue.push(shorter);
      }
    }
  }
}
