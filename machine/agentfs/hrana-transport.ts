/** Sends Hrana pipelines over HTTP or a unix socket, with bounded time and sizes, and tells the failures apart. */
import type { AuthorityAddress } from '../launch.ts';
import { HranaError, type HranaErrorKind, malformed } from './hrana-error.ts';
import type { WirePipelineResponse, WireRequest } from './hrana-wire.ts';

export type HranaOptions = {
  /** For one request, milliseconds. */
  timeout?: number;
  /** The same once a request was not answered, until one is: who asks often must not wait long each time. */
  timeoutInTrouble?: number;
  /** Called when the database ceases to answer, and when it answers again; what it refuses is an answer. */
  onAnswers?: (answers: boolean) => void;
  maxRequestBytes?: number;
  maxAnswerBytes?: number;
};
const DEFAULTS = { timeout: 30_000, maxRequestBytes: 256 * 1024 * 1024, maxAnswerBytes: 128 * 1024 * 1024 };

/**
 * Of large contents each request and answer leaves about five times its length behind: base64, JSON and bytes of them. The
 * engine lets that grow beyond a hundred megabytes before it collects, which a stream of files does not need. So it is told to,
 * for some 30 ms, and not later: asked to do it in its own time, it does not.
 */
const bytesPerCollection = 16 * 1024 * 1024;
let bytesSinceCollection = 0;

function collectAfter(bytes: number): void {
  bytesSinceCollection += bytes;
  if (bytesSinceCollection < bytesPerCollection) return;
  bytesSinceCollection = 0;
  Bun.gc(true);
}

/** Sends one pipeline. @throws HranaError */
export type Sender = (
  baton: string | null,
  requests: readonly WireRequest[],
  signal?: AbortSignal,
) => Promise<WirePipelineResponse>;

/** The pipeline URL below a database's URL; Turso's `libsql:` scheme is https. */
function pipelineUrl(address: AuthorityAddress): string {
  return `${address.url.replace(/^libsql:/, 'https:').replace(/\/+$/, '')}/v3/pipeline`;
}

/** The way to the database at `address`. */
export function sender(address: AuthorityAddress, given: HranaOptions): Sender {
  const options = { ...DEFAULTS, ...given };
  const url = pipelineUrl(address);
  const headers = { authorization: `Bearer ${address.token}`, 'content-type': 'application/json' };
  let isInTrouble = false;
  const heard = (answers: boolean) => {
    if (answers !== isInTrouble) return;
    isInTrouble = !answers;
    options.onAnswers?.(answers);
  };
  const transport = address.socket === null ? {} : { unix: address.socket };
  return async (baton, requests, signal) => {
    const body = JSON.stringify({ baton, requests });
    if (body.length > options.maxRequestBytes)
      throw new HranaError(
        'too-large',
        'REQUEST_TOO_LARGE',
        `the request is larger than ${options.maxRequestBytes} bytes`,
      );
    const timeoutMs = isInTrouble ? (options.timeoutInTrouble ?? options.timeout) : options.timeout;
    const timeout = AbortSignal.timeout(timeoutMs);
    const combined = signal ? AbortSignal.any([signal, timeout]) : timeout;
    let response: Response;
    let text: string;
    try {
      response = await fetch(url, { method: 'POST', headers, body, signal: combined, redirect: 'error', ...transport });
      text = await readText(response, options.maxAnswerBytes);
      collectAfter(body.length + text.length);
    } catch (error) {
      if (error instanceof HranaError) throw error;
      if (signal?.aborted) throw new HranaError('aborted', 'ABORTED', 'the request was aborted');
      heard(false);
      if (timeout.aborted) throw new HranaError('timeout', 'TIMEOUT', `no answer within ${timeoutMs} ms`);
      throw new HranaError('unreachable', 'UNREACHABLE', `the database cannot be reached: ${systemCode(error)}`);
    }
    try {
      const answer = response.ok ? parsePipelineResponse(text, requests.length) : refuse(response.status, text);
      heard(true);
      return answer;
    } catch (error) {
      if (error instanceof HranaError && isTrouble.has(error.kind)) heard(false);
      throw error;
    }
  };
}

/** The database does not do its part: not a stream that was idle, nor what is too large. */
const isTrouble: ReadonlySet<HranaErrorKind> = new Set<HranaErrorKind>(['unreachable', 'unauthorized', 'protocol']);

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
    return null; // No answer of the protocol: the callers say so, without a word of it.
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
