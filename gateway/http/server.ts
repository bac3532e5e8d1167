/** The HTTP server: one door for every request, with the resources behind it. */
import { createJoin } from '../events/joined.ts';
import { defaultSubscriberLimits } from '../events/subscriber.ts';
import { Unanswered } from '../governance/connection.ts';
import { Problem } from '../problem.ts';
import { access, type Match, matchRoute } from './access.ts';
import { type Call, createApp, type HttpContext, type SocketData } from './app.ts';
import { AtOnce } from './at-once.ts';
import { addAudit } from './audit.ts';
import { authorize } from './auth.ts';
import { createConnections } from './connections.ts';
import { addConversations, reachedConversation } from './conversations.ts';
import type { ServerDeps } from './deps.ts';
import { addDuplicates } from './duplicates.ts';
import { addEnvironment } from './environment.ts';
import { addEventSocket } from './event-socket.ts';
import { addEventStream } from './event-stream.ts';
import { addFiles } from './files.ts';
import { defaultHttpLimits, frameOverheadBytes, hasUnreadBody } from './limits.ts';
import { addMessages } from './messages.ts';
import { createMetrics } from './metrics.ts';
import { addOperation } from './operation.ts';
import { addOrganization } from './organization.ts';
import { internalProblem, problemOf, problemResponse } from './problems.ts';
import { addReplies } from './replies.ts';
import { addRetention } from './retention.ts';
import { addSpecialists } from './specialists.ts';
import { createTickets } from './tickets.ts';
import { addTokens } from './tokens.ts';
import { addTranscript } from './transcript.ts';
import { addUsers } from './users.ts';

export interface HttpServer {
  /** Throws when the address cannot be used. Port 0 takes a free one. */
  listen(address: { readonly hostname: string; readonly port: number }): {
    readonly url: string;
    readonly port: number;
  };
  /** Takes no more requests, ends waits and event streams, and closes what is still open after `graceMs`. */
  stop(graceMs: number): Promise<void>;
  /** Answers one request without a socket: everything but WebSockets. */
  fetch(request: Request): Promise<Response>;
}

/** Seconds without a byte after which Bun closes a connection; routes that are silent on purpose change it. */
const idleSeconds = 30;
const socketIdleSeconds = 60;
/** Far above what a subscriber lets a client fall behind: reached only by one frame that is that large. */
const socketBufferBytes = 64 * 1024 * 1024;

const streamingRoutes: ReadonlySet<string> = new Set(['GET /v1/events', 'GET /v1/conversations/:conversation/events']);

