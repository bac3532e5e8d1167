/** Specialists and conversations: who is spoken to, and which native session that is. */
import type { Conversation, Specialist } from '../domain.ts';
import { type ConversationId, newSpecialistId, type SpecialistId, type UserId } from '../ids.ts';
import { Problem } from '../problem.ts';
import type { Reach } from '../reach.ts';
import { inserted, repeatable, type Sql, violates, withDeadline } from './connection.ts';
import type { Page } from './governance.ts';
import { ordinalOf, pageOf } from './ordinal-cursor.ts';

interface SpecialistRow {
  readonly id: SpecialistId;
  readonly name: string;
  readonly persona: string;
  readonly created_at: Date;
  readonly offboarded_at: Date | null;
}

interface ConversationRow {
  readonly id: ConversationId;
  readonly ordinal: string;
  readonly specialist: SpecialistId;
  readonly session: string | null;
  readonly owner: UserId | null;
  readonly created_at: Date;
}

/** Conversations kept in memory; the oldest is forgotten first and read again when it comes back. */
const maxRemembered = 10_000;
/** How many specialists a list answers with at most. */
const maxSpecialists = 1_000;

export class Conversations {
  readonly #sql: Sql;
  /** This process alone writes conversations, so what it has read stays true. A warm turn then asks nothing (ADR-046 §8). */
  readonly #known = new Map<ConversationId, Conversation>();
  /** Grows with each binding: a read that began before one does not fill the memory after it. */
  #bindings = 0;

  constructor(sql: Sql) {
    this.#sql = sql;
  }

