/** The organization's environment, which can be written and never read, and the record of what was done to the organization. */
import * as v from 'valibot';
import type { Operation } from '../domain.ts';
import { environmentLimits } from '../environment/dotenv.ts';
import { type ConversationId, conversationIdSchema } from '../ids.ts';
import { type App, callerOf, type HttpContext } from './app.ts';
import { operation } from './openapi.ts';
import { jsonResponse } from './responses.ts';
import { exactBody, notFound, operationPage } from './schemas.ts';

/** Conversations that one reissue names. */
const maxNamed = 1_000;

const newVariables = exactBody(
  v.strictObject({
    variables: v.pipe(
      v.record(v.string(), v.nullable(v.string())),
      v.description(
        `Names and values of all variables, ${environmentLimits.variables} at most; null keeps the value that a name has`,
      ),
    ),
  }),
);
const reissue = exactBody(
  v.pipe(
    v.strictObject({
      conversations: v.optional(
        v.pipe(
          v.array(v.pipe(v.string(), v.maxLength(40))),
          v.minLength(1, 'must name a conversation'),
          v.maxLength(maxNamed, `may have ${maxNamed} members at most`),
        ),
      ),
      all: v.optional(v.literal(true)),
    }),
    v.check(
      ({ conversations, all }) => (conversations === undefined) !== (all === undefined),
      'needs either `conversations` or `all`',
    ),
  ),
);

const namesShown = v.object({ names: v.array(v.string()) });
const reissuedShown = v.object({
  operation: v.string(),
  conversations: v.array(
    v.object({
      id: v.string(),
      environment: v.picklist(['written', 'missing']),
      child: v.picklist(['ended', 'after-turn', 'none']),
    }),
  ),
});
const detail = v.record(v.string(), v.unknown());
const operationShown = v.object({
  id: v.string(),
  kind: v.string(),
  token: v.string(),
  user: v.nullable(v.string()),
  subject: detail,
  begunAt: v.string(),
  finishedAt: v.nullable(v.string()),
  result: v.nullable(detail),
});

const show = ({ begunAt, finishedAt, ...rest }: Operation) => ({
  ...rest,
  begunAt: begunAt.toISOString(),
  finishedAt: finishedAt?.toISOString() ?? null,
});

/** Each once. Throws `not-found` at what is no id. */
export function idsOfConversations(texts: readonly string[]): readonly ConversationId[] {
  const ids = texts.map((text) => {
    const id = v.safeParse(conversationIdSchema, text);
    if (!id.success) throw notFound('conversation');
    return id.output;
  });
  return [...new Set(ids)];
}

export function addEnvironment(app: App, context: HttpContext): void {
  const { environment, governance } = context;

  app.get('/v1/organization/environment', async () => jsonResponse(200, { names: await environment.names() }), {
    detail: operation('Organization', "List the names of the organization's variables", {
      200: { description: 'Names alone: a value is never shown.', schema: namesShown },
    }),
  });

  app.put(
    '/v1/organization/environment',
    async ({ body, call }) => jsonResponse(200, { names: await environment.set(callerOf(call), body.variables) }),
    {
      parse: 'environment',
      body: newVariables,
      detail: operation(
        'Organization',
        "Write the organization's variables",
        { 200: { description: 'These and no others are written.', schema: namesShown } },
        {
          description:
            'Conversations that begin from now on have them; those that there are keep theirs until a reissue. A value is one ' +
            'line of printable ASCII without backslashes and without `${`.',
        },
      ),
    },
  );

  app.post(
    '/v1/organization/environment/reissue',
    async ({ body, call, request }) => {
      const chosen = body.all === true ? null : idsOfConversations(body.conversations ?? []);
      // Each conversation's file is written in its turn: longer than Bun lets a request be silent.
      context.server()?.timeout(request, 0);
      const { operation: id, conversations } = await environment.reissue(callerOf(call), chosen);
      return jsonResponse(200, {
        operation: id,
        conversations: conversations.map(({ conversation, ...rest }) => ({ id: conversation, ...rest })),
      });
    },
    {
      parse: 'jsonBody',
      body: reissue,
      detail: operation(
        'Organization',
        'Give conversations the variables as they are now',
        { 200: { description: 'What was done to each conversation.', schema: reissuedShown } },
        {
          description:
            'Rewrites the environment of the conversations and replaces their agents: an idle one now (`ended`), one in a turn ' +
            'behind that turn (`after-turn`).',
        },
      ),
    },
  );

  app.get(
    '/v1/organization/operations',
    async ({ query }) => {
      const { items, next } = await governance.listOperations(query.cursor ?? null, query.limit);
      return jsonResponse(200, { operations: items.map(show), ...(next === null ? {} : { next }) });
    },
    {
      query: operationPage,
      detail: operation('Organization', 'List what was done to the organization, newest first', {
        200: {
          description: 'Who did what: environment, reissues and purges. Names, ids and counts; no value, no prose.',
          schema: v.object({ operations: v.array(operationShown), next: v.optional(v.string()) }),
        },
      }),
    },
  );
}
