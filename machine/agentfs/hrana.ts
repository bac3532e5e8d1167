/**
 * A small client of Hrana over HTTP, for the organization's two cloud databases: Turso Cloud, sqld, or the embedded authority
 * on its unix socket. The token goes into one header and into nothing else, errors included.
 */
import type { AuthorityAddress } from '../launch.ts';
import type {
  WireBatchResult,
  WirePipelineResponse,
  WireRequest,
  WireResponse,
  WireResult,
  WireStatementResult,
  WireStep,
  WireValue,
} from './hrana-wire.ts';

/** A value of SQLite. An integer comes back as a number when a number holds it exactly, otherwise as a bigint. */
export type SqlValue = null | string | number | bigint | Uint8Array;
/** An argument. A number without a fraction is an INTEGER; `{real: 1}` is the REAL 1.0. */
export type SqlArgument = SqlValue | boolean | { readonly real: number };
export type SqlStatement = { readonly sql: string; readonly args?: readonly SqlArgument[] };

export type ResultSet = {
  columns: string[];
  rows: SqlValue[][];
  affectedRowCount: number;
  lastInsertRowid: number | bigint | null;
};

export type HranaErrorKind =
  /** No answer: whether the request was carried out is unknown unless it was a read. */
  | 'unreachable'
  /** No answer in time, or the caller's signal fired; the same uncertainty. */
  | 'timeout'
  | 'aborted'
  | 'unauthorized'
  /** The stream is gone, and with it what was not committed. */
  | 'stream-expired'
  /** The request or its answer is larger than allowed. */
  | 'too-large'
  /** The answer is not Hrana, or the server failed. */
  | 'protocol'
  /** SQLite refused the statement; `code` is its name, such as `SQLITE_CONSTRAINT_UNIQUE` or `SQLITE_BUSY`. */
  | 'sql';

export class HranaError extends Error {
  readonly kind: HranaErrorKind;
  readonly code: string;
  /** Index of the failed statement in a batch. */
  readonly statement: number | null;
  constructor(kind: HranaErrorKind, code: string, message: string, statement: number | null = null) {
    super(message);
    this.name = 'HranaError';
    this.kind = kind;
    this.code = code;
    this.statement = statement;
  }
}

export type HranaOptions = {
  /** For one request, milliseconds. */
  timeout?: number;
  maxRequestBytes?: number;
  maxAnswerBytes?: number;
};
export type CallOptions = { signal?: AbortSignal };
export type BatchOptions = CallOptions & {
  /** All or nothing, as one `BEGIN IMMEDIATE … COMMIT`; without it each statement stands alone and the first error ends it. */
  transaction: boolean;
};

const DEFAULTS = { timeout: 30_000, maxRequestBytes: 256 * 1024 * 1024, maxAnswerBytes: 128 * 1024 * 1024 };

type Sender = (
  baton: string | null,
  requests: readonly WireRequest[],
  signal?: AbortSignal,
) => Promise<WirePipelineResponse>;

/** One database. Holds no connection and no state, so there is nothing to close. */
export class HranaDatabase {
  readonly #send: Sender;

