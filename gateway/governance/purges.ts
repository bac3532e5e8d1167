/** Erasures and how far they have come: what is confirmed is on record before anything is erased, and stays on record. */
import type { Caller } from '../domain.ts';
import { type ConversationId, newOperationId, type OperationId, type TokenId, type UserId } from '../ids.ts';
import type { GovernanceCounts, PurgeCounts } from '../retention/counts.ts';
import { inserted, repeatable, type Sql, withDeadline } from './connection.ts';
import type { Page } from './governance.ts';
import { ordinalOf, pageOf } from './ordinal-cursor.ts';

/** What is to be erased, exactly. */
export interface PurgeTargets {
  readonly conversations: readonly ConversationId[];
  /** The prose of messages that failed before then; null for none. */
  readonly failedProseBefore: Date | null;
}

export type PurgeStep = 'confirmed' | 'stopped' | 'sessions' | 'files' | 'erased';

export interface PurgeTarget {
  readonly conversation: ConversationId;
  readonly session: string | null;
  readonly step: PurgeStep;
  /** What was there when it was confirmed. */
  readonly found: PurgeCounts;
}

/** What is left of everything that was to be erased; and how many messages have lost their prose. */
export interface PurgeResult {
  readonly erased: PurgeCounts;
  readonly remaining: PurgeCounts;
  readonly failedProse: number;
}

export interface Purge {
  readonly id: OperationId;
  readonly token: TokenId;
  readonly user: UserId | null;
  readonly failedProseBefore: Date | null;
  readonly targets: readonly PurgeTarget[];
  readonly begunAt: Date;
  readonly finishedAt: Date | null;
  readonly result: PurgeResult | null;
}

/** What there is of a conversation in this database, and what changes whenever something is added. */
export interface FoundGovernance {
  readonly counts: GovernanceCounts;
  readonly newestSeq: number;
}

/**
 * Tables with something of one conversation, in the order in which their rows can go: the condition names it as `$1`. A test
 * tells when a table is missing here.
 */
export const conversationTables = {
  cards: 'locator in (select locator from messages where conversation = $1)',
  events: 'conversation = $1',
  messages: 'conversation = $1',
  amendments: 'conversation = $1',
  conversations: 'id = $1',
} as const;

interface PurgeRow {
  readonly id: OperationId;
  readonly ordinal: string;
  readonly token: TokenId;
  readonly user_id: UserId | null;
  readonly subject: string;
  readonly begun_at: Date;
  readonly finished_at: Date | null;
  readonly result: string | null;
}

interface TargetRow {
  readonly operation: OperationId;
  readonly conversation: ConversationId;
  readonly session: string | null;
  readonly step: PurgeStep;
  readonly found: string;
}

export class Purges {
  readonly #sql: Sql;

  constructor(sql: Sql) {
    this.#sql = sql;
  }

