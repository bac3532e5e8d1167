/**
 * The organization's one local replica as a file store sees it: one lock, one transaction an operation, and bounded caches
 * that only a commit changes. The store is the only writer of the replica besides `pull()`, which empties the caches.
 */
import { type BaseTree, emptyBase } from './base.ts';
import { BoundedCache } from './bounded-cache.ts';
import type { SqlDriver } from './driver.ts';
import { FileError } from './errors.ts';
import { type Inode, inodeColumns, inodeOfRow } from './inode.ts';
import { Overlay } from './overlay.ts';
import { defaultChunkSize } from './schema.ts';
import { Transaction } from './transaction.ts';

export interface StoreLimits {
  /** Bytes that one file may have (EFBIG beyond). */
  readonly largestFile: number;
  /** Bytes that the database may have (ENOSPC beyond). */
  readonly capacity: number;
  /** Bytes of written data that wait in memory for their commit, of one file and of all. */
  readonly unwrittenOfOneFile: number;
  readonly unwritten: number;
  /** Bytes of read data kept in memory. */
  readonly readCache: number;
  /** Inodes and names kept in memory. */
  readonly cachedInodes: number;
  readonly cachedNames: number;
  /** How long written data waits for a close, an fsync or the end of a work boundary. */
  readonly commitAfterMs: number;
}

export const defaultLimits: StoreLimits = {
  largestFile: 4 * 1024 ** 3,
  capacity: 64 * 1024 ** 3,
  unwrittenOfOneFile: 4 * 1024 ** 2,
  unwritten: 16 * 1024 ** 2,
  readCache: 32 * 1024 ** 2,
  cachedInodes: 100_000,
  cachedNames: 200_000,
  commitAfterMs: 1_000,
};

export class Store {
  readonly driver: SqlDriver;
  readonly limits: StoreLimits;
  readonly chunkSize: number;
  /** The immutable layer below, and what the delta leaves of it. */
  readonly overlay: Overlay;
  #tail: Promise<unknown> = Promise.resolve();
  readonly #inodes: BoundedCache<number, Inode>;
  readonly #names: BoundedCache<string, number>;
  /** The directory that an inode was last seen in; what a file with several names has here is one of them. */
  readonly #parents: BoundedCache<number, number>;
  /** Files with unwritten data: their true size and times are here, not in their row. Kept by `FileData`. */
  readonly #ahead = new Map<number, Inode>();
  readonly #opens = new Map<number, number>();
  readonly #incarnations = new BoundedCache<number, number>(100_000);

  private constructor(driver: SqlDriver, limits: StoreLimits, chunkSize: number, overlay: Overlay) {
    this.driver = driver;
    this.limits = limits;
    this.chunkSize = chunkSize;
    this.overlay = overlay;
    this.#inodes = new BoundedCache(limits.cachedInodes);
    this.#names = new BoundedCache(limits.cachedNames);
    this.#parents = new BoundedCache(limits.cachedNames);
  }

  /** Opens the store of a database that has the schema; throws where it has none. */
  static async open(
    driver: SqlDriver,
    limits: StoreLimits = defaultLimits,
    base: BaseTree = emptyBase,
  ): Promise<Store> {
    await driver.start();
    const row = await driver.get("SELECT value FROM fs_config WHERE key = 'chunk_size'");
    const chunkSize = row ? Number(row.value) : defaultChunkSize;
    if (!Number.isInteger(chunkSize) || chunkSize < 512 || chunkSize > 1024 ** 2) {
      throw new Error(`AgentFS: fs_config says chunk_size ${row?.value}, which is none`);
    }
    return new Store(driver, limits, chunkSize, await Overlay.open(base, driver));
  }

  /** Runs alone: nothing else of the store runs meanwhile. Also for `pull()`, which fails inside a transaction. */
  exclusive<Result>(work: () => Promise<Result>): Promise<Result> {
    const result = this.#tail.then(work);
    // The chain goes on after a failure; whoever asked gets the failure.
    this.#tail = result.catch(() => undefined);
    return result;
  }

  /** Waits until it is alone; the call that is returned ends that. For who is alone now and then in one longer work. */
  acquire(): Promise<() => void> {
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    return new Promise((resolve) => {
      void this.exclusive(() => {
        resolve(release);
        return released;
      });
    });
  }

  /** Runs alone and in one transaction: all of it is committed, or none. */
  transact<Result>(work: (transaction: Transaction) => Promise<Result>): Promise<Result> {
    return this.exclusive(() => this.transactHere(work));
  }

