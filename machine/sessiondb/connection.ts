/** One Python connection of a holder: its statements, judged, on one Hrana stream of the SessionDB authority. */
import { type HranaDatabase, HranaError, type HranaErrorKind } from '../agentfs/hrana.ts';
import type {
  WireBatchResult,
  WireRequest,
  WireResult,
  WireStatement,
  WireStatementResult,
} from '../agentfs/hrana-wire.ts';
import { valueAt } from './arguments.ts';
import { AuthorityStream } from './authority-stream.ts';
import { refusalOf } from './authorization.ts';
import { type Batch, batchOf, type Outcome, outcomeOf } from './batch.ts';
import { scopeDelegations } from './delegations.ts';
import { relayError, sqliteError, unanswered } from './errors.ts';
import { ForeseenTransaction } from './foreseen.ts';
import { type FrameAnswer, type FrameError, type FrameResult, type FrameStatement, wireArguments } from './frames.ts';
import type { Lineage } from './lineage.ts';
import type { MessageIds } from './message-ids.ts';
import { pinnedSchemaText } from './pinned-schema.ts';
import type { SessionRows } from './session-rows.ts';
import { shapeOf } from './shapes.ts';
import { type Plan, planOf, severalStatements } from './statements.ts';
import { frameResult, type Step } from './step.ts';
import { WrittenRows } from './written-rows.ts';

/** Ends a request; the statements before it keep their results. */
class Refusal extends Error {
  readonly error: FrameError;
  constructor(error: FrameError) {
    super(error.m);
    this.error = error;
  }
}

/** What the connections of one child share. */
export type ChildState = {
  readonly lineage: Lineage;
  readonly rows: SessionRows;
  readonly ids: MessageIds;
};

const parentQuery = 'SELECT parent_session_id FROM sessions WHERE id = ?';
const nothing: FrameResult = { n: 0, w: 0 };
/** After so many wrong guesses without a right one this connection makes no more. */
const maxWrongGuesses = 3;

export class RelayConnection {
  readonly #stream: AuthorityStream;
  readonly #child: ChildState;
  readonly #written: WrittenRows;
  /** A transaction of which the authority knows nothing yet. */
  #foreseen: ForeseenTransaction | null = null;
  #wrongGuesses = 0;
  /** The transaction that failed for a wrong guess runs again without one. */
  #guessing = true;
  /** SQLite's last_insert_rowid() of a new connection is 0. */
  #lastRowId = '0';
  /** Newest row of `messages` that the open transaction has added. */
  #messageId: bigint | null = null;
  /** The last request had a COMMIT in it. */
  #committing = false;

  constructor(database: HranaDatabase, child: ChildState) {
    this.#stream = new AuthorityStream(database);
    this.#child = child;
    this.#written = new WrittenRows(child.rows);
  }

  /** False while a transaction is open. */
  get autocommit(): boolean {
    return this.#stream.autocommit && this.#foreseen === null;
  }

  /** Runs statements in order up to the first failure. Never rejects. Calls must not overlap. */
  async run(statements: readonly FrameStatement[]): Promise<FrameAnswer> {
    const results: FrameResult[] = [];
    try {
      await this.#run(statements, results);
      return this.#answer(results);
    } catch (error) {
      return this.#answer(results, this.#describe(error));
    }
  }

  /** Runs a script, which can only be one of the pinned schema. Never rejects. Calls must not overlap. */
  async script(sql: string): Promise<FrameAnswer> {
    try {
      const plan = planOf(sql);
      if (plan.kind !== 'schema') throw this.#refusal('a script that is not among Hermes’ own');
      await this.#reveal();
      const [done] = await this.#stream.exchange([{ type: 'sequence', sql }]);
      if (done?.type === 'error') throw new Refusal(sqliteError(done.error.code, done.error.message));
      return this.#answer([]);
    } catch (error) {
      return this.#answer([], this.#describe(error));
    }
  }

  /** Rolls back what is open. Never rejects. */
  async close(): Promise<void> {
    this.#forget();
    await this.#stream.close();
    this.#written.end(null);
  }

