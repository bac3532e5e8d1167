/**
 * The order of turns: one conversation's turns run one after the other in the order in which they were accepted, and a
 * limited number of conversations run at a time. Serializing here only keeps turns in order; what keeps two writers apart is
 * the holder's own lock (ADR-046 §8).
 */
import type { ConversationId } from '../ids.ts';
import { Problem } from '../problem.ts';

export interface QueueLimits {
  /** Turns of one conversation that may wait or run. */
  readonly perConversation: number;
  /** Turns of all conversations that may wait or run. */
  readonly total: number;
  /** Conversations whose turn may run at the same time. */
  readonly running: number;
}

/** A place in a conversation's line, taken before the message is stored so that a full line refuses it. */
export interface Place {
  /** Joins the end of the line. `turn` must not reject; the next one starts when it resolves. */
  run(turn: () => Promise<void>): void;
  /** Gives the place up unused. */
  release(): void;
}

/** Seconds after which a client that was refused may try again. */
const retryAfterSeconds = 5;

interface Line {
  /** Places taken: waiting, running, and not yet run. */
  places: number;
  readonly waiting: (() => Promise<void>)[];
  busy: boolean;
}

export class TurnQueue {
  readonly #limits: QueueLimits;
  readonly #lines = new Map<ConversationId, Line>();
  /** Lines with a turn to run that wait for one of the `running` seats, in order. */
  readonly #ready: ConversationId[] = [];
  #places = 0;
  #running = 0;
  #stopped = false;
  #idle: (() => void)[] = [];
  readonly #emptied = new Map<ConversationId, (() => void)[]>();

  constructor(limits: QueueLimits) {
    this.#limits = limits;
  }

  /**
   * Takes a place. Throws a `too-many-requests` {@link Problem} with `retryAfter` in seconds when there is none; a message
   * that is stored already always has one.
   */
  take(conversation: ConversationId, { stored }: { readonly stored: boolean } = { stored: false }): Place {
    const line = this.#lines.get(conversation) ?? { places: 0, waiting: [], busy: false };
    if (!stored) this.#refuseFull(line);
    this.#lines.set(conversation, line);
    line.places += 1;
    this.#places += 1;
    let used = false;
    return {
      run: (turn) => {
        if (used) throw new Error('a place was used twice');
        used = true;
        line.waiting.push(turn);
        this.#offer(conversation, line);
      },
      release: () => {
        if (used) return;
        used = true;
        this.#leave(conversation, line);
      },
    };
  }

  /** Turns that run now. */
  get running(): number {
    return this.#running;
  }

  /** Starts no further turn. Resolves when those that run have ended. */
  stop(): Promise<void> {
    this.#stopped = true;
    return this.#running === 0 ? Promise.resolve() : new Promise((resolve) => this.#idle.push(resolve));
  }

  /** Resolves when no turn of the conversation waits or runs. */
  emptied(conversation: ConversationId): Promise<void> {
    if (!this.#lines.has(conversation)) return Promise.resolve();
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#emptied.set(conversation, [...(this.#emptied.get(conversation) ?? []), resolve]);
    return promise;
  }

  #refuseFull(line: Line): void {
    if (line.places >= this.#limits.perConversation) throw full('This conversation has too many messages waiting.');
    if (this.#places >= this.#limits.total) throw full('Too many messages are waiting.');
  }

  #offer(conversation: ConversationId, line: Line): void {
    if (line.busy || line.waiting.length === 0) return;
    line.busy = true;
    this.#ready.push(conversation);
    this.#start();
  }

  #start(): void {
    while (!this.#stopped && this.#running < this.#limits.running) {
      const conversation = this.#ready.shift();
      if (conversation === undefined) return;
      const line = this.#lines.get(conversation);
      const turn = line?.waiting.shift();
      if (line === undefined || turn === undefined) throw new Error('a line without a turn was ready');
      this.#running += 1;
      void turn().finally(() => this.#ended(conversation, line));
    }
  }

  #ended(conversation: ConversationId, line: Line): void {
    this.#running -= 1;
    line.busy = false;
    this.#leave(conversation, line);
    this.#offer(conversation, line);
    this.#start();
    if (this.#running > 0) return;
    for (const resolve of this.#idle.splice(0)) resolve();
  }

  #leave(conversation: ConversationId, line: Line): void {
    line.places -= 1;
    this.#places -= 1;
    if (line.places > 0) return;
    this.#lines.delete(conversation);
    for (const resolve of this.#emptied.get(conversation) ?? []) resolve();
    this.#emptied.delete(conversation);
  }
}

const full = (detail: string): Problem => new Problem('too-many-requests', detail, { retryAfter: retryAfterSeconds });
