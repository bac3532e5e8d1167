/** Replies by a human: appended to the canonical transcript once (ADR-046 §6). No inbound message is touched by them. */
import { Problem } from '../problem.ts';
import { type App, callerOf, type HttpContext } from './app.ts';
import { findConversation } from './conversations.ts';
import { checkIdempotencyKey, idempotencyKeyPattern } from './message-content.ts';
import { operation } from './openapi.ts';
import { jsonResponse } from './responses.ts';
import { conversationPath, exactBody } from './schemas.ts';
import { showTurn, turnShown, wordsBody } from './transcript.ts';

export function addReplies(app: App, { governance, amendments }: HttpContext): void {
  app.post(
    '/v1/conversations/:conversation/replies',
    async ({ params, body, request, call }) => {
      const idempotencyKey = checkIdempotencyKey(request.headers.get('idempotency-key'));
      if (idempotencyKey === null) {
        throw new Problem('invalid-request', 'Send an Idempotency-Key, so that the reply is appended once');
      }
      const conversation = await findConversation(governance, params.conversation);
      const turn = await amendments.reply({ conversation, text: body.text, idempotencyKey, caller: callerOf(call) });
      return jsonResponse(201, showTurn(turn, 'canonical'), { etag: turn.etag });
    },
    {
      parse: 'message',
      params: conversationPath,
      body: exactBody(wordsBody),
      detail: operation(
        'Transcript',
        'Append a reply by a human',
        { 201: { description: 'The row, the same one however often this is sent.', schema: turnShown } },
        {
          description:
            'Needs a conversation that has begun. During a turn it stands where it was written, and the agent reads it in ' +
            'its next turn.',
          parameters: [
            {
              name: 'Idempotency-Key',
              in: 'header',
              required: true,
              pattern: idempotencyKeyPattern,
              description: 'Sent again, it answers with the same row. Without it the answer is 400.',
            },
          ],
        },
      ),
    },
  );
}
