/** Legacy duplicates of the transcript: listed, and taken out one by one by an explicit request (ADR-046 §6). */
import * as v from 'valibot';
import { type App, callerOf, type HttpContext } from './app.ts';
import { findConversation } from './conversations.ts';
import { operation } from './openapi.ts';
import { jsonResponse } from './responses.ts';
import { conversationPath, turnPath } from './schemas.ts';

const duplicateShown = v.object({
  locator: v.string(),
  original: v.string(),
  kind: v.picklist(['same', 'conflict']),
  text: v.string(),
  etag: v.string(),
  originalText: v.nullable(v.string()),
});

export function addDuplicates(app: App, { governance, amendments }: HttpContext): void {
  app.get(
    '/v1/conversations/:conversation/transcript/duplicates',
    async ({ params }) => {
      const conversation = await findConversation(governance, params.conversation);
      return jsonResponse(200, { duplicates: await amendments.duplicates(conversation) });
    },
    {
      params: conversationPath,
      detail: operation('Transcript', 'List replies that stand in the transcript twice', {
        200: {
          description: 'At most 500. `conflict`: two texts of one message, which have to be made one by an edit first.',
          schema: v.object({ duplicates: v.array(duplicateShown) }),
        },
      }),
    },
  );

  app.delete(
    '/v1/conversations/:conversation/transcript/duplicates/:locator',
    async ({ params, call }) => {
      const conversation = await findConversation(governance, params.conversation);
      return jsonResponse(200, await amendments.removeDuplicate(conversation, params.locator, callerOf(call)));
    },
    {
      params: turnPath,
      detail: operation('Transcript', 'Take a duplicate out of the transcript', {
        200: { description: 'It is out; the row that it repeated stays.', schema: duplicateShown },
      }),
    },
  );
}
