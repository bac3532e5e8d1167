/**
 * The event side of one connection, whatever carries it: which conversations it listens to, what its role sees, and
 * that a client which does not read is dropped instead of buffered for (ADR-046 §8: events, no polling).
 */
import type { Role } from '../domain.ts';
import type { ConversationId } from '../ids.ts';
import { inTurn } from '../in-turn.ts';
import type { EventFeed } from './bus.ts';
import { type Ending, type EventLog, Feed, type FeedConnection, type FeedLimits } from './feed.ts';
import { type Frame, updateViewOf } from './frames.ts';
import type { Join } from './joined.ts';

/** Where frames go. */
export interface Sink {
  send(frame: Frame): void;
  /** Bytes that the client has not taken yet. */
  buffered(): number;
  /** Resolves when the client has taken what is buffered, or is gone. */
  drained(): Promise<void>;
  close(code: number, reason: string): void;
}

/** WebSocket close codes of this gateway. Server-Sent Events have none: their stream just ends. */
export const closeCodes = { goingAway: 1001, failed: 1011, revoked: 4401, invalid: 4400, slow: 4008 } as const;

export interface SubscriberLimits extends FeedLimits {
  /** A client with more unread bytes than this is dropped. */
  readonly bufferedBytes: number;
  readonly conversations: number;
}

export const defaultSubscriberLimits: SubscriberLimits = {
  pageEvents: 200,
  replayEvents: 10_000,
  queuedFrames: 1_024,
  bufferedBytes: 4 * 1024 * 1024,
  conversations: 256,
};

export interface SubscriberParts {
  readonly bus: EventFeed;
  readonly log: EventLog;
  readonly join: Join;
  readonly limits: SubscriberLimits;
  readonly report: (what: string, error?: unknown) => void;
}

export class Subscriber {
  readonly #parts: SubscriberParts;
  readonly #role: Role;
  readonly #sink: Sink;
  readonly #feeds = new Map<ConversationId, Feed>();
  readonly #leave: () => void;
  /** The last read of the log that a feed asked for; it never rejects. */
  #open = true;

  constructor(parts: SubscriberParts, role: Role, sink: Sink) {
    this.#parts = parts;
    this.#role = role;
    this.#sink = sink;
    this.#leave = parts.bus.subscribe(
      (item) => this.#feeds.get(item.conversation)?.offer(item),
      (last) => {
        for (const feed of this.#feeds.values()) feed.catchUp(last);
      },
    );
  }

  /**
   * Adds a conversation, or starts it again: what came after `after`, then what happens now. `announce` is called before
   * anything of the conversation is sent. False when there are too many.
   */
  subscribe(conversation: ConversationId, after: number, announce: () => void): boolean {
    if (!this.#open) return true;
    const existing = this.#feeds.get(conversation);
    if (existing === undefined && this.#feeds.size >= this.#parts.limits.conversations) return false;
    existing?.close();
    const feed = new Feed(conversation, this.#parts, updateViewOf(this.#role), this.#parts.limits, this.#connection);
    this.#feeds.set(conversation, feed);
    announce();
    feed.start(after);
    return true;
  }

  unsubscribe(conversation: ConversationId): void {
    this.#feeds.get(conversation)?.close();
    this.#feeds.delete(conversation);
  }

  /** Sends one frame of the connection itself, such as an answer. */
  send(frame: Frame): void {
    if (!this.#open) return;
    // Looked at before, not after: one frame may be larger than the limit, and a client has to be given time to read it.
    if (this.#sink.buffered() > this.#parts.limits.bufferedBytes) this.#end('slow');
    else this.#sink.send(frame);
  }

  /** Ends listening; the connection is closed by its owner. */
  close(): void {
    if (!this.#open) return;
    this.#open = false;
    this.#leave();
    for (const feed of this.#feeds.values()) feed.close();
    this.#feeds.clear();
  }

  readonly #connection: FeedConnection = {
    send: (frame) => this.send(frame),
    drained: () => (this.#open && this.#sink.buffered() > 0 ? this.#sink.drained() : null),
    inTurn: inTurn(),
    end: (why, error) => this.#end(why, error),
  };

  #end(why: Ending, error?: unknown): void {
    if (!this.#open) return;
    this.close();
    if (why === 'slow') {
      this.#parts.report('a slow client was dropped');
      this.#sink.close(closeCodes.slow, 'too slow: reconnect and resume after the last seq');
    } else {
      this.#parts.report('an event stream failed', error);
      this.#sink.close(closeCodes.failed, 'the gateway failed: reconnect and resume after the last seq');
    }
  }
}
