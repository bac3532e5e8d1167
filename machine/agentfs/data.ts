/**
 * The contents of files: holes, partial writes, truncation. Written data waits in memory for the end of the group, so that a
 * hundred small writes are one row; much of it goes into the spool, and from there into the rows of `fs_data` in the
 * background. A read sees memory, spool and rows in this order.
 */
import { UnwrittenChunks } from './chunks.ts';
import { Drain, rowsOfSlice } from './drain.ts';
import { FileError } from './errors.ts';
import { type Inode, laterThan, type Stamp } from './inode.ts';
import { ContentRows } from './rows.ts';
import { isDirectory, isRegular } from './schema.ts';
import { type CommittedInode, Spool } from './spool.ts';
import type { Keeper, Store } from './store.ts';

const nothing = new Uint8Array(0);

interface WrittenFile {
  readonly inode: Inode;
  readonly chunks: UnwrittenChunks;
}

export class FileData implements Keeper {
  readonly #store: Store;
  readonly #unwritten = new Map<number, UnwrittenChunks>();
  /** What is just being written out: a reader that does not wait for its end finds it here, not what was there before. */
  readonly #leaving = new Map<number, UnwrittenChunks>();
  readonly #rows: ContentRows;
  readonly #spool: Spool | null;
  readonly #drain: Drain;

  /** Finds what a machine that died had not moved into the database; a database in memory has no spool. */
  static async open(store: Store): Promise<FileData> {
    const { path } = store.driver;
    const spool = path === null ? null : await Spool.open(`${path}-spool`, store.chunkSize, committedInode(store));
    return new FileData(store, spool);
  }

  private constructor(store: Store, spool: Spool | null) {
    this.#store = store;
    this.#spool = spool;
    this.#rows = new ContentRows(store);
    this.#drain = new Drain(store, this.#rows, spool);
    store.keepWith(this);
  }

