/** Conversations: made, listed, read, and their turns cancelled. */
import * as v from 'valibot';
import type { Caller, Conversation } from '../domain.ts';
import type { Governance } from '../governance/governance.ts';
import { type ConversationId, conversationIdSchema, newConversationId } from '../ids.ts';
import { Problem } from '../problem.ts';
import { reachesConversation, reachesSpecialist } from '../reach.ts';
import { type App, callerOf, type HttpContext } from './app.ts';
import { operation } from './openapi.ts';
import { jsonResponse } from './responses.ts';
import { cancelQuery, conversationPage, conversationPath, exactBody, notFound } from './schemas.ts';

const newConversation = exactBody(
  v.strictObject({
    specialist: v.pipe(v.string(), v.minLength(1), v.maxLength(200), v.description('Id or exact name of a specialist')),
  }),
);

const conversationShown = v.object({
  id: v.string(),
  specialist: v.string(),
  /** The user who began it; null for one that belongs to the organization itself. */
  owner: v.nullable(v.string()),
  createdAt: v.string(),
});
const conversationsShown = v.object({ conversations: v.array(conversationShown), next: v.optional(v.string()) });

const show = (conversation: Conversation) => ({
  id: conversation.id,
  specialist: conversation.specialist,
  owner: conversation.owner,
  createdAt: conversation.createdAt.toISOString(),
});

/**
 * What a request or frame names as its conversation, when it is within the caller's reach. Throws `not-found` otherwise:
 * what is beyond it, what was never there and what is no id are answered alike.
 */
export async function reachedConversation(
  governance: Pick<Governance, 'findConversation'>,
  caller: Caller,
  text: string,
): Promise<Conversation> {
  const id = v.safeParse(conversationIdSchema, text);
  if (!id.success) throw notFound('conversation');
  const conversation = await findConversation(governance, id.output);
  if (!reachesConversation(caller.reach, conversation)) throw notFound('conversation');
  return conversation;
}

/** Behind the server's door, which has looked whether the caller reaches the conversation of the path. Throws `not-found`. */
export async function findConversation(
  governance: Pick<Governance, 'findConversation'>,
  id: ConversationId,
): Promise<Conversation> {
  const conversation = await governance.findConversation(id);
  if (conversation === null) throw notFound('conversation');
  return conversation;
}

export function addConversations(app: App, context: HttpContext): void {
  const { governance, turns } = context;

  app.post(
    '/v1/conversations',
    async ({ body, call }) => {
      const caller = callerOf(call);
      const specialist = await governance.findSpecialist(body.specialist);
      if (specialist === null || !reachesSpecialist(caller.reach, specialist.id)) throw notFound('specialist');
      if (specialist.offboardedAt !== null) {
        throw new Problem('conflict', 'This specialist was offboarded and takes no new conversations');
      }
      const id = newConversationId();
      // The tree first: a conversation that can be found can be attached.
      await context.establish(id, specialist);
      const conversation = await governance.createConversation(id, specialist.id, caller.user);
      return jsonResponse(201, show(conversation), { location: `/v1/conversations/${id}` });
    },
    {
      parse: 'jsonBody',
      body: newConversation,
      detail: operation('Conversations', 'Start a conversation with a specialist', {
        201: { description: 'Started.', schema: conversationShown },
      }),
    },
  );

  app.get(
    '/v1/conversations',
    async ({ query, call }) => {
      const { reach } = callerOf(call);
      const { items, next } = await governance.listConversations(reach, query.cursor ?? null, query.limit);
      return jsonResponse(200, { conversations: items.map(show), ...(next === null ? {} : { next }) });
    },
    {
      query: conversationPage,
      detail: operation('Conversations', 'List the conversations within reach, newest first', {
        200: { description: 'One page; `next` is the cursor of the next one.', schema: conversationsShown },
      }),
    },
  );

  app.get(
    '/v1/conversations/:conversation',
    async ({ params }) => jsonResponse(200, show(await findConversation(governance, params.conversation))),
    {
      params: conversationPath,
      detail: operation('Conversations', 'Read one conversation', {
        200: { description: 'The conversation.', schema: conversationShown },
      }),
    },
  );

  app.post(
    '/v1/conversations/:conversation/cancel',
    async ({ params, query: { message } }) => {
      const conversation = await findConversation(governance, params.conversation);
      return jsonResponse(200, { cancelled: await turns.cancel(conversation.id, message) });
    },
    {
      params: conversationPath,
      query: cancelQuery,
      detail: operation(
        'Conversations',
        'Cancel the running turn, or a message',
        {
          200: {
            description: 'Whether it is cancelled, or is being cancelled.',
            schema: v.object({ cancelled: v.boolean() }),
          },
        },
        {
          description:
            'With `message` that message and no other: one that waits for its turn never reaches the agent, and the turn of one ' +
            'that runs is ended. The same answer again when it is asked for again.',
        },
      ),
    },
  );
}
