/**
 * A small client of Hrana over HTTP, for the organization's two cloud databases: Turso Cloud, sqld, or the embedded authority
 * on its unix socket. The token goes into one header and into nothing else, errors included.
 */
import type { AuthorityAddress } from '../launch.ts';
import { HranaError, malformed } from './hrana-error.ts';
import { type HranaOptions, type Sender, sender } from './hrana-transport.ts';
import { expectResponse, type ResultSet, resultSet, type SqlArgument, toWire } from './hrana-values.ts';
import type { WireBatchResult, WireRequest, WireResult, WireStep } from './hrana-wire.ts';

export { HranaError, type HranaErrorKind } from './hrana-error.ts';
export type { HranaOptions } from './hrana-transport.ts';
export { expectResponse, fromWire, type ResultSet, type SqlArgument, type SqlValue, toWire } from './hrana-values.ts';

export type SqlStatement = { readonly sql: string; readonly args?: readonly SqlArgument[] };

export type CallOptions = { signal?: AbortSignal };
export type BatchOptions = CallOptions & {
  /** All or nothing, as one `BEGIN IMMEDIATE … COMMIT`; without it each statement stands alone and the first error ends it. */
  transaction: boolean;
};

/** One database. Holds no connection and no state, so there is nothing to close. */
export class HranaDatabase {
  readonly #send: Sender;

  constructor(address: AuthorityAddress, options: HranaOptions = {}) {
    this.#send = sender(address, options);
  }

  /** Runs one statement in its own transaction, in one round trip. @throws HranaError */
  async execute(sql: string, args: readonly SqlArgument[] = [], { signal }: CallOptions = {}): Promise<ResultSet> {
    const { results } = await this.#send(null, [executeRequest({ sql, args }), { type: 'close' }], signal);
    return resultSet(expectResponse(results[0], 'execute').result);
  }

  /** Runs statements in order, in one round trip. @throws HranaError with the index of the statement that failed */
  async batch(statements: readonly SqlStatement[], { transaction, signal }: BatchOptions): Promise<ResultSet[]> {
    if (statements.length === 0) return [];
    const batch: WireRequest = {
      type: 'batch',
      batch: { steps: transaction ? inTransaction(statements) : inOrder(statements) },
    };
    const { results } = await this.#send(null, [batch, { type: 'close' }], signal);
    const result = expectResponse(results[0], 'batch').result;
    return batchResults(result, statements.length, transaction ? 1 : 0);
  }

  /** A stream with a connection of its own, for transactions of several round trips. Close it. */
  stream(): HranaStream {
    return new HranaStream(this.#send);
  }
}

/** One Hrana stream: requests run one after the other on one connection of the server. */
export class HranaStream {
  readonly #send: Sender;
  #baton: string | null = null;
  /** `lost`: a request was not answered; the server may still have the stream as it was before. */
  #state: 'new' | 'open' | 'lost' | 'over' = 'new';
  #tail: Promise<unknown> = Promise.resolve();

  constructor(send: Sender) {
    this.#send = send;
  }

  /** @throws HranaError; after one that is not `sql` the stream is over and its transaction rolled back */
  async execute(sql: string, args: readonly SqlArgument[] = [], options: CallOptions = {}): Promise<ResultSet> {
    const [result] = await this.pipeline([executeRequest({ sql, args })], options);
    return resultSet(expectResponse(result, 'execute').result);
  }

  /** Raw Hrana requests and results, for a relay that must keep the exact types of values. @throws HranaError */
  pipeline(requests: readonly WireRequest[], { signal }: CallOptions = {}): Promise<WireResult[]> {
    const turn = this.#tail.then(() => this.#exchange(requests, signal));
    this.#tail = turn.catch(() => {});
    return turn;
  }

  /** Rolls back what is open and frees the server's connection. Never throws: an unreachable server closes it itself. */
  async close(): Promise<void> {
    await this.#tail;
    const open = this.#state === 'open' || this.#state === 'lost';
    this.#state = 'over';
    if (open && this.#baton !== null) await this.#send(this.#baton, [{ type: 'close' }], undefined).catch(() => {});
  }

  async #exchange(requests: readonly WireRequest[], signal: AbortSignal | undefined): Promise<WireResult[]> {
    if (this.#state === 'over' || this.#state === 'lost')
      throw new HranaError('stream-expired', 'STREAM_CLOSED', 'the stream is over');
    this.#state = 'lost';
    const { baton, results } = await this.#send(this.#baton, requests, signal);
    this.#baton = baton;
    // A server may end a stream that has no transaction; the next request then simply begins another.
    this.#state = baton !== null ? 'open' : closes(requests) ? 'over' : 'new';
    return results;
  }
}

const closes = (requests: readonly WireRequest[]): boolean => requests.some(({ type }) => type === 'close');

const executeRequest = (statement: SqlStatement): WireRequest => ({ type: 'execute', stmt: wireStatement(statement) });

const wireStatement = ({ sql, args = [] }: SqlStatement) => ({ sql, args: args.map(toWire), want_rows: true });

function inOrder(statements: readonly SqlStatement[]): WireStep[] {
  return statements.map((statement, index) => ({
    condition: index === 0 ? null : { type: 'ok', step: index - 1 },
    stmt: wireStatement(statement),
  }));
}

/** `BEGIN IMMEDIATE`, the statements, `COMMIT` if all went well, otherwise `ROLLBACK`. */
function inTransaction(statements: readonly SqlStatement[]): WireStep[] {
  const last = statements.length;
  return [
    { stmt: { sql: 'BEGIN IMMEDIATE', want_rows: false } },
    ...statements.map(
      (statement, index): WireStep => ({ condition: { type: 'ok', step: index }, stmt: wireStatement(statement) }),
    ),
    { condition: { type: 'ok', step: last }, stmt: { sql: 'COMMIT', want_rows: false } },
    {
      condition: {
        type: 'and',
        conds: [
          { type: 'ok', step: 0 },
          { type: 'not', cond: { type: 'is_autocommit' } },
        ],
      },
      stmt: { sql: 'ROLLBACK', want_rows: false },
    },
  ];
}

/** @param lead steps before the first statement, as many behind the last but for the `ROLLBACK` */
function batchResults({ step_results, step_errors }: WireBatchResult, count: number, lead: number): ResultSet[] {
  for (let step = 0; step < count + 2 * lead; step++) {
    const error = step_errors[step];
    if (error) {
      const index = step - lead;
      throw new HranaError(
        'sql',
        error.code ?? 'SQLITE_ERROR',
        error.message,
        index >= 0 && index < count ? index : null,
      );
    }
    if (!step_results[step]) throw malformed('a step of the batch was not run');
  }
  return step_results.slice(lead, lead + count).map((result) => resultSet(result!));
}
