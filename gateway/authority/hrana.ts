/** Runs Hrana pipelines on one database: statements, batches with conditions, sequences, stored SQL, batons. */
import type {
  WireBatchResult,
  WireCondition,
  WirePipelineRequest,
  WirePipelineResponse,
  WireRequest,
  WireResponse,
  WireResult,
  WireStatement,
  WireStatementResult,
  WireStep,
} from '../../machine/agentfs/hrana-wire.ts';
import { type AnswerBudget, sqlFailure } from './connection.ts';
import { SqlFailure } from './failure.ts';
import { limits } from './limits.ts';
import { judgePragma } from './pragma.ts';
import { type ScannedStatement, scanStatement, splitStatements } from './sql-text.ts';
import type { Stream, StreamTable } from './streams.ts';
import { bindArguments } from './values.ts';

const macrotask = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** The request's own state: its stream, what may still be answered, and how long it has kept the thread. */
class Run {
  readonly stream: Stream;
  readonly signal: AbortSignal;
  readonly budget: AnswerBudget = { rows: limits.answerRows, bytes: limits.answerBytes };
  #sliceEnd = performance.now() + limits.workSlice;

  constructor(stream: Stream, signal: AbortSignal) {
    this.stream = stream;
    this.signal = signal;
  }

  /** Lets other requests be served when this one has worked for a slice. */
  async breathe(): Promise<void> {
    if (performance.now() < this.#sliceEnd) return;
    await macrotask();
    this.#sliceEnd = performance.now() + limits.workSlice;
  }

  /** @throws SqlFailure when the client has gone or the stream was closed meanwhile */
  assertAlive(): void {
    if (this.signal.aborted || this.stream.closed) throw new SqlFailure('STREAM_CLOSED', 'the stream was closed');
  }
}

export class HranaService {
  readonly #streams: StreamTable;
  readonly #scans = new Map<string, ScannedStatement>();

  constructor(streams: StreamTable) {
    this.#streams = streams;
  }

