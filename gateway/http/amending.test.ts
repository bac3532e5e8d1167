// Edits and human replies over HTTP, on a real authority and a real Postgres.
import { afterAll, beforeAll, beforeEach, expect, test } from 'bun:test';
import type { LoggedEvent, SessionUpdate } from '../domain.ts';
import type { ConversationId } from '../ids.ts';
import { createAmendments } from '../transcript/amendments.ts';
import { HermesSessionDb } from '../transcript/hermes-sessiondb.fixture.ts';
import { decodeLocator } from '../transcript/locator.ts';
import { createTranscript } from '../transcript/sessiondb.ts';
import type { ServerDeps } from './deps.ts';
import { startGateway, type TestGateway } from './gateway.fixture.ts';
import type { OpenApiDocument } from './openapi.ts';

interface Shown {
  readonly locator: string;
  readonly text: string;
  readonly etag: string;
  readonly type: string;
  readonly status: number;
  readonly current: { readonly text: string; readonly etag: string; readonly locator: string };
  readonly yours: { readonly text: string };
}

let db: HermesSessionDb;
let gateway: TestGateway;
let conversation: ConversationId;
let session: string;
let locator: string;
let events: (LoggedEvent | SessionUpdate)[];

beforeAll(async () => {
  db = await HermesSessionDb.start();
  const real = Promise.withResolvers<ServerDeps['amendments']>();
  gateway = await startGateway({
    transcript: createTranscript(db.database),
    amendments: {
      edit: async (request) => (await real.promise).edit(request),
      reply: async (request) => (await real.promise).reply(request),
      duplicates: async (where) => (await real.promise).duplicates(where),
      removeDuplicate: async (...args) => (await real.promise).removeDuplicate(...args),
    },
  });
  const { governance, bus } = gateway;
  real.resolve(
    createAmendments({
      database: db.database,
      log: governance.amendments,
      bus,
      sessionOf: async (id) => (await governance.findConversation(id))?.session ?? null,
      logger: { warn: () => undefined },
    }),
  );
  bus.subscribe((event) => events.push(event));
}, 60_000);
afterAll(async () => {
  await gateway?.stop();
  await db?.stop();
});
beforeEach(async () => {
  events = [];
  conversation = await gateway.newConversation();
  session = await db.session(crypto.randomUUID());
  await gateway.governance.bindSession(conversation, session);
  await db.append(session, { role: 'user', content: 'How much?' });
  locator = await db.append(session, { role: 'assistant', content: 'Twelve.' });
});

const at = (which = locator): string => `/v1/conversations/${conversation}/transcript/${which}`;
const shown = async (response: Response): Promise<Shown> => (await response.json()) as Shown;
const read = async (role: 'client' | 'expert' = 'client'): Promise<Shown> =>
  shown(await gateway.call(role, 'GET', at()));
const edit = (text: unknown, headers: Record<string, string>, which = locator) =>
  gateway.call('expert', 'PATCH', at(which), { body: { text }, headers });
const reply = (text: unknown, key: string | null, where = conversation) =>
  gateway.call('expert', 'POST', `/v1/conversations/${where}/replies`, {
    body: { text },
    headers: key === null ? {} : { 'idempotency-key': key },
  });
const nameOf = async (response: Response): Promise<string> =>
  `${response.status} ${(await shown(response)).type.split(':').at(-1)}`;

test('an edit based on what was read goes through; the next one on the same is told both texts', async () => {
  const response = await gateway.call('client', 'GET', at());
  const { etag, text } = await shown(response);
  expect([text, response.headers.get('etag')]).toEqual(['Twelve.', etag]);
  const edited = await edit('Thirteen.', { 'if-match': etag });
  expect(edited.status).toBe(200);
  const now = await shown(edited);
  expect(now).toMatchObject({ locator, text: 'Thirteen.' });
  expect(edited.headers.get('etag')).toBe(now.etag);
  const late = await edit('Fourteen.', { 'if-match': etag });
  expect(late.status).toBe(412);
  expect(late.headers.get('content-type')).toBe('application/problem+json');
  expect(await shown(late)).toMatchObject({
    type: 'urn:edge-gateway:problem:precondition-failed',
    current: { locator, text: 'Thirteen.', etag: now.etag },
    yours: { text: 'Fourteen.' },
  });
  expect(await read()).toMatchObject({ text: 'Thirteen.', etag: now.etag });
  expect(events).toMatchObject([{ type: 'transcript.edited', conversation, locator }]);
});

