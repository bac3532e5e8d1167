/** One Python connection of a holder: its statements, judged, on one Hrana stream of the SessionDB authority. */
import { type HranaDatabase, HranaError, type HranaStream } from '../agentfs/hrana.ts';
import type { WireRequest, WireResult, WireStatement, WireStatementResult } from '../agentfs/hrana-wire.ts';
import { scopeDelegations } from './delegations.ts';
import { relayError, sqliteError, unanswered } from './errors.ts';
import {
  type FrameAnswer,
  type FrameError,
  type FrameResult,
  type FrameStatement,
  fromWire,
  wireArguments,
} from './frames.ts';
import type { Lineage } from './lineage.ts';
import { pinnedSchemaText } from './pinned-schema.ts';
import { type Plan, planOf, severalStatements } from './statements.ts';
import type { Argument } from './writes.ts';

type Step = { readonly stmt: WireStatement; readonly changes: boolean; readonly inserts: boolean };
/** Ends a request; the statements before it keep their results. */
class Refusal extends Error {
  readonly error: FrameError;
  constructor(error: FrameError) {
    super(error.m);
    this.error = error;
  }
}

const parentQuery = 'SELECT parent_session_id FROM sessions WHERE id = ?';

export class RelayConnection {
  readonly #database: HranaDatabase;
  readonly #lineage: Lineage;
  #stream: HranaStream | null = null;
  #foreignKeys: boolean | null = null;
  #autocommit = true;

  constructor(database: HranaDatabase, lineage: Lineage) {
    this.#database = database;
    this.#lineage = lineage;
  }

