/**
 * Who may do what, and to whose: a table of every route that the running /openapi.json has, each of its cells tested with
 * a real request. The rules stand here a second time on purpose: a change of them has to be meant twice.
 */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { type Role, roles, type Specialist, type User } from '../domain.ts';
import { type ConversationId, type Locator, type MessageId, newConversationId, newMessageId } from '../ids.ts';
import { startGateway, type TestGateway } from './gateway.fixture.ts';
import type { OpenApiDocument } from './openapi.ts';

/** The conversations that there are, from where one caller stands. */
const relations = ["the caller's own", "another person's", "another specialist's", "nobody's", 'unknown'] as const;
type Relation = (typeof relations)[number];

/** A person of the role, or the organization itself (a token without a user). */
const kinds = ['person', 'organization'] as const;
type Kind = (typeof kinds)[number];

const everyone: readonly Role[] = ['client', 'client_admin', 'expert', 'account_manager', 'superadmin'];
const auditors: readonly Role[] = ['client_admin', 'expert', 'account_manager', 'superadmin'];
const experts: readonly Role[] = ['expert', 'account_manager', 'superadmin'];
const managers: readonly Role[] = ['account_manager', 'superadmin'];
const owners: readonly Role[] = ['superadmin'];

function reaches(role: Role, kind: Kind, relation: Relation): boolean {
  if (relation === 'unknown') return false;
  if (role === 'client') return relation === (kind === 'person' ? "the caller's own" : "nobody's");
  // The expert works for the first specialist; the caller's own conversation is with that one too.
  if (role === 'expert' && kind === 'person') return relation !== "another specialist's";
  return true;
}

/** Of the one turn of the transcript in memory. */
const locator = 'a-locator-of-the-transcript' as Locator;

interface Talk {
  readonly id: ConversationId;
  readonly message: MessageId;
}