  async createSpecialist(name: string, persona: string): Promise<Specialist> {
    refuseNul(name);
    refuseNul(persona);
    const id = newSpecialistId();
    const createdAt = new Date();
    try {
      await inserted(
        () => this.#sql`
          insert into specialists (id, name, persona, created_at) values (${id}, ${name}, ${persona}, ${createdAt})`,
        'specialists_pkey',
      );
    } catch (error) {
      if (!violates(error, 'specialists_name_key')) throw error;
      throw new Problem('conflict', 'A specialist with this name exists already; choose another name');
    }
    return { id, name, persona, createdAt, offboardedAt: null };
  }

  async listSpecialists(): Promise<readonly Specialist[]> {
    const rows = await withDeadline(
      this.#sql<SpecialistRow[]>`
        select id, name, persona, created_at, offboarded_at from specialists
        order by created_at, id limit ${maxSpecialists}`,
    );
    return rows.map(specialistOfRow);
  }

  async findSpecialist(idOrName: string): Promise<Specialist | null> {
    if (idOrName.includes('\0')) return null;
    const rows = await withDeadline(
      this.#sql<SpecialistRow[]>`
        select id, name, persona, created_at, offboarded_at from specialists
        where id = ${idOrName} or name = ${idOrName}
        order by (id = ${idOrName}) desc limit 1`,
    );
    return rows[0] === undefined ? null : specialistOfRow(rows[0]);
  }

  /** Routing only: nothing of the conversations, their files or their sessions changes (ADR-046 §5). */
  async offboardSpecialist(id: SpecialistId): Promise<Specialist | null> {
    const rows = await repeatable(
      () => this.#sql<SpecialistRow[]>`
        update specialists set offboarded_at = coalesce(offboarded_at, ${new Date()}) where id = ${id}
        returning id, name, persona, created_at, offboarded_at`,
    );
    return rows[0] === undefined ? null : specialistOfRow(rows[0]);
  }

  async create(id: ConversationId, specialist: SpecialistId, owner: UserId | null): Promise<Conversation> {
    const createdAt = new Date();
    try {
      await inserted(
        () => this.#sql`
          insert into conversations (id, specialist, owner, created_at)
          values (${id}, ${specialist}, ${owner}, ${createdAt})`,
        'conversations_pkey',
      );
    } catch (error) {
      if (violates(error, 'conversations_specialist_fkey')) {
        throw new Problem('not-found', 'There is no such specialist');
      }
      if (violates(error, 'conversations_pkey')) throw new Problem('conflict', 'This conversation exists already');
      throw error;
    }
    const conversation = { id, specialist, session: null, owner, createdAt };
    this.#remember(conversation);
    return conversation;
  }

  async find(id: ConversationId): Promise<Conversation | null> {
    const known = this.#known.get(id);
    if (known !== undefined) return known;
    const bindings = this.#bindings;
    const rows = await repeatable(
      () => this.#sql<ConversationRow[]>`
        select id, ordinal, specialist, session, owner, created_at from conversations
        where id = ${id} and purge is null`,
    );
    if (rows[0] === undefined) return null;
    const conversation = conversationOfRow(rows[0]);
    if (bindings === this.#bindings) this.#remember(conversation);
    return conversation;
  }

  #remember(conversation: Conversation): void {
    if (this.#known.size >= maxRemembered) {
      const oldest = this.#known.keys().next();
      if (!oldest.done) this.#known.delete(oldest.value);
    }
    this.#known.set(conversation.id, conversation);
  }

  /** Those within reach, newest first. */
  async list(reach: Reach, cursor: string | null, limit: number): Promise<Page<Conversation>> {
    const before = cursor === null ? null : ordinalOf(cursor);
    const rows = await withDeadline(
      this.#sql<ConversationRow[]>`
        select id, ordinal, specialist, session, owner, created_at from conversations
        where (${before}::bigint is null or ordinal < ${before}::bigint) and purge is null and ${this.#within(reach)}
        order by ordinal desc limit ${limit + 1}`,
    );
    const page = pageOf(rows, limit);
    return { items: page.rows.map(conversationOfRow), next: page.next };
  }

  #within(reach: Reach) {
    switch (reach.kind) {
      case 'everything':
        return this.#sql`true`;
      case 'owner':
        return reach.owner === null ? this.#sql`owner is null` : this.#sql`owner = ${reach.owner}`;
      case 'specialists':
        return reach.specialists.length === 0
          ? this.#sql`false`
          : this.#sql`specialist in ${this.#sql(reach.specialists)}`;
    }
  }

  /** They are being erased: whatever is remembered of them is not true any more. */
  forget(ids: readonly ConversationId[]): void {
    this.#bindings += 1;
    for (const id of ids) this.#known.delete(id);
  }

  /** Once, after `session/new`; the same session again is fine, another one is a conflict. */
  bindSession(id: ConversationId, session: string): Promise<void> {
    return this.#binding(id, () => this.#bind(id, session));
  }

  /** See the interface. A failed or interrupted message's prose is still its own row's. */
  async isUntold(id: ConversationId): Promise<boolean> {
    const rows = await repeatable(() => this.#sql`select 1 where ${this.#untold(id)}`);
    return rows.length === 1;
  }

  replaceSession(id: ConversationId, lost: string, session: string): Promise<boolean> {
    return this.#binding(id, async () => {
      const rows = await repeatable(
        () => this.#sql`
          update conversations set session = ${session}
          where id = ${id} and (session = ${lost} or session = ${session}) and ${this.#untold(id)} returning id`,
      );
      return rows.length === 1;
    });
  }

  /**
   * A message's prose leaves its row when it is delivered or cancelled, and the agent has kept words of one that was dispatched
   * to it; other rows of the transcript have an event.
   */
  #untold(id: ConversationId) {
    return this.#sql`
      not exists (
        select 1 from messages
        where conversation = ${id} and state in ('delivered', 'cancelled') and dispatched_at is not null)
      and not exists (
        select 1 from events where conversation = ${id} and type in ('transcript.edited', 'transcript.appended'))`;
  }

  async #binding<T>(id: ConversationId, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } finally {
      // Also when the answer was lost: then the next question is for the database.
      this.#bindings += 1;
      this.#known.delete(id);
    }
  }

  async #bind(id: ConversationId, session: string): Promise<void> {
    try {
      const rows = await repeatable(
        () => this.#sql`
          update conversations set session = ${session}
          where id = ${id} and (session is null or session = ${session}) returning id`,
      );
      if (rows.length === 1) return;
    } catch (error) {
      if (!violates(error, 'conversations_session_key')) throw error;
      throw new Problem('conflict', 'This session belongs to another conversation');
    }
    const found = await withDeadline(this.#sql`select 1 from conversations where id = ${id}`);
    if (found.length === 0) throw new Problem('not-found', 'There is no such conversation');
    throw new Problem('conflict', 'This conversation has another session already');
  }
}

/** Postgres cannot keep it in a text, and answers with an error that nobody could read. */
function refuseNul(text: string): void {
  if (text.includes('\0')) throw new Problem('invalid-request', 'A NUL character cannot be kept; leave it out');
}

function specialistOfRow(row: SpecialistRow): Specialist {
  return {
    id: row.id,
    name: row.name,
    persona: row.persona,
    createdAt: row.created_at,
    offboardedAt: row.offboarded_at,
  };
}

function conversationOfRow(row: ConversationRow): Conversation {
  return {
    id: row.id,
    specialist: row.specialist,
    session: row.session,
    owner: row.owner,
    createdAt: row.created_at,
  };
}
