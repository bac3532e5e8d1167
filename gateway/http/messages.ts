/** Messages: sent, optionally waited for, and read (ADR-046 §1: content goes on exactly as it came). */
import * as v from 'valibot';
import { cardShown } from '../cards/card.ts';
import { showReply } from '../cards/reply-view.ts';
import type { Message, UpdateView } from '../domain.ts';
import { updateViewOf } from '../events/frames.ts';
import { Problem } from '../problem.ts';
import { type App, callerOf, type HttpContext } from './app.ts';
import { MultipartForm, submitForm } from './attachments.ts';
import { findConversation } from './conversations.ts';
import {
  checkIdempotencyKey,
  contentOf,
  idempotencyKeyPattern,
  messageContent,
  messageShown,
  showMessage,
} from './message-content.ts';
import { operation } from './openapi.ts';
import { preferredWait } from './prefer.ts';
import { problemResponse } from './problems.ts';
import { jsonResponse } from './responses.ts';
import { conversationPath, exactBodyOr, messagePath, notFound } from './schemas.ts';

const replyShown = v.object({ locator: v.string(), text: v.string(), card: v.optional(cardShown) });
const sent = v.object({ message: messageShown });
const answered = v.object({ message: messageShown, reply: replyShown });

export function addMessages(app: App, context: HttpContext): void {
  const { governance, turns, limits } = context;

  app.post(
    '/v1/conversations/:conversation/messages',
    async ({ params, body, request, call }) => {
      const idempotencyKey = checkIdempotencyKey(request.headers.get('idempotency-key'));
      const conversation = await findConversation(governance, params.conversation);
      const order = { conversation, idempotencyKey, receivedAt: call.receivedAt };
      const message =
        body instanceof MultipartForm
          ? await submitForm(context, body, order, callerOf(call).token)
          : await turns.submit({ ...order, content: contentOf(body as v.InferOutput<typeof messageContent>) });
      const waitSeconds = preferredWait(request.headers.get('prefer'), limits.waitSeconds);
      if (waitSeconds === null) return jsonResponse(202, { message: showMessage(message) });
      // Bun ends a request that is silent for long; this one is meant to be.
      context.server()?.timeout(request, 0);
      const settled = await waitFor(context, message, request.signal, waitSeconds);
      const view = updateViewOf(callerOf(call).role);
      return answerOf(context, settled, view, { 'preference-applied': `wait=${waitSeconds}` });
    },
    {
      parse: 'message',
      params: conversationPath,
      body: exactBodyOr(MultipartForm, messageContent),
      detail: operation(
        'Messages',
        'Send a message',
        {
          200: { description: 'Only with `Prefer: wait`: the reply was delivered.', schema: answered },
          202: { description: 'Accepted; its events and its state tell how it goes on.', schema: sent },
        },
        {
          description:
            'With `Prefer: wait=SECONDS` the answer is the reply, or the problem document of the failed turn with the ' +
            "message's id in `message`. Closing the connection ends only the waiting.",
          form: {
            schema: {
              type: 'object',
              description: 'Texts and files in the order of the message. Each file goes to the agent as a link to it.',
              properties: {
                text: { type: 'array', items: { type: 'string' } },
                file: { type: 'array', items: { type: 'string', format: 'binary' } },
              },
              additionalProperties: false,
            },
          },
          parameters: [
            {
              name: 'Idempotency-Key',
              in: 'header',
              pattern: idempotencyKeyPattern,
              description: 'Sent again, it answers with the first message.',
            },
            { name: 'Prefer', in: 'header', description: `wait=SECONDS, at most ${limits.waitSeconds}.` },
          ],
        },
      ),
    },
  );

  app.get(
    '/v1/conversations/:conversation/messages/:message',
    async ({ params }) => {
      const message = await governance.findMessage(params.conversation, params.message);
      if (message === null) throw notFound('message');
      return jsonResponse(200, showMessage(message));
    },
    {
      params: messagePath,
      detail: operation('Messages', 'Read where a message stands', {
        200: { description: 'Its state, with the reply or the failure, and its phases.', schema: messageShown },
      }),
    },
  );
}

/** The message as it stands when it is settled, the time is over, the client has gone or the server stops. */
async function waitFor(
  { turns, stopping }: HttpContext,
  message: Message,
  closed: AbortSignal,
  seconds: number,
): Promise<Message> {
  if (message.state === 'delivered' || message.state === 'failed' || message.state === 'cancelled') return message;
  if (seconds === 0) return message;
  const over = new AbortController();
  const timer = setTimeout(() => over.abort(), seconds * 1_000);
  try {
    return await turns.settled(message.conversation, message.id, AbortSignal.any([closed, stopping, over.signal]));
  } finally {
    clearTimeout(timer);
  }
}

async function answerOf(
  { turns }: HttpContext,
  message: Message,
  view: UpdateView,
  headers: Readonly<Record<string, string>>,
): Promise<Response> {
  switch (message.state) {
    case 'delivered': {
      const { locator, text } = await turns.reply(message.locator, message);
      const reply = { locator, ...showReply(text, view) };
      return jsonResponse(200, { message: showMessage(message), reply }, headers);
    }
    case 'failed':
      return problemResponse({ ...message.problem, message: message.id }, headers);
    case 'cancelled': {
      const cancelled = new Problem('turn-cancelled', 'The turn was cancelled before it replied', {
        message: message.id,
      });
      return problemResponse(cancelled.document, headers);
    }
    default:
      return jsonResponse(202, { message: showMessage(message) }, headers);
  }
}