  /**
   * Runs a pipeline. When the client goes away meanwhile its stream is rolled back and closed, as nobody knows its baton.
   * @throws RequestRefused
   */
  async pipeline(request: WirePipelineRequest, signal: AbortSignal): Promise<WirePipelineResponse> {
    const stream = request.baton === null ? this.#streams.open() : this.#streams.resume(request.baton);
    const run = new Run(stream, signal);
    const results: WireResult[] = [];
    try {
      for (const one of request.requests) results.push(await this.#answer(run, one));
    } finally {
      if (signal.aborted) this.#streams.close(stream);
    }
    return { baton: this.#streams.rest(stream), base_url: null, results };
  }

  async #answer(run: Run, request: WireRequest): Promise<WireResult> {
    try {
      return { type: 'ok', response: await this.#respond(run, request) };
    } catch (error) {
      const { message, code } = sqlFailure(error);
      return { type: 'error', error: { message, code } };
    }
  }

  async #respond(run: Run, request: WireRequest): Promise<WireResponse> {
    const { stream } = run;
    if (request.type === 'close') {
      this.#streams.close(stream);
      return { type: 'close' };
    }
    run.assertAlive();
    switch (request.type) {
      case 'execute':
        return { type: 'execute', result: await this.#statement(run, request.stmt) };
      case 'batch':
        return { type: 'batch', result: await this.#batch(run, request.batch.steps) };
      case 'sequence': {
        for (const statement of splitStatements(this.#text(stream, request)))
          await this.#execute(run, statement, { want_rows: false });
        return { type: 'sequence' };
      }
      case 'describe': {
        const statement = this.#scan(this.#text(stream, request));
        this.#judge(stream, statement);
        const params: { name: string | null }[] = Array.from({ length: statement.parameterCount }, () => ({
          name: null,
        }));
        for (const { index, name } of statement.parameters) params[index - 1] = { name };
        return {
          type: 'describe',
          result: {
            params,
            cols: stream.connection.describe(statement),
            is_explain: /^EXPLAIN\b/i.test(statement.sql),
            is_readonly: statement.kind === 'read',
          },
        };
      }
      case 'store_sql':
        if (stream.storedSql.size >= limits.storedSqlPerStream)
          throw new SqlFailure('SQL_STORE_FULL', `a stream stores at most ${limits.storedSqlPerStream} texts`);
        if (stream.storedSql.has(request.sql_id)) throw new SqlFailure('SQL_ID_TAKEN', 'this sql_id is in use');
        stream.storedSql.set(request.sql_id, request.sql);
        return { type: 'store_sql' };
      case 'close_sql':
        stream.storedSql.delete(request.sql_id);
        return { type: 'close_sql' };
      case 'get_autocommit':
        return { type: 'get_autocommit', is_autocommit: !stream.connection.inTransaction };
    }
  }

  async #batch(run: Run, steps: readonly WireStep[]): Promise<WireBatchResult> {
    const result: WireBatchResult = { step_results: [], step_errors: [] };
    for (const { condition, stmt } of steps) {
      let answer: WireStatementResult | null = null;
      let failure: { message: string; code: string } | null = null;
      if (!condition || this.#holds(run.stream, condition, result)) {
        try {
          run.assertAlive();
          answer = await this.#statement(run, stmt);
        } catch (error) {
          const { message, code } = sqlFailure(error);
          failure = { message, code };
        }
      }
      result.step_results.push(answer);
      result.step_errors.push(failure);
    }
    return result;
  }

  #holds(stream: Stream, condition: WireCondition, soFar: WireBatchResult): boolean {
    switch (condition.type) {
      case 'ok':
        return (soFar.step_results[condition.step] ?? null) !== null;
      case 'error':
        return (soFar.step_errors[condition.step] ?? null) !== null;
      case 'not':
        return !this.#holds(stream, condition.cond, soFar);
      case 'and':
        return condition.conds.every((one) => this.#holds(stream, one, soFar));
      case 'or':
        return condition.conds.some((one) => this.#holds(stream, one, soFar));
      case 'is_autocommit':
        return !stream.connection.inTransaction;
    }
  }

  #text(stream: Stream, source: { sql?: string | null | undefined; sql_id?: number | null | undefined }): string {
    if (typeof source.sql === 'string') return source.sql;
    const stored = typeof source.sql_id === 'number' ? stream.storedSql.get(source.sql_id) : undefined;
    if (stored === undefined)
      throw new SqlFailure('SQL_NOT_FOUND', 'no SQL was given, or no SQL is stored by this sql_id');
    return stored;
  }

  /** The one statement of a text. @throws SqlFailure `SQL_MANY_STATEMENTS`, `SQL_NO_STATEMENT` */
  #scan(sql: string): ScannedStatement {
    const known = this.#scans.get(sql);
    if (known) return known;
    const { statement, next } = scanStatement(sql);
    if (statement.kind === 'empty') throw new SqlFailure('SQL_NO_STATEMENT', 'the SQL has no statement');
    if (next < sql.length && !splitStatements(sql.slice(next)).next().done)
      throw new SqlFailure('SQL_MANY_STATEMENTS', 'the SQL has more than one statement');
    if (statement.parameterCount > limits.argumentsPerStatement)
      throw new SqlFailure('ARGS_INVALID', `a statement has at most ${limits.argumentsPerStatement} parameters`);
    if (sql.length <= limits.cachedSqlBytes) {
      this.#scans.set(sql, statement);
      if (this.#scans.size > 4 * limits.cachedStatements) this.#scans.delete(this.#scans.keys().next().value!);
    }
    return statement;
  }

  #statement(run: Run, statement: WireStatement): Promise<WireStatementResult> {
    return this.#execute(run, this.#scan(this.#text(run.stream, statement)), statement);
  }

  async #execute(run: Run, statement: ScannedStatement, wire: WireStatement): Promise<WireStatementResult> {
    const { stream } = run;
    const writes = this.#judge(stream, statement);
    const bound = bindArguments(statement, wire.args ?? [], wire.named_args ?? []);
    await run.breathe();
    run.assertAlive();
    if (writes && !this.#streams.gate.tryAcquire(stream)) {
      await this.#streams.gate.acquire(stream, run.signal);
      // The client may have gone while it waited; let the news of that arrive before its transaction begins.
      await macrotask();
      // Closed meanwhile: whoever closed it could not yet give the lock back.
      if (stream.closed) this.#streams.gate.release(stream);
      run.assertAlive();
    }
    try {
      return stream.connection.execute(statement, bound, wire.want_rows ?? true, run.budget);
    } finally {
      this.#streams.settle(stream);
    }
  }

  /** True when the statement needs the write lock. Notes what it does to the stream. @throws SqlFailure when refused */
  #judge(stream: Stream, statement: ScannedStatement): boolean {
    switch (statement.kind) {
      case 'refused':
        throw new SqlFailure('SQL_NOT_ALLOWED', `this statement cannot be used here: ${statement.sql.slice(0, 40)}`);
      case 'insert':
      case 'change':
      case 'begin-immediate':
        return true;
      case 'schema':
        if (/^CREATE\s+(TEMP|TEMPORARY)\b/i.test(statement.sql) || /\btemp\s*\./i.test(statement.sql))
          stream.personal = true;
        return true;
      case 'pragma': {
        const pragma = judgePragma(statement.sql);
        if (pragma.use === 'setting' && pragma.name === 'foreign_keys') stream.foreignKeysSet = true;
        else if (pragma.use === 'setting') stream.personal = true;
        return pragma.use === 'write';
      }
      default:
        return false;
    }
  }
}
