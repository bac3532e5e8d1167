/**
 * The WebSocket of the event stream. Upgraded by hand instead of by Elysia's `.ws()`: that parses a message before anyone
 * can see its text, turns `123` into a number, and so could not tell what would not survive (exact-json.ts).
 */
import * as v from 'valibot';
import type { Caller, Conversation, Message } from '../domain.ts';
import { plainFrame } from '../events/frames.ts';
import { closeCodes, type Sink, type Subscriber } from '../events/subscriber.ts';
import { Unanswered } from '../governance/connection.ts';
import { Problem } from '../problem.ts';
import { may, type Route } from './access.ts';
import { type App, callerOf, type HttpContext, listen, type SocketData } from './app.ts';
import { type ClientFrame, clientFrame, idOf } from './client-frames.ts';
import { reachedConversation } from './conversations.ts';
import { parseExactText } from './exact-json.ts';
import { checkIdempotencyKey, contentOf, showMessage } from './message-content.ts';
import { operation } from './openapi.ts';
import { internalProblem, problemOf } from './problems.ts';
import { jsonResponse } from './responses.ts';
import { invalid, query, seqText } from './schemas.ts';

const socketQuery = query(
  v.object({
    after: v.optional(seqText),
    ticket: v.optional(
      v.pipe(v.string(), v.description('Instead of the header: a ticket, good once and for 30 seconds')),
    ),
  }),
);

export function addEventSocket(app: App, context: HttpContext): void {
  app.get(
    '/v1/events',
    ({ request, query: { after }, call }) => {
      const server = context.server();
      if (server === null || request.headers.get('upgrade')?.toLowerCase() !== 'websocket') {
        throw new Problem('invalid-request', 'This is a WebSocket: connect with a WebSocket client');
      }
      const place = context.connections.reserve(callerOf(call), call.receivedAt);
      const session = new SocketSession(context, callerOf(call), after ?? null, place.leave);
      place.opened(session);
      if (!server.upgrade(request, { data: session.data })) {
        place.leave();
        throw new Problem('invalid-request', 'The WebSocket handshake is malformed');
      }
      // Bun has answered; this is for the log and the counts.
      return new Response(null, { status: 101 });
    },
    {
      query: socketQuery,
      detail: operation(
        'Events',
        'Follow conversations and send messages over a WebSocket',
        { 101: { description: 'Switched to the WebSocket protocol.' } },
        {
          description:
            'Client frames: `subscribe {conversation, after?}`, `unsubscribe {conversation}`, `message.send {conversation, ' +
            'idempotencyKey?, text | blocks | parts}`, `upload.announce {conversation, name, mimeType?}`, each with an optional `id` that its answer repeats. `after` of the query ' +
            'is the start of subscriptions that name none. Sequence numbers ascend within a conversation: resume each ' +
            'conversation after the last one seen of it.',
        },
      ),
    },
  );

  app.post(
    '/v1/events/tickets',
    ({ call }) => {
      context.connections.requireCurrent(callerOf(call), call.receivedAt);
      const { ticket, expiresAt } = context.tickets.issue(callerOf(call));
      return jsonResponse(201, { ticket, expiresAt: expiresAt.toISOString() });
    },
    {
      detail: operation('Events', 'Get a ticket for one WebSocket', {
        201: {
          description: 'Good once and for 30 seconds, as `?ticket=` of /v1/events.',
          schema: v.object({ ticket: v.string(), expiresAt: v.string() }),
        },
      }),
    },
  );
}

class SocketSession {
  readonly #context: HttpContext;
  readonly #caller: Caller;
  readonly #after: number | null;
  readonly #leave: () => void;
  #socket: Bun.ServerWebSocket<SocketData> | null = null;
  #subscriber: Subscriber | null = null;
  #waiting: (() => void)[] = [];
  /** Frames are worked on one after the other: messages keep the order they were sent in. */
  #work: Promise<void> = Promise.resolve();
  #pending = 0;
  #invalid = 0;
  #ended: readonly [code: number, reason: string] | null = null;

  constructor(context: HttpContext, caller: Caller, after: number | null, leave: () => void) {
    this.#context = context;
    this.#caller = caller;
    this.#after = after;
    this.#leave = leave;
  }

