/** The canonical transcript, read from SessionDB for each request and changed there (ADR-046 §6, §9: no copy is kept). */
import * as v from 'valibot';
import { cardShown } from '../cards/card.ts';
import { showReply } from '../cards/reply-view.ts';
import { Problem } from '../problem.ts';
import type { TranscriptTurn } from '../transcript/transcript.ts';
import { may } from './access.ts';
import { type App, type Call, callerOf, type HttpContext } from './app.ts';
import { findConversation } from './conversations.ts';
import { operation } from './openapi.ts';
import { jsonResponse } from './responses.ts';
import { conversationPath, exactBody, notFound, transcriptPage, transcriptView, turnPath } from './schemas.ts';

export const turnShown = v.object({
  locator: v.string(),
  role: v.picklist(['user', 'assistant']),
  text: v.string(),
  card: v.optional(cardShown),
  at: v.string(),
  etag: v.string(),
  toolCalls: v.optional(v.array(v.unknown())),
});

export const showTurn = (turn: TranscriptTurn, view: 'client' | 'canonical') => ({
  locator: turn.locator,
  role: turn.role,
  // The model's cards alone: a client's own words stay as they are.
  ...(turn.role === 'assistant'
    ? showReply(turn.text, view === 'client' ? 'client' : 'verbatim')
    : { text: turn.text }),
  at: turn.at.toISOString(),
  etag: turn.etag,
  ...(turn.toolCalls === undefined ? {} : { toolCalls: turn.toolCalls }),
});

const strongEntityTag = /^"[\x21\x23-\x7e]{1,100}"$/;

/** The new words of a row, or of a reply; kept exactly as they are. */
export const wordsBody = v.strictObject({ text: v.string() });

export function addTranscript(app: App, { governance, transcript, amendments }: HttpContext): void {
  const checkView = (view: 'client' | 'canonical', call: Call): void => {
    if (view === 'canonical' && !may(callerOf(call).role, 'transcript.canonical')) {
      throw new Problem('forbidden', 'The canonical view is for experts and above');
    }
  };

  app.get(
    '/v1/conversations/:conversation/transcript',
    async ({ params, query, call }) => {
      checkView(query.view, call);
      const conversation = await findConversation(governance, params.conversation);
      const { turns, next } = await transcript.read(conversation, query.view, query.cursor ?? null, query.limit);
      return jsonResponse(200, {
        turns: turns.map((turn) => showTurn(turn, query.view)),
        ...(next === null ? {} : { next }),
      });
    },
    {
      params: conversationPath,
      query: transcriptPage,
      detail: operation('Transcript', 'Read the canonical turns in order', {
        200: {
          description: 'One page; `next` is the cursor of the next one. The canonical view shows tool calls too.',
          schema: v.object({ turns: v.array(turnShown), next: v.optional(v.string()) }),
        },
      }),
    },
  );

  app.get(
    '/v1/conversations/:conversation/transcript/:locator',
    async ({ params, query, call }) => {
      checkView(query.view, call);
      const conversation = await findConversation(governance, params.conversation);
      const turn = await transcript.turn(conversation, params.locator, query.view);
      if (turn === null) throw notFound('turn');
      return jsonResponse(200, showTurn(turn, query.view), { etag: turn.etag });
    },
    {
      params: turnPath,
      query: transcriptView,
      detail: operation('Transcript', 'Read one turn by its locator', {
        200: { description: 'The turn as it stands; its entity tag is in `ETag` too.', schema: turnShown },
      }),
    },
  );

  app.patch(
    '/v1/conversations/:conversation/transcript/:locator',
    async ({ params, body, request, call }) => {
      const basis = basisOf(request.headers.get('if-match'));
      const conversation = await findConversation(governance, params.conversation);
      const { locator } = params;
      const turn = await amendments.edit({ conversation, locator, basis, text: body.text, caller: callerOf(call) });
      return jsonResponse(200, showTurn(turn, 'canonical'), { etag: turn.etag });
    },
    {
      parse: 'message',
      params: turnPath,
      body: exactBody(wordsBody),
      detail: operation(
        'Transcript',
        'Edit the words of a reply',
        { 200: { description: 'The row has the new words, and this is its entity tag now.', schema: turnShown } },
        {
          description:
            'One conditional change of one canonical row. When the row is not what `If-Match` says any more the answer is ' +
            '412, with what it is in `current` and what was sent in `yours`. The agent reads the new words in its next turn.',
          parameters: [
            {
              name: 'If-Match',
              in: 'header',
              required: true,
              pattern: strongEntityTag,
              description: 'The entity tag that the edit is based on. Without it the answer is 428.',
            },
          ],
        },
      ),
    },
  );
}

/** The one strong entity tag of an If-Match header. */
function basisOf(header: string | null): string {
  if (header === null) {
    throw new Problem('precondition-required', 'Send in If-Match the etag of the turn that the edit is based on');
  }
  if (!strongEntityTag.test(header)) {
    throw new Problem('invalid-request', 'If-Match must be one entity tag, in quotes, as the transcript gives it');
  }
  return header;
}
