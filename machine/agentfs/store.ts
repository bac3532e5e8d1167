/**
 * The organization's one local replica as a file store sees it: one lock, operations that are all or nothing, and bounded
 * caches. The store is the only writer of the replica besides `pull()`, which empties the caches.
 *
 * Operations share a transaction (group commit): one is answered when its rows stand in the open transaction and what it
 * changed of inodes and contents stands in memory. fsync, a work boundary, a limit of rows or one second end the group. A crash
 * loses the open group as a whole, so what is left is a state that was. A group that cannot be committed is rolled back as a
 * whole too; everybody who syncs later is told (`failures`).
 */
import { type BaseTree, emptyBase } from './base.ts';
import { BoundedCache } from './bounded-cache.ts';
import { breathe } from './breathe.ts';
import { CurrentTree } from './current-tree.ts';
import type { SqlDriver } from './driver.ts';
import { FileError } from './errors.ts';
import type { Inode, InodePatch } from './inode.ts';
import { defaultLimits, type StoreLimits } from './limits.ts';
import type { Place } from './namespace.ts';
import { Overlay } from './overlay.ts';
import { Quotas } from './quota.ts';
import { defaultChunkSize } from './schema.ts';
import { Transaction } from './transaction.ts';

/** How long operations may follow each other without the machine's event loop having its turn. */
const busyMs = 4;

/** Who keeps contents back from the database until the group ends. */
export interface Keeper {
  readonly keepsBack: boolean;
  /** Writes what it keeps back into the open transaction. For whoever runs exclusively. */
  writeOutHere(): Promise<void>;
  /** The group is lost with everything that was kept back. */
  lost(): Promise<void>;
  /** Makes durable what it keeps elsewhere. */
  sync(): Promise<void>;
}

export type ChangeListener = (ino: number, inode: Inode | null) => void;

export class Store {
  /** For SQL of others than the store: first everything that memory keeps back is written. Only for who runs exclusively. */
  readonly driver: SqlDriver;
  /** For the store's own. */
  readonly sql: SqlDriver;
  readonly limits: StoreLimits;
  readonly chunkSize: number;
  /** The immutable layer below, and what the delta leaves of it. */
  readonly overlay: Overlay;
  readonly quotas: Quotas;
  /** Groups that were lost so far. Who finds it higher than before has lost what it did since. */
  failures = 0;
  #tail: Promise<unknown> = Promise.resolve();
  readonly #tree: CurrentTree;
  readonly #opens = new Map<number, number>();
  readonly #watchers = new Set<ChangeListener>();
  readonly #incarnations = new BoundedCache<number, number>(100_000);
  readonly #lostListeners = new Set<() => void>();
  #keeper: Keeper | null = null;
  #isOpen = false;
  #rows = 0;
  #timer: Timer | null = null;
  /** Those who run alone or wait for it, and when the event loop last had its turn since somebody does. */
  #waiting = 0;
  #breathedAt = 0;
  #onUse: () => void = () => undefined;
  #isStopped = false;