  readonly data: SocketData = {
    opened: (socket) => {
      this.#socket = socket;
      if (this.#ended !== null) {
        socket.close(...this.#ended);
        return;
      }
      this.#subscriber = listen(this.#context, this.#caller, this.#sink(socket));
    },
    received: (message) => this.#receive(message),
    drained: () => this.#wake(),
    closed: () => {
      this.#ended ??= [closeCodes.goingAway, 'closed'];
      this.#subscriber?.close();
      this.#leave();
      this.#wake();
    },
  };

  close(code: number, reason: string): void {
    if (this.#ended !== null) return;
    this.#ended = [code, reason];
    this.#subscriber?.close();
    this.#socket?.close(code, reason);
  }

  #sink(socket: Bun.ServerWebSocket<SocketData>): Sink {
    return {
      send: ({ json }) => {
        // 0 is a frame that was not taken: the connection has gone, or its buffer is beyond every limit of ours.
        if (socket.send(json) === 0 && socket.readyState === WebSocket.OPEN) socket.terminate();
      },
      buffered: () => socket.getBufferedAmount(),
      drained: () =>
        socket.readyState === WebSocket.OPEN && socket.getBufferedAmount() > 0
          ? new Promise((resolve) => this.#waiting.push(resolve))
          : Promise.resolve(),
      close: (code, reason) => this.close(code, reason),
    };
  }

  #wake(): void {
    const resolved = this.#waiting;
    this.#waiting = [];
    for (const resolve of resolved) resolve();
  }

  #receive(message: string | Buffer): void {
    if (this.#ended !== null) return;
    const received = { at: performance.now(), position: this.#context.bus.position };
    let value: unknown;
    let frame: ClientFrame;
    try {
      value = readJson(message);
      frame = readFrame(value);
    } catch (error) {
      this.#refuse(error, idOf(value));
      this.#invalid += 1;
      if (this.#invalid >= this.#context.limits.invalidFrames)
        this.close(closeCodes.invalid, 'too many invalid frames');
      return;
    }
    if (this.#pending >= this.#context.limits.pendingFrames) {
      const detail = `At most ${this.#context.limits.pendingFrames} frames may wait; send the next one after an answer`;
      this.#refuse(new Problem('too-many-requests', detail), frame.id);
      return;
    }
    this.#pending += 1;
    const { id } = frame;
    this.#work = this.#work
      .then(() => this.#handle(frame, received))
      // Answered to the client; the next frame is independent of it.
      .catch((error: unknown) => this.#refuse(error, id))
      .finally(() => {
        this.#pending -= 1;
      });
  }

  async #handle(frame: ClientFrame, received: { at: number; position: number }): Promise<void> {
    if (this.#ended !== null) return;
    const { id } = frame;
    const answer = (type: string, members: Readonly<Record<string, unknown>>): void =>
      this.#subscriber?.send(plainFrame(type, { ...(id === undefined ? {} : { id }), ...members }));
    const found = await reachedConversation(this.#context.governance, this.#caller, frame.conversation);
    const conversation = found.id;
    switch (frame.type) {
      case 'unsubscribe':
        this.#subscriber?.unsubscribe(conversation);
        answer('unsubscribed', { conversation });
        return;
      case 'subscribe': {
        // From now on means from the moment the frame came, not from when the conversation had been looked up.
        const after = frame.after ?? this.#after ?? received.position;
        const added = this.#subscriber?.subscribe(conversation, after, () =>
          answer('subscribed', { conversation, after }),
        );
        if (added === false) throw new Problem('too-many-requests', 'Too many conversations on one connection');
        return;
      }
      case 'upload.announce': {
        this.#require('PUT /v1/conversations/:conversation/uploads/:upload');
        const { name: fileName, mimeType = null } = frame;
        const upload = this.#context.uploads.announce(this.#caller.token, conversation, {
          fileName,
          mediaType: mimeType,
        });
        answer('upload.ready', { conversation, upload, put: `/v1/conversations/${conversation}/uploads/${upload}` });
        return;
      }
      case 'message.send': {
        const message = await this.#send(frame, found, received.at);
        answer('message.sent', { message: showMessage(message) });
      }
    }
  }

  async #send(
    frame: ClientFrame & { readonly type: 'message.send' },
    conversation: Conversation,
    receivedAt: number,
  ): Promise<Message> {
    this.#require('POST /v1/conversations/:conversation/messages');
    const { turns, uploads } = this.#context;
    const idempotencyKey = checkIdempotencyKey(frame.idempotencyKey ?? null);
    const order = { conversation, idempotencyKey, receivedAt };
    if (!('parts' in frame)) return await turns.submit({ ...order, content: contentOf(frame) });
    return await uploads.send(this.#caller.token, conversation.id, frame.parts, {
      refusal: (blocks) => turns.refusal({ blocks }),
      repeated: (blocks) => turns.repeated({ ...order, content: { blocks } }),
      accept: (blocks) => turns.submit({ ...order, content: { blocks } }),
    });
  }

  #require(route: Route): void {
    if (!may(this.#caller.role, route)) {
      throw new Problem('forbidden', `A token with the role ${this.#caller.role} may not call ${route}`);
    }
  }

  #refuse(error: unknown, id: ClientFrame['id']): void {
    let problem = problemOf(error, true);
    if (error instanceof Unanswered) this.#context.logger.error('the database did not answer', { error });
    if (problem === null) {
      const request = crypto.randomUUID();
      this.#context.logger.error('a WebSocket frame failed', { request, error });
      problem = internalProblem(request);
    }
    this.#subscriber?.send(plainFrame('error', { ...(id === undefined ? {} : { id }), problem: problem.document }));
  }
}

/** Throws `invalid-request`. */
function readJson(message: string | Buffer): unknown {
  if (typeof message !== 'string') throw new Problem('invalid-request', 'A frame is text, not binary');
  return parseExactText(message, 'The frame');
}

/** Throws `invalid-request`. The frame is the parsed text itself, not a copy made by its schema. */
function readFrame(value: unknown): ClientFrame {
  const result = v.safeParse(clientFrame, value);
  if (!result.success) throw invalid('The frame is not as it should be', result.issues);
  return value as ClientFrame;
}