test('of 100 edits at once one gets 200 and 99 get 412', async () => {
  const { etag } = await read();
  const answers = await Promise.all(
    Array.from({ length: 100 }, (_, index) => edit(`by ${index}`, { 'if-match': etag })),
  );
  const statuses = answers.map(({ status }) => status);
  expect(statuses.filter((status) => status === 200)).toHaveLength(1);
  expect(statuses.filter((status) => status === 412)).toHaveLength(99);
  expect((await read()).text).toBe(`by ${statuses.indexOf(200)}`);
});

test('an edit needs one strong entity tag, words, and a row of this conversation', async () => {
  const { etag } = await read();
  const match = { 'if-match': etag };
  expect(await nameOf(await edit('x', {}))).toBe('428 precondition-required');
  for (const tag of ['*', etag.slice(1, -1), `W/${etag}`, `${etag}, ${etag}`, '""']) {
    expect(await nameOf(await edit('x', { 'if-match': tag }))).toBe('400 invalid-request');
  }
  for (const text of ['', '\t\n ', 7, null, undefined, 'a\0b']) {
    expect(await nameOf(await edit(text, match))).toBe('400 invalid-request');
  }
  expect(await nameOf(await edit('x', match, 'not-a-locator-of-anything-here'))).toBe('404 not-found');
  expect(await nameOf(await edit('x', match, '%2e%2e'))).toBe('404 not-found');
  const mine = locator;
  conversation = await gateway.newConversation();
  expect(await nameOf(await edit('x', match, mine))).toBe('404 not-found');
  expect((await gateway.call('client', 'GET', at(mine))).status).toBe(404);
});

test('words go in and come out as they are', async () => {
  const { etag } = await read();
  const text = '  “Ω”\r\n\n\t🙂 e\u0301 \u2028 <b>&amp;</b> %00 \\0 \u202E end ';
  expect((await edit(text, { 'if-match': etag })).status).toBe(200);
  expect((await read()).text).toBe(text);
  const { locator: appended } = await shown(await reply(text, 'k'));
  expect((await shown(await gateway.call('client', 'GET', at(appended)))).text).toBe(text);
});

test('a reply sent 50 times is one row; it needs a key, and a conversation that has begun', async () => {
  const answers = await Promise.all(Array.from({ length: 50 }, () => reply('I am David.', 'again')));
  expect(answers.map(({ status }) => status)).toEqual(Array.from({ length: 50 }, () => 201));
  const locators = new Set((await Promise.all(answers.map(shown))).map((one) => one.locator));
  expect(locators.size).toBe(1);
  expect((await db.rows(session)).filter(({ content }) => content === 'I am David.')).toHaveLength(1);
  expect(events).toMatchObject([{ type: 'transcript.appended', conversation, locator: [...locators][0] }]);
  expect(await nameOf(await reply('I am not.', 'again'))).toBe('422 idempotency-key-reused');
  expect(await nameOf(await reply('x', null))).toBe('400 invalid-request');
  expect(await nameOf(await reply(' ', 'other'))).toBe('400 invalid-request');
  expect(await nameOf(await reply('x', 'k', await gateway.newConversation()))).toBe('409 conflict');
});