interface Sent {
  /** Of the path's variables other than the conversation and its message. */
  readonly names?: Readonly<Record<string, string>>;
  readonly query?: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

interface Line {
  readonly who: readonly Role[] | 'public';
  /** The status of a request that is allowed and that reaches its conversation. */
  readonly status: number;
  /** What a request needs; made anew for each one, since some use up what they name. */
  readonly sent?: () => Sent | Promise<Sent>;
}

let gateway: TestGateway;
let other: Specialist;
const people = {} as Record<Role, { readonly user: User; readonly secret: string }>;
const talks = new Map<string, Talk>();
let count = 0;

const table: Readonly<Record<string, Line>> = {
  'GET /healthz': { who: 'public', status: 200 },
  'GET /readyz': { who: 'public', status: 200 },
  'GET /metrics': { who: 'public', status: 200 },
  'GET /openapi.json': { who: 'public', status: 200 },
  'GET /docs': { who: 'public', status: 200 },
  'POST /v1/conversations': { who: everyone, status: 201, sent: () => ({ body: { specialist: 'Eleanora' } }) },
  'GET /v1/conversations': { who: everyone, status: 200 },
  'GET /v1/conversations/{conversation}': { who: everyone, status: 200 },
  'POST /v1/conversations/{conversation}/messages': {
    who: everyone,
    status: 202,
    sent: () => ({ body: { text: 'Good morning' } }),
  },
  'GET /v1/conversations/{conversation}/messages/{message}': { who: everyone, status: 200 },
  'POST /v1/conversations/{conversation}/cancel': { who: everyone, status: 200 },
  'GET /v1/conversations/{conversation}/transcript': { who: everyone, status: 200 },
  'GET /v1/conversations/{conversation}/transcript/{locator}': {
    who: everyone,
    status: 200,
    sent: () => ({ names: { locator } }),
  },
  'PATCH /v1/conversations/{conversation}/transcript/{locator}': {
    who: experts,
    status: 200,
    sent: () => ({ names: { locator }, body: { text: 'Better' }, headers: { 'if-match': '"e"' } }),
  },
  'GET /v1/conversations/{conversation}/transcript/duplicates': { who: owners, status: 200 },
  'DELETE /v1/conversations/{conversation}/transcript/duplicates/{locator}': {
    who: owners,
    status: 200,
    sent: () => ({ names: { locator } }),
  },
  'POST /v1/conversations/{conversation}/replies': {
    who: experts,
    status: 201,
    sent: () => ({ body: { text: 'I am David' }, headers: { 'idempotency-key': fresh('key').replace(' ', '-') } }),
  },
  'GET /v1/conversations/{conversation}/events': { who: everyone, status: 200 },
  // Nothing was announced under this name.
  'PUT /v1/conversations/{conversation}/uploads/{upload}': {
    who: everyone,
    status: 404,
    sent: () => ({ names: { upload: `upl_${'0'.repeat(40)}` } }),
  },
  'GET /v1/conversations/{conversation}/files': { who: everyone, status: 200 },
  'GET /v1/conversations/{conversation}/files/content': {
    who: everyone,
    status: 200,
    sent: () => ({ query: '?uri=file:///workspace/x' }),
  },
  'GET /v1/conversations/{conversation}/audit/tool-calls': { who: auditors, status: 200 },
  'GET /v1/conversations/{conversation}/audit/timeline': { who: auditors, status: 200 },
  'GET /v1/conversations/{conversation}/audit/diff': { who: auditors, status: 200 },
  // Without an upgrade to a WebSocket; what its frames may do is tested below.
  'GET /v1/events': { who: everyone, status: 400 },
  'POST /v1/events/tickets': { who: everyone, status: 201 },
  'GET /v1/specialists': { who: everyone, status: 200 },
  'GET /v1/specialists/{specialist}': {
    who: everyone,
    status: 200,
    sent: () => ({ names: { specialist: gateway.specialist.id } }),
  },
  'POST /v1/specialists': { who: managers, status: 201, sent: () => ({ body: { name: fresh('Ada') } }) },
  'POST /v1/specialists/{specialist}/offboard': {
    who: managers,
    status: 200,
    sent: async () => ({ names: { specialist: (await gateway.governance.createSpecialist(fresh('Bo'), '')).id } }),
  },
  'GET /v1/tokens': { who: owners, status: 200 },
  'POST /v1/tokens': { who: owners, status: 201, sent: () => ({ body: { role: 'client', name: fresh('Cy') } }) },
  'DELETE /v1/tokens/{token}': {
    who: owners,
    status: 204,
    sent: async () => ({ names: { token: (await gateway.governance.createToken('client', 'Di')).caller.token } }),
  },
  'GET /v1/users': { who: owners, status: 200 },
  'POST /v1/users': { who: owners, status: 201, sent: () => ({ body: { name: 'Eve', role: 'client' } }) },
  'GET /v1/users/{user}': { who: owners, status: 200, sent: async () => ({ names: { user: await freshUser() } }) },
  'POST /v1/users/{user}/disable': {
    who: owners,
    status: 200,
    sent: async () => ({ names: { user: await freshUser() } }),
  },
  'PUT /v1/users/{user}/specialists': {
    who: owners,
    status: 200,
    sent: async () => ({ names: { user: await freshUser() }, body: { specialists: [other.id] } }),
  },
  'GET /v1/organization': { who: everyone, status: 200 },
  'GET /v1/organization/environment': { who: owners, status: 200 },
  'PUT /v1/organization/environment': { who: owners, status: 200, sent: () => ({ body: { variables: { KEY: 'x' } } }) },
  'POST /v1/organization/environment/reissue': { who: owners, status: 200, sent: () => ({ body: { all: true } }) },
  'GET /v1/organization/operations': { who: owners, status: 200 },
  'POST /v1/retention/purges': {
    who: owners,
    status: 200,
    sent: () => ({ body: { targets: { failedProseBefore: '2020-01-01T00:00:00Z' } } }),
  },
  'GET /v1/retention/purges': { who: owners, status: 200 },
  'GET /v1/retention/purges/{purge}': {
    who: owners,
    status: 404,
    sent: () => ({ names: { purge: `op_${'0'.repeat(26)}` } }),
  },
  'POST /v1/retention/purges/{purge}/resume': {
    who: owners,
    status: 200,
    sent: () => ({ names: { purge: `op_${'0'.repeat(26)}` } }),
  },
};

const fresh = (name: string): string => `${name} ${++count}`;
const freshUser = async (): Promise<string> => (await gateway.governance.createUser(fresh('Flo'), 'expert', [])).id;

async function talk(specialist: Specialist, owner: User | null): Promise<Talk> {
  const id = newConversationId();
  const conversation = await gateway.governance.createConversation(id, specialist.id, owner?.id ?? null);
  const content = { text: 'Hello' };
  const { id: message } = await gateway.turns.submit({ conversation, content, idempotencyKey: null, receivedAt: 0 });
  return { id, message };
}

function conversationOf(role: Role, relation: Relation): Talk {
  const found = talks.get(relation === "the caller's own" ? `${relation} ${role}` : relation);
  return found ?? { id: newConversationId(), message: newMessageId() };
}

const secretOf = (role: Role, kind: Kind): string => (kind === 'person' ? people[role].secret : gateway.tokens[role]);

beforeAll(async () => {
  gateway = await startGateway();
  gateway.transcript.turns = [{ locator, role: 'assistant', text: 'Good', at: new Date(0), etag: '"e"' }];
  const { governance, specialist } = gateway;
  other = await governance.createSpecialist('Percy', '');
  for (const role of roles) {
    const user = await governance.createUser(`a ${role}`, role, role === 'expert' ? [specialist.id] : []);
    people[role] = { user, secret: (await governance.createUserToken(user.id, 'laptop')).secret };
    talks.set(`the caller's own ${role}`, await talk(specialist, user));
  }
  const stranger = await governance.createUser('a stranger', 'client', []);
  talks.set("another person's", await talk(specialist, stranger));
  talks.set("another specialist's", await talk(other, stranger));
  talks.set("nobody's", await talk(specialist, null));
}, 60_000);
afterAll(() => gateway?.stop());

/** The status of one real request; its body is not read. */
async function statusOf(route: string, sent: Sent, place: Talk, secret: string | null): Promise<number> {
  const [method = '', pattern = ''] = route.split(' ');
  const names: Readonly<Record<string, string>> = { ...sent.names, conversation: place.id, message: place.message };
  const path = pattern.replace(/\{(\w+)\}/g, (_, name: string) => names[name] ?? `no ${name} in the test`);
  const response = await fetch(`${gateway.url}${path}${sent.query ?? ''}`, {
    method,
    headers: {
      ...(secret === null ? {} : { authorization: `Bearer ${secret}` }),
      ...(sent.body === undefined ? {} : { 'content-type': 'application/json' }),
      ...sent.headers,
    },
    ...(sent.body === undefined ? {} : { body: JSON.stringify(sent.body) }),
  });
  await response.body?.cancel();
  return response.status;
}

test('the table has every route of the running server, and no other', async () => {
  const document = (await (await fetch(`${gateway.url}/openapi.json`)).json()) as OpenApiDocument;
  const routes = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
  );
  expect(Object.keys(table).toSorted()).toEqual(routes.toSorted());
});

