/** Who is calling: bearer tokens, and the one-use tickets of the event stream. */
import type { Caller } from '../domain.ts';
import type { Governance } from '../governance/governance.ts';
import { Problem } from '../problem.ts';
import { may, type Route } from './access.ts';
import type { Tickets } from './tickets.ts';

const bearer = /^Bearer +([\x21-\x7e]{1,512})$/i;

/** Throws `unauthenticated` or `forbidden`. `ticket` is the query parameter, honoured on the event stream alone. */
export async function authorize(
  route: Route,
  request: Request,
  ticket: string | null,
  governance: Pick<Governance, 'authenticate'>,
  tickets: Tickets,
): Promise<Caller> {
  const header = request.headers.get('authorization');
  const caller =
    header === null && ticket !== null && route === 'GET /v1/events'
      ? tickets.redeem(ticket)
      : await callerOfHeader(header, governance);
  if (!may(caller.role, route)) {
    throw new Problem('forbidden', `A token with the role ${caller.role} may not call ${route}`);
  }
  return caller;
}

async function callerOfHeader(header: string | null, governance: Pick<Governance, 'authenticate'>): Promise<Caller> {
  if (header === null) throw new Problem('unauthenticated', 'Send a token as "Authorization: Bearer <token>"');
  const secret = bearer.exec(header)?.[1];
  const caller = secret === undefined ? null : await governance.authenticate(secret);
  if (caller === null) throw new Problem('unauthenticated', 'The token is unknown or was revoked');
  return caller;
}
