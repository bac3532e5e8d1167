/** Erasure of exact targets: looked at, confirmed, done, proved, and kept on record. */
import * as v from 'valibot';
import type { Purge } from '../governance/purges.ts';
import { noCounts } from '../retention/counts.ts';
import { type App, callerOf, type HttpContext } from './app.ts';
import { idsOfConversations } from './environment.ts';
import { operation } from './openapi.ts';
import { jsonResponse } from './responses.ts';
import { exactBody, notFound, operationPage, purgePath } from './schemas.ts';

/** Conversations of one purge. */
const maxConversations = 100;

const isTime = (text: string): boolean => !Number.isNaN(new Date(text).getTime());
const newPurge = exactBody(
  v.strictObject({
    targets: v.pipe(
      v.strictObject({
        conversations: v.optional(
          v.pipe(
            v.array(v.pipe(v.string(), v.maxLength(40))),
            v.maxLength(maxConversations, `may have ${maxConversations} members at most`),
            v.description('Everything of these conversations'),
          ),
        ),
        failedProseBefore: v.optional(
          v.pipe(
            v.string(),
            v.maxLength(40),
            v.isoTimestamp('must be a time such as 2030-01-31T12:00:00Z'),
            v.check(isTime, 'must be a time such as 2030-01-31T12:00:00Z'),
            v.description('The texts of messages that failed before then; the messages stay'),
          ),
        ),
      }),
      v.check(
        ({ conversations = [], failedProseBefore }) => conversations.length > 0 || failedProseBefore !== undefined,
        'must name something',
      ),
    ),
    confirmation: v.optional(
      v.pipe(v.string(), v.maxLength(100), v.description('What the dry run of the same targets has answered')),
    ),
  }),
);

const counts = v.object(Object.fromEntries(Object.keys(noCounts).map((name) => [name, v.number()])));
const planShown = v.object({
  state: v.literal('planned'),
  counts,
  failedProse: v.number(),
  confirmation: v.string(),
  expiresAt: v.string(),
});
const purgeShown = v.object({
  id: v.string(),
  state: v.picklist(['open', 'done']),
  token: v.string(),
  user: v.nullable(v.string()),
  failedProseBefore: v.nullable(v.string()),
  targets: v.array(
    v.object({
      conversation: v.string(),
      step: v.picklist(['confirmed', 'stopped', 'sessions', 'files', 'erased']),
      found: counts,
    }),
  ),
  begunAt: v.string(),
  finishedAt: v.nullable(v.string()),
  result: v.nullable(v.object({ erased: counts, remaining: counts, failedProse: v.number() })),
});

const show = ({ targets, failedProseBefore, begunAt, finishedAt, ...rest }: Purge) => ({
  ...rest,
  state: finishedAt === null ? 'open' : 'done',
  failedProseBefore: failedProseBefore?.toISOString() ?? null,
  targets: targets.map(({ conversation, step, found }) => ({ conversation, step, found })),
  begunAt: begunAt.toISOString(),
  finishedAt: finishedAt?.toISOString() ?? null,
});

export function addRetention(app: App, context: HttpContext): void {
  const { retention, governance } = context;

  app.post(
    '/v1/retention/purges',
    async ({ body, call, request }) => {
      const { conversations = [], failedProseBefore } = body.targets;
      const targets = {
        conversations: idsOfConversations(conversations),
        failedProseBefore: failedProseBefore === undefined ? null : new Date(failedProseBefore),
      };
      // Large trees take longer than Bun lets a request be silent.
      context.server()?.timeout(request, 0);
      if (body.confirmation === undefined) {
        const plan = await retention.plan(targets);
        return jsonResponse(200, { state: 'planned', ...plan, expiresAt: plan.expiresAt.toISOString() });
      }
      return jsonResponse(200, show(await retention.purge(callerOf(call), targets, body.confirmation)));
    },
    {
      parse: 'jsonBody',
      body: newPurge,
      detail: operation(
        'Retention',
        'Erase exact targets: look first, then confirm',
        {
          200: {
            description:
              'Without a confirmation, what would be erased, and the confirmation. With it, what was erased and what is left.',
            schema: v.union([planShown, purgeShown]),
          },
        },
        {
          description:
            'A confirmation is good for 15 minutes, for the same targets, and while nothing of them changes. From then on the ' +
            'conversations do not exist for anybody; what is cut off in the middle is gone on with at the next start, or by a resume.',
        },
      ),
    },
  );

  app.get(
    '/v1/retention/purges',
    async ({ query }) => {
      const { items, next } = await governance.listPurges(query.cursor ?? null, query.limit);
      return jsonResponse(200, { purges: items.map(show), ...(next === null ? {} : { next }) });
    },
    {
      query: operationPage,
      detail: operation('Retention', 'List purges, newest first', {
        200: {
          description: 'Open ones show how far they have come.',
          schema: v.object({ purges: v.array(purgeShown), next: v.optional(v.string()) }),
        },
      }),
    },
  );

  app.get(
    '/v1/retention/purges/:purge',
    async ({ params }) => {
      const purge = await governance.readPurge(params.purge);
      if (purge === null) throw notFound('purge');
      return jsonResponse(200, show(purge));
    },
    {
      params: purgePath,
      detail: operation('Retention', 'Read one purge', {
        200: { description: 'Who erased what, and the proof.', schema: purgeShown },
      }),
    },
  );

  app.post(
    '/v1/retention/purges/:purge/resume',
    async ({ params, request }) => {
      context.server()?.timeout(request, 0);
      const purge = await retention.resume(params.purge);
      if (purge === null) throw notFound('purge');
      return jsonResponse(200, show(purge));
    },
    {
      params: purgePath,
      detail: operation('Retention', 'Go on with a purge that was cut off', {
        200: { description: 'Done, now or before.', schema: purgeShown },
      }),
    },
  );
}