describe('each role, on each route, with each conversation', () => {
  test.each(Object.entries(table))('%s', async (route, { who, status, sent = () => ({}) }) => {
    const nowhere = { id: newConversationId(), message: newMessageId() };
    expect(await statusOf(route, await sent(), nowhere, null)).toBe(who === 'public' ? status : 401);
    const isBelow = route.includes('{conversation}');
    for (const role of roles) {
      for (const kind of kinds) {
        for (const relation of isBelow ? relations : (['unknown'] as const)) {
          const allowed = who === 'public' || who.includes(role);
          const reached = !isBelow || reaches(role, kind, relation);
          const expected = !allowed ? 403 : reached ? status : 404;
          const got = await statusOf(route, await sent(), conversationOf(role, relation), secretOf(role, kind));
          expect(`${role}, ${kind}, ${relation}: ${got}`).toBe(`${role}, ${kind}, ${relation}: ${expected}`);
        }
      }
    }
  });
});

describe('each role, with each frame of the WebSocket and each conversation', () => {
  const frames = [
    ['subscribe', 'subscribed', {}],
    ['unsubscribe', 'unsubscribed', {}],
    ['message.send', 'message.sent', { text: 'Good evening' }],
  ] as const;

  test.each(frames)('%s', async (type, answer, more) => {
    for (const role of roles) {
      for (const kind of kinds) {
        for (const relation of relations) {
          const conversation = conversationOf(role, relation).id;
          const got = await answerTo(secretOf(role, kind), { type, conversation, ...more });
          const expected = reaches(role, kind, relation) ? answer : 'urn:edge-gateway:problem:not-found';
          expect(`${role}, ${kind}, ${relation}: ${got}`).toBe(`${role}, ${kind}, ${relation}: ${expected}`);
        }
      }
    }
  });
});