test('a duplicate that a retry once wrote is listed, and taken out by whoever says which', async () => {
  const twice = await db.append(session, { role: 'assistant', content: 'Twelve.' });
  await db.append(session, { role: 'user', content: 'Twelve.' });
  await db.append(session, { role: 'assistant', content: 'Twelve.' });
  const path = `/v1/conversations/${conversation}/transcript/duplicates`;
  const listed = await gateway.call('superadmin', 'GET', path);
  const { duplicates } = (await listed.json()) as { duplicates: unknown[] };
  expect(duplicates).toMatchObject([{ locator: twice, original: locator, kind: 'same', text: 'Twelve.' }]);
  const remove = (which: string) => gateway.call('superadmin', 'DELETE', `${path}/${which}`);
  expect(await nameOf(await remove(locator))).toBe('404 not-found');
  const removed = await remove(twice);
  expect([removed.status, (await shown(removed)).locator]).toEqual([200, twice]);
  expect(await nameOf(await remove(twice))).toBe('404 not-found');
  expect(await db.live(session)).toEqual([
    'user: How much?',
    'assistant: Twelve.',
    'user: Twelve.',
    'assistant: Twelve.',
  ]);
  expect(await db.messageCount(session)).toBe(4);
  expect((await gateway.call('client', 'GET', at(twice))).status).toBe(404);
  expect(events).toMatchObject([{ type: 'transcript.edited', conversation, locator: twice }]);
});

test('two texts of one message of a platform are a conflict, told with both', async () => {
  const first = await db.append(session, { role: 'assistant', content: 'One text.' });
  const second = await db.append(session, { role: 'assistant', content: 'Another text.' });
  const rows = [first, second].map((one) => decodeLocator(one)?.row ?? 0);
  await db.database.execute("UPDATE messages SET platform_message_id = 'p1' WHERE id IN (?, ?)", rows);
  const path = `/v1/conversations/${conversation}/transcript/duplicates`;
  const listed = await gateway.call('superadmin', 'GET', path);
  expect(((await listed.json()) as { duplicates: unknown[] }).duplicates).toMatchObject([
    { locator: second, kind: 'conflict', text: 'Another text.', originalText: 'One text.' },
  ]);
  const refused = await gateway.call('superadmin', 'DELETE', `${path}/${second}`);
  expect(refused.status).toBe(409);
  expect(await shown(refused)).toMatchObject({ current: { text: 'One text.' }, yours: { text: 'Another text.' } });
});

test('the description says which headers a request cannot do without, and which values they may have', async () => {
  const document = (await (await fetch(`${gateway.url}/openapi.json`)).json()) as OpenApiDocument;
  const headers = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([method, { parameters = [] }]) =>
      parameters.filter((one) => one.in === 'header').map((one) => ({ ...one, operation: `${method} ${path}` })),
    ),
  );
  const required = headers.filter((one) => one.required === true);
  expect(required.map(({ operation, name }) => [operation, name])).toEqual([
    ['patch /v1/conversations/{conversation}/transcript/{locator}', 'If-Match'],
    ['post /v1/conversations/{conversation}/replies', 'Idempotency-Key'],
  ]);
  expect([(await edit('x', {})).status, (await reply('x', null)).status]).toEqual([428, 400]);
  const messages = `/v1/conversations/${conversation}/messages`;
  const send = (key?: string) =>
    gateway.call('client', 'POST', messages, {
      body: { text: 'hi' },
      headers: key === undefined ? {} : { 'idempotency-key': key },
    });
  expect((await send()).status).toBe(202);

  const pattern = (name: string): RegExp[] =>
    headers.filter((one) => one.name === name).map(({ schema }) => new RegExp((schema as { pattern: string }).pattern));
  for (const key of ['k', '~!"', 'k'.repeat(255), 'a b', 'k'.repeat(256), 'é']) {
    const isAllowed = pattern('Idempotency-Key').map((one) => one.test(key));
    expect(new Set(isAllowed).size).toBe(1);
    expect((await send(key)).status).toBe(isAllowed[0] ? 202 : 400);
    expect((await reply('words', key)).status).toBe(isAllowed[0] ? 201 : 400);
  }
  for (const tag of ['"a"', 'a', 'W/"a"', '*', '"a", "b"', `"${'a'.repeat(101)}"`])
    expect((await edit('x', { 'if-match': tag })).status).toBe(pattern('If-Match')[0]?.test(tag) ? 412 : 400);
});
