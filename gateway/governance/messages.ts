/** A message's life: each transition and its event are one statement (ADR-046 §4: no state holds a reply back). */
import type { Card } from '../cards/card.ts';
import type { ContentBlock, EventBody, LoggedEvent, Message, PhaseTimings } from '../domain.ts';
import type { ConversationId, Locator, MessageId } from '../ids.ts';
import { Problem, type ProblemDocument } from '../problem.ts';
import { isRefusal, repeatable, type Sql, violates, withDeadline } from './connection.ts';
import type { EventLog, Written } from './event-log.ts';
import type { Acceptance, Cancellation, EventRun, PendingMessage } from './governance.ts';

interface MessageRow {
  readonly id: MessageId;
  readonly conversation: ConversationId;
  readonly digest: string | null;
  readonly blocks: string | null;
  readonly state: Message['state'];
  readonly watermark: string | null;
  readonly locator: Locator | null;
  readonly problem: string | null;
  readonly attach_ms: number | null;
  readonly admission_ms: number | null;
  readonly first_update_ms: number | null;
  readonly loop_ms: number | null;
  readonly settle_ms: number | null;
  readonly accepted_at: Date;
}

type Settlement =
  | { readonly state: 'delivered'; readonly locator: Locator; readonly card: Card | null }
  | { readonly state: 'failed'; readonly problem: ProblemDocument }
  | { readonly state: 'cancelled' };

/** A message that was stored with an idempotency key. */
interface Keyed {
  readonly message: Message;
  readonly digest: string;
}

export interface Submitted {
  readonly id: MessageId;
  readonly conversation: ConversationId;
  readonly blocks: readonly ContentBlock[];
  readonly digest: string;
  readonly key: string | null;
}

export class Messages {
  readonly #sql: Sql;
  readonly #log: EventLog;

  constructor(sql: Sql, log: EventLog) {
    this.#sql = sql;
    this.#log = log;
  }

