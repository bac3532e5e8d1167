/**
 * One conversation as one connection gets it: first what was missed, read from the log in bounded pages, then what
 * happens now, in order and without a hole between the two.
 */
import type { LoggedEvent, SessionUpdate, UpdateView } from '../domain.ts';
import type { Governance } from '../governance/governance.ts';
import type { ConversationId } from '../ids.ts';
import type { EventFeed } from './bus.ts';
import { type Frame, resyncFrame, updateFrame } from './frames.ts';
import type { Join } from './joined.ts';

export type EventLog = Pick<Governance, 'eventsAfter' | 'lastSeq'>;

export interface FeedLimits {
  /** Events that one read of the log answers with at most. */
  readonly pageEvents: number;
  /** Events of the log that a replay goes through at most; a client further behind reloads. */
  readonly replayEvents: number;
  /** Events and updates that wait for their turn to be sent at most. */
  readonly queuedFrames: number;
}

/** Why a connection is ended from this side. */
export type Ending = 'slow' | 'failed';

/** What a feed needs of its connection. */
export interface FeedConnection {
  send(frame: Frame): void;
  /** Resolves once little enough is buffered that a replay may go on, or the connection is gone. */
  drained(): Promise<void> | null;
  /** Does `work` after all that the connection's feeds asked for before: one of them reads the log at a time. */
  inTurn<T>(work: () => Promise<T>): Promise<T>;
  end(why: Ending, error?: unknown): void;
}

type Item = LoggedEvent | SessionUpdate;

const isLogged = (item: Item): item is LoggedEvent => 'seq' in item;

export class Feed {
  readonly #conversation: ConversationId;
  readonly #bus: EventFeed;
  readonly #log: EventLog;
  readonly #join: Join;
  readonly #view: UpdateView;
  readonly #limits: FeedLimits;
  readonly #connection: FeedConnection;
  /** Every event up to here is sent, queued, or of no interest. */
  #position: number;
  #state: 'replaying' | 'live' | 'closed' = 'live';
  #queue: Item[] = [];
  /** Settles when the queued frame that waits for its text, and what is queued behind it, has been sent. */
  #sending: Promise<void> | null = null;
  /** Updates that came during a replay, each with the event that it follows. */
  #stash: { readonly after: number; readonly update: SessionUpdate }[] = [];

  constructor(
    conversation: ConversationId,
    parts: { readonly bus: EventFeed; readonly log: EventLog; readonly join: Join },
    view: UpdateView,
    limits: FeedLimits,
    connection: FeedConnection,
  ) {
    this.#conversation = conversation;
    this.#bus = parts.bus;
    this.#log = parts.log;
    this.#join = parts.join;
    this.#view = view;
    this.#limits = limits;
    this.#connection = connection;
    this.#position = parts.bus.position;
  }

  /** Goes live at once, or after replaying what came after `after`. */
  start(after: number): void {
    if (after > Math.max(this.#log.lastSeq(), this.#bus.position)) {
      // A number of another log: whatever the client knows, it is not this conversation's past.
      this.#connection.send(resyncFrame(this.#conversation, this.#position));
      return;
    }
    this.#position = after;
    if (after < this.#bus.position) this.#replay();
  }

  /** From the bus. */
  offer(item: Item): void {
    if (this.#state === 'closed') return;
    if (isLogged(item)) {
      // A replay reads it from the log.
      if (this.#state === 'replaying' || item.seq <= this.#position) return;
      this.#position = item.seq;
    } else if (updateFrame(item, this.#view) === null) {
      return;
    } else if (this.#state === 'replaying') {
      this.#stash.push({ after: this.#bus.position, update: item });
      if (this.#stash.length > this.#limits.queuedFrames) this.#connection.end('slow');
      return;
    }
    this.#queue.push(item);
    if (this.#queue.length > this.#limits.queuedFrames) this.#connection.end('slow');
    else this.#sendQueued();
  }

  /** The bus gave up on what came after `last`: continues from the log. */
  catchUp(last: number): void {
    if (this.#state !== 'live') return;
    this.#position = Math.max(this.#position, last);
    this.#replay();
  }

  close(): void {
    this.#state = 'closed';
    this.#queue = [];
    this.#stash = [];
  }

  #sendQueued(): void {
    if (this.#sending !== null) return;
    for (let item = this.#queue.shift(); item !== undefined; item = this.#queue.shift()) {
      const frame = this.#frameOf(item);
      if (frame instanceof Promise) {
        this.#sending = this.#sendJoined(frame);
        return;
      }
      if (frame !== null) this.#connection.send(frame);
    }
  }

  /** The frame that waits for its text, then what was queued behind it. */
  async #sendJoined(waiting: Promise<Frame>): Promise<void> {
    const first = await waiting;
    if (this.#state !== 'closed') this.#connection.send(first);
    for (let item = this.#queue.shift(); item !== undefined; item = this.#queue.shift()) {
      const frame = await this.#frameOf(item);
      if (frame !== null && this.#state !== 'closed') this.#connection.send(frame);
    }
    this.#sending = null;
  }

  #frameOf(item: Item): Frame | null | Promise<Frame> {
    return isLogged(item) ? this.#join(item, this.#view) : updateFrame(item, this.#view);
  }

  #replay(): void {
    this.#state = 'replaying';
    this.#readLog().catch((error: unknown) => this.#connection.end('failed', error));
  }

  async #readLog(): Promise<void> {
    if (this.#sending !== null) await this.#sending;
    let read = 0;
    while (this.#state === 'replaying') {
      const page = await this.#connection.inTurn(() => this.#readPage());
      if (page === null) return;
      if (page === 'all read') return this.#goLive();
      const { events, oldest, target } = page;
      read += events.length;
      if (this.#position + 1 < oldest || read > this.#limits.replayEvents) {
        this.#position = Math.max(this.#bus.position, this.#position);
        this.#connection.send(resyncFrame(this.#conversation, this.#position));
        this.#stash = [];
        return this.#goLive();
      }
      for (const event of events) {
        if (event.conversation === this.#conversation) await this.#sendReplayed(event);
        if (this.#state !== 'replaying') return;
        this.#position = event.seq;
      }
      if (events.length < this.#limits.pageEvents) this.#position = Math.max(this.#position, target);
    }
  }

  /** Null when nobody waits for it any more: a client can subscribe again and again faster than the log is read. */
  async #readPage() {
    if (this.#state !== 'replaying') return null;
    // Of the moment before the read: what is published during it may be missing in its answer.
    const target = this.#bus.position;
    if (this.#position >= target) return 'all read';
    return { target, ...(await this.#log.eventsAfter(this.#position, this.#limits.pageEvents)) };
  }

  async #sendReplayed(event: LoggedEvent): Promise<void> {
    this.#sendStashed(event.seq);
    const frame = await this.#join(event, this.#view);
    const drained = this.#connection.drained();
    if (drained !== null) await drained;
    if (this.#state === 'replaying') this.#connection.send(frame);
  }

  /** Sends the updates that came before event `seq`. */
  #sendStashed(seq: number): void {
    let sent = 0;
    for (const { after, update } of this.#stash) {
      if (after >= seq) break;
      const frame = updateFrame(update, this.#view);
      if (frame !== null) this.#connection.send(frame);
      sent += 1;
    }
    if (sent > 0) this.#stash.splice(0, sent);
  }

  #goLive(): void {
    this.#sendStashed(Number.POSITIVE_INFINITY);
    if (this.#state === 'replaying') this.#state = 'live';
    this.#sendQueued();
  }
}
