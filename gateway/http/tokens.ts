/** Tokens: made, listed, revoked. A secret is in one answer and nowhere else. */
import * as v from 'valibot';
import { type Caller, roles } from '../domain.ts';
import { closeCodes } from '../events/subscriber.ts';
import type { App, HttpContext } from './app.ts';
import { operation } from './openapi.ts';
import { commonHeaders, jsonResponse } from './responses.ts';
import { exactBody, nameSchema, notFound, tokenPath } from './schemas.ts';
import { idOfUser } from './users.ts';

const newToken = exactBody(
  v.pipe(
    v.strictObject({
      user: v.optional(v.pipe(v.string(), v.maxLength(40), v.description('Id of the user whose token it is'))),
      role: v.optional(v.pipe(v.picklist(roles), v.description('Of a token that speaks for the organization itself'))),
      name: nameSchema,
    }),
    v.check(({ user, role }) => (user === undefined) !== (role === undefined), 'needs either `user` or `role`'),
  ),
);
const tokenShown = v.object({
  id: v.string(),
  role: v.picklist(roles),
  name: v.string(),
  /** Null for a token that speaks for the organization itself. */
  user: v.nullable(v.string()),
});

const show = ({ token, role, name, user }: Caller) => ({ id: token, role, name, user });

export function addTokens(app: App, { governance, tickets, connections }: HttpContext): void {
  app.get(
    '/v1/tokens',
    async () => {
      const tokens = await governance.listTokens();
      return jsonResponse(200, {
        tokens: tokens.map((token) => ({ ...show(token), createdAt: token.createdAt.toISOString() })),
      });
    },
    {
      detail: operation('Tokens', 'List tokens', {
        200: {
          description: 'All that were not revoked, without their secrets.',
          schema: v.object({ tokens: v.array(v.object({ ...tokenShown.entries, createdAt: v.string() })) }),
        },
      }),
    },
  );

  app.post(
    '/v1/tokens',
    async ({ body }) => {
      const { caller, secret } =
        body.role === undefined
          ? await governance.createUserToken(idOfUser(body.user ?? ''), body.name)
          : await governance.createToken(body.role, body.name);
      return jsonResponse(201, { ...show(caller), token: secret });
    },
    {
      parse: 'jsonBody',
      body: newToken,
      detail: operation(
        'Tokens',
        'Make a token',
        {
          201: {
            description: 'Made. `token` is the secret; it is shown this once.',
            schema: v.object({ ...tokenShown.entries, token: v.string() }),
          },
        },
        {
          description:
            'Of a user, with the role and the reach of that person; or with a `role` and without a user, to speak for the ' +
            'organization itself: as a client it reaches the conversations that belong to nobody.',
        },
      ),
    },
  );

  app.delete(
    '/v1/tokens/:token',
    async ({ params }) => {
      const revoked = await governance.revokeToken(params.token);
      if (!revoked) throw notFound('token');
      tickets.revoke(params.token);
      connections.closeToken(params.token, closeCodes.revoked, 'the token was revoked');
      return new Response(null, { status: 204, headers: commonHeaders });
    },
    {
      params: tokenPath,
      detail: operation('Tokens', 'Revoke a token', {
        204: { description: 'Revoked; its event streams and tickets are ended.' },
      }),
    },
  );
}
