/**
 * Asking the machine to bring what its conversations changed and executed into the cloud, for an explicit read there (an
 * audit). Nothing else asks for it, and no timer does.
 */
import type { Settle, Settled } from '../../machine/launch.ts';
import { WaitedTooLong, within } from '../waits.ts';

/** `pending`: more was changed meanwhile. `failing`: what was changed since some boundary is not in the cloud. */
export type SettleOutcome =
  | { readonly state: 'clean' | 'pending' }
  | { readonly state: 'failing'; readonly reason: string };

/** Waits at most `limitMs`; the machine goes on by itself. Never rejects. */
export type SettleFiles = (limitMs: number) => Promise<SettleOutcome>;

/** Far above what the machine's own limits allow: then it is not answering at all. */
const answerMs = 120_000;

export class Settling {
  readonly #send: (line: Settle) => void;
  readonly #answerMs: number;
  #lastId = 0;
  #next: Promise<SettleOutcome> | null = null;
  #tail: Promise<unknown> = Promise.resolve();
  #answer: { readonly id: number; readonly resolve: (outcome: SettleOutcome) => void } | null = null;
  #closed = false;

  constructor(send: (line: Settle) => void, limitMs = answerMs) {
    this.#send = send;
    this.#answerMs = limitMs;
  }

  /** Callers at once share one settle, which begins after their calls. */
  settle(limitMs: number): Promise<SettleOutcome> {
    this.#next ??= this.#tail.then(() => {
      this.#next = null;
      return this.#exchange();
    });
    this.#tail = this.#next;
    return within(limitMs, 'synchronizing the files', this.#next).catch(tooLong);
  }

  heard({ settled: { id, ...outcome } }: Settled): void {
    // The answer to what nobody waits for any more.
    if (this.#answer?.id === id) this.#answer.resolve(outcome);
  }

  /** The machine has ended: it answers nothing more. */
  close(): void {
    this.#closed = true;
    this.#answer?.resolve(ended);
  }

  #exchange(): Promise<SettleOutcome> {
    if (this.#closed) return Promise.resolve(ended);
    const { promise, resolve } = Promise.withResolvers<SettleOutcome>();
    const id = ++this.#lastId;
    this.#answer = { id, resolve };
    this.#send({ settle: { id } });
    return within(this.#answerMs, 'the answer of the machine', promise).catch(tooLong);
  }
}

const ended: SettleOutcome = { state: 'failing', reason: 'the machine has ended' };

function tooLong(error: unknown): SettleOutcome {
  if (error instanceof WaitedTooLong) return { state: 'failing', reason: error.message };
  throw error;
}
