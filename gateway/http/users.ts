/** Users: the people whose tokens call, their role, and what they reach. */
import * as v from 'valibot';
import { roles, type User } from '../domain.ts';
import { closeCodes } from '../events/subscriber.ts';
import { type SpecialistId, specialistIdSchema, type TokenId, type UserId, userIdSchema } from '../ids.ts';
import { Problem } from '../problem.ts';
import type { App, HttpContext } from './app.ts';
import { operation } from './openapi.ts';
import { jsonResponse } from './responses.ts';
import { exactBody, nameSchema, notFound, userPage, userPath } from './schemas.ts';

/** Specialists that one expert works for. */
const maxSpecialists = 200;
const specialistIds = v.pipe(
  v.array(v.pipe(v.string(), v.maxLength(40))),
  v.maxLength(maxSpecialists, `may have ${maxSpecialists} members at most`),
  v.description('Ids of the specialists that an expert works for: it reaches their conversations and no others'),
);

const newUser = exactBody(
  v.strictObject({ name: nameSchema, role: v.picklist(roles), specialists: v.optional(specialistIds) }),
);
const assignment = exactBody(v.strictObject({ specialists: specialistIds }));

const userShown = v.object({
  id: v.string(),
  name: v.string(),
  role: v.picklist(roles),
  specialists: v.optional(v.array(v.string())),
  createdAt: v.string(),
  disabledAt: v.nullable(v.string()),
});

const show = ({ id, name, role, specialists, createdAt, disabledAt }: User) => ({
  id,
  name,
  role,
  ...(role === 'expert' ? { specialists } : {}),
  createdAt: createdAt.toISOString(),
  disabledAt: disabledAt?.toISOString() ?? null,
});

/** Throws `not-found`: what is no id names nobody. */
export function idOfUser(text: string): UserId {
  const id = v.safeParse(userIdSchema, text);
  if (!id.success) throw notFound('user');
  return id.output;
}

/** Each once. Throws `not-found` at what is no id. */
function idsOfSpecialists(texts: readonly string[]): readonly SpecialistId[] {
  const ids = texts.map((text) => {
    const id = v.safeParse(specialistIdSchema, text);
    if (!id.success) throw notFound('specialist');
    return id.output;
  });
  return [...new Set(ids)];
}

export function addUsers(app: App, { governance, tickets, connections }: HttpContext): void {
  const endStreams = (ended: readonly TokenId[], code: number, reason: string): void => {
    for (const token of ended) {
      tickets.revoke(token);
      connections.closeToken(token, code, reason);
    }
  };

  app.get(
    '/v1/users',
    async ({ query }) => {
      const { items, next } = await governance.listUsers(query.cursor ?? null, query.limit);
      return jsonResponse(200, { users: items.map(show), ...(next === null ? {} : { next }) });
    },
    {
      query: userPage,
      detail: operation('Users', 'List users, newest first', {
        200: {
          description: 'One page, disabled ones too; `next` is the cursor of the next one.',
          schema: v.object({ users: v.array(userShown), next: v.optional(v.string()) }),
        },
      }),
    },
  );

  app.post(
    '/v1/users',
    async ({ body }) => {
      const { name, role, specialists } = body;
      if (specialists !== undefined && role !== 'expert') {
        throw new Problem('invalid-request', 'Only an expert works for chosen specialists; leave `specialists` out');
      }
      const user = await governance.createUser(name, role, idsOfSpecialists(specialists ?? []));
      return jsonResponse(201, show(user), { location: `/v1/users/${user.id}` });
    },
    {
      parse: 'jsonBody',
      body: newUser,
      detail: operation(
        'Users',
        'Add a user',
        { 201: { description: 'Added. Make a token for it with POST /v1/tokens.', schema: userShown } },
        {
          description:
            'A `client` reaches the conversations that it began, an `expert` those of its `specialists`, every other role ' +
            'all of the organization. What is beyond the reach is answered as what does not exist.',
        },
      ),
    },
  );

  app.get(
    '/v1/users/:user',
    async ({ params }) => {
      const user = await governance.findUser(params.user);
      if (user === null) throw notFound('user');
      return jsonResponse(200, show(user));
    },
    {
      params: userPath,
      detail: operation('Users', 'Read one user', { 200: { description: 'The user.', schema: userShown } }),
    },
  );

  app.post(
    '/v1/users/:user/disable',
    async ({ params }) => {
      const disabled = await governance.disableUser(params.user);
      if (disabled === null) throw notFound('user');
      endStreams(disabled.revoked, closeCodes.revoked, 'the user was disabled');
      return jsonResponse(200, show(disabled.user));
    },
    {
      params: userPath,
      detail: operation('Users', 'Disable a user', {
        200: {
          description: 'Disabled, now or before: its tokens are revoked. Its conversations stay.',
          schema: userShown,
        },
      }),
    },
  );

  app.put(
    '/v1/users/:user/specialists',
    async ({ params, body }) => {
      const assigned = await governance.assignSpecialists(params.user, idsOfSpecialists(body.specialists));
      if (assigned === null) throw notFound('user');
      // What it listens to may be beyond its reach now: it comes back and is looked at again.
      endStreams(assigned.tokens, closeCodes.goingAway, 'the specialists of this user have changed: reconnect');
      return jsonResponse(200, show(assigned.user));
    },
    {
      parse: 'jsonBody',
      params: userPath,
      body: assignment,
      detail: operation('Users', 'Say which specialists an expert works for', {
        200: { description: 'As it is now, at once and for all of its tokens.', schema: userShown },
      }),
    },
  );
}
