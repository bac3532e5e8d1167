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
  /** Bytes of all messages that wait or run: they are held in memory. */
  readonly bytes: number;
  /** Conversations whose turn may run at the same time. */
  readonly running: number;
}

/** A place in a conversation's line, taken before the message is stored so that a full line refuses it. */
export interface Place {
  /** Joins the end of the line. `turn` must not reject; the next one starts when it resolves. */
  run(turn: () => Promise<void>): void;
  /** Gives the place up unused. */
  release(): void;
  /** Takes its turn out of the line and gives the place up; false when that has begun, or there is none. */
  withdraw(): boolean;
}

/** Seconds after which a client that was refused may try again. */
const retryAfterSeconds = 5;

/** What a place is for. */
export interface Placed {
  /** The message is stored already: it always has a place. */
  readonly stored: boolean;
  /** Of the message. */
  readonly bytes: number;
}

interface Waiting {
  readonly turn: () => Promise<void>;
  readonly bytes: number;
}

interface Line {
  /** Places taken: waiting, running, and not yet run. */
  places: number;
  readonly waiting: Waiting[];
  busy: boolean;
}

export class TurnQueue {
  readonly #limits: QueueLimits;
  readonly #lines = new Map<ConversationId, Line>();
  /** Lines with a turn to run that wait for one of the `running` seats, in order. */
  readonly #ready: ConversationId[] = [];
  #places = 0;
  #bytes = 0;
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
  take(conversation: ConversationId, { stored, bytes }: Placed = { stored: false, bytes: 0 }): Place {
    const line = this.#lines.get(conversation) ?? { places: 0, waiting: [], busy: false };
    if (!stored) this.#refuseFull(line, bytes);
    this.#lines.set(conversation, line);
    line.places += 1;
    this.#places += 1;
    this.#bytes += bytes;
    let used = false;
    let joined: Waiting | null = null;
    return {
      run: (turn) => {
        if (used) throw new Error('a place was used twice');
        used = true;
        joined = { turn, bytes };
        line.waiting.push(joined);
        this.#offer(conversation, line);
      },
      withdraw: () => {
        const at = joined === null ? -1 : line.waiting.indexOf(joined);
        if (at === -1) return false;
        line.waiting.splice(at, 1);
        this.#retract(conversation, line);
        this.#leave(conversation, line, bytes);
        return true;
      },
      release: () => {
        if (used) return;
        used = true;
        this.#leave(conversation, line, bytes);
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

  #refuseFull(line: Line, bytes: number): void {
    if (line.places >= this.#limits.perConversation) throw full('This conversation has too many messages waiting.');
    if (this.#places >= this.#limits.total) throw full('Too many messages are waiting.');
    // One alone is never too large.
    if (this.#places > 0 && this.#bytes + bytes > this.#limits.bytes) {
      throw full('The messages that are waiting are too large together.');
    }
  }

  #offer(conversation: ConversationId, line: Line): void {
    if (line.busy || line.waiting.length === 0) return;
    line.busy = true;
    this.#ready.push(conversation);
    this.#start();
  }

  /** A line that waits for a seat and has no turn any more needs none. */
  #retract(conversation: ConversationId, line: Line): void {
    const at = line.waiting.length > 0 ? -1 : this.#ready.indexOf(conversation);
    if (at === -1) return;
    this.#ready.splice(at, 1);
    line.busy = false;
  }

  #start(): void {
    while (!this.#stopped && this.#running < this.#limits.running) {
      const conversation = this.#ready.shift();
      if (conversation === undefined) return;
      const line = this.#lines.get(conversation);
      const next = line?.waiting.shift();
      if (line === undefined || next === undefined) throw new Error('a line without a turn was ready');
      this.#running += 1;
      void next.turn().finally(() => this.#ended(conversation, line, next.bytes));
    }
  }

  #ended(conversation: ConversationId, line: Line, bytes: number): void {
    this.#running -= 1;
    line.busy = false;
    this.#leave(conversation, line, bytes);
    this.#offer(conversation, line);
    this.#start();
    if (this.#running > 0) return;
    for (const resolve of this.#idle.splice(0)) resolve();
  }

  #leave(conversation: ConversationId, line: Line, bytes: number): void {
    line.places -= 1;
    this.#places -= 1;
    this.#bytes -= bytes;
    if (line.places > 0) return;
    this.#lines.delete(conversation);
    for (const resolve of this.#emptied.get(conversation) ?? []) resolve();
    this.#emptied.delete(conversation);
  }
}

const full = (detail: string): Problem => new Problem('too-many-requests', detail, { retryAfter: retryAfterSeconds });