/** The type of what answers a frame, or of the problem in it. */
function answerTo(secret: string, frame: Readonly<Record<string, unknown>>): Promise<string> {
  const options = { headers: { authorization: `Bearer ${secret}` } };
  const socket = new WebSocket(`${gateway.url.replace('http', 'ws')}/v1/events`, options as never);
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  socket.onopen = () => socket.send(JSON.stringify({ id: 'asked', ...frame }));
  socket.onerror = () => reject(new Error('the WebSocket failed'));
  socket.onclose = () => reject(new Error('the WebSocket was closed'));
  socket.onmessage = ({ data }) => {
    const said = JSON.parse(String(data)) as { id?: string; type: string; problem?: { type: string } };
    if (said.id !== 'asked') return;
    socket.onclose = null;
    socket.close();
    resolve(said.problem?.type ?? said.type);
  };
  return promise;
}

describe('what is listed', () => {
  const listed = async (secret: string): Promise<ReadonlySet<string>> => {
    const headers = { authorization: `Bearer ${secret}` };
    const ids: string[] = [];
    for (let next: string | undefined = ''; next !== undefined; ) {
      const path: string = `/v1/conversations?limit=2${next === '' ? '' : `&cursor=${next}`}`;
      const page = (await (await fetch(`${gateway.url}${path}`, { headers })).json()) as {
        conversations: { id: string }[];
        next?: string;
      };
      ids.push(...page.conversations.map(({ id }) => id));
      next = page.next;
    }
    expect(new Set(ids).size).toBe(ids.length);
    return new Set(ids);
  };

  test('conversations within reach, over all pages', async () => {
    for (const role of roles) {
      for (const kind of kinds) {
        const ids = await listed(secretOf(role, kind));
        for (const relation of relations) {
          const isListed = ids.has(conversationOf(role, relation).id);
          expect(`${role}, ${kind}, ${relation}: ${isListed}`).toBe(
            `${role}, ${kind}, ${relation}: ${reaches(role, kind, relation)}`,
          );
        }
      }
    }
  });

  test('specialists: an expert has those it works for', async () => {
    const names = async (secret: string) => {
      const response = await fetch(`${gateway.url}/v1/specialists`, { headers: { authorization: `Bearer ${secret}` } });
      return ((await response.json()) as { specialists: { name: string }[] }).specialists.map(({ name }) => name);
    };
    expect(await names(people.expert.secret)).toEqual(['Eleanora']);
    expect(await names(people.client.secret)).toContain('Percy');
    expect(await names(gateway.tokens.expert)).toContain('Percy');
    const asExpert = { authorization: `Bearer ${people.expert.secret}` };
    expect((await fetch(`${gateway.url}/v1/specialists/${other.id}`, { headers: asExpert })).status).toBe(404);
    const begun = await fetch(`${gateway.url}/v1/conversations`, {
      method: 'POST',
      headers: { ...asExpert, 'content-type': 'application/json' },
      body: JSON.stringify({ specialist: other.id }),
    });
    expect(begun.status).toBe(404);
  });
});

