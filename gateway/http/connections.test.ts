/** A token that is revoked while a request of it is on its way to its event stream. */
import { afterAll, beforeAll, expect, test } from 'bun:test';
import { startGateway, type TestGateway } from './gateway.fixture.ts';

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startGateway();
}, 60_000);
afterAll(() => gateway?.stop());

test.each(['events', 'tickets'])('gets none of it: %s', async (what) => {
  const { governance } = gateway;
  const { caller, secret } = await governance.createToken('client', 'leaving');
  const conversation = await gateway.newConversation();
  // The revocation comes between the moment at which the token is found to be good and all that follows.
  const authenticate = governance.authenticate.bind(governance);
  governance.authenticate = async (given) => {
    const found = await authenticate(given);
    if (given === secret) {
      const revoked = await gateway.call('superadmin', 'DELETE', `/v1/tokens/${caller.token}`);
      expect(revoked.status).toBe(204);
    }
    return found;
  };
  const headers = { authorization: `Bearer ${secret}` };
  try {
    const response =
      what === 'events'
        ? await fetch(`${gateway.url}/v1/conversations/${conversation}/events`, { headers })
        : await fetch(`${gateway.url}/v1/events/tickets`, { method: 'POST', headers });
    expect(response.status).toBe(401);
  } finally {
    governance.authenticate = authenticate;
  }
});

test('a token whose streams were closed earlier has new ones', async () => {
  const user = await gateway.governance.createUser('Ann', 'expert', [gateway.specialist.id]);
  const { secret } = await gateway.governance.createUserToken(user.id, 'hers');
  const path = `/v1/users/${user.id}/specialists`;
  const body = { specialists: [gateway.specialist.id] };
  expect((await gateway.call('superadmin', 'PUT', path, { body })).status).toBe(200);
  const made = await fetch(`${gateway.url}/v1/events/tickets`, {
    method: 'POST',
    headers: { authorization: `Bearer ${secret}` },
  });
  expect(made.status).toBe(201);
});
