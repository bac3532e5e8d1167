/** One key is one message and one turn, however often, from wherever and whenever it is sent (acceptance 7). */
import { afterAll, beforeAll, expect, test } from 'bun:test';
import * as v from 'valibot';
import { Gateway } from './harness/gateway.ts';
import { call, ScriptedModel, say } from './harness/model.ts';

const waitedSchema = v.looseObject({ message: v.looseObject({ id: v.string(), state: v.string() }) });
let model: ScriptedModel;
let gateway: Gateway;

beforeAll(async () => {
  model = ScriptedModel.start();
  gateway = await Gateway.start({
    environment: { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: 'none' },
  });
}, 180_000);

afterAll(async () => {
  await gateway?.[Symbol.asyncDispose]();
  await model?.stop();
}, 60_000);

test('the same message from 50 connections at once is one turn with 50 equal answers', async () => {
  const api = gateway.api();
  const conversation = await api.createConversation('Eleanora');
  model.on('only once', call('terminal', { command: 'echo ran >> /workspace/runs' }), say('done once'));
  model.on('how often', call('terminal', { command: 'cat /workspace/runs' }), say('see above'));
  const headers = { 'idempotency-key': 'the-one', prefer: 'wait=120', connection: 'close' };
  const path = `/v1/conversations/${conversation}/messages`;
  const fifty = Array.from({ length: 50 }, () => api.post(path, { text: 'only once' }, headers));
  // While it runs: over the WebSocket, without waiting, and with another body.
  await model.waitForTurn('only once');
  await using events = await gateway.events('client');
  events.send({ type: 'message.send', id: 1, conversation, idempotencyKey: 'the-one', text: 'only once' });
  const sent = await events.frame('message.sent');
  const running = await api.post(path, { text: 'only once' }, { 'idempotency-key': 'the-one' });
  const reused = await api.post(path, { text: 'only once!' }, { 'idempotency-key': 'the-one' });
  const answers = await Promise.all(fifty);

  expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
  const { message } = v.parse(waitedSchema, answers[0]?.json());
  expect(answers[0]?.json()).toMatchObject({ message: { state: 'delivered' }, reply: { text: 'done once' } });
  expect(sent).toMatchObject({ message: { id: message.id } });
  expect(running.status).toBe(202);
  expect(running.json()).toMatchObject({ message: { id: message.id } });
  expect(reused.status).toBe(422);
  expect(reused.json()).toMatchObject({ type: 'urn:edge-gateway:problem:idempotency-key-reused' });
  // Afterwards, too, and by another client; the program ran once.
  const later = await gateway.api('expert').post(path, { text: 'only once' }, headers);
  expect(`${later.status} ${later.text}`).toBe(`${answers[0]?.status} ${answers[0]?.text}`);
  await api.say(conversation, 'how often');
  const results = JSON.stringify(model.turns.at(-1)?.body.messages.at(-1));
  expect(results.match(/ran/g)).toHaveLength(1);
  expect(model.turns.filter(({ body }) => JSON.stringify(body.messages.at(-1)).includes('only once'))).toHaveLength(1);
}, 180_000);