  async find(conversation: ConversationId): Promise<FoundGovernance> {
    const [row] = await withDeadline(
      this.#sql<Record<'messages' | 'events' | 'cards' | 'amendments' | 'newest', string>[]>`
        select
          (select count(*) from messages where conversation = ${conversation}) as messages,
          (select count(*) from events where conversation = ${conversation}) as events,
          (select count(*) from cards where locator in (
            select locator from messages where conversation = ${conversation})) as cards,
          (select count(*) from amendments where conversation = ${conversation}) as amendments,
          (select coalesce(max(seq), 0) from events where conversation = ${conversation}) as newest`,
    );
    if (row === undefined) throw new Error('a question without an answer');
    return {
      counts: {
        messages: Number(row.messages),
        events: Number(row.events),
        cards: Number(row.cards),
        amendments: Number(row.amendments),
      },
      newestSeq: Number(row.newest),
    };
  }

  async countFailedProse(before: Date): Promise<number> {
    const [row] = await withDeadline(
      this.#sql<{ count: string }[]>`
        select count(*) from messages where state = 'failed' and blocks is not null and settled_at < ${before}`,
    );
    return Number(row?.count);
  }

  /** From here on the conversations do not exist for anybody, after a restart too. */
  async begin(
    by: Caller,
    failedProseBefore: Date | null,
    found: ReadonlyMap<ConversationId, PurgeCounts>,
  ): Promise<OperationId> {
    const id = newOperationId();
    const subject = { conversations: [...found.keys()], failedProseBefore: failedProseBefore?.toISOString() ?? null };
    const begin = () =>
      this.#sql.begin(async (transaction) => {
        await transaction`
          insert into operations (id, kind, token, user_id, subject, begun_at)
          values (${id}, 'retention.purge', ${by.token}, ${by.user}, ${JSON.stringify(subject)}, ${new Date()})`;
        for (const [conversation, counts] of found) {
          await transaction`
            insert into purge_targets (operation, conversation, session, step, found)
            select ${id}::text, id, session, 'confirmed', ${JSON.stringify(counts)}::text
            from conversations where id = ${conversation}`;
          await transaction`update conversations set purge = ${id} where id = ${conversation}`;
        }
      });
    await inserted(begin, 'operations_pkey');
    return id;
  }

  /** Its turns have ended: the session that it has now is the one that it had last. */
  async stopped(operation: OperationId, conversation: ConversationId): Promise<void> {
    await repeatable(
      () => this.#sql`
        update purge_targets set step = 'stopped',
          session = coalesce((select session from conversations where id = ${conversation}), session)
        where operation = ${operation} and conversation = ${conversation}`,
    );
  }

  async advance(operation: OperationId, conversation: ConversationId, step: 'sessions' | 'files'): Promise<void> {
    await repeatable(
      () => this.#sql`
        update purge_targets set step = ${step} where operation = ${operation} and conversation = ${conversation}`,
    );
  }

  /** The last step of a conversation, at once. Harmless again. */
  async erase(operation: OperationId, conversation: ConversationId): Promise<void> {
    await repeatable(() =>
      this.#sql.begin(async (transaction) => {
        await transaction`
          update organization
          set last_erased_seq = greatest(last_erased_seq, (select coalesce(max(seq), 0) from events))`;
        for (const [table, condition] of Object.entries(conversationTables)) {
          await transaction.unsafe(`delete from ${table} where ${condition}`, [conversation]);
        }
        await transaction`
          update purge_targets set step = 'erased'
          where operation = ${operation} and conversation = ${conversation}`;
      }),
    );
  }

  /** The id of the session was kept for the last look whether something is left. */
  async finish(operation: OperationId, result: PurgeResult): Promise<void> {
    await repeatable(() =>
      this.#sql.begin(async (transaction) => {
        await transaction`update purge_targets set session = null where operation = ${operation}`;
        await transaction`
          update operations set finished_at = ${new Date()}, result = ${JSON.stringify(result)}
          where id = ${operation} and finished_at is null`;
      }),
    );
  }

  async read(id: OperationId): Promise<Purge | null> {
    const rows = await withDeadline(
      this.#sql<PurgeRow[]>`${this.#columns()} where kind = 'retention.purge' and id = ${id}`,
    );
    return (await this.#withTargets(rows))[0] ?? null;
  }

  /** Those that were begun and not finished, oldest first. */
  async unfinished(): Promise<readonly Purge[]> {
    const rows = await withDeadline(
      this.#sql<PurgeRow[]>`
        ${this.#columns()} where kind = 'retention.purge' and finished_at is null order by ordinal`,
    );
    return this.#withTargets(rows);
  }

  /** Newest first. */
  async list(cursor: string | null, limit: number): Promise<Page<Purge>> {
    const before = cursor === null ? null : ordinalOf(cursor);
    const rows = await withDeadline(
      this.#sql<PurgeRow[]>`
        ${this.#columns()}
        where kind = 'retention.purge' and (${before}::bigint is null or ordinal < ${before}::bigint)
        order by ordinal desc limit ${limit + 1}`,
    );
    const page = pageOf(rows, limit);
    return { items: await this.#withTargets(page.rows), next: page.next };
  }

  #columns() {
    return this.#sql`
      select id, ordinal, token, user_id, subject, begun_at, finished_at, result from operations`;
  }

  async #withTargets(rows: readonly PurgeRow[]): Promise<readonly Purge[]> {
    if (rows.length === 0) return [];
    const targets = await withDeadline(
      this.#sql<TargetRow[]>`
        select operation, conversation, session, step, found from purge_targets
        where operation in ${this.#sql(rows.map(({ id }) => id))} order by conversation`,
    );
    return rows.map((row) =>
      purgeOfRow(
        row,
        targets.filter(({ operation }) => operation === row.id),
      ),
    );
  }
}

function purgeOfRow(row: PurgeRow, targets: readonly TargetRow[]): Purge {
  const { failedProseBefore } = JSON.parse(row.subject) as { readonly failedProseBefore: string | null };
  return {
    id: row.id,
    token: row.token,
    user: row.user_id,
    failedProseBefore: failedProseBefore === null ? null : new Date(failedProseBefore),
    targets: targets.map(({ conversation, session, step, found }) => ({
      conversation,
      session,
      step,
      found: JSON.parse(found) as PurgeCounts,
    })),
    begunAt: row.begun_at,
    finishedAt: row.finished_at,
    result: row.result === null ? null : (JSON.parse(row.result) as PurgeResult),
  };
}
