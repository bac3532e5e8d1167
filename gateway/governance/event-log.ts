/**
 * The event log's order. `seq` is given out here, one by one: a write that carries an event waits for the one before it,
 * so numbers have no gaps and are committed in their order. One gateway per organization (the data directory's lock)
 * makes that sound; a second one on the same database is noticed by the primary key of `events`.
 */
import type { LoggedEvent } from '../domain.ts';
import type { ConversationId, Locator, MessageId } from '../ids.ts';
import { Problem, type ProblemDocument } from '../problem.ts';
import { describe, isRefusal, type Sql, violates, withDeadline } from './connection.ts';

/** Newly accepted messages that may wait for their turn to be written; more are refused with 503. */
const maxWaitingAccepts = 1024;
/** How long a lost statement is asked for, in all, before the log gives up. */
const recoveryDelaysMs = [50, 250, 1_000, 3_000, 5_000, 10_000];
/** How often a statement is run that is known not to have been carried out. */
const attempts = 3;
/** Events that a reconnecting client can still catch up on; older ones are dropped at start. */
const keptEvents = 100_000;

export interface Written<T> {
  readonly result: T;
  /** Whether the statement logged its events, and so used their numbers. */
  readonly logged: boolean;
}

export interface Write<T> {
  /** How many events the statement logs, if it logs at all: they have the numbers from `seq` on. */
  readonly events: number;
  readonly statement: (seq: number, at: Date) => PromiseLike<Written<T>>;
  /** Asked when the answer got lost: what the statement had returned, now that its event is known to be committed. */
  readonly committed: (seq: number, at: Date) => PromiseLike<T>;
  /** A client waits and can be told to come back; a transition of a running turn cannot. */
  readonly refusable: boolean;
}

export class EventLog {
  readonly #sql: Sql;
  #last: number;
  #tail: Promise<unknown> = Promise.resolve();
  #waiting = 0;
  #broken: Error | null = null;
  readonly #failure = Promise.withResolvers<Error>();

  private constructor(sql: Sql, last: number) {
    this.#sql = sql;
    this.#last = last;
  }

  static async open(sql: Sql): Promise<EventLog> {
    const [newest] = await withDeadline(sql<{ seq: string }[]>`
      select greatest((select max(seq) from events), (select max(last_erased_seq) from organization), 0) as seq`);
    const last = Number(newest?.seq ?? 0);
    await withDeadline(sql`delete from events where seq <= ${last - keptEvents}`);
    return new EventLog(sql, last);
  }

  /** The newest committed sequence number; 0 when there is none. */
  get last(): number {
    return this.#last;
  }

  /** Resolves once the log can no longer tell what is committed: the process must end and read the truth at its start. */
  get failed(): Promise<Error> {
    return this.#failure.promise;
  }

  /** Resolves when what is being written now is written. */
  async settled(): Promise<void> {
    await this.#tail;
  }