describe('users', () => {
  const superadmin = (method: string, path: string, body?: unknown) =>
    gateway.call('superadmin', method, path, body === undefined ? {} : { body });

  test('a client has what it began, and nothing else', async () => {
    const user = (await (await superadmin('POST', '/v1/users', { name: 'Amy', role: 'client' })).json()) as {
      id: string;
    };
    const made = await superadmin('POST', '/v1/tokens', { user: user.id, name: "Amy's phone" });
    const token = (await made.json()) as { role: string; user: string; token: string };
    expect(token).toMatchObject({ role: 'client', user: user.id });
    const headers = { authorization: `Bearer ${token.token}`, 'content-type': 'application/json' };
    const begun = await fetch(`${gateway.url}/v1/conversations`, {
      method: 'POST',
      headers,
      body: JSON.stringify({ specialist: 'Percy' }),
    });
    const conversation = (await begun.json()) as { id: string; owner: string };
    expect(conversation.owner).toBe(user.id);
    const read = (secret: string) =>
      fetch(`${gateway.url}/v1/conversations/${conversation.id}`, { headers: { authorization: `Bearer ${secret}` } });
    expect((await read(token.token)).status).toBe(200);
    expect((await read(people.client.secret)).status).toBe(404);
    expect((await read(people.client_admin.secret)).status).toBe(200);
    expect((await superadmin('POST', '/v1/tokens', { user: user.id, role: 'superadmin', name: 'x' })).status).toBe(400);
    expect((await superadmin('POST', '/v1/tokens', { user: 'nobody', name: 'x' })).status).toBe(404);

    const disabled = await superadmin('POST', `/v1/users/${user.id}/disable`);
    expect(((await disabled.json()) as { disabledAt: string }).disabledAt).toBeString();
    expect((await read(token.token)).status).toBe(401);
    expect((await superadmin('POST', '/v1/tokens', { user: user.id, name: 'x' })).status).toBe(409);
    expect((await read(people.client_admin.secret)).status).toBe(200);
  });

  test('what an expert reaches follows its specialists at once, open streams too', async () => {
    const body = { name: 'David', role: 'expert', specialists: [gateway.specialist.id, gateway.specialist.id] };
    const user = (await (await superadmin('POST', '/v1/users', body)).json()) as { id: string; specialists: string[] };
    expect(user.specialists).toEqual([gateway.specialist.id]);
    const made = await superadmin('POST', '/v1/tokens', { user: user.id, name: 'desk' });
    const { token } = (await made.json()) as { token: string };
    const headers = { authorization: `Bearer ${token}` };
    const reach = async (relation: Relation) => {
      const response = await fetch(`${gateway.url}/v1/conversations/${conversationOf('client', relation).id}`, {
        headers,
      });
      return response.status;
    };
    expect([await reach("another person's"), await reach("another specialist's")]).toEqual([200, 404]);
    const stream = await fetch(
      `${gateway.url}/v1/conversations/${conversationOf('client', "another person's").id}/events`,
      { headers },
    );
    const ended = stream.text();
    const assigned = await superadmin('PUT', `/v1/users/${user.id}/specialists`, { specialists: [other.id] });
    expect(((await assigned.json()) as { specialists: string[] }).specialists).toEqual([other.id]);
    await ended;
    expect([await reach("another person's"), await reach("another specialist's")]).toEqual([404, 200]);
  });

  test('only an expert has chosen specialists, and only ones that there are', async () => {
    const specialists = [gateway.specialist.id];
    expect((await superadmin('POST', '/v1/users', { name: 'x', role: 'client', specialists })).status).toBe(400);
    const unknown = { name: 'x', role: 'expert', specialists: [`spec_${'0'.repeat(26)}`] };
    expect((await superadmin('POST', '/v1/users', unknown)).status).toBe(404);
    const { id } = people.client.user;
    expect((await superadmin('PUT', `/v1/users/${id}/specialists`, { specialists })).status).toBe(409);
    const listed = (await (await superadmin('GET', '/v1/users?limit=200')).json()) as { users: { name: string }[] };
    expect(listed.users.filter(({ name }) => name === 'x')).toEqual([]);
  });
});
