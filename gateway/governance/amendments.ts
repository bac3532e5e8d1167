/** Changes that humans made to the transcript: intended before SessionDB is written, recorded with their event after it. */
import type { Caller, LoggedEvent } from '../domain.ts';
import type { ConversationId, Locator } from '../ids.ts';
import { repeatable, type Sql, withDeadline } from './connection.ts';
import type { EventLog } from './event-log.ts';

/** What is going to be done. */
export type AmendmentIntent = { readonly conversation: ConversationId; readonly by: Pick<Caller, 'token' | 'user'> } & (
  | { readonly kind: 'edit'; readonly locator: Locator; readonly was: string; readonly becomes: string }
  | { readonly kind: 'reply'; readonly mark: string }
  | { readonly kind: 'removal'; readonly locator: Locator }
);

/** One that no child has read yet, or of which it is not known whether it was done. */
export interface OpenAmendment {
  readonly id: string;
  readonly conversation: ConversationId;
  readonly kind: AmendmentIntent['kind'];
  readonly locator: Locator | null;
  readonly was: string | null;
  readonly becomes: string | null;
  readonly mark: string | null;
  readonly isRecorded: boolean;
}

/** Open ones that are read at a start; older ones concern conversations that nobody has gone on with. */
const maxOpen = 10_000;

export class AmendmentLog {
  readonly #sql: Sql;
  readonly #log: EventLog;

  constructor(sql: Sql, log: EventLog) {
    this.#sql = sql;
    this.#log = log;
  }

  /** Gives the id. A reply with the same mark is one amendment, whoever intends it. */
  async intend(intent: AmendmentIntent): Promise<string> {
    const { conversation, kind, by } = intent;
    const locator = intent.kind === 'reply' ? null : intent.locator;
    const [was, becomes] = intent.kind === 'edit' ? [intent.was, intent.becomes] : [null, null];
    const mark = intent.kind === 'reply' ? intent.mark : null;
    // When its answer was lost its time tells that it is there.
    const at = new Date();
    let isRepeated = false;
    const intended = () => {
      const rows = this.#sql<{ id: string }[]>`
        with earlier as (
          select id from amendments
          where ${isRepeated}::boolean and conversation = ${conversation} and kind = ${kind} and token = ${by.token}
            and intended_at = ${at}
            and locator is not distinct from ${locator}::text and becomes is not distinct from ${becomes}::text
            and mark is null and ${mark}::text is null
        ), made as (
          insert into amendments (conversation, kind, token, by_user, locator, was, becomes, mark, intended_at)
          select ${conversation}::text, ${kind}::text, ${by.token}::text, ${by.user}::text, ${locator}::text, ${was}::text,
            ${becomes}::text, ${mark}::text, ${at}::timestamptz
          where not exists (select from earlier)
          on conflict (conversation, mark) do update set mark = excluded.mark
          returning id
        )
        select id from made union all select id from earlier`;
      isRepeated = true;
      return rows;
    };
    const rows = await repeatable(intended);
    if (rows[0] === undefined) throw new Error('an amendment was not stored');
    return rows[0].id;
  }

  /** Records it with its event; null when that was done before. The row's card was in words that are no more. */
  record(id: string, conversation: ConversationId, kind: AmendmentIntent['kind'], locator: Locator) {
    const type = kind === 'reply' ? 'transcript.appended' : 'transcript.edited';
    const event = (seq: number, at: Date): LoggedEvent => ({ seq, conversation, at, type, locator });
    return this.#log.append<LoggedEvent | null>({
      events: 1,
      refusable: false,
      statement: async (seq, at) => {
        const rows = await this.#sql`
          with recorded as (
            update amendments set recorded_at = ${at}, locator = ${locator} where id = ${id} and recorded_at is null
            returning conversation
          ), forgotten as (
            delete from cards where locator = ${locator} and exists (select from recorded)
          )
          insert into events (seq, conversation, at, type, locator)
          select ${seq}::bigint, conversation, ${at}::timestamptz, ${type}::text, ${locator}::text from recorded
          returning seq`;
        return rows.length === 0 ? { result: null, logged: false } : { result: event(seq, at), logged: true };
      },
      committed: async (seq, at) => event(seq, at),
    });
  }

  /** It was not done. One that is recorded stays. */
  async drop(id: string): Promise<void> {
    await repeatable(() => this.#sql`delete from amendments where id = ${id} and recorded_at is null`);
  }

  /** A child has begun a turn that read them. */
  async take(ids: readonly string[]): Promise<void> {
    await withDeadline(
      this.#sql`
        update amendments set taken_at = ${new Date()}
        where taken_at is null and recorded_at is not null
          and id in (select value::bigint from json_array_elements_text(${JSON.stringify(ids)}::text::json))`,
    );
  }

  async open(): Promise<readonly OpenAmendment[]> {
    const rows = await withDeadline(
      this.#sql<(Omit<OpenAmendment, 'isRecorded'> & { readonly is_recorded: boolean })[]>`
        select id, conversation, kind, locator, was, becomes, mark, recorded_at is not null as is_recorded
        from amendments where taken_at is null order by id desc limit ${maxOpen}`,
    );
    return rows.map(({ is_recorded: isRecorded, ...row }) => ({ ...row, isRecorded })).toReversed();
  }
}
