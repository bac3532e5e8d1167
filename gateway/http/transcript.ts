/** The canonical transcript, read from SessionDB for each request (ADR-046 §6, §9: no copy is kept). */
import * as v from 'valibot';
import { cardShown } from '../cards/card.ts';
import { showReply } from '../cards/reply-view.ts';
import { Problem } from '../problem.ts';
import type { TranscriptTurn } from '../transcript/transcript.ts';
import { may } from './access.ts';
import { type App, callerOf, type HttpContext } from './app.ts';
import { findConversation } from './conversations.ts';
import { operation } from './openapi.ts';
import { jsonResponse } from './responses.ts';
import { conversationPath, transcriptPage } from './schemas.ts';

const turnShown = v.object({
  locator: v.string(),
  role: v.picklist(['user', 'assistant']),
  text: v.string(),
  card: v.optional(cardShown),
  at: v.string(),
  etag: v.string(),
  toolCalls: v.optional(v.array(v.unknown())),
});

const show = (turn: TranscriptTurn, view: 'client' | 'canonical') => ({
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

export function addTranscript(app: App, { governance, transcript }: HttpContext): void {
  app.get(
    '/v1/conversations/:conversation/transcript',
    async ({ params, query, call }) => {
      if (query.view === 'canonical' && !may(callerOf(call).role, 'transcript.canonical')) {
        throw new Problem('forbidden', 'The canonical view is for experts and above');
      }
      const conversation = await findConversation(governance, params.conversation);
      const { turns, next } = await transcript.read(conversation, query.view, query.cursor ?? null, query.limit);
      return jsonResponse(200, {
        turns: turns.map((turn) => show(turn, query.view)),
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
}
