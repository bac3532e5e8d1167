/** Tokens: made, listed, revoked. A secret is in one answer and nowhere else. */
import * as v from 'valibot';
import { roles } from '../domain.ts';
import { closeCodes } from '../events/subscriber.ts';
import type { App, HttpContext } from './app.ts';
import { operation } from './openapi.ts';
import { commonHeaders, jsonResponse } from './responses.ts';
import { exactBody, nameSchema, notFound, tokenPath } from './schemas.ts';

const newToken = exactBody(v.strictObject({ role: v.picklist(roles), name: nameSchema }));
const tokenShown = v.object({ id: v.string(), role: v.picklist(roles), name: v.string() });

export function addTokens(app: App, { governance, tickets, connections }: HttpContext): void {
  app.get(
    '/v1/tokens',
    async () => {
      const tokens = await governance.listTokens();
      return jsonResponse(200, {
        tokens: tokens.map(({ token, role, name, createdAt }) => ({
          id: token,
          role,
          name,
          createdAt: createdAt.toISOString(),
        })),
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
      const { caller, secret } = await governance.createToken(body.role, body.name);
      return jsonResponse(201, { id: caller.token, role: caller.role, name: caller.name, token: secret });
    },
    {
      parse: 'jsonBody',
      body: newToken,
      detail: operation('Tokens', 'Make a token', {
        201: {
          description: 'Made. `token` is the secret; it is shown this once.',
          schema: v.object({ ...tokenShown.entries, token: v.string() }),
        },
      }),
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
