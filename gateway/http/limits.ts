/** The bounds of everything a client can send or hold, and the reading of bodies within them. */
import { Problem } from '../problem.ts';

export interface HttpLimits {
  /** Body of a message, and a WebSocket frame that carries one (EDGE_MAX_MESSAGE_BYTES). */
  readonly messageBytes: number;
  /** Every other body. */
  readonly bodyBytes: number;
  /** Body of the organization's variables. */
  readonly environmentBytes: number;
  /** Texts and files of one message together. */
  readonly messageParts: number;
  /** How long the bytes of a body may take to arrive, in seconds; of a form, how long it may pause. */
  readonly bodySeconds: number;
  /** Path and query. Bun itself ends requests with more than 16 KiB of headers with 431. */
  readonly urlBytes: number;
  /** The longest `Prefer: wait`, in seconds. */
  readonly waitSeconds: number;
  /** Open event streams of one token, WebSocket and Server-Sent Events together. */
  readonly connectionsPerToken: number;
  /** Frames of one WebSocket that are being worked on or wait for it. */
  readonly pendingFrames: number;
  /** Invalid frames after which a WebSocket is closed. */
  readonly invalidFrames: number;
  /** Downloads that run at the same time, of one token and of all. */
  readonly downloadsPerToken: number;
  readonly downloads: number;
  /** Messages with files and announced files that come in at the same time, of one token and of all. */
  readonly uploadsPerToken: number;
  readonly uploads: number;
  /** For a client to take one piece (1 MiB) of a download, in seconds. */
  readonly downloadPieceSeconds: number;
  /** Tickets that were given out and are not used yet, of one token. */
  readonly ticketsPerToken: number;
}

export const defaultHttpLimits: HttpLimits = {
  messageBytes: 4 * 1024 * 1024,
  messageParts: 256,
  bodyBytes: 64 * 1024,
  environmentBytes: 256 * 1024,
  bodySeconds: 60,
  urlBytes: 8 * 1024,
  waitSeconds: 600,
  connectionsPerToken: 32,
  pendingFrames: 8,
  invalidFrames: 5,
  downloadsPerToken: 16,
  downloads: 128,
  uploadsPerToken: 16,
  uploads: 32,
  downloadPieceSeconds: 300,
  ticketsPerToken: 16,
};

/** What a frame of `message.send` may be larger than the body of the same message. */
export const frameOverheadBytes = 4 * 1024;

const readToTheEnd = new WeakSet<Request>();

/** True when more of the body may still come: its connection cannot be used for another request. */
export function hasUnreadBody(request: Request): boolean {
  return request.body !== null && !readToTheEnd.has(request);
}

/** Reads a body to its end. Throws `body-too-large` as soon as it is known to be, and `invalid-request` when it breaks off. */
export async function readBody(request: Request, maxBytes: number, maxSeconds: number): Promise<Uint8Array> {
  const declared = request.headers.get('content-length');
  if (declared !== null && Number(declared) > maxBytes) throw tooLarge(maxBytes);
  if (request.body === null) return new Uint8Array(0);
  const reader: Reader = request.body.getReader();
  const deadline = Promise.withResolvers<never>();
  const timer = setTimeout(
    () => deadline.reject(new Problem('invalid-request', `The body took longer than ${maxSeconds} seconds to arrive`)),
    maxSeconds * 1_000,
  );
  try {
    const bytes = await Promise.race([readWithin(reader, maxBytes), deadline.promise]);
    readToTheEnd.add(request);
    return bytes;
  } catch (error) {
    // Of a stream that broke off the cancelling fails too; there is nothing left to cancel then.
    await reader.cancel().catch(() => undefined);
    if (error instanceof Problem) throw error;
    throw new Problem('invalid-request', 'The body broke off');
  } finally {
    clearTimeout(timer);
  }
}

/** What a request says of its body's length; null when it does not. */
export function declaredBytes(request: Request): number | null {
  const declared = request.headers.get('content-length');
  return declared === null ? null : Number(declared);
}

/**
 * A body as it arrives, for whoever takes it as fast as he can. Throws `body-too-large` beyond `maxBytes`, `invalid-request`
 * when it breaks off or nothing comes for `pauseSeconds`, and the reason of `givenUp`, a Problem, once that aborts.
 */
export async function* streamBody(
  request: Request,
  maxBytes: number,
  pauseSeconds: number,
  givenUp: AbortSignal,
): AsyncGenerator<Uint8Array> {
  if (request.body === null) return;
  const reader: Reader = request.body.getReader();
  let size = 0;
  try {
    for (;;) {
      const { value, done } = await readInTime(reader, pauseSeconds, givenUp);
      if (done) break;
      size += value.byteLength;
      if (size > maxBytes) throw tooLarge(maxBytes);
      yield value;
    }
    readToTheEnd.add(request);
  } catch (error) {
    if (error instanceof Problem) throw error;
    throw new Problem('invalid-request', 'The body broke off');
  } finally {
    // Of a stream that broke off the cancelling fails too; there is nothing left to cancel then.
    if (!readToTheEnd.has(request)) await reader.cancel().catch(() => undefined);
  }
}

type Piece = Awaited<ReturnType<ReadableStreamDefaultReader<Uint8Array>['read']>>;

async function readInTime(reader: Reader, pauseSeconds: number, givenUp: AbortSignal): Promise<Piece> {
  givenUp.throwIfAborted();
  const ended = Promise.withResolvers<never>();
  const problem = new Problem('invalid-request', `Nothing of the body came for ${pauseSeconds} seconds`);
  const timer = setTimeout(() => ended.reject(problem), pauseSeconds * 1_000);
  const giveUp = () => ended.reject(givenUp.reason);
  givenUp.addEventListener('abort', giveUp);
  try {
    return await Promise.race([reader.read(), ended.promise]);
  } finally {
    clearTimeout(timer);
    givenUp.removeEventListener('abort', giveUp);
  }
}

type Reader = Pick<ReadableStreamDefaultReader<Uint8Array>, 'read' | 'cancel'>;

async function readWithin(reader: Reader, maxBytes: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    size += value.byteLength;
    if (size > maxBytes) throw tooLarge(maxBytes);
    chunks.push(value);
  }
  const only = chunks[0];
  return chunks.length === 1 && only !== undefined ? only : Buffer.concat(chunks, size);
}

function tooLarge(maxBytes: number): Problem {
  return new Problem('body-too-large', `The body may have ${maxBytes} bytes at most`, { maxBytes });
}