  /** False while a transaction is open at the authority. */
  get autocommit(): boolean {
    return this.#autocommit;
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
      const [done] = await this.#exchange([{ type: 'sequence', sql }]);
      if (done?.type === 'error') throw new Refusal(sqliteError(done.error.code, done.error.message));
      return this.#answer([]);
    } catch (error) {
      return this.#answer([], this.#describe(error));
    }
  }

  /** Rolls back what is open. Never rejects. */
  async close(): Promise<void> {
    const stream = this.#stream;
    this.#stream = null;
    await stream?.close();
  }

  #refusal(reason: string): Refusal {
    this.#lineage.refused(reason);
    return new Refusal(relayError(`refused: ${reason}`));
  }

  #answer(r: readonly FrameResult[], e?: FrameError): FrameAnswer {
    return { a: this.#autocommit ? 1 : 0, r, ...(e ? { e } : {}) };
  }

  #describe(error: unknown): FrameError {
    if (error instanceof Refusal) return error.error;
    const described = unanswered(error, !this.#autocommit);
    // The stream is over, and with it what was not committed.
    this.#stream = null;
    this.#autocommit = true;
    return described;
  }

  async #run(statements: readonly FrameStatement[], results: FrameResult[]): Promise<void> {
    let steps: Step[] = [];
    const flush = async () => {
      const ready = steps;
      steps = [];
      if (ready.length > 0) await this.#execute(ready, results);
    };
    for (const [sql, args] of statements) {
      const plan = planOf(sql);
      if (plan.kind === 'local' || plan.kind === 'foreign-keys') {
        await flush();
        if (plan.kind === 'foreign-keys') await this.#setForeignKeys(plan.on);
        results.push(plan.kind === 'local' ? plan.result : { n: 0, w: 0 });
        continue;
      }
      if (plan.kind === 'refused') {
        await flush();
        if (plan.reason === severalStatements) throw new Refusal({ k: 'ProgrammingError', m: plan.reason });
        throw this.#refusal(plan.reason);
      }
      await this.#authorize(plan, args, flush);
      const scoped = (plan.kind === 'read' && plan.scoped) || (plan.kind === 'delegation' && !plan.insert);
      const inserts = (plan.kind === 'write' || plan.kind === 'delegation') && plan.insert;
      steps.push({
        stmt: {
          sql: scoped
            ? scopeDelegations(sql, this.#lineage.sessions())
            : plan.kind === 'schema'
              ? pinnedSchemaText(sql)
              : sql,
          ...wireArguments(args),
          want_rows: true,
        },
        changes:
          plan.kind === 'write' || plan.kind === 'delegation' || (plan.kind === 'schema' && !sql.includes('CREATE')),
        inserts,
      });
    }
    await flush();
  }

  /** @throws Refusal when the statement would write to a session of another conversation */
  async #authorize(plan: Plan, args: FrameStatement[1], flush: () => Promise<void>): Promise<void> {
    if (plan.kind !== 'write' && plan.kind !== 'delegation') return;
    const parents = plan.parents.map((argument) => valueAt(args, argument)).filter((parent) => parent !== null);
    const sessions = plan.kind === 'write' ? plan.sessions.map((argument) => valueAt(args, argument)) : [];
    const creates = plan.kind === 'write' && plan.creates;
    for (const session of [...parents, ...sessions]) {
      if (typeof session === 'string' && this.#lineage.has(session)) continue;
      await flush();
      if (typeof session !== 'string') throw this.#refusal('a session id that is not a text');
      const mayCreate = creates && sessions.includes(session);
      if (!(await this.#lineage.admits(session, mayCreate, (id) => this.#parentOf(id))))
        throw this.#refusal(`session ${session} belongs to another conversation`);
    }
  }

  async #parentOf(session: string): Promise<string | null | undefined> {
    const stmt: WireStatement = { sql: parentQuery, args: [{ type: 'text', value: session }], want_rows: true };
    const [result] = await this.#exchange([{ type: 'execute', stmt }]);
    if (result?.type === 'error') throw new Refusal(sqliteError(result.error.code, result.error.message));
    const row = result?.response.type === 'execute' ? result.response.result.rows[0] : undefined;
    const parent = row?.[0];
    return parent?.type === 'text' ? parent.value : parent === undefined ? undefined : null;
  }

  async #setForeignKeys(on: boolean): Promise<void> {
    // SQLite ignores it inside a transaction.
    if (!this.#autocommit) return;
    this.#foreignKeys = on;
    if (this.#stream) await this.#exchange([{ type: 'execute', stmt: foreignKeys(on) }]);
  }

  async #execute(steps: readonly Step[], results: FrameResult[]): Promise<void> {
    const [only] = steps;
    const request: WireRequest =
      steps.length === 1
        ? { type: 'execute', stmt: only!.stmt }
        : {
            type: 'batch',
            batch: {
              steps: steps.map(({ stmt }, index) => ({
                condition: index === 0 ? null : { type: 'ok', step: index - 1 },
                stmt,
              })),
            },
          };
    const [answer] = await this.#exchange([request]);
    if (answer?.type === 'error') throw new Refusal(sqliteError(answer.error.code, answer.error.message));
    if (answer?.response.type === 'execute') {
      results.push(frameResult(answer.response.result, only!));
      return;
    }
    if (answer?.response.type !== 'batch') throw new HranaError('protocol', 'PROTOCOL', 'another kind of answer');
    const { step_results, step_errors } = answer.response.result;
    for (const [index, step] of steps.entries()) {
      const failed = step_errors[index];
      if (failed) throw new Refusal(sqliteError(failed.code, failed.message));
      const result = step_results[index];
      if (!result) throw new HranaError('protocol', 'PROTOCOL', 'a step without a result');
      results.push(frameResult(result, step));
    }
  }

  /** One round trip on this connection's stream. Answers the results of `requests`; notes whether a transaction is open. */
  async #exchange(requests: readonly WireRequest[]): Promise<readonly WireResult[]> {
    try {
      return await this.#send(requests);
    } catch (error) {
      // The authority forgets idle streams. Without a transaction nothing is lost: the request was not carried out.
      if (!(error instanceof HranaError && error.kind === 'stream-expired' && this.#autocommit)) throw error;
      this.#stream = null;
      return await this.#send(requests);
    }
  }

  async #send(requests: readonly WireRequest[]): Promise<readonly WireResult[]> {
    const fresh = this.#stream === null;
    this.#stream ??= this.#database.stream();
    const first: WireRequest[] =
      fresh && this.#foreignKeys !== null ? [{ type: 'execute', stmt: foreignKeys(this.#foreignKeys) }] : [];
    const results = await this.#stream.pipeline([...first, ...requests, { type: 'get_autocommit' }]);
    const state = results.at(-1);
    if (state?.type !== 'ok' || state.response.type !== 'get_autocommit')
      throw new HranaError('protocol', 'PROTOCOL', 'no state of the transaction');
    this.#autocommit = state.response.is_autocommit;
    return results.slice(first.length, -1);
  }
}

const foreignKeys = (on: boolean): WireStatement => ({ sql: `PRAGMA foreign_keys=${on ? 'ON' : 'OFF'}` });

function valueAt(args: FrameStatement[1], argument: Argument) {
  if (args === undefined) return null;
  if (Array.isArray(args)) return typeof argument === 'number' ? (args[argument] ?? null) : null;
  return typeof argument === 'string' ? (args[argument] ?? null) : null;
}

function frameResult(result: WireStatementResult, { changes, inserts }: Step): FrameResult {
  const columns = result.cols.map(({ name }) => name);
  return {
    ...(columns.length > 0 ? { c: columns, d: result.rows.map((row) => row.map(fromWire)) } : {}),
    n: changes ? result.affected_row_count : 0,
    w: changes ? 1 : 0,
    ...(inserts && result.last_insert_rowid !== null ? { l: String(result.last_insert_rowid) } : {}),
  };
}
