/** The Elysia application that the resources add their routes to, and what every request goes through. */
import { Elysia } from 'elysia';
import type { Caller } from '../domain.ts';
import { type Sink, Subscriber, type SubscriberParts } from '../events/subscriber.ts';
import { Problem } from '../problem.ts';
import type { Route } from './access.ts';
import type { AtOnce } from './at-once.ts';
import { MultipartForm } from './attachments.ts';
import type { Connections } from './connections.ts';
import type { ServerDeps } from './deps.ts';
import { parseExactJson } from './exact-json.ts';
import { type HttpLimits, readBody } from './limits.ts';
import type { Metrics } from './metrics.ts';
import { multipartBoundary } from './multipart.ts';
import type { Tickets } from './tickets.ts';

/** One request, from its arrival to its answer. */
export interface Call {
  readonly id: string;
  /** `performance.now()` at its arrival. */
  readonly receivedAt: number;
  readonly route: Route | null;
  /** Asked for as GET, and only its headers are sent. */
  readonly isHead: boolean;
  /** Set once the request is authorized; null on public routes. */
  caller: Caller | null;
}

/** What the resources work with. */
export interface HttpContext extends Omit<ServerDeps, 'limits' | 'subscriberLimits'> {
  readonly limits: HttpLimits;
  readonly tickets: Tickets;
  readonly connections: Connections;
  readonly metrics: Metrics;
  readonly subscriberParts: SubscriberParts;
  /** Files that come in, in forms and for announced uploads. */
  readonly uploading: AtOnce;
  /** Aborted when the server stops: waits end with what is known then. */
  readonly stopping: AbortSignal;
  /** The running server; null when requests come through `fetch` alone. */
  server(): Bun.Server<SocketData> | null;
}

/** What Bun keeps with a WebSocket. */
export interface SocketData {
  readonly opened: (socket: Bun.ServerWebSocket<SocketData>) => void;
  readonly received: (message: string | Buffer) => void;
  readonly drained: () => void;
  readonly closed: () => void;
}

const noCall: Call = { id: '', receivedAt: 0, route: null, isHead: false, caller: null };

/**
 * `normalize` is off: Elysia must not rewrite what a client sent. Bodies go through our own parsers: bounded while they
 * are read, parsed once, refused when they are not JSON.
 */
export function createApp(limits: HttpLimits) {
  return new Elysia({
    normalize: false,
    strictPath: true,
    systemRouter: false,
    // Handlers are generated when the server is made: a mistake in one must not wait for its first request.
    precompile: true,
    // Or else the path is searched for behind a host of four characters, which a client's Host header need not have.
    handler: { standardHostname: false },
  })
    .decorate('call', noCall)
    .parser('message', ({ request }) => formOf(request) ?? readJson(request, limits.messageBytes, limits.bodySeconds))
    .parser('environment', ({ request }) => readJson(request, limits.environmentBytes, limits.bodySeconds))
    .parser('jsonBody', ({ request }) => readJson(request, limits.bodyBytes, limits.bodySeconds));
}

export type App = ReturnType<typeof createApp>;

const jsonType = /^application\/json\s*(?:;\s*charset\s*=\s*"?utf-8"?\s*)?$/i;

/** Null for a body that is no form. */
function formOf(request: Request): MultipartForm | null {
  const boundary = multipartBoundary(request.headers.get('content-type') ?? '');
  if (boundary === null) return null;
  requireNoEncoding(request);
  return new MultipartForm(request, boundary);
}

/** Throws `unsupported-media-type` for a body that is not sent as it is. */
export function requireNoEncoding(request: Request): void {
  const encoding = request.headers.get('content-encoding');
  if (encoding !== null && encoding.toLowerCase() !== 'identity') {
    throw new Problem('unsupported-media-type', 'Send the body without a content encoding');
  }
}

async function readJson(request: Request, maxBytes: number, maxSeconds: number): Promise<unknown> {
  const type = request.headers.get('content-type');
  if (type === null || !jsonType.test(type)) {
    throw new Problem('unsupported-media-type', 'Send the body as application/json in UTF-8');
  }
  requireNoEncoding(request);
  return parseExactJson(await readBody(request, maxBytes, maxSeconds));
}

/** The caller of a route that is not public. */
export function callerOf(call: Call): Caller {
  if (call.caller === null) throw new Error(`${call.route} was reached without a caller`);
  return call.caller;
}

/** Opens the event side of a connection. */
export function listen(context: HttpContext, caller: Caller, sink: Sink): Subscriber {
  return new Subscriber(context.subscriberParts, caller.role, sink);
}