export function createServer(deps: ServerDeps): HttpServer {
  const { governance, turns, bus, logger } = deps;
  const limits = { ...defaultHttpLimits, ...deps.limits };
  const stopping = new AbortController();
  const metrics = createMetrics();
  const tickets = createTickets(limits.ticketsPerToken);
  const connections = createConnections(limits.connectionsPerToken);
  const calls = new WeakMap<Request, Call & { readonly match: Match }>();
  let server: Bun.Server<SocketData> | null = null;

  const reportStream = (what: string, error?: unknown): void => {
    if (error === undefined) {
      metrics.droppedClient();
      logger.info(what);
    } else {
      logger.error(what, { error });
    }
  };
  const context: HttpContext = {
    ...deps,
    limits,
    tickets,
    connections,
    metrics,
    uploading: new AtOnce('uploads', limits.uploadsPerToken, limits.uploads),
    stopping: stopping.signal,
    server: () => server,
    subscriberParts: {
      bus,
      log: governance,
      join: createJoin((locator, event) => turns.reply(locator, event), reportStream),
      limits: { ...defaultSubscriberLimits, ...deps.subscriberLimits },
      report: reportStream,
    },
  };

  const app = createApp(limits);
  app.onRequest(async (step) => {
    const call = calls.get(step.request);
    if (call === undefined) throw new Error('a request came in by another door');
    admit(call.match, step.request);
    if (call.route !== null && access[call.route] !== 'public') {
      const ticket = new URL(step.request.url).searchParams.get('ticket');
      call.caller = await authorize(call.route, step.request, ticket, governance, tickets);
      // Here, where no route can forget it: below a conversation that is beyond the caller's reach there is nothing.
      const { match, caller } = call;
      if (match.kind === 'route' && match.conversation !== null) {
        await reachedConversation(governance, caller, match.conversation);
      }
    }
    step.call = call;
  });
  app.onBeforeHandle(({ request, route, call }) => {
    // Two routers read the path: the one that authorized has to be the one that serves.
    if (`${request.method} ${route}` !== call.route) throw new Error(`authorized ${call.route}, routed ${route}`);
  });
  app.onError(({ error, request }) => {
    const call = calls.get(request);
    const problem = problemOf(error, request.method !== 'GET');
    if (error instanceof Unanswered) logger.error('the database did not answer', { request: call?.id, error });
    if (problem !== null) return refusal(problem, request);
    logger.error('a request failed', { request: call?.id, route: call?.route, error });
    return problemResponse(internalProblem(call?.id ?? '').document);
  });

  const admit = (match: Match, request: Request): void => {
    if (stopping.signal.aborted) throw new Problem('not-ready', 'The gateway is stopping');
    // Bun leaves out what it cannot join to the path.
    if (!request.url.startsWith('http://')) throw new Problem('invalid-request', 'The Host header is malformed');
    if (request.url.length > limits.urlBytes) {
      throw new Problem('invalid-request', `The URL may have ${limits.urlBytes} bytes at most`);
    }
    if (match.kind === 'none') throw new Problem('not-found', 'There is no such route; see /openapi.json');
    if (match.kind === 'method') {
      throw new Problem('method-not-allowed', `Allowed here: ${match.allow.join(', ')}`);
    }
  };
  const refusal = (problem: Problem, request: Request): Response => {
    const match = calls.get(request)?.match;
    return problemResponse(problem.document, {
      ...(match?.kind === 'method' ? { allow: match.allow.join(', ') } : {}),
      // A body that nobody reads need not be sent.
      ...(hasUnreadBody(request) || stopping.signal.aborted ? { connection: 'close' } : {}),
    });
  };

  addConversations(app, context);
  addMessages(app, context);
  addTranscript(app, context);
  addReplies(app, context);
  addDuplicates(app, context);
  addAudit(app, context);
  addFiles(app, context);
  addEventStream(app, context);
  addEventSocket(app, context);
  addSpecialists(app, context);
  addTokens(app, context);
  addUsers(app, context);
  addOrganization(app, context);
  addEnvironment(app, context);
  addRetention(app, context);
  addOperation(app, context);
  app.compile();
  checkTable(app.routes.map(({ method, path }) => `${method} ${path}`));

  const answer = async (incoming: Request): Promise<Response> => {
    const receivedAt = performance.now();
    const path = pathOf(incoming.url);
    // HEAD is GET without the body, which Bun leaves out; a stream has no end to measure.
    const asGet = incoming.method === 'HEAD' && !streamingRoutes.has(labelOf(matchRoute('GET', path)));
    const request = asGet ? new Request(incoming, { method: 'GET' }) : incoming;
    const match = matchRoute(request.method, path);
    const call = {
      id: crypto.randomUUID(),
      receivedAt,
      match,
      route: match.kind === 'route' ? match.route : null,
      isHead: incoming.method === 'HEAD',
      caller: null,
    };
    calls.set(request, call);
    const leave = match.kind === 'route' ? deps.requests.enter(match.conversation) : null;
    const response = await served(request).finally(() => leave?.());
    const ms = performance.now() - receivedAt;
    metrics.request(labelOf(match), response.status, ms / 1_000);
    logRequest(call, incoming.method, response.status, ms);
    return response;
  };

  const served = async (request: Request): Promise<Response> => app.fetch(request);

  const logRequest = (call: Call, method: string, status: number, ms: number): void => {
    // No path, no query, no header: ids of conversations are of no use here, and a ticket is a secret.
    logger.info('request', {
      request: call.id,
      method,
      route: call.route ?? 'unmatched',
      status,
      ms: Math.round(ms * 10) / 10,
      ...(call.caller === null ? {} : { token: call.caller.token }),
    });
  };

  return {
    fetch: answer,
    listen({ hostname, port }) {
      server = Bun.serve<SocketData>({
        hostname,
        port,
        // Another process on the same port is a mistake to be told, not a peer to share it with.
        reusePort: false,
        development: false,
        idleTimeout: idleSeconds,
        // Bodies are bounded where they are read, with an answer that says so.
        maxRequestBodySize: Number.MAX_SAFE_INTEGER,
        fetch: answer,
        error(error) {
          logger.error('a request failed outside of its handler', { error });
          return problemResponse(internalProblem('').document);
        },
        websocket: {
          maxPayloadLength: limits.messageBytes + frameOverheadBytes,
          backpressureLimit: socketBufferBytes,
          idleTimeout: socketIdleSeconds,
          sendPings: true,
          perMessageDeflate: false,
          open: (socket) => socket.data.opened(socket),
          message: (socket, message) => socket.data.received(message),
          drain: (socket) => socket.data.drained(),
          close: (socket) => socket.data.closed(),
        },
      });
      return { url: `http://${server.hostname}:${server.port}`, port: server.port as number };
    },
    async stop(graceMs) {
      stopping.abort();
      connections.closeAll(1001, 'the gateway is stopping');
      if (server === null) return;
      const running = server;
      server = null;
      let force: ReturnType<typeof setTimeout> | undefined;
      const forced = new Promise<void>((resolve) => {
        force = setTimeout(resolve, graceMs);
      });
      await Promise.race([running.stop(false), forced]);
      clearTimeout(force);
      await running.stop(true);
    },
  };
}

/** The routes and the table of who may call them name the same things, or nothing is served. */
function checkTable(routes: readonly string[]): void {
  const served = new Set(routes);
  const missing = Object.keys(access).filter((route) => !served.has(route));
  const unlisted = routes.filter((route) => !(route in access));
  if (missing.length > 0 || unlisted.length > 0) {
    throw new Error(
      `routes and access table differ: not served ${missing.join(', ')}; not listed ${unlisted.join(', ')}`,
    );
  }
}

function labelOf(match: Match): string {
  return match.kind === 'route' ? match.route : 'unmatched';
}

/** The path of an `http://` URL, found as Elysia finds it. */
function pathOf(url: string): string {
  const start = url.indexOf('/', 'http://'.length);
  if (start === -1) return '';
  const end = url.indexOf('?', start);
  return end === -1 ? url.slice(start) : url.slice(start, end);
}