  constructor(address: AuthorityAddress, options: HranaOptions = {}) {
    this.#send = sender(address, { ...DEFAULTS, ...options });
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
  #state: 'new' | 'open' | 'over' = 'new';
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
    if (this.#state === 'open') await this.pipeline([{ type: 'close' }]).catch(() => {});
    this.#state = 'over';
  }

  async #exchange(requests: readonly WireRequest[], signal: AbortSignal | undefined): Promise<WireResult[]> {
    if (this.#state === 'over') throw new HranaError('stream-expired', 'STREAM_CLOSED', 'the stream is over');
    this.#state = 'over';
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

/** An argument as Hrana carries it, exactly. */
export function toWire(value: SqlArgument): WireValue {
  if (value === null) return { type: 'null' };
  switch (typeof value) {
    case 'string':
      return { type: 'text', value };
    case 'boolean':
      return { type: 'integer', value: value ? '1' : '0' };
    case 'bigint':
      return { type: 'integer', value: value.toString() };
    case 'number':
      if (Number.isSafeInteger(value)) return { type: 'integer', value: (value + 0).toString() };
      return real(value);
    default:
      if (value instanceof Uint8Array)
        return {
          type: 'blob',
          base64: Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('base64'),
        };
      return real(value.real);
  }
}

function real(value: number): WireValue {
  // SQLite has no NaN and stores NULL for it. JSON has no infinity, but a number too large for a double is read as one.
  if (Number.isNaN(value)) return { type: 'null' };
  return { type: 'float', value: Number.isFinite(value) ? value : rawJson(value > 0 ? '1e999' : '-1e999') };
}

const rawJson = (text: string): number => (JSON as unknown as { rawJSON(text: string): number }).rawJSON(text);

/** @throws HranaError `protocol` */
export function fromWire(value: WireValue): SqlValue {
  switch (value?.type) {
    case 'null':
      return null;
    case 'text':
      if (typeof value.value === 'string') return value.value;
      break;
    case 'float':
      if (typeof value.value === 'number') return value.value;
      break;
    case 'integer':
      if (typeof value.value === 'string' && /^-?\d{1,19}$/.test(value.value)) return integer(value.value);
      break;
    case 'blob':
      if (typeof value.base64 === 'string') return new Uint8Array(Buffer.from(value.base64, 'base64'));
      break;
  }
  throw malformed('a value is not one of Hrana');
}

function integer(digits: string): number | bigint {
  const number = Number(digits);
  return Number.isSafeInteger(number) ? number : BigInt(digits);
}

function resultSet(result: WireStatementResult): ResultSet {
  if (!Array.isArray(result?.cols) || !Array.isArray(result.rows)) throw malformed('a result has no columns or rows');
  const rowid = result.last_insert_rowid ?? null;
  return {
    columns: result.cols.map((column) => String(column?.name ?? '')),
    rows: result.rows.map((row) => row.map(fromWire)),
    affectedRowCount: Number(result.affected_row_count ?? 0),
    lastInsertRowid: rowid === null ? null : integer(String(rowid)),
  };
}

/** The response of a request that must have gone well. @throws HranaError */
export function expectResponse<T extends WireResponse['type']>(
  result: WireResult | undefined,
  type: T,
): Extract<WireResponse, { type: T }> {
  if (result?.type === 'error') {
    const { code, message } = result.error ?? {};
    throw new HranaError(
      'sql',
      typeof code === 'string' ? code : 'SQLITE_ERROR',
      String(message ?? 'the statement failed'),
    );
  }
  if (result?.type !== 'ok' || result.response?.type !== type) throw malformed('the answer does not match the request');
  return result.response as Extract<WireResponse, { type: T }>;
}

const malformed = (message: string): HranaError => new HranaError('protocol', 'PROTOCOL', message);

/** The pipeline URL below a database's URL; Turso's `libsql:` scheme is https. */
function pipelineUrl(address: AuthorityAddress): string {
  return `${address.url.replace(/^libsql:/, 'https:').replace(/\/+$/, '')}/v3/pipeline`;
}

function sender(address: AuthorityAddress, options: Required<HranaOptions>): Sender {
  const url = pipelineUrl(address);
  const headers = { authorization: `Bearer ${address.token}`, 'content-type': 'application/json' };
  const transport = address.socket === null ? {} : { unix: address.socket };
  return async (baton, requests, signal) => {
    const body = JSON.stringify({ baton, requests });
    if (body.length > options.maxRequestBytes)
      throw new HranaError(
        'too-large',
        'REQUEST_TOO_LARGE',
        `the request is larger than ${options.maxRequestBytes} bytes`,
      );
    const timeout = AbortSignal.timeout(options.timeout);
    const combined = signal ? AbortSignal.any([signal, timeout]) : timeout;
    let response: Response;
    let text: string;
    try {
      response = await fetch(url, { method: 'POST', headers, body, signal: combined, redirect: 'error', ...transport });
      text = await readText(response, options.maxAnswerBytes);
    } catch (error) {
      if (error instanceof HranaError) throw error;
      if (signal?.aborted) throw new HranaError('aborted', 'ABORTED', 'the request was aborted');
      if (timeout.aborted) throw new HranaError('timeout', 'TIMEOUT', `no answer within ${options.timeout} ms`);
      throw new HranaError('unreachable', 'UNREACHABLE', `the database cannot be reached: ${systemCode(error)}`);
    }
    return response.ok ? parsePipelineResponse(text, requests.length) : refuse(response.status, text);
  };
}

/** Only the name of the system's error: its text may repeat the request. */
function systemCode(error: unknown): string {
  const code = error instanceof Error ? (error as Error & { code?: unknown }).code : undefined;
  return typeof code === 'string' && /^\w{1,40}$/.test(code) ? code : 'connection failed';
}

async function readText(response: Response, limit: number): Promise<string> {
  const tooLarge = (): HranaError =>
    new HranaError('too-large', 'ANSWER_TOO_LARGE', `the answer is larger than ${limit} bytes`);
  const length = response.headers.get('content-length');
  if (length !== null) {
    if (Number(length) > limit) {
      await response.body?.cancel();
      throw tooLarge();
    }
    return response.text();
  }
  const decoder = new TextDecoder();
  let text = '';
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    bytes += chunk.byteLength;
    if (bytes > limit) throw tooLarge();
    text += decoder.decode(chunk, { stream: true });
  }
  return text + decoder.decode();
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return null;
  }
}

function parsePipelineResponse(text: string, count: number): WirePipelineResponse {
  const parsed = parseJson(text) as Partial<WirePipelineResponse> | null;
  const baton = parsed?.baton ?? null;
  if (
    !Array.isArray(parsed?.results) ||
    parsed.results.length !== count ||
    (baton !== null && typeof baton !== 'string')
  )
    throw malformed('the answer is not a Hrana pipeline response');
  // A `base_url` is not followed: the token goes to the configured address only.
  return { baton, base_url: null, results: parsed.results };
}

function refuse(status: number, text: string): never {
  const parsed = parseJson(text) as { message?: unknown; error?: unknown; code?: unknown } | null;
  const told = parsed?.message ?? parsed?.error;
  const message = typeof told === 'string' ? told.slice(0, 300) : `the database answered ${status}`;
  const code = typeof parsed?.code === 'string' ? parsed.code : `HTTP_${status}`;
  if (status === 401 || status === 403) throw new HranaError('unauthorized', code, 'the database refused the token');
  if (status === 413) throw new HranaError('too-large', code, message);
  // sqld and Turso Cloud tell this in words only, and not always in JSON.
  if (
    /STREAM_EXPIRED|BATON/.test(code) ||
    (status < 500 && /invalid baton|stream not found|stream.*expired/i.test(text))
  )
    throw new HranaError('stream-expired', code, message);
  if (status === 502 || status === 503 || status === 504) throw new HranaError('unreachable', code, message);
  throw new HranaError('protocol', code, message);
}
