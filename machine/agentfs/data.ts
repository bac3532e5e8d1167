/**
 * The contents of files: rows of `fs_data`, holes, partial writes, truncation. Written data waits in memory for a close, an
 * fsync, a work boundary, a limit or one second, so that a hundred small writes are one row and one commit.
 */
import { breathe } from './breathe.ts';
import { UnwrittenChunks } from './chunks.ts';
import { FileError } from './errors.ts';
import { type Inode, now } from './inode.ts';
import { ContentRows } from './rows.ts';
import { isDirectory, isRegular } from './schema.ts';
import type { Store } from './store.ts';
import type { Transaction } from './transaction.ts';

const nothing = new Uint8Array(0);

export class FileData {
  readonly #store: Store;
  readonly #unwritten = new Map<number, UnwrittenChunks>();
  readonly #rows: ContentRows;
  #timer: Timer | null = null;
  /** Bytes of the database that are in use, at most: what is freed is counted when room runs out. */
  #used: number | null = null;

  constructor(store: Store) {
    this.#store = store;
    this.#rows = new ContentRows(store);
  }

  /** At most `length` bytes from `offset`; fewer only at the end of the file. */
  read(ino: number, offset: number, length: number): Uint8Array | Promise<Uint8Array> {
    const inode = this.#store.cachedInode(ino);
    if (inode) {
      const cached = this.#readFromMemory(inode, offset, length);
      if (cached) return cached;
    }
    return this.#store.exclusive(async () => {
      const inode = await this.#regularHere(ino);
      const end = Math.min(inode.size, offset + length);
      if (offset >= end) return nothing;
      await this.#rows.load(ino, Math.floor(offset / this.#chunkSize), Math.floor((end - 1) / this.#chunkSize));
      const result = new Uint8Array(end - offset);
      for (const part of this.#parts(offset, end)) {
        const chunk = await this.#chunkHere(ino, part.index);
        result.set(chunk.subarray(part.from, part.to), part.at);
      }
      return result;
    });
  }

  /** Writes all of `bytes` at `offset`, or at the end when `offset` is 'end'. EFBIG and ENOSPC write nothing. */
  write(ino: number, offset: number | 'end', bytes: Uint8Array): Promise<void> {
    return this.#store.exclusive(async () => {
      const inode = await this.#ownHere(ino);
      const start = offset === 'end' ? inode.size : offset;
      const end = start + bytes.length;
      if (end > this.#store.limits.largestFile) throw new FileError('EFBIG', `${end} bytes`);
      await this.#requireRoom(bytes.length);
      if (bytes.length === 0) return;
      const chunks = this.#unwritten.get(ino) ?? new UnwrittenChunks(this.#chunkSize);
      for (const part of this.#parts(start, end)) {
        const isWhole =
          part.from === 0 && (part.to === this.#chunkSize || part.index * this.#chunkSize + part.to >= inode.size);
        const isBeyond = part.index * this.#chunkSize >= inode.size;
        const base = chunks.has(part.index) || isWhole || isBeyond ? null : await this.#chunkHere(ino, part.index);
        chunks.write(part.index, part.from, bytes.subarray(part.at, part.at + part.to - part.from), base);
      }
      this.#unwritten.set(ino, chunks);
      const stamp = now();
      this.#store.setAhead(ino, { ...inode, size: Math.max(inode.size, end), mtime: stamp, ctime: stamp });
      if (chunks.weight > this.#store.limits.unwrittenOfOneFile) await this.#commitHere(ino);
      else if (this.#weight() > this.#store.limits.unwritten) await this.commitAllHere();
      else this.#scheduleCommit();
    });
  }

  /** Makes the file `size` bytes long; what is added reads as zeros. */
  truncate(ino: number, size: number): Promise<Inode> {
    return this.#store.exclusive(async () => {
      const inode = await this.#ownHere(ino);
      if (size > this.#store.limits.largestFile) throw new FileError('EFBIG', `${size} bytes`);
      return this.#store.transactHere((transaction) => this.#truncateHere(transaction, inode, size));
    });
  }

  /** Makes a range read as zeros, within the file's size. */
  punch(ino: number, offset: number, length: number): Promise<void> {
    return this.#store.exclusive(async () => {
      const inode = await this.#ownHere(ino);
      const end = Math.min(inode.size, offset + length);
      if (offset >= end) return;
      if (this.#unwritten.has(ino)) await this.#commitHere(ino);
      await this.#store.transactHere(async (transaction) => {
        for (const part of this.#parts(offset, end)) {
          const chunk = await this.#chunkHere(ino, part.index);
          if (part.from >= chunk.length) continue;
          const zeroed = Uint8Array.from(chunk);
          zeroed.fill(0, part.from, Math.min(part.to, chunk.length));
          await this.#rows.write(transaction, ino, part.index, zeroed);
        }
        const stamp = now();
        const current = (await transaction.inode(ino)) ?? inode;
        await transaction.patchInode(current, { mtime: stamp, ctime: stamp });
      });
    });
  }

  /** Commits what is unwritten of one file. */
  commit(ino: number): Promise<void> {
    if (!this.#unwritten.has(ino)) return Promise.resolve();
    return this.#store.exclusive(() => this.#commitHere(ino));
  }

  /** Commits everything that is unwritten; what cannot be committed stays unwritten. */
  commitAll(): Promise<void> {
    if (this.#unwritten.size === 0) return Promise.resolve();
    return this.#store.exclusive(() => this.commitAllHere());
  }

  /** The same for whoever runs exclusively. */
  async commitAllHere(): Promise<void> {
    for (const ino of [...this.#unwritten.keys()]) {
      // The data stays unwritten: whoever closes or syncs that file tries again and gets the failure.
      await this.#commitHere(ino).catch((error: unknown) =>
        console.error(`agentfs: file ${ino} not committed: ${error instanceof Error ? error.message : String(error)}`),
      );
    }
  }

  /** Forgets a file whose rows are gone. */
  forget(ino: number): void {
    this.#unwritten.delete(ino);
    this.#store.setAhead(ino, null);
  }

  /** Forgets what was read: a pull may have changed it. */
  forgetRead(): void {
    this.#rows.forgetAll();
    this.#used = null;
  }

  /** Bytes that the database uses. */
  async used(): Promise<number> {
    return this.#store.exclusive(() => this.#usedHere());
  }

  stop(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
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

  #readFromMemory(inode: Inode, offset: number, length: number): Uint8Array | null {
    if (!isRegular(inode.mode)) return null;
    const end = Math.min(inode.size, offset + length);
    if (offset >= end) return nothing;
    const unwritten = this.#unwritten.get(inode.ino);
    const result = new Uint8Array(end - offset);
    for (const part of this.#parts(offset, end)) {
      const chunk = unwritten?.get(part.index) ?? this.#rows.remembered(inode.ino, part.index);
      if (!chunk) return null;
      result.set(chunk.subarray(part.from, part.to), part.at);
    }
    return result;
  }

  /** The bytes of one chunk as they are now; shorter than its place when the rest is zeros. */
  async #chunkHere(ino: number, index: number): Promise<Uint8Array> {
    return this.#unwritten.get(ino)?.get(index) ?? this.#rows.row(ino, index);
  }

  async #commitHere(ino: number): Promise<void> {
    const chunks = this.#unwritten.get(ino);
    const inode = this.#store.cachedInode(ino);
    if (!chunks || !inode) return;
    await this.#store.transactHere(async (transaction) => {
      let rows = 0;
      for (const [index, bytes] of chunks.entries()) {
        await this.#rows.write(transaction, ino, index, bytes);
        rows += 1;
        if (rows % 8 === 0) await breathe();
      }
      await transaction.patchInode(inode, { size: inode.size, mtime: inode.mtime, ctime: inode.ctime });
      transaction.afterCommit(() => {
        for (const [index, bytes] of chunks.entries()) this.#rows.remember(ino, index, bytes);
        this.#unwritten.delete(ino);
        this.#store.setAhead(ino, null);
      });
    });
    if (this.#used !== null) this.#used += chunks.weight;
  }

  async #truncateHere(transaction: Transaction, inode: Inode, size: number): Promise<Inode> {
    const { ino } = inode;
    const kept = Math.ceil(size / this.#chunkSize);
    const cut = size - (kept - 1) * this.#chunkSize;
    for (const [index, bytes] of this.#unwritten.get(ino)?.entries() ?? []) {
      if (index < kept)
        await this.#rows.write(transaction, ino, index, index === kept - 1 ? bytes.subarray(0, cut) : bytes);
    }
    if (size < inode.size) {
      await transaction.removeData(inode, kept);
      if (kept > 0 && cut < this.#chunkSize) {
        await transaction.driver.run(
          'UPDATE fs_data SET data = substr(data, 1, ?) WHERE ino = ? AND chunk_index = ? AND length(data) > ?',
          cut,
          ino,
          kept - 1,
          cut,
        );
      }
    }
    const touched = Math.ceil(Math.max(inode.size, size) / this.#chunkSize);
    const stamp = now();
    const truncated = await transaction.patchInode(inode, { size, mtime: stamp, ctime: stamp });
    transaction.afterCommit(() => {
      this.#unwritten.delete(ino);
      this.#store.setAhead(ino, null);
      this.#rows.forget(ino, touched);
    });
    return truncated;
  }

  async #usedHere(): Promise<number> {
    const { driver } = this.#store;
    const [pages, free, size] = [
      await driver.get('PRAGMA page_count'),
      await driver.get('PRAGMA freelist_count'),
      await driver.get('PRAGMA page_size'),
    ];
    return (Number(pages?.page_count) - Number(free?.freelist_count ?? 0)) * Number(size?.page_size);
  }

  async #requireRoom(bytes: number): Promise<void> {
    this.#used ??= await this.#usedHere();
    const wanted = this.#weight() + bytes;
    const { capacity } = this.#store.limits;
    if (this.#used + wanted > capacity) this.#used = await this.#usedHere();
    if (this.#used + wanted > capacity) {
      throw new FileError('ENOSPC', `the organization's files may have ${capacity} bytes`);
    }
  }

  /** One commit, later: not a look whether anything changed. */
  #scheduleCommit(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      void this.commitAll();
    }, this.#store.limits.commitAfterMs);
  }
}