  /**
   * Stores the message and its event in one round trip: the only one between a request and its agent. A key that was used
   * before costs a second one.
   */
  accept(input: Submitted): Promise<Acceptance> {
    const blocks = JSON.stringify(input.blocks);
    const accepted = (seq: number, at: Date): Acceptance => ({
      outcome: 'accepted',
      message: { id: input.id, conversation: input.conversation, acceptedAt: at, timings: null, state: 'accepted' },
      event: { seq, conversation: input.conversation, at, type: 'message.accepted', message: input.id },
    });
    return this.#log.append<Acceptance>({
      events: 1,
      refusable: true,
      statement: async (seq, at): Promise<Written<Acceptance>> => {
        const stored = await this.#sql`
          with stored as (
            insert into messages (id, conversation, accepted_seq, idempotency_key, digest, blocks, state, accepted_at)
            values (${input.id}, ${input.conversation}, ${seq}, ${input.key},
              ${input.key === null ? null : input.digest}, ${blocks}, 'accepted', ${at})
            on conflict (conversation, idempotency_key) do nothing
            returning id, conversation
          )
          insert into events (seq, conversation, at, type, message)
          select ${seq}::bigint, conversation, ${at}::timestamptz, 'message.accepted', id from stored
          returning seq`.catch((error: unknown) => {
          if (violates(error, 'messages_conversation_fkey')) {
            throw new Problem('not-found', 'There is no such conversation');
          }
          throw error;
        });
        if (stored.length > 0) return { result: accepted(seq, at), logged: true };
        return { result: await this.#keyed(input), logged: false };
      },
      committed: async (seq, at) => accepted(seq, at),
    });
  }

  /** The message that used the key before, which is why this one was not stored. */
  async #keyed({ conversation, key, digest }: Submitted): Promise<Acceptance> {
    const known = key === null ? null : await this.#withKey(conversation, key);
    if (known === null) throw new Error('a message was not stored, and none has its key');
    return known.digest === digest ? { outcome: 'known', message: known.message } : { outcome: 'key-reused' };
  }

  /** See the interface: behind all that is being written, which may be that message. */
  async findKeyed(conversation: ConversationId, key: string): Promise<Keyed | null> {
    await this.#log.settled();
    return this.#withKey(conversation, key);
  }

  async #withKey(conversation: ConversationId, key: string): Promise<Keyed | null> {
    const [row] = await repeatable(
      () => this.#sql<MessageRow[]>`
        select id, conversation, digest, state, locator, problem, attach_ms, admission_ms, first_update_ms, loop_ms,
          settle_ms, accepted_at
        from messages where conversation = ${conversation} and idempotency_key = ${key}`,
    );
    return row === undefined ? null : { message: messageOfRow(row), digest: row.digest ?? '' };
  }

  async find(conversation: ConversationId, id: MessageId): Promise<Message | null> {
    const rows = await repeatable(
      () => this.#sql<MessageRow[]>`
        select id, conversation, state, locator, problem, attach_ms, admission_ms, first_update_ms, loop_ms, settle_ms,
          accepted_at
        from messages where id = ${id} and conversation = ${conversation}`,
    );
    return rows[0] === undefined ? null : messageOfRow(rows[0]);
  }

  /** accepted → dispatched. Throws a `conflict` {@link Problem} from any other state: a cancel was first. */
  async dispatch(id: MessageId, watermark: number, admission: 'warm' | 'cold'): Promise<LoggedEvent> {
    const [event] = await this.#transition(
      id,
      (seq, at) => this.#sql<{ conversation: ConversationId }[]>`
        with changed as (
          update messages
          set state = 'dispatched', watermark = ${watermark}, admission = ${admission}, dispatched_at = ${at}
          where id = ${id} and state = 'accepted'
          returning conversation
        )
        insert into events (seq, conversation, at, type, message, admission)
        select ${seq}::bigint, conversation, ${at}::timestamptz, 'turn.started', ${id}::text, ${admission}::text
        from changed
        returning conversation`,
      [{ type: 'turn.started', message: id, admission }],
    );
    return event;
  }

  /**
   * accepted → cancelled. It and the dispatch both ask for a message that waits, so of the two the first one finds it. The
   * inbound prose is erased.
   */
  cancelWaiting(conversation: ConversationId, id: MessageId): Promise<Cancellation | null> {
    const cancelled = (seq: number, at: Date): Cancellation => ({
      outcome: 'cancelled',
      event: { seq, conversation, at, type: 'turn.cancelled', message: id },
    });
    return this.#log.append<Cancellation | null>({
      events: 1,
      refusable: false,
      statement: async (seq, at): Promise<Written<Cancellation | null>> => {
        const rows = await this.#sql`
          with changed as (
            update messages set state = 'cancelled', blocks = null, settled_at = ${at}
            where id = ${id} and conversation = ${conversation} and state = 'accepted'
            returning id
          )
          insert into events (seq, conversation, at, type, message)
          select ${seq}::bigint, ${conversation}::text, ${at}::timestamptz, 'turn.cancelled', id from changed
          returning seq`;
        if (rows.length > 0) return { result: cancelled(seq, at), logged: true };
        const message = await this.find(conversation, id);
        return { result: message === null ? null : { outcome: 'too-late', message }, logged: false };
      },
      committed: async (seq, at) => cancelled(seq, at),
    });
  }

  /**
   * dispatched → delivered, once and by nothing but its locator (ADR-046 §4); the inbound prose is erased and the reply's
   * card is opened with it. A card that the database refuses holds nothing up: the reply is delivered without it, and one
   * event fewer comes back.
   */
  async deliver(id: MessageId, locator: Locator, timings: PhaseTimings | null, card: Card | null): Promise<EventRun> {
    if (card !== null) {
      try {
        return await this.#settle(id, { state: 'delivered', locator, card }, timings);
      } catch (error) {
        // Refused, so nothing of it was kept; and if it was not the card that was refused, it is refused again.
        if (!isRefusal(error)) throw error;
      }
    }
    return this.#settle(id, { state: 'delivered', locator, card: null }, timings);
  }

  /** accepted or dispatched → failed; the blocks stay until they are erased by age. */
  async fail(id: MessageId, problem: ProblemDocument, timings: PhaseTimings | null): Promise<LoggedEvent> {
    return (await this.#settle(id, { state: 'failed', problem }, timings))[0];
  }

  /** accepted or dispatched → cancelled; the inbound prose is erased. */
  async cancel(id: MessageId, timings: PhaseTimings | null): Promise<LoggedEvent> {
    return (await this.#settle(id, { state: 'cancelled' }, timings))[0];
  }

  #settle(id: MessageId, to: Settlement, timings: PhaseTimings | null): Promise<EventRun> {
    const locator = to.state === 'delivered' ? to.locator : null;
    const problem = to.state === 'failed' ? JSON.stringify(to.problem) : null;
    const card = to.state === 'delivered' && to.card !== null ? JSON.stringify(to.card) : null;
    const body = eventOfSettlement(id, to);
    const sql = this.#sql;
    return this.#transition(
      id,
      (seq, at) => sql<{ conversation: ConversationId }[]>`
        with changed as (
          update messages set
            state = ${to.state}, locator = ${locator}, problem = ${problem}, settled_at = ${at},
            blocks = case when ${to.state}::text = 'failed' then blocks end,
            attach_ms = ${timings?.attachMs ?? null}, admission_ms = ${timings?.admissionMs ?? null},
            first_update_ms = ${timings?.firstUpdateMs ?? null}, loop_ms = ${timings?.loopMs ?? null},
            settle_ms = ${timings?.settleMs ?? null}
          where id = ${id}
            and (state = 'dispatched' or (state = 'accepted' and ${to.state}::text <> 'delivered'))
          returning conversation
        )${
          card === null
            ? sql``
            : sql`, opened as (
          insert into cards (locator, card, opened_at) select ${locator}, ${card}, ${at}::timestamptz from changed
        )`
        }
        insert into events (seq, conversation, at, type, message, locator)
        select ${seq}::bigint, conversation, ${at}::timestamptz, ${body.type}::text, ${id}::text, ${locator}::text
        from changed${
          card === null
            ? sql``
            : sql`
        union all
        select ${seq}::bigint + 1, conversation, ${at}::timestamptz, 'card.opened', null, ${locator}::text from changed`
        }
        returning conversation`,
      card === null || locator === null ? [body] : [body, { type: 'card.opened', locator }],
    );
  }

  #transition(
    id: MessageId,
    statement: (seq: number, at: Date) => PromiseLike<readonly { conversation: ConversationId }[]>,
    [first, ...more]: readonly [EventBody, ...EventBody[]],
  ): Promise<EventRun> {
    const run = (seq: number, at: Date, conversation: ConversationId): EventRun => [
      { ...first, seq, at, conversation },
      ...more.map((body, index): LoggedEvent => ({ ...body, seq: seq + 1 + index, at, conversation })),
    ];
    return this.#log.append<EventRun>({
      events: 1 + more.length,
      refusable: false,
      statement: async (seq, at) => {
        const rows = await Promise.resolve(statement(seq, at)).catch((error: unknown) => {
          if (violates(error, 'messages_locator_key')) {
            throw new Problem('conflict', 'This reply has been delivered for another message');
          }
          throw error;
        });
        const conversation = rows[0]?.conversation;
        if (conversation === undefined) {
          throw new Problem('conflict', `Message ${id} is not in a state from which ${first.type} can follow`);
        }
        return { result: run(seq, at, conversation), logged: true };
      },
      committed: async (seq, at) => {
        const [row] = await withDeadline(
          this.#sql<{ conversation: ConversationId }[]>`select conversation from messages where id = ${id}`,
        );
        if (row === undefined) throw new Error(`message ${id} has an event and no row`);
        return run(seq, at, row.conversation);
      },
    });
  }

  /** Logs an event that belongs to no message. */
  log(conversation: ConversationId, body: EventBody): Promise<LoggedEvent> {
    if ('message' in body) return Promise.reject(new Error(`${body.type} is logged by its transition`));
    const locator = 'locator' in body ? body.locator : null;
    const event = (seq: number, at: Date): LoggedEvent => ({ ...body, seq, at, conversation });
    return this.#log.append<LoggedEvent>({
      events: 1,
      refusable: false,
      statement: async (seq, at) => {
        await this.#sql`
          insert into events (seq, conversation, at, type, locator)
          values (${seq}, ${conversation}, ${at}, ${body.type}, ${locator})`;
        return { result: event(seq, at), logged: true };
      },
      committed: async (seq, at) => event(seq, at),
    });
  }

  /** What was accepted or dispatched and never settled, in order of acceptance; nothing of what is being erased. */
  async pending(): Promise<readonly PendingMessage[]> {
    const rows = await withDeadline(
      this.#sql<MessageRow[]>`
        select id, conversation, blocks, state, watermark, locator, problem, attach_ms, admission_ms, first_update_ms,
          loop_ms, settle_ms, accepted_at
        from messages
        where settled_at is null and conversation not in (select id from conversations where purge is not null)
        order by accepted_seq`,
    );
    return rows.map((row) => ({
      message: messageOfRow(row),
      blocks: JSON.parse(row.blocks ?? '[]') as ContentBlock[],
      watermark: row.watermark === null ? null : Number(row.watermark),
    }));
  }

  /** Erases the inbound prose of failures settled before `limit`; answers how many. */
  async eraseFailedProse(limit: Date): Promise<number> {
    const rows = await withDeadline(
      this.#sql`
        update messages set blocks = null
        where state = 'failed' and blocks is not null and settled_at < ${limit} returning id`,
    );
    return rows.length;
  }
}

function eventOfSettlement(message: MessageId, to: Settlement): EventBody {
  switch (to.state) {
    case 'delivered':
      return { type: 'reply.delivered', message, locator: to.locator };
    case 'failed':
      return { type: 'turn.failed', message, problem: to.problem };
    case 'cancelled':
      return { type: 'turn.cancelled', message };
  }
}

function messageOfRow(row: MessageRow): Message {
  const head = {
    id: row.id,
    conversation: row.conversation,
    acceptedAt: row.accepted_at,
    timings:
      row.attach_ms === null
        ? null
        : {
            attachMs: row.attach_ms,
            admissionMs: row.admission_ms,
            firstUpdateMs: row.first_update_ms,
            loopMs: row.loop_ms,
            settleMs: row.settle_ms,
          },
  };
  switch (row.state) {
    case 'delivered':
      if (row.locator === null) throw new Error(`message ${row.id} is delivered without a locator`);
      return { ...head, state: 'delivered', locator: row.locator };
    case 'failed':
      return { ...head, state: 'failed', problem: JSON.parse(row.problem ?? 'null') as ProblemDocument };
    default:
      return { ...head, state: row.state };
  }
}
