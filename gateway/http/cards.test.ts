/** A question card on each surface that shows a reply, by role; the agent and its stream are the test's. */
import { afterAll, beforeAll, expect, test } from 'bun:test';
import { block, plainCard } from '../cards/samples.fixture.ts';
import type { Role } from '../domain.ts';
import type { ConversationId, Locator, MessageId } from '../ids.ts';
import { startGateway, type TestGateway } from './gateway.fixture.ts';

let gateway: TestGateway;
let conversation: ConversationId;
const reply = `Well.\n${block()}\nSo?`;
const shown = 'Well.\nSo?';

beforeAll(async () => {
  gateway = await startGateway();
  conversation = await gateway.newConversation();
}, 60_000);
afterAll(() => gateway?.stop());

const clients: readonly Role[] = ['client', 'client_admin'];
const experts: readonly Role[] = ['expert', 'account_manager', 'superadmin'];

async function deliver(id: MessageId, text: string): Promise<Locator> {
  await gateway.turns.start(id);
  return gateway.turns.deliver(id, text);
}

interface Event {
  readonly type: string;
  readonly seq?: number;
}

/** What a role gets over Server-Sent Events after `after`, up to the first event of `last`. */
async function events(role: Role, after: number, last: string): Promise<readonly Event[]> {
  const response = await gateway.call(role, 'GET', `/v1/conversations/${conversation}/events?after=${after}`);
  const found: Event[] = [];
  let text = '';
  for await (const bytes of response.body!.pipeThrough(new TextDecoderStream())) {
    text += bytes;
    for (let end = text.indexOf('\n\n'); end !== -1; end = text.indexOf('\n\n')) {
      const data = /^data: (.*)$/m.exec(text.slice(0, end))?.[1];
      text = text.slice(end + 2);
      if (data === undefined) continue;
      const event = JSON.parse(data) as Event;
      found.push(event);
      if (event.type === last) return found;
    }
  }
  throw new Error(`the stream ended without ${last}`);
}

test.each([...clients.map((role) => [role, shown] as const), ...experts.map((role) => [role, reply] as const)])(
  'the answer that %s waited for',
  async (role, text) => {
    gateway.turns.script = ({ id }) => void deliver(id, reply);
    const response = await gateway.call(role, 'POST', `/v1/conversations/${conversation}/messages`, {
      body: { text: 'hi' },
      headers: { prefer: 'wait=10' },
    });
    gateway.turns.script = () => undefined;
    expect(response.status).toBe(200);
    const answer = (await response.json()) as { reply: unknown; message: { reply: { locator: string } } };
    expect(answer.reply).toEqual({ locator: answer.message.reply.locator, text, card: plainCard });
  },
);

test('the events of its delivery, and what is left of them once the row is edited', async () => {
  const after = gateway.bus.position;
  const sent = await gateway.call('client', 'POST', `/v1/conversations/${conversation}/messages`, {
    body: { text: 'hi' },
  });
  const { message } = (await sent.json()) as { message: { id: MessageId } };
  const locator = await deliver(message.id, reply);
  for (const [role, text] of [
    ['client', shown],
    ['client_admin', shown],
    ['expert', reply],
  ] as const) {
    const seen = await events(role, after, 'card.opened');
    expect(seen.map(({ type }) => type)).toEqual([
      'message.accepted',
      'turn.started',
      'reply.delivered',
      'card.opened',
    ]);
    expect(seen[2]).toMatchObject({ locator, text });
    expect(seen[3]).toMatchObject({ seq: seen[2]!.seq! + 1, conversation, locator, card: plainCard });
  }
  gateway.turns.texts.set(locator, `Well. ${block({ ...plainCard, question: 'Which one?' })}`);
  expect((await events('client', after, 'card.opened')).slice(-2)).toMatchObject([
    { text: 'Well. ' },
    { card: { ...plainCard, question: 'Which one?' } },
  ]);
  gateway.turns.texts.set(locator, 'No question any more.');
  expect((await events('client', after, 'card.opened')).slice(-2)).toMatchObject([
    { text: 'No question any more.' },
    { card: null, problem: { type: 'urn:edge-gateway:problem:not-found' } },
  ]);
});

test('the transcript: the etag is that of the row in both views, and own words stay as they are', async () => {
  const turn = { at: new Date(0), etag: '"e"' };
  gateway.transcript.turns = [
    { ...turn, locator: 'loc_1' as Locator, role: 'user', text: reply },
    { ...turn, locator: 'loc_2' as Locator, role: 'assistant', text: reply },
    { ...turn, locator: 'loc_3' as Locator, role: 'assistant', text: `${block('{}')}` },
  ];
  const at = turn.at.toISOString();
  const rows = (text: string) => [
    { locator: 'loc_1', role: 'user', text: reply, at, etag: '"e"' },
    { locator: 'loc_2', role: 'assistant', text, card: plainCard, at, etag: '"e"' },
    { locator: 'loc_3', role: 'assistant', text: block('{}'), at, etag: '"e"' },
  ];
  const read = async (role: Role, view: string) => {
    const response = await gateway.call(role, 'GET', `/v1/conversations/${conversation}/transcript?view=${view}`);
    return ((await response.json()) as { turns: unknown }).turns;
  };
  for (const role of [...clients, ...experts]) expect(await read(role, 'client')).toEqual(rows(shown));
  for (const role of experts) expect(await read(role, 'canonical')).toEqual(rows(reply));
});

test('the API description knows cards', async () => {
  const document = await (await gateway.call(null, 'GET', '/openapi.json')).text();
  expect(document).toContain('allowText');
});
