/**
 * Who may write to one database. All connections live in one thread, so SQLite's own busy wait would stop the very
 * transaction it waits for. Writers queue here instead, first come first served, each for a bounded time.
 */
import { SqlFailure } from './failure.ts';

type Waiter = { owner: object; grant: () => void };

export class WriteGate {
  #owner: object | null = null;
  readonly #queue: Waiter[] = [];
  readonly #waitMs: number;
  readonly #queueLength: number;

  /** @param waitMs longest wait; @param queueLength most waiters */
  constructor(waitMs: number, queueLength: number) {
    this.#waitMs = waitMs;
    this.#queueLength = queueLength;
  }

  isOwnedBy(owner: object): boolean {
    return this.#owner === owner;
  }

  /** Takes the lock at once if it is free and nobody is before us. */
  tryAcquire(owner: object): boolean {
    if (this.#owner === owner) return true;
    if (this.#owner !== null) return false;
    this.#owner = owner;
    return true;
  }

  /**
   * Waits in the queue for the lock.
   * @throws SqlFailure `SQLITE_BUSY` after the bounded wait, with a full queue, or when `signal` aborts
   */
  acquire(owner: object, signal: AbortSignal): Promise<void> {
    if (this.tryAcquire(owner)) return Promise.resolve();
    if (this.#queue.length >= this.#queueLength || signal.aborted) return Promise.reject(busy());
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        clearTimeout(deadline);
        signal.removeEventListener('abort', giveUp);
      };
      const waiter: Waiter = {
        owner,
        grant: () => {
          leave();
          resolve();
        },
      };
      const giveUp = (): void => {
        leave();
        this.#queue.splice(this.#queue.indexOf(waiter), 1);
        reject(busy());
      };
      const deadline = setTimeout(giveUp, this.#waitMs);
      signal.addEventListener('abort', giveUp, { once: true });
      this.#queue.push(waiter);
    });
  }

  /** Gives the lock to the next in the queue. Does nothing when `owner` does not have it. */
  release(owner: object): void {
    if (this.#owner !== owner) return;
    const next = this.#queue.shift();
    this.#owner = next?.owner ?? null;
    next?.grant();
  }
}

const busy = (): SqlFailure => new SqlFailure('SQLITE_BUSY', 'database is locked');