  /**
   * Runs a statement that logs its events or none, after all earlier ones. When its answer got lost the log tells whether it was
   * carried out, and if it was not it is run again.
   */
  append<T>(write: Write<T>): Promise<T> {
    if (write.refusable && this.#waiting >= maxWaitingAccepts) {
      return Promise.reject(new Problem('not-ready', 'Too many messages are being written; send it again in a moment'));
    }
    this.#waiting += 1;
    const done = this.#tail.then(() => this.#write(write));
    this.#tail = done.then(
      () => undefined,
      // The caller has the error; the next write is independent of it.
      () => undefined,
    );
    return done.finally(() => {
      this.#waiting -= 1;
    });
  }

  async #write<T>(write: Write<T>): Promise<T> {
    if (this.#broken !== null) throw new Problem('not-ready', 'The gateway has lost its database and is stopping');
    const seq = this.#last + 1;
    const at = new Date();
    for (let attempt = 1; ; attempt += 1) {
      try {
        const written = await withDeadline(write.statement(seq, at));
        if (written.logged) this.#last = seq + write.events - 1;
        // One before it may have been carried out after it had been asked for.
        else if (attempt > 1 && (await this.#isCommitted(seq, at, null)))
          return await this.#foundWritten(write, seq, at);
        return written.result;
      } catch (error) {
        const isAnswer = isRefusal(error) || error instanceof Problem;
        if ((attempt > 1 || !isAnswer) && (await this.#isCommitted(seq, at, error))) {
          return await this.#foundWritten(write, seq, at);
        }
        if (violates(error, 'events_pkey')) {
          throw this.#break(`event ${seq} exists already: another gateway writes to this database`, error);
        }
        if (isAnswer || attempt === attempts) throw error;
      }
    }
  }

  #foundWritten<T>(write: Write<T>, seq: number, at: Date): PromiseLike<T> {
    this.#last = seq + write.events - 1;
    return write.committed(seq, at);
  }

  /** After a lost answer: true when the event was committed. Breaks the log when the database cannot be asked. */
  async #isCommitted(seq: number, at: Date, cause: unknown): Promise<boolean> {
    let last: unknown = cause;
    for (const delayMs of recoveryDelaysMs) {
      await Bun.sleep(delayMs);
      try {
        // The time too: another gateway's event is not ours.
        const rows = await withDeadline(this.#sql`select 1 from events where seq = ${seq} and at = ${at}`);
        return rows.length > 0;
      } catch (error) {
        last = error;
      }
    }
    const error = this.#break('the database went away in the middle of a write', last);
    const unknown = new Problem(
      'outcome-unknown',
      'The database went away. Look whether it was done before you ask again.',
    );
    unknown.cause = error;
    throw unknown;
  }

  #break(what: string, cause: unknown): Error {
    const error = new Error(`${what} (${describe(cause)})`, { cause });
    this.#broken = error;
    this.#failure.resolve(error);
    return error;
  }

  /** Events after `seq` in order, at most `limit`; `oldest` is the first one still kept. */
  async after(seq: number, limit: number): Promise<{ events: readonly LoggedEvent[]; oldest: number }> {
    const [rows, oldest] = await withDeadline(
      Promise.all([
        this.#sql<EventRow[]>`
          select e.seq, e.conversation, e.at, e.type, e.message, e.locator, e.admission,
            case when e.type = 'turn.failed' then m.problem end as problem
          from events e left join messages m on m.id = e.message
          where e.seq > ${seq} order by e.seq limit ${limit}`,
        this.#sql<{ seq: string }[]>`select coalesce(min(seq), ${this.#last + 1}::bigint) as seq from events`,
      ]),
    );
    return { events: rows.map(eventOfRow), oldest: Number(oldest[0]?.seq) };
  }
}

interface EventRow {
  readonly seq: string;
  readonly conversation: ConversationId;
  readonly at: Date;
  readonly type: LoggedEvent['type'];
  readonly message: MessageId | null;
  readonly locator: Locator | null;
  readonly admission: 'warm' | 'cold' | null;
  readonly problem: string | null;
}

function eventOfRow(row: EventRow): LoggedEvent {
  const { type } = row;
  const head = { seq: Number(row.seq), conversation: row.conversation, at: row.at };
  const present = <T>(value: T | null): T => {
    if (value === null) throw new Error(`event ${row.seq} (${type}) is incomplete in the database`);
    return value;
  };
  switch (type) {
    case 'message.accepted':
    case 'turn.cancelled':
      return { ...head, type, message: present(row.message) };
    case 'turn.started':
      return { ...head, type, message: present(row.message), admission: present(row.admission) };
    case 'reply.delivered':
      return { ...head, type, message: present(row.message), locator: present(row.locator) };
    case 'turn.failed':
      return {
        ...head,
        type,
        message: present(row.message),
        problem: JSON.parse(present(row.problem)) as ProblemDocument,
      };
    case 'transcript.edited':
    case 'transcript.appended':
    case 'card.opened':
      return { ...head, type, locator: present(row.locator) };
    case 'conversation.updated':
      return { ...head, type };
  }
}