  private constructor(driver: SqlDriver, limits: StoreLimits, chunkSize: number, overlay: Overlay) {
    this.driver = driver;
    this.sql = driver.intercept(() =>
      this.#tree.unwrittenRows > 0 || this.#keeper?.keepsBack === true ? this.writeOutHere() : null,
    );
    this.limits = limits;
    this.chunkSize = chunkSize;
    this.overlay = overlay;
    this.quotas = new Quotas(this, limits, limits.cachedNames);
    this.#tree = new CurrentTree(this, overlay, limits);
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

  /** Nobody runs exclusively: what memory says is so until the next wait. */
  get isIdle(): boolean {
    return this.#waiting === 0;
  }

  /** Runs alone: nothing else of the store runs meanwhile. Also for `pull()`, which fails inside a transaction. */
  exclusive<Result>(work: () => Promise<Result>): Promise<Result> {
    this.#onUse();
    return this.exclusiveInBackground(work);
  }

  /** The same for what may wait as long as there is anything else to do. */
  exclusiveInBackground<Result>(work: () => Promise<Result>): Promise<Result> {
    const isIdle = this.isIdle;
    if (isIdle) this.#breathedAt = performance.now();
    this.#waiting += 1;
    const result = isIdle ? work() : this.#tail.then(() => this.#breathed(work));
    const done = () => {
      this.#waiting -= 1;
    };
    // The chain goes on after a failure; whoever asked gets the failure.
    this.#tail = result.then(done, done);
    return result;
  }

  /** Calls back at each use that is not in the background. For `Drain` alone. */
  onUse(listener: () => void): void {
    this.#onUse = listener;
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

  /** Runs alone, all or nothing, within the open group. */
  transact<Result>(work: (transaction: Transaction) => Promise<Result>): Promise<Result> {
    return this.quotas.counted(() => this.exclusive(() => this.transactHere(work)));
  }

  /** The same for whoever runs exclusively already. */
  async transactHere<Result>(work: (transaction: Transaction) => Promise<Result>): Promise<Result> {
    const transaction = new Transaction(this);
    const { failures } = this;
    let result: Result;
    let count: () => void;
    try {
      result = await work(transaction);
      count = await this.quotas.approveHere(transaction.notes);
    } catch (error) {
      if (this.failures === failures) await transaction.undo();
      throw asFileError(error);
    }
    await this.orLoseHere(() => transaction.apply(this.#tree));
    if (this.#watchers.size > 0) for (const [ino, inode] of transaction.changed()) this.#changed(ino, inode);
    count();
    if (transaction.changesBasePlaces) await this.overlay.attachHere();
    await this.commitFullHere();
    return result;
  }

  /** Ends the group if it is large enough; otherwise it ends later. For whoever runs exclusively. */
  async commitFullHere(): Promise<void> {
    if (this.#rows + this.#tree.unwrittenRows > this.limits.groupRows) await this.commitHere();
    else this.commitLater();
  }

  /** Opens the group's transaction. For whoever runs exclusively. */
  async beginHere(rows: number): Promise<void> {
    this.#rows += rows;
    if (this.#isOpen) return;
    await this.sql.run('BEGIN IMMEDIATE');
    this.#isOpen = true;
  }

  /** Ends the group. A failure rolls all of it back. For whoever runs exclusively. */
  async commitHere(): Promise<void> {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    await this.orLoseHere(async () => {
      await this.writeOutHere();
      if (this.#isOpen) await this.sql.run('COMMIT');
    });
    this.#isOpen = false;
    this.#rows = 0;
  }

  /**
   * Writes into the open group. A failure loses all of it: what stands there by half cannot be told apart from what stood there
   * before. For whoever runs exclusively.
   */
  async orLoseHere(write: () => Promise<void>): Promise<void> {
    const { failures } = this;
    try {
      await write();
    } catch (error) {
      if (this.failures === failures) await this.#lose(error);
      throw asFileError(error);
    }
  }

  /** Ends the group and makes everything so far durable. */
  async sync(): Promise<void> {
    await this.exclusive(() => this.commitHere());
    await this.syncCommitted();
  }

  /** Makes durable what was committed. Contents before the rows that say how long they are. */
  async syncCommitted(): Promise<void> {
    await this.#keeper?.sync();
    await this.driver.sync();
  }

  /** Changes an inode ahead of its row. For whoever runs exclusively. */
  patchAhead(inode: Inode, patch: InodePatch): void {
    const patched = { ...inode, ...patch };
    this.#tree.dirty.patch(patched, patch);
    if (this.#watchers.size > 0) this.#changed(inode.ino, patched);
    this.commitLater();
  }

  /** Whether the database has nothing of it yet. */
  isNew(ino: number): boolean {
    return this.#tree.dirty.isNew(ino);
  }

  /** Calls back when a group was lost: what kernels remember is not so. */
  onLost(listener: () => void): () => void {
    this.#lostListeners.add(listener);
    return () => {
      this.#lostListeners.delete(listener);
    };
  }

  keepWith(keeper: Keeper): void {
    this.#keeper = keeper;
  }

  /** Calls back for every inode that is changed from now on, by whomever; null: it is gone. Returns the call that ends this. */
  watch(listener: ChangeListener): () => void {
    this.#watchers.add(listener);
    return () => {
      this.#watchers.delete(listener);
    };
  }

  #changed(ino: number, inode: Inode | null): void {
    for (const listener of this.#watchers) listener(ino, inode);
  }

  /** The inode as of the last operation, if memory has it; undefined says nothing about its existence. */
  cachedInode(ino: number): Inode | undefined {
    return this.#tree.cachedInode(ino);
  }

  /** What a name is, if memory knows: 0 means that there is no such name. */
  cachedName(parent: number, name: string): number | undefined {
    return this.#tree.cachedName(parent, name);
  }

  /** Names and inodes as they are now. For whoever runs exclusively. */
  get treeHere(): CurrentTree {
    return this.#tree;
  }

  /** Where a thing was last seen by this machine, if it remembers; it may be elsewhere now, or gone. */
  lastPlace(ino: number): Place | undefined {
    return this.#tree.places.get(ino);
  }

  /** The inode, or null. For whoever runs exclusively. */
  inodeHere(ino: number): Promise<Inode | null> {
    return this.#tree.inodeHere(ino);
  }

  /** What a name is, or 0. For whoever runs exclusively. */
  nameHere(parent: number, name: string): Promise<number> {
    return this.#tree.nameHere(parent, name);
  }

  /** The directory that holds a directory, or 0. For whoever runs exclusively. */
  parentHere(ino: number): Promise<number> {
    return this.#tree.parentHere(ino);
  }

  /** The inode, or null. */
  inode(ino: number): Inode | Promise<Inode | null> {
    return this.cachedInode(ino) ?? this.exclusive(() => this.inodeHere(ino));
  }

  /** Counts an open file: its data stays when its last name goes. */
  opened(ino: number): void {
    this.#opens.set(ino, (this.#opens.get(ino) ?? 0) + 1);
  }

  /** Counts a closed file; true when it was the last. */
  closed(ino: number): boolean {
    const count = (this.#opens.get(ino) ?? 1) - 1;
    if (count > 0) this.#opens.set(ino, count);
    else {
      this.#opens.delete(ino);
      if ((this.cachedInode(ino)?.nlink ?? 0) > 0) this.quotas.accounts.closed(ino);
    }
    return count <= 0;
  }

  /** The numbers of the files that are open. */
  openFiles(): Iterable<number> {
    return this.#opens.keys();
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

  /** Forgets everything that a pull may have changed. For whoever runs exclusively. */
  async forget(): Promise<void> {
    await this.commitHere();
    this.#tree.forget();
    await this.sql.forget();
    await this.overlay.attachHere();
    this.quotas.forget();
  }

  /** Ends what would happen later by itself. */
  stop(): void {
    this.#isStopped = true;
    this.quotas.stop();
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
  }

  /** The engine runs in microtasks: without this one operation after the other would run and nothing else of the machine. */
  async #breathed<Result>(work: () => Promise<Result>): Promise<Result> {
    if (performance.now() - this.#breathedAt > busyMs) {
      await breathe();
      this.#breathedAt = performance.now();
    }
    return work();
  }

  /** Writes what memory keeps back into the open group. For whoever runs exclusively. */
  writeOutHere(): Promise<void> {
    return this.orLoseHere(async () => {
      if (this.#keeper?.keepsBack) await this.#keeper.writeOutHere();
      await this.#tree.writeOutHere();
    });
  }

  async #lose(error: unknown): Promise<void> {
    console.error(`agentfs: operations are lost: ${error instanceof Error ? error.message : String(error)}`);
    await this.sql.run('ROLLBACK').catch((rollback: unknown) => {
      // The engine ended the transaction itself.
      if (!String(rollback).includes('no transaction')) console.error(`agentfs: rollback failed: ${rollback}`);
    });
    this.#isOpen = false;
    this.#rows = 0;
    this.failures += 1;
    this.#tree.lost();
    await this.#keeper?.lost();
    this.quotas.lost();
    await this.overlay.attachHere();
    for (const listener of this.#lostListeners) listener();
  }

  /** One commit, later: not a look whether anything changed. */
  commitLater(): void {
    if (this.#isStopped) return;
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      // Whoever syncs is told by the count of failures.
      this.exclusive(() => this.commitHere()).catch(() => undefined);
    }, this.limits.commitAfterMs);
  }
}

function asFileError(error: unknown): unknown {
  if (error instanceof FileError) return error;
  const text = String(error);
  if (/database or disk is full|no space left|no storage space|ENOSPC/i.test(text))
    return new FileError('ENOSPC', text);
  return error;
}