  /** The same for whoever runs exclusively already. */
  async transactHere<Result>(work: (transaction: Transaction) => Promise<Result>): Promise<Result> {
    const transaction = new Transaction(this);
    await this.driver.run('BEGIN IMMEDIATE');
    let result: Result;
    try {
      result = await work(transaction);
      await this.driver.run('COMMIT');
    } catch (error) {
      await this.driver.run('ROLLBACK').catch((rollback: unknown) => {
        // The engine ended the transaction itself. What failed first is what the caller must hear.
        if (!String(rollback).includes('no transaction')) console.error(`agentfs: rollback failed: ${rollback}`);
      });
      throw asFileError(error);
    }
    // Before the caches: they know the delta alone.
    if (transaction.changesBasePlaces) await this.overlay.attachHere();
    transaction.applyTo({ inodes: this.#inodes, names: this.#names, parents: this.#parents, ahead: this.#ahead });
    return result;
  }

  /** The inode as of the last operation, if memory has it; undefined says nothing about its existence. */
  cachedInode(ino: number): Inode | undefined {
    return this.#ahead.get(ino) ?? this.#inodes.get(ino) ?? this.overlay.node(ino)?.inode;
  }

  /** What a name is, if memory knows: 0 means that there is no such name. */
  cachedName(parent: number, name: string): number | undefined {
    return this.overlay.lookup(parent, name)?.inode.ino ?? this.#names.get(nameKey(parent, name));
  }

  /** The inode, or null. For whoever runs exclusively. */
  async inodeHere(ino: number): Promise<Inode | null> {
    const cached = this.cachedInode(ino);
    if (cached) return cached;
    const row = await this.driver.get(`SELECT ${inodeColumns} FROM fs_inode i WHERE i.ino = ?`, ino);
    if (!row) return null;
    const inode = inodeOfRow(row);
    this.#inodes.set(ino, inode);
    return inode;
  }

  /** What a name is, or 0. For whoever runs exclusively. */
  async nameHere(parent: number, name: string): Promise<number> {
    const cached = this.cachedName(parent, name);
    if (cached !== undefined) return cached;
    const row = await this.driver.get('SELECT ino FROM fs_dentry WHERE parent_ino = ? AND name = ?', parent, name);
    const ino = row ? Number(row.ino) : 0;
    this.#names.set(nameKey(parent, name), ino);
    if (ino !== 0) this.#parents.set(ino, parent);
    return ino;
  }

  /** The directory that holds a directory, or 0. For whoever runs exclusively. */
  async parentHere(ino: number): Promise<number> {
    const cached = this.#parents.get(ino) ?? this.overlay.node(ino)?.parent;
    if (cached !== undefined) return cached;
    // The schema has no index for this; the cache spares nearly every such look through the table.
    const row = await this.driver.get('SELECT parent_ino FROM fs_dentry WHERE ino = ? LIMIT 1', ino);
    const parent = row ? Number(row.parent_ino) : 0;
    if (parent !== 0) this.#parents.set(ino, parent);
    return parent;
  }

  /** The inode, or null. */
  inode(ino: number): Inode | Promise<Inode | null> {
    return this.cachedInode(ino) ?? this.exclusive(() => this.inodeHere(ino));
  }

  /** Sets or ends what is ahead of a file's row. For `FileData` alone. */
  setAhead(ino: number, inode: Inode | null): void {
    if (inode) this.#ahead.set(ino, inode);
    else this.#ahead.delete(ino);
  }

  /** Counts an open file: its data stays when its last name goes. */
  opened(ino: number): void {
    this.#opens.set(ino, (this.#opens.get(ino) ?? 0) + 1);
  }

  /** Counts a closed file; true when it was the last. */
  closed(ino: number): boolean {
    const count = (this.#opens.get(ino) ?? 1) - 1;
    if (count > 0) this.#opens.set(ino, count);
    else this.#opens.delete(ino);
    return count <= 0;
  }

  isOpen(ino: number): boolean {
    return this.#opens.has(ino);
  }

  /** A directory's number comes back when it is made again; this tells the two lives apart for a kernel. */
  incarnation(ino: number): number {
    return this.#incarnations.get(ino) ?? 0;
  }

  directoryRemoved(ino: number): void {
    this.#incarnations.set(ino, this.incarnation(ino) + 1);
  }

  /** Forgets everything that a pull may have changed. For whoever runs exclusively, with nothing unwritten. */
  async forget(): Promise<void> {
    this.#inodes.clear();
    this.#names.clear();
    this.#parents.clear();
    await this.driver.forget();
    await this.overlay.attachHere();
  }
}

export const nameKey = (parent: number, name: string): string => `${parent}/${name}`;

function asFileError(error: unknown): unknown {
  if (error instanceof FileError) return error;
  const text = String(error);
  if (/database or disk is full|no space left|ENOSPC/i.test(text)) return new FileError('ENOSPC', text);
  return error;
}
