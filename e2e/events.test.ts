/** A client sees each message's life once, in order, and every reply again after a reload (ADR-046 §4, §6, acceptance 7). */
import { afterAll, beforeAll, expect, test } from 'bun:test';
import * as v from 'valibot';
import type { Frame } from './harness/events.ts';
import { EventClient } from './harness/events.ts';
import { Gateway } from './harness/gateway.ts';
import { call, ScriptedModel, say } from './harness/model.ts';

let model: ScriptedModel;
let gateway: Gateway;

beforeAll(async () => {
  model = ScriptedModel.start();
  model.on('first question', say('first answer'));
  model.on('second question', call('terminal', { command: 'echo from-the-shell' }), say('second answer'));
  gateway = await Gateway.start({
    environment: { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: 'none' },
  });
}, 180_000);

afterAll(async () => {
  await gateway?.[Symbol.asyncDispose]();
  await model?.stop();
});

const transcriptSchema = v.object({
  turns: v.array(v.looseObject({ locator: v.string(), role: v.string(), text: v.string(), etag: v.string() })),
});

async function transcript(conversation: string) {
  const answer = await gateway.api().get(`/v1/conversations/${conversation}/transcript`);
  expect(answer.status).toBe(200);
  return v.parse(transcriptSchema, answer.json()).turns;
}

/** The types of the logged frames about one message, in the order in which they came. */
const lifeOf = (frames: readonly Frame[], message: unknown) =>
  frames.filter((frame) => frame.message === message && frame.seq !== undefined).map(({ type }) => type);

test('accepted, started, native updates, delivered: each once, with a locator that is one row; both replies stay', async () => {
  const api = gateway.api('expert');
  const conversation = await api.createConversation('Eleanora');
  await using events = await gateway.events('expert');
  events.send({ type: 'subscribe', conversation });

  const first = await api.say(conversation, 'first question');
  const second = await api.say(conversation, 'second question');
  expect(first.reply.text).toBe('first answer');
  expect(second.reply.text).toBe('second answer');

  const delivered = await events.frame('reply.delivered', (frame) => frame.message === second.message.id);
  expect(delivered).toMatchObject({ locator: second.reply.locator, text: 'second answer', conversation });
  for (const { message } of [first, second]) {
    expect(lifeOf(events.frames.all, message.id)).toEqual(['message.accepted', 'turn.started', 'reply.delivered']);
  }
  const updates = events.frames.all.filter(({ type }) => type === 'session.update').map((frame) => frame.update);
  expect(updates).toContainEqual({
    sessionUpdate: 'agent_message_chunk',
    content: { type: 'text', text: 'first answer' },
  });
  expect(JSON.stringify(updates)).toContain('from-the-shell');
  const sequence = events.frames.all.flatMap(({ seq }) => (seq === undefined ? [] : [seq]));
  expect(sequence).toEqual([...new Set(sequence)].sort((a, b) => a - b));

  const turns = await transcript(conversation);
  expect(turns.map(({ role, text }) => [role, text])).toEqual([
    ['user', 'first question'],
    ['assistant', 'first answer'],
    ['user', 'second question'],
    ['assistant', 'second answer'],
  ]);
  expect(turns.filter(({ locator }) => locator === first.reply.locator).length).toBe(1);
  expect(await transcript(conversation)).toEqual(turns);
});

test('a client that comes back with `after` gets what it missed, once and in order', async () => {
  const api = gateway.api('expert');
  const conversation = await api.createConversation('Eleanora');
  const early = await gateway.events('expert');
  early.send({ type: 'subscribe', conversation });
  await api.say(conversation, 'first question');
  const { seq } = await early.frame('reply.delivered', (frame) => frame.conversation === conversation);
  await early.close();

  const missed = await api.say(conversation, 'second question');
  await using late = await EventClient.open(gateway.url, gateway.token('expert'), `?after=${seq}`);
  late.send({ type: 'subscribe', conversation });
  await late.frame('reply.delivered', (frame) => frame.message === missed.message.id);
  expect(lifeOf(late.frames.all, missed.message.id)).toEqual(['message.accepted', 'turn.started', 'reply.delivered']);
  // Nothing of before, and nothing twice.
  const sequence = late.frames.all.flatMap((frame) => frame.seq ?? []);
  expect(sequence).toEqual([1, 2, 3].map((step) => Number(seq) + step));
});

test('the same idempotency key is one turn and one answer; with another body it is refused', async () => {
  const api = gateway.api();
  const conversation = await api.createConversation('Eleanora');
  const path = `/v1/conversations/${conversation}/messages`;
  const headers = { 'idempotency-key': 'once', prefer: 'wait=120' };
  const answers = await Promise.all([1, 2, 3].map(() => api.post(path, { text: 'first question' }, headers)));
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
  expect(new Set(answers.map(({ text }) => text)).size).toBe(1);
  expect((await transcript(conversation)).length).toBe(2);
  const other = await api.post(path, { text: 'second question' }, headers);
  expect(other.status).toBe(422);
  expect(other.json()).toMatchObject({ type: 'urn:edge-gateway:problem:idempotency-key-reused' });
});

test('a model that refuses is a failed message with its reason, no invented reply, and the next one works', async () => {
  // Hermes joins a user message that got no answer with the next one.
  const alone = (text: string) => text.includes('unreachable') && !text.includes('first question');
  model.on(alone, { do: 'fail', status: 401, message: 'no such key' });
  const api = gateway.api();
  const conversation = await api.createConversation('Eleanora');
  const path = `/v1/conversations/${conversation}/messages`;
  const failed = await api.post(path, { text: 'unreachable' }, { prefer: 'wait=120' });
  expect(failed.status).toBe(502);
  expect(failed.headers.get('content-type')).toContain('application/problem+json');
  expect(failed.json()).toMatchObject({ type: 'urn:edge-gateway:problem:model-refused' });
  expect((await transcript(conversation)).filter(({ role }) => role === 'assistant')).toEqual([]);
  expect((await api.say(conversation, 'first question')).reply.text).toBe('first answer');
});
