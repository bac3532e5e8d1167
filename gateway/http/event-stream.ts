/** Server-Sent Events of one conversation: for `curl -N`, and for EventSource-like clients that resume by themselves. */
import * as v from 'valibot';
import { closeCodes, type Sink, type Subscriber } from '../events/subscriber.ts';
import { type App, callerOf, type HttpContext, listen } from './app.ts';
import { findConversation } from './conversations.ts';
import { operation } from './openapi.ts';
import { commonHeaders } from './responses.ts';
import { afterQuery, conversationPath, invalid, seqText } from './schemas.ts';

/** A comment this often keeps proxies from closing a silent stream: the only timer (ADR-046 §8). */
const keepAliveMs = 25_000;

export function addEventStream(app: App, context: HttpContext): void {
  app.get(
    '/v1/conversations/:conversation/events',
    async ({ params, query, request, call }) => {
      const caller = callerOf(call);
      const now = context.bus.position;
      const conversation = await findConversation(context.governance, params.conversation);
      // A client that reconnects by itself repeats its first URL and says in the header how far it got.
      const after = lastEventId(request.headers.get('last-event-id')) ?? query.after ?? now;
      const place = context.connections.reserve(caller, call.receivedAt);
      // Bun would end it as silent, and does not take bytes sent for a sign of life. A peer that is gone without a word is
      // found by TCP, which gets no answer to the comments.
      context.server()?.timeout(request, 0);
      const stream = openStream((sink) => {
        const subscriber = listen(context, caller, sink);
        place.opened({
          close(code, reason) {
            subscriber.close();
            sink.close(code, reason);
          },
        });
        subscriber.subscribe(conversation.id, after, () => undefined);
        return { subscriber, ended: place.leave };
      });
      return new Response(stream, { headers: { ...commonHeaders, 'content-type': 'text/event-stream' } });
    },
    {
      params: conversationPath,
      query: afterQuery,
      detail: operation(
        'Events',
        'Follow one conversation as Server-Sent Events',
        { 200: { description: 'The stream; each `data` is one frame.', media: 'text/event-stream' } },
        {
          description:
            'After `after`, or the header Last-Event-ID, what was missed comes first. Without either: from now on.',
        },
      ),
    },
  );
}

function lastEventId(header: string | null): number | null {
  if (header === null || header === '') return null;
  const result = v.safeParse(seqText, header);
  if (!result.success) throw invalid('The header Last-Event-ID is not as it should be', result.issues);
  return result.output;
}

const encoder = new TextEncoder();

interface Opened {
  readonly subscriber: Subscriber;
  readonly ended: () => void;
}

/** A stream of frames; `open` gets its sink. */
function openStream(open: (sink: Sink) => Opened): ReadableStream<Uint8Array> {
  let opened: Opened | null = null;
  let ended = false;
  let waiting: (() => void)[] = [];
  let keepAlive: ReturnType<typeof setInterval> | undefined;

  const wake = (): void => {
    const resolved = waiting;
    waiting = [];
    for (const resolve of resolved) resolve();
  };
  const end = (): void => {
    if (ended) return;
    ended = true;
    clearInterval(keepAlive);
    opened?.subscriber.close();
    opened?.ended();
    wake();
  };

  return new ReadableStream<Uint8Array>(
    {
      start(controller) {
        const write = (text: string): void => {
          if (!ended) controller.enqueue(encoder.encode(text));
        };
        write(': connected\n\n');
        opened = open({
          send: ({ seq, type, json }) =>
            write(`${seq === null ? '' : `id: ${seq}\n`}event: ${type}\ndata: ${json}\n\n`),
          // The queue's high-water mark is 0 bytes, so what is wanted is minus what is queued.
          buffered: () => (ended ? 0 : -(controller.desiredSize ?? 0)),
          drained: () => (ended ? Promise.resolve() : new Promise((resolve) => waiting.push(resolve))),
          close(code) {
            if (ended) return;
            end();
            // A client that does not read would keep a stream open that is only closed.
            if (code === closeCodes.slow || code === closeCodes.failed) controller.error(new Error('dropped'));
            else controller.close();
          },
        });
        if (ended) {
          // It was closed while it was opened.
          opened.ended();
          return;
        }
        keepAlive = setInterval(() => write(': keep-alive\n\n'), keepAliveMs);
        keepAlive.unref();
      },
      pull: wake,
      cancel: end,
    },
    new ByteLengthQueuingStrategy({ highWaterMark: 0 }),
  );
}
