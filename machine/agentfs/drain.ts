/**
 * What goes on in the background: moves the spool into the database and removes the contents of large files that are gone,
 * in slices of a few milliseconds, so that every operation that waits for the store's lock comes between two of them.
 */
import { breathe } from './breathe.ts';
import type { Inode } from './inode.ts';
import type { ContentRows } from './rows.ts';
import { isRegular } from './schema.ts';
import type { Spool, Spooled } from './spool.ts';
import type { Store } from './store.ts';

/** How long one slice holds the lock. One row of random bytes takes 3 ms. */
const sliceMs = 4;
/** Rows of contents that are removed in one slice. */
export const rowsOfSlice = 16;

export class Drain {
  readonly #store: Store;
  readonly #rows: ContentRows;
  readonly #spool: Spool | null;
  #removals: Inode[] = [];
  #timer: Timer | null = null;
  #running: Promise<void> | null = null;
  #pauses = 0;
  #resumed = Promise.withResolvers<void>();
  #isStopped = false;

  constructor(store: Store, rows: ContentRows, spool: Spool | null) {
    this.#store = store;
    this.#rows = rows;
    this.#spool = spool;
    if (spool && spool.bytes > 0) this.later();
  }

  /** Begins when nothing was written for a while. */
  later(): void {
    if (this.#isStopped) return;
    if (this.#timer) this.#timer.refresh();
    else this.#timer = setTimeout(() => this.#begin(), this.#store.limits.drainAfterMs);
  }

  /** Waits until the spool takes so many bytes more. */
  async room(bytes: number): Promise<void> {
    const spool = this.#spool;
    while (spool && spool.bytes > 0 && spool.bytes + bytes > this.#store.limits.spool) {
      if (this.#isStopped) return;
      await this.#begin();
    }
  }

  /** Moves everything that is there now, and removes what is to be removed. @throws what the database says */
  async settle(): Promise<void> {
    const goal = this.#spool?.appended ?? 0;
    while ((this.#spool && this.#spool.bytes > 0 && this.#spool.taken < goal) || this.#removals.length > 0) {
      await this.#oneSlice();
    }
    await this.#emptySpool();
  }

  removeLater(inode: Inode): void {
    this.#removals.push(inode);
    this.later();
  }

  forget(ino: number): void {
    this.#spool?.drop(ino);
  }

  pause(): void {
    this.#pauses += 1;
  }

  resume(): void {
    this.#pauses -= 1;
    if (this.#pauses > 0) return;
    this.#resumed.resolve();
    this.#resumed = Promise.withResolvers();
  }

  stop(): void {
    this.#isStopped = true;
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
  }

  /** When nothing goes on any more, after `stop`. */
  async ended(): Promise<void> {
    await this.#running;
  }

  #begin(): Promise<void> {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    this.#running ??= this.#run()
      .catch((error: unknown) => {
        // What could not be moved stays where it is: the next boundary says so to its conversation.
        console.error(`agentfs: the spool was not moved: ${error instanceof Error ? error.message : String(error)}`);
      })
      .finally(() => {
        this.#running = null;
      });
    return this.#running;
  }

  async #run(): Promise<void> {
    while (this.#spool?.next() || this.#removals.length > 0) {
      while (this.#pauses > 0) await this.#resumed.promise;
      if (this.#isStopped) return;
      await this.#oneSlice();
    }
    await this.#emptySpool();
  }

  async #oneSlice(): Promise<void> {
    await this.#store.exclusive(async () => {
      const end = performance.now() + sliceMs;
      for (let moved = this.#spool?.next(); moved; moved = this.#spool?.next()) {
        await this.#moveHere(moved);
        if (performance.now() >= end) break;
      }
      await this.#rows.writeSmall();
      if (performance.now() < end) await this.#removeSliceHere();
      await this.#store.commitFullHere();
    });
    await breathe();
  }

  async #moveHere(spooled: Spooled): Promise<void> {
    const { ino, index } = spooled;
    const inode = await this.#store.inodeHere(ino);
    const length = Math.min(spooled.length, (inode?.size ?? 0) - index * this.#store.chunkSize);
    if (inode && isRegular(inode.mode) && length > 0) {
      // No contents without their inode: removing one looks at that.
      if (this.#store.isNew(ino)) await this.#store.commitHere();
      const bytes = await this.#spool!.read(spooled);
      await this.#rows.write(ino, index, bytes.subarray(0, length));
    }
    this.#spool!.moved(spooled);
  }

  async #removeSliceHere(): Promise<void> {
    const removed = this.#removals[0];
    if (!removed) return;
    const inode = await this.#store.inodeHere(removed.ino);
    if (!inode || inode.nlink > 0 || this.#store.isOpen(inode.ino)) {
      this.#removals.shift();
      return;
    }
    const chunks = Math.ceil(removed.size / this.#store.chunkSize);
    const from = Math.max(0, chunks - rowsOfSlice);
    await this.#rows.removeFrom(inode.ino, from, chunks);
    if (from > 0) this.#removals[0] = { ...removed, size: from * this.#store.chunkSize };
    else {
      this.#removals.shift();
      await this.#store.transactHere(async (transaction) => transaction.removeInode(inode));
    }
  }

  /** Gives the spool's bytes back, when all of it stands in the database durably. */
  async #emptySpool(): Promise<void> {
    const spool = this.#spool;
    if (!spool || spool.bytes === 0 || spool.next()) return;
    const { bytes } = spool;
    await this.#store.sync();
    await this.#store.exclusive(async () => {
      if (spool.bytes === bytes && !spool.next()) await spool.empty();
    });
  }
}