  #refusal(reason: string): Refusal {
    this.#child.lineage.refused(reason);
    return new Refusal(relayError(`refused: ${reason}`));
  }

  #answer(r: readonly FrameResult[], e?: FrameError): FrameAnswer {
    return { a: this.autocommit ? 1 : 0, r, ...(e ? { e } : {}) };
  }

  #describe(error: unknown): FrameError {
    if (error instanceof Refusal) return error.error;
    const sure = error instanceof HranaError && notCarriedOut.has(error.kind);
    const described = unanswered(error, this.#committing && !sure ? 'unknown' : this.autocommit ? 'none' : 'lost');
    this.#stream.drop();
    this.#forget();
    this.#messageId = null;
    if (sure) this.#written.end(null);
    else {
      this.#written.lose();
      this.#child.ids.wasWrong();
    }
    return described;
  }

  async #run(statements: readonly FrameStatement[], results: FrameResult[]): Promise<void> {
    let steps: Step[] = [];
    const flush = async () => {
      const ready = steps;
      steps = [];
      if (ready.length > 0) await this.#perform(ready, results);
    };
    for (const [sql, args] of statements) {
      const plan = planOf(sql);
      if (plan.kind === 'local' || plan.kind === 'foreign-keys') {
        await flush();
        // SQLite ignores it inside a transaction.
        if (plan.kind === 'foreign-keys' && this.autocommit) await this.#stream.setForeignKeys(plan.on);
        results.push(plan.kind === 'local' ? plan.result : nothing);
        continue;
      }
      if (plan.kind === 'refused') {
        await flush();
        if (plan.reason === severalStatements) throw new Refusal({ k: 'ProgrammingError', m: plan.reason });
        throw this.#refusal(plan.reason);
      }
      const settle = async () => {
        await flush();
        await this.#reveal();
      };
      const foreign = await refusalOf(plan, args, this.#child.lineage, settle, (session) => this.#parentOf(session));
      if (foreign !== null) throw this.#refusal(foreign);
      steps.push(this.#step(plan, sql, args));
    }
    await flush();
  }

  #step(plan: Exclude<Plan, { kind: 'refused' }>, sql: string, args: FrameStatement[1]): Step {
    const scoped = (plan.kind === 'read' && plan.scoped) || (plan.kind === 'delegation' && !plan.insert);
    const text = scoped ? scopeDelegations(sql, this.#child.lineage.sessions()) : sql;
    return {
      stmt: { sql: plan.kind === 'schema' ? pinnedSchemaText(sql) : text, ...wireArguments(args), want_rows: true },
      shape: plan.kind === 'schema' ? { kind: 'other', sessions: true } : shapeOf(sql),
      args,
      changes:
        plan.kind === 'write' || plan.kind === 'delegation' || (plan.kind === 'schema' && !sql.includes('CREATE')),
      inserts: (plan.kind === 'write' || plan.kind === 'delegation') && plan.insert,
    };
  }

  async #parentOf(session: string): Promise<string | null | undefined> {
    const stmt: WireStatement = { sql: parentQuery, args: [{ type: 'text', value: session }], want_rows: true };
    const [result] = await this.#stream.exchange([{ type: 'execute', stmt }]);
    if (result?.type === 'error') throw new Refusal(sqliteError(result.error.code, result.error.message));
    const row = result?.response.type === 'execute' ? result.response.result.rows[0] : undefined;
    const parent = row?.[0];
    return parent?.type === 'text' ? parent.value : parent === undefined ? undefined : null;
  }

  /** Runs statements: without the authority where their results are known, otherwise in one request. */
  async #perform(steps: readonly Step[], results: FrameResult[]): Promise<void> {
    this.#committing = false;
    if (this.autocommit) {
      const known = this.#knownReads(steps);
      if (known !== null) {
        results.push(...known);
        return;
      }
      if (this.#guessing && steps[0]!.shape.kind === 'begin-immediate')
        this.#foreseen = new ForeseenTransaction(this.#child.rows, this.#child.ids, this.#lastRowId);
    }
    const foreseen = this.#foreseen;
    if (foreseen === null) await this.#send([], steps, results);
    else await this.#foresee(foreseen, steps, results);
  }

  /** Outside of a transaction: what is known of a session's row is what a SELECT would find now. */
  #knownReads(steps: readonly Step[]): FrameResult[] | null {
    const known: FrameResult[] = [];
    for (const { shape, args } of steps) {
      if (shape.kind !== 'read-session') return null;
      const session = valueAt(args, shape.session);
      const result = typeof session === 'string' ? this.#child.rows.get(session)?.select(shape.columns) : null;
      if (!result) return null;
      known.push(result);
    }
    return known;
  }

  async #foresee(foreseen: ForeseenTransaction, steps: readonly Step[], results: FrameResult[]): Promise<void> {
    const [last] = steps.slice(-1);
    if (steps.length === 1 && last!.shape.kind === 'rollback') {
      this.#forget();
      results.push(nothing);
      return;
    }
    let rest = steps;
    if (last!.shape.kind === 'commit') {
      // A transaction that changes nothing leaves nothing to be sent.
      const idle = foreseen.idle(steps.slice(0, -1));
      if (idle !== null) {
        this.#forget();
        results.push(...idle, nothing);
        return;
      }
    } else {
      for (const step of steps) {
        const result = await foreseen.take(step);
        if (result === null) break;
        results.push(result);
        rest = rest.slice(1);
      }
      if (rest.length === 0) return;
    }
    await this.#sendForeseen(foreseen, rest, results);
  }

  /** The transaction goes on at the authority, where it has not begun yet. */
  async #reveal(): Promise<void> {
    if (this.#foreseen) await this.#sendForeseen(this.#foreseen, [], []);
  }

  async #sendForeseen(foreseen: ForeseenTransaction, rest: readonly Step[], results: FrameResult[]): Promise<void> {
    this.#foreseen = null;
    this.#messageId = foreseen.newestId;
    if (this.#messageId !== null) this.#lastRowId = String(this.#messageId);
    try {
      await this.#send(foreseen.answered, rest, results);
    } finally {
      foreseen.release();
    }
  }

  #forget(): void {
    this.#foreseen?.release();
    this.#foreseen = null;
  }

  async #send(answered: ForeseenTransaction['answered'], rest: readonly Step[], results: FrameResult[]): Promise<void> {
    const written = this.#written;
    written.add([...answered.map(({ step }) => step), ...rest]);
    const commits = rest.at(-1)?.shape.kind === 'commit';
    const batch = batchOf(answered, rest, commits && rest.length + answered.length > 1 ? written.read : null);
    const request: WireRequest =
      batch.steps.length === 1
        ? { type: 'execute', stmt: batch.steps[0]!.stmt }
        : { type: 'batch', batch: { steps: batch.steps } };
    this.#committing = commits;
    const [answer] = await this.#stream.exchange([request]);
    const given = batchResult(answer);
    const outcome = outcomeOf(batch, given);
    if (outcome === null) throw new HranaError('protocol', 'PROTOCOL', 'a step without a result');
    for (const [index, result] of outcome.results.entries()) {
      const told = frameResult(result, rest[index]!);
      results.push(told);
      this.#sawRowId(rest[index]!, told.l);
    }
    if (this.#stream.autocommit) {
      const kept = outcome.error === null && rest.at(-1)?.shape.kind !== 'rollback';
      this.#ended(kept, commits ? rowOf(batch, given) : null);
    }
    this.#learn(outcome, answered.length > 1, commits);
    if (outcome.error !== null) throw new Refusal(outcome.error);
  }

  #sawRowId({ shape }: Step, id: string | undefined): void {
    if (id === undefined) return;
    this.#lastRowId = id;
    if (shape.kind === 'add-message') this.#messageId = BigInt(id);
  }

  /** No transaction is open any more. @param row what it read last */
  #ended(kept: boolean, row: WireStatementResult | null): void {
    this.#written.end(kept ? row : null);
    if (kept && this.#messageId !== null) this.#child.ids.saw(this.#messageId);
    this.#messageId = null;
  }

  /** Hermes runs a transaction again that failed for a wrong guess: then without one, so that it comes to an end. */
  #learn({ error, foretoldWrongly }: Outcome, guessed: boolean, committed: boolean): void {
    if (foretoldWrongly) {
      this.#child.ids.wasWrong();
      this.#wrongGuesses++;
      this.#guessing = false;
      return;
    }
    if (error !== null) return;
    if (guessed) this.#wrongGuesses = 0;
    if (committed && this.#wrongGuesses < maxWrongGuesses) this.#guessing = true;
  }
}

/** After these it is known that the request was not carried out. */
const notCarriedOut: ReadonlySet<string> = new Set<HranaErrorKind>(['unauthorized', 'stream-expired']);

/** The answer to one statement or batch as that to a batch. */
function batchResult(answer: WireResult | undefined): WireBatchResult {
  if (answer?.type === 'error') return { step_results: [null], step_errors: [answer.error] };
  if (answer?.response.type === 'execute') return { step_results: [answer.response.result], step_errors: [null] };
  if (answer?.response.type === 'batch') return answer.response.result;
  throw new HranaError('protocol', 'PROTOCOL', 'another kind of answer');
}

const rowOf = ({ row }: Batch, { step_results }: WireBatchResult): WireStatementResult | null =>
  row === null ? null : (step_results[row] ?? null);