  /**
   * At most `length` bytes from `offset`; fewer only at the end of the file. Zeros stand before them in `room` bytes: whoever
   * answers with them need not copy them.
   */
  read(ino: number, offset: number, length: number, room = 0): Uint8Array | Promise<Uint8Array> {
    const inode = this.#store.cachedInode(ino);
    if (inode) {
      const cached = this.#readFromMemory(inode, offset, length, room);
      if (cached) return cached;
    }
    return this.#store.exclusive(async () => {
      const inode = await this.#regularHere(ino);
      const end = Math.min(inode.size, offset + length);
      const result = new Uint8Array(room + Math.max(0, end - offset));
      if (offset >= end) return result;
      const missing = [];
      for (const part of this.#parts(offset, end)) {
        const chunk = await this.#keptBackHere(ino, part.index);
        if (chunk) result.set(chunk.subarray(part.from, part.to), room + part.at);
        else missing.push(part);
      }
      const [first, last] = [missing[0], missing.at(-1)];
      if (!first || !last) return result;
      const limit = Math.ceil(inode.size / this.#chunkSize);
      const rows = await this.#rows.read(ino, first.index, last.index, limit);
      for (const part of missing) {
        const row = rows(part.index);
        if (row) result.set(row.subarray(part.from, part.to), room + part.at);
      }
      return result;
    });
  }

  /**
   * Writes all of `bytes` at `offset`, or at the end when `offset` is 'end'. EFBIG, EDQUOT and ENOSPC write nothing.
   *
   * `isOnlyWriter`: the kernel of the one mount that changes this file does; it has these bytes in its cache, and drops them
   * when it sees another mtime than before. So the mtime keeps still for 10 ms then, as on other file systems.
   */
  async write(
    ino: number,
    offset: number | 'end',
    bytes: Uint8Array,
    { isOnlyWriter = false }: { isOnlyWriter?: boolean } = {},
  ): Promise<void> {
    if (bytes.length >= this.#store.limits.spooledFrom) await this.#drain.room(bytes.length);
    const write = async () => {
      const inode = await this.#ownHere(ino);
      const start = offset === 'end' ? inode.size : offset;
      const end = start + bytes.length;
      if (end > this.#store.limits.largestFile) throw tooLarge(end, this.#store.limits.largestFile);
      if (bytes.length === 0) return;
      const count = await this.#store.quotas.resizeHere(ino, Math.max(0, end - inode.size));
      const stamp = laterThan(inode.ctime);
      await this.#put(inode, start, bytes, stamp);
      const mtime = isOnlyWriter && isSameTick(inode.mtime, stamp) ? inode.mtime : stamp;
      const patch = { mtime, ctime: stamp };
      this.#store.patchAhead(inode, end > inode.size ? { ...patch, size: end } : patch);
      count();
      await this.#keepWithinLimits(ino);
    };
    return this.#store.quotas.counted(() => this.#store.exclusive(write));
  }

  /** Makes the file `size` bytes long; what is added reads as zeros. A much larger file becomes so in steps. */
  async truncate(ino: number, size: number): Promise<Inode> {
    for (;;) {
      const truncated = await this.#store.quotas.counted(() =>
        this.#store.exclusive(() => this.#truncateStepHere(ino, size)),
      );
      if (truncated.size === size) return truncated;
    }
  }

  /** Makes a range read as zeros, within the file's size. */
  async punch(ino: number, offset: number, length: number): Promise<void> {
    const step = rowsOfSlice * this.#chunkSize;
    for (let at = offset; at < offset + length; at += step) {
      const punch = async () => {
        const inode = await this.#ownHere(ino);
        const end = Math.min(inode.size, offset + length, at + step);
        if (at >= end) return false;
        const stamp = laterThan(inode.ctime);
        for (const part of this.#parts(at, end)) {
          const chunk = await this.#chunkHere(ino, part.index);
          const to = Math.min(part.to, chunk.length);
          if (part.from >= to) continue;
          await this.#put(inode, part.index * this.#chunkSize + part.from, new Uint8Array(to - part.from), stamp);
        }
        this.#store.patchAhead(inode, { mtime: stamp, ctime: stamp });
        await this.#keepWithinLimits(ino);
        return true;
      };
      const isThere = await this.#store.quotas.counted(() => this.#store.exclusive(punch));
      if (!isThere) return;
    }
  }

  /** Ends the group that holds what is unwritten of a file; durable it is not (`Store.sync`). */
  commit(ino: number): Promise<void> {
    if (!this.#unwritten.has(ino) && !this.#store.cachedInode(ino)) return Promise.resolve();
    return this.#store.exclusive(() => this.#store.commitHere());
  }

  /** Runs alone, with the file as it is; `isInRows` where the rows have all its contents, and nothing is kept elsewhere. */
  settled<Result>(ino: number, work: (inode: Inode, isInRows: boolean) => Promise<Result>): Promise<Result> {
    return this.#store.exclusive(async () => {
      await this.#store.writeOutHere();
      const isElsewhere =
        this.#unwritten.has(ino) || this.#spool?.has(ino) || this.#store.overlay.node(ino) !== undefined;
      return work(await this.#regularHere(ino), !isElsewhere);
    });
  }

  /** Ends the open group. */
  commitAll(): Promise<void> {
    return this.#store.exclusive(() => this.commitAllHere());
  }

  /** The same for whoever runs exclusively. A failure is told to whoever syncs. */
  async commitAllHere(): Promise<void> {
    await this.#store.commitHere().catch((error: unknown) => console.error(`agentfs: not committed: ${error}`));
  }

  /**
   * The same before a pull brings what others wrote: what stands in the database already is not found again by a machine that
   * comes after this one died, over what the pull brought.
   */
  async commitBeforePullHere(): Promise<void> {
    await this.commitAllHere();
    await this.#drain.noteHere();
  }

  /** Moves all that was written until now into the database, and removes what waits to be removed, letting others in. */
  async settle(): Promise<void> {
    await this.settleUpTo(await this.mark(), Number.POSITIVE_INFINITY);
  }

  /** What was written until now, for `settleUpTo`. */
  async mark(): Promise<number> {
    // What memory keeps back goes into the spool with the next group: it must be there before the spool is moved.
    await this.commitAll();
    return this.#drain.mark;
  }

  /** The same as `settle` for what was there at a mark, and about so many bytes of it; answers whether that was all. */
  settleUpTo(mark: number, bytes: number): Promise<boolean> {
    return this.#drain.moveUpTo(mark, bytes);
  }

  /** Who settles when the spool is half full. */
  onPressing(settle: () => Promise<unknown>): void {
    this.#drain.onPressing(settle);
  }

  /** Forgets a file whose rows are gone. */
  forget(ino: number): void {
    this.#unwritten.delete(ino);
    // Before anything else is appended: the store is alone now.
    this.#drain.forget(ino);
  }

  /** Removes the contents and the row of a file without a name, in slices. */
  removeLater(inode: Inode): void {
    this.#drain.removeLater(inode);
  }

  /** What a program sees in a directory's list: it may read these files next. */
  listed(inodes: readonly Inode[]): void {
    this.#rows.listed(inodes);
  }

  /** Forgets what was read: a pull may have changed it. */
  forgetRead(): void {
    this.#rows.forgetAll();
  }

  stop(): void {
    this.#store.stop();
    this.#drain.stop();
  }

  async close(): Promise<void> {
    this.stop();
    await this.#drain.ended();
    await this.#spool?.close();
  }

  get keepsBack(): boolean {
    return this.#unwritten.size > 0;
  }

  async writeOutHere(): Promise<void> {
    const isTooMuch = this.#weight() > this.#store.limits.unwritten;
    const files: WrittenFile[] = [];
    for (const [ino, chunks] of [...this.#unwritten]) {
      const inode = this.#store.cachedInode(ino) ?? (await this.#store.inodeHere(ino));
      if (!inode) this.#unwritten.delete(ino);
      // A file without a name is read by nobody who comes later: it is written only where memory ends, its own or that of all.
      else if (inode.nlink > 0 || isTooMuch || chunks.weight > this.#store.limits.spooledFrom)
        files.push({ inode, chunks });
    }
    await this.#writeOutFiles(files);
  }

  async lost(): Promise<void> {
    this.#unwritten.clear();
    this.#rows.forgetAll();
    await this.#spool?.find(committedInode(this.#store));
  }

  async sync(): Promise<void> {
    await this.#spool?.sync();
  }

  get #chunkSize(): number {
    return this.#store.chunkSize;
  }

  #weight(): number {
    let weight = 0;
    for (const chunks of this.#unwritten.values()) weight += chunks.weight;
    return weight;
  }

  async #regularHere(ino: number): Promise<Inode> {
    const inode = await this.#store.inodeHere(ino);
    if (!inode) throw new FileError('ENOENT', `file ${ino} is gone`);
    if (isDirectory(inode.mode)) throw new FileError('EISDIR', `${ino} is a directory`);
    if (!isRegular(inode.mode)) throw new FileError('EINVAL', `${ino} is no regular file`);
    return inode;
  }

  /** The same to change it: what only the base has is copied up first. */
  async #ownHere(ino: number): Promise<Inode> {
    const inode = await this.#regularHere(ino);
    if (!this.#store.overlay.node(ino)) return inode;
    await this.#store.transactHere((transaction) => transaction.copyUp(ino));
    return this.#regularHere(ino);
  }

  /** Where bytes `start`…`end` of a file lie: `from`…`to` within chunk `index`, at `at` within the range. */
  *#parts(start: number, end: number): Generator<{ index: number; from: number; to: number; at: number }> {
    for (let position = start; position < end; ) {
      const index = Math.floor(position / this.#chunkSize);
      const from = position - index * this.#chunkSize;
      const to = Math.min(this.#chunkSize, end - index * this.#chunkSize);
      yield { index, from, to, at: position - start };
      position += to - from;
    }
  }

  #readFromMemory(inode: Inode, offset: number, length: number, room: number): Uint8Array | null {
    if (!isRegular(inode.mode)) return null;
    const end = Math.min(inode.size, offset + length);
    if (offset >= end) return new Uint8Array(room);
    const unwritten = this.#unwritten.get(inode.ino);
    const leaving = this.#leaving.get(inode.ino);
    const chunks: Uint8Array[] = [];
    for (const { index } of this.#parts(offset, end)) {
      const chunk =
        unwritten?.get(index) ??
        leaving?.get(index) ??
        (this.#spool?.chunk(inode.ino, index) ? null : this.#rows.remembered(inode.ino, index));
      if (!chunk) return null;
      chunks.push(chunk);
    }
    const result = new Uint8Array(room + end - offset);
    let at = 0;
    for (const part of this.#parts(offset, end)) result.set(chunks[at++]!.subarray(part.from, part.to), room + part.at);
    return result;
  }

  /** What memory or the spool has of a chunk; null when its row is it. */
  async #keptBackHere(ino: number, index: number): Promise<Uint8Array | null> {
    const unwritten = this.#unwritten.get(ino)?.get(index);
    if (unwritten) return unwritten;
    const spooled = this.#spool?.chunk(ino, index);
    return spooled ? this.#spool!.read(spooled) : null;
  }

  /** The bytes of one chunk as they are now; shorter than its place when the rest is zeros. */
  async #chunkHere(ino: number, index: number): Promise<Uint8Array> {
    const keptBack = await this.#keptBackHere(ino, index);
    if (keptBack) return keptBack;
    return this.#store.isNew(ino) ? nothing : this.#rows.row(ino, index);
  }

  async #put(inode: Inode, start: number, bytes: Uint8Array, at: Stamp): Promise<void> {
    const { ino, size } = inode;
    const chunks = this.#unwritten.get(ino) ?? new UnwrittenChunks(this.#chunkSize);
    const isMuch = this.#spool !== null && (this.#spool.has(ino) || bytes.length >= this.#store.limits.spooledFrom);
    let hasSpooled = false;
    for (const part of this.#parts(start, start + bytes.length)) {
      const isWhole = part.from === 0 && part.to === this.#chunkSize;
      if (isMuch && isWhole) {
        // All whole chunks at once and uncopied.
        const whole = Math.floor((bytes.length - part.at) / this.#chunkSize) * this.#chunkSize;
        if (!hasSpooled) await this.#spoolHere(ino, part.index, bytes.subarray(part.at, part.at + whole), at);
        hasSpooled = true;
        chunks.delete(part.index);
        continue;
      }
      const isBeyond = part.index * this.#chunkSize >= size;
      const isAll = part.from === 0 && (isWhole || part.index * this.#chunkSize + part.to >= size);
      const base = chunks.has(part.index) || isAll || isBeyond ? null : await this.#chunkHere(ino, part.index);
      chunks.write(part.index, part.from, bytes.subarray(part.at, part.at + part.to - part.from), base);
    }
    this.#keep(ino, chunks);
  }

  #keep(ino: number, chunks: UnwrittenChunks): void {
    if (chunks.size > 0) this.#unwritten.set(ino, chunks);
    else this.#unwritten.delete(ino);
  }

  async #spoolHere(ino: number, index: number, bytes: Uint8Array, at: Stamp): Promise<void> {
    if (!this.#spool) throw new Error('a database in memory has no spool');
    await this.#spool.append(ino, index, bytes, at);
    this.#rows.forget(ino, index, Math.ceil(bytes.length / this.#chunkSize));
    this.#drain.appended();
  }

  async #keepWithinLimits(ino: number): Promise<void> {
    const { limits } = this.#store;
    const chunks = this.#unwritten.get(ino);
    if (!chunks) return;
    if (
      chunks.weight > Math.min(limits.unwrittenOfOneFile, this.#spool ? limits.spooledFrom : Number.POSITIVE_INFINITY)
    ) {
      const inode = await this.#regularHere(ino);
      await this.#writeOutFiles([{ inode, chunks }]);
      // No rows of contents without their inode's: reading and removing look at that.
      if (!this.#spool?.has(ino)) await this.#store.commitHere();
    } else if (this.#weight() > limits.unwritten) await this.#store.commitHere();
  }

  /** Small rows of several files share their statements. */
  async #writeOutFiles(files: readonly WrittenFile[]): Promise<void> {
    // Before the first wait: what is written from now on is a chunk of its own.
    for (const { inode, chunks } of files) {
      this.#unwritten.delete(inode.ino);
      this.#leaving.set(inode.ino, chunks);
    }
    try {
      for (const file of files) await this.#writeOutFile(file);
      await this.#rows.writeSmall();
    } finally {
      for (const { inode } of files) this.#leaving.delete(inode.ino);
    }
  }

  async #writeOutFile({ inode: { ino, ctime }, chunks }: WrittenFile): Promise<void> {
    const isMuch = this.#spool !== null && (this.#spool.has(ino) || chunks.weight > this.#store.limits.spooledFrom);
    for (const [index, bytes] of chunks.entries()) {
      if (isMuch) await this.#spoolHere(ino, index, bytes, ctime);
      else {
        await this.#rows.write(ino, index, bytes);
        this.#rows.remember(ino, index, bytes);
      }
    }
  }

  async #truncateStepHere(ino: number, wanted: number): Promise<Inode> {
    const inode = await this.#ownHere(ino);
    if (wanted > this.#store.limits.largestFile) throw tooLarge(wanted, this.#store.limits.largestFile);
    const size = this.#store.isNew(ino) ? wanted : Math.max(wanted, this.#stepBelow(inode.size));
    const stamp = laterThan(inode.ctime);
    const patch = { size, mtime: stamp, ctime: stamp };
    const count = await this.#store.quotas.resizeHere(ino, size - inode.size);
    if (size < inode.size) await this.#cutHere(inode, size, stamp);
    this.#store.patchAhead(inode, patch);
    count();
    return { ...inode, ...patch };
  }

  /** The size that a file of `size` bytes has after one slice of its rows was removed. */
  #stepBelow(size: number): number {
    return Math.max(0, Math.ceil(size / this.#chunkSize) - rowsOfSlice) * this.#chunkSize;
  }

  async #cutHere({ ino, size: before }: Inode, size: number, at: Stamp): Promise<void> {
    const kept = Math.ceil(size / this.#chunkSize);
    const cut = size - (kept - 1) * this.#chunkSize;
    const last = kept > 0 && cut < this.#chunkSize ? await this.#chunkHere(ino, kept - 1) : nothing;
    const chunks = this.#unwritten.get(ino) ?? new UnwrittenChunks(this.#chunkSize);
    chunks.cut(kept);
    await this.#spool?.cut(ino, size, at);
    if (!this.#store.isNew(ino)) await this.#rows.removeFrom(ino, kept, Math.ceil(before / this.#chunkSize));
    if (last.length > cut) {
      chunks.delete(kept - 1);
      chunks.write(kept - 1, 0, last.slice(0, cut), null);
    }
    this.#keep(ino, chunks);
  }
}

/** Within 10 ms. */
function isSameTick(one: Stamp, other: Stamp): boolean {
  const nanoseconds = (other.seconds - one.seconds) * 1e9 + other.nanoseconds - one.nanoseconds;
  return nanoseconds >= 0 && nanoseconds < 10e6;
}

/** For whoever runs exclusively, with nothing in memory that is ahead of the rows. */
function committedInode(store: Store): CommittedInode {
  return (ino) => store.inodeHere(ino);
}

const tooLarge = (size: number, limit: number): FileError =>
  new FileError('EFBIG', `${size} bytes, of ${limit} that a file may have (EDGE_MAX_FILE_BYTES)`);
