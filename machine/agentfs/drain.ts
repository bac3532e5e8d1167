/**
 * What goes on in the background: moves the spool into the database and removes the contents of large files that are gone,
 * in slices of a few milliseconds, so that every operation that waits for the store's lock comes between two of them.
 */
import { breathe } from './breathe.ts';
import { FileError } from './errors.ts';
import type { Inode } from './inode.ts';
import type { ContentRows } from './rows.ts';
import { isRegular } from './schema.ts';
import type { Spool, Spooled } from './spool.ts';
import type { Store } from './store.ts';

/** How long one slice holds the lock. One row of random bytes takes 3 ms. */
const sliceMs = 4;
/**
 * A file of at most so many bytes is moved whole and in one transaction, unless somebody commits meanwhile, and so is pushed in
 * one request: where two hosts write the same one, it is one's or the other's afterwards, and not partly both.
 */
const wholeFileBytes = 1024 ** 2;
/** How much more a step moves for that at most: files that were written by turns are whole at the same time only. */
const mostBeyond = 4 * wholeFileBytes;
/** Rows of contents that are removed in one slice. */
export const rowsOfSlice = 16;

interface Step {
  /** About so many are to be moved. */
  readonly bytes: number;
  moved: number;
  /** Files of which something was moved. */
  readonly begun: Set<number>;
}

export class Drain {
  readonly #store: Store;
  readonly #rows: ContentRows;
  readonly #spool: Spool | null;
  #removals: Inode[] = [];
  #timer: Timer | null = null;
  #removing: Promise<void> | null = null;
  #isStopped = false;
  #press: () => Promise<unknown> = () => this.settle();
  #pressing: Promise<boolean> | null = null;

  constructor(store: Store, rows: ContentRows, spool: Spool | null) {
    this.#store = store;
    this.#rows = rows;
    this.#spool = spool;
    store.onUse(() => this.#timer?.refresh());
  }

  /** Who moves the spool when it is half full, instead of this: whoever brings it into the cloud as well. */
  onPressing(press: () => Promise<unknown>): void {
    this.#press = press;
  }

  /** The spool has more than before. */
  appended(): void {
    if ((this.#spool?.bytes ?? 0) > this.#store.limits.spool / 2) void this.#relieve();
  }

  /** Waits until the spool takes so many bytes more. ENOSPC when what it has cannot be moved. */
  async room(bytes: number): Promise<void> {
    const spool = this.#spool;
    while (spool && !this.#isStopped && spool.bytes > 0 && spool.bytes + bytes > this.#store.limits.spool) {
      if (!(await this.#relieve())) throw new FileError('ENOSPC', 'the database does not take what was written');
    }
  }

  /** Moves everything that is there now, and removes what is to be removed. @throws what the database says */
  async settle(): Promise<void> {
    await this.moveUpTo(this.mark, Number.POSITIVE_INFINITY);
  }

  /** What is in the spool now. */
  get mark(): number {
    return this.#spool?.appended ?? 0;
  }

  /**
   * Moves what was in the spool at a mark, at most about so many bytes of it, but no part of a small file alone.
   * @returns whether that was all
   */
  async moveUpTo(mark: number, bytes: number): Promise<boolean> {
    const spool = this.#spool;
    const step: Step = { bytes, moved: 0, begun: new Set() };
    while (spool?.next() && spool.taken < mark) {
      if (this.#isEnough(step)) return false;
      await this.#moveSlice(step);
    }
    for (; this.#removals.length > 0; step.moved += await this.#removeSlice()) if (step.moved >= bytes) return false;
    await this.#emptySpool();
    return true;
  }

  /** Removes the contents and the row of a file without a name, when nobody has used the store for a while. */
  removeLater(inode: Inode): void {
    this.#removals.push(inode);
    this.#removeWhenQuiet();
  }

  forget(ino: number): void {
    this.#spool?.drop(ino);
  }

  stop(): void {
    this.#isStopped = true;
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
  }

  /** When nothing goes on any more, after `stop`. */
  async ended(): Promise<void> {
    await this.#pressing;
    await this.#removing;
  }

  /** @returns whether it could be done */
  #relieve(): Promise<boolean> {
    this.#pressing ??= this.#press()
      .then(
        () => true,
        (error: unknown) => {
          // What could not be moved stays where it is: the next boundary says so to its conversation.
          console.error(`agentfs: the spool was not moved: ${error instanceof Error ? error.message : String(error)}`);
          return false;
        },
      )
      .finally(() => {
        this.#pressing = null;
      });
    return this.#pressing;
  }

  #removeWhenQuiet(): void {
    if (this.#isStopped || this.#removing || this.#removals.length === 0) return;
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      this.#removing = this.#removeSlice()
        .catch((error: unknown) => console.error(`agentfs: contents were not removed: ${error}`))
        .then(() => {
          this.#removing = null;
          this.#removeWhenQuiet();
        });
    }, this.#store.limits.quietMs);
  }

  #isEnough(step: Step): boolean {
    return step.moved >= step.bytes && !this.#isInPart(step);
  }

  /** Whether a small file has come in part. */
  #isInPart({ bytes, moved, begun }: Step): boolean {
    if (moved >= bytes + mostBeyond) return false;
    for (const ino of begun) {
      const isSmall = (this.#store.cachedInode(ino)?.size ?? 0) <= wholeFileBytes;
      if (isSmall && this.#spool?.holds(ino)) return true;
      begun.delete(ino);
    }
    return false;
  }

  async #moveSlice(step: Step): Promise<void> {
    await this.#store.exclusiveInBackground(async () => {
      const end = performance.now() + sliceMs;
      for (let spooled = this.#spool?.next(); spooled; spooled = this.#spool?.next()) {
        await this.#moveHere(spooled);
        step.moved += spooled.length;
        step.begun.add(spooled.ino);
        if (performance.now() >= end || this.#isEnough(step)) break;
      }
      await this.#rows.writeSmall();
      if (this.#isInPart(step)) this.#store.commitLater();
      else await this.#store.commitFullHere();
    });
    await breathe();
  }

  /** @returns bytes of the slice */
  async #removeSlice(): Promise<number> {
    await this.#store.exclusiveInBackground(async () => {
      await this.#removeSliceHere();
      await this.#store.commitFullHere();
    });
    await breathe();
    return rowsOfSlice * this.#store.chunkSize;
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

  /**
   * Before a pull: what it brings is later than what was moved, and of other clocks. For whoever runs exclusively, with nothing
   * uncommitted.
   */
  async noteHere(): Promise<void> {
    if (!this.#spool?.needsNote) return;
    await this.#store.syncCommitted();
    await this.#spool.note();
  }

  /** Gives the spool's bytes back, when all of it stands in the database durably. */
  async #emptySpool(): Promise<void> {
    const spool = this.#spool;
    if (!spool || spool.bytes === 0 || spool.next()) return;
    const { bytes } = spool;
    await this.#store.exclusiveInBackground(() => this.#store.commitHere());
    await this.#store.syncCommitted();
    await this.#store.exclusiveInBackground(async () => {
      if (spool.bytes === bytes && !spool.next()) await spool.empty();
    });
  }
}
