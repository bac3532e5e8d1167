/** Edits and human replies with real Hermes behind them: what the model gets in the next turn (ADR-046 §6, acceptance 8). */
import { afterAll, beforeAll, expect, test } from 'bun:test';
import type { EventClient } from './harness/events.ts';
import { Gateway } from './harness/gateway.ts';
import { type ChatBody, ScriptedModel, say } from './harness/model.ts';
import { TranscriptClient } from './harness/transcript.ts';

let model: ScriptedModel;
let gateway: Gateway;
let events: EventClient;

beforeAll(async () => {
  model = ScriptedModel.start();
  gateway = await Gateway.start({
    environment: { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: 'none' },
  });
  events = await gateway.events('expert');
}, 180_000);
afterAll(async () => {
  await gateway?.[Symbol.asyncDispose]();
  await model?.stop();
});

async function newConversation() {
  const api = gateway.api('expert');
  const conversation = await api.createConversation('Eleanora');
  events.send({ type: 'subscribe', conversation });
  const admissions = () =>
    events.frames.all.flatMap((frame) =>
      frame.type === 'turn.started' && frame.conversation === conversation ? [frame.admission as string] : [],
    );
  return { api, conversation, transcript: new TranscriptClient(api, conversation), admissions };
}

/** What the model got in the newest turn that has `text` in its last user message. */
const history = (text: string): ChatBody['messages'] => {
  const request = model.turns.findLast(({ raw }) => raw.includes(text));
  if (!request) throw new Error(`no request with ${text}`);
  return request.body.messages.filter(({ role }) => role !== 'system');
};
const said = (text: string): string[] => history(text).map(({ role, content }) => `${role}: ${String(content)}`);

test('an edited reply is what the model has said, from the next turn on, whatever a warm child remembers', async () => {
  const { api, conversation, transcript, admissions } = await newConversation();
  model.on('how much is it', say('It is twelve.'));
  const { reply } = await api.say(conversation, 'how much is it');
  await api.say(conversation, 'second');
  await transcript.change(reply.locator, 'It is thirteen.');
  await events.frame('transcript.edited', ({ locator }) => locator === reply.locator);
  await api.say(conversation, 'third');
  expect(said('third')).toEqual([
    ...['user: how much is it', 'assistant: It is thirteen.', 'user: second', 'assistant: ok', 'user: third'],
  ]);
  await api.say(conversation, 'fourth');
  expect(said('fourth')).toContain('assistant: It is thirteen.');
  expect(admissions()).toEqual(['cold', 'warm', 'cold', 'warm']);
  expect(await transcript.texts()).toEqual([
    ...['user: how much is it', 'assistant: It is thirteen.', 'user: second', 'assistant: ok'],
    ...['user: third', 'assistant: ok', 'user: fourth', 'assistant: ok'],
  ]);
}, 180_000);

test('a human reply is read in the next turn, once however often it was sent, and goes out as any other', async () => {
  const { api, conversation, transcript } = await newConversation();
  const early = await transcript.reply('too early', 'k');
  expect([early.status, early.text]).toEqual([409, expect.stringContaining('no transcript yet')]);
  const { reply, message } = await api.say(conversation, 'is somebody there');
  const answers = await Promise.all(Array.from({ length: 50 }, () => transcript.reply('I am David, a human.', 'key')));
  expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
  expect(answers[0]?.status).toBe(201);
  const { locator } = answers[0]!.json() as { locator: string };
  await events.frame('transcript.appended', (frame) => frame.locator === locator);
  await api.say(conversation, 'thank you David');
  expect(await transcript.texts()).toEqual([
    ...['user: is somebody there', 'assistant: ok', 'assistant: I am David, a human.'],
    ...['user: thank you David', 'assistant: ok'],
  ]);
  // Hermes joins what one side says twice.
  expect(said('thank you David').slice(0, 2)).toEqual([
    'user: is somebody there',
    'assistant: ok\nI am David, a human.',
  ]);
  const fields = new Set(history('thank you David').flatMap((one) => Object.keys(one)));
  expect([...fields].toSorted()).toEqual(['content', 'role']);
  // The inbound message is what it was: delivered, with the reply of the agent.
  const after = await api.get(`/v1/conversations/${conversation}/messages/${message.id}`);
  expect(after.json()).toMatchObject({ state: 'delivered', reply: { locator: reply.locator } });
}, 180_000);

test('an edit and a reply during a turn harm it not, and the model reads them in the next one', async () => {
  const { api, conversation, transcript } = await newConversation();
  const { reply } = await api.say(conversation, 'begin');
  const held = Promise.withResolvers<void>();
  model.beforeAnswer = async ({ kind, raw }) => {
    if (kind === 'turn' && raw.includes('take your time')) await held.promise;
  };
  model.on('take your time', say('I took it.'));
  const turn = api.say(conversation, 'take your time');
  await model.waitForTurn('take your time');
  await transcript.change(reply.locator, 'begun');
  const answer = await transcript.reply('I am watching.', 'during');
  expect(answer.status).toBe(201);
  model.beforeAnswer = async () => undefined;
  held.resolve();
  expect((await turn).reply.text).toBe('I took it.');
  const expected = ['user: begin', 'assistant: begun', 'user: take your time', 'assistant: I am watching.'];
  expect(await transcript.texts()).toEqual([...expected, 'assistant: I took it.']);
  await api.say(conversation, 'and then');
  expect(said('and then')).toEqual([
    ...expected.slice(0, 3),
    'assistant: I am watching.\nI took it.',
    'user: and then',
  ]);
  expect((await transcript.texts()).slice(0, 4)).toEqual(expected);
}, 180_000);

test('a reply among the results of tools parts none from its call', async () => {
  const { api, conversation, transcript } = await newConversation();
  const calls = [1, 2].map((n) => ({ name: 'terminal', arguments: { command: `sleep ${n * 2}; echo result-${n}` } }));
  model.on('use two tools', { do: 'call', calls }, say('Both done.'));
  const turn = api.say(conversation, 'use two tools');
  const isDone = (frame: { readonly [member: string]: unknown }): boolean => {
    const update = frame.update as { readonly sessionUpdate?: string; readonly status?: string };
    return update.sessionUpdate === 'tool_call_update' && update.status === 'completed';
  };
  await events.frame('session.update', (frame) => frame.conversation === conversation && isDone(frame));
  expect((await transcript.reply('I see you work.', 'amid')).status).toBe(201);
  expect((await turn).reply.text).toBe('Both done.');
  await api.say(conversation, 'what came out');
  const results = history('what came out').filter(({ role }) => role === 'tool');
  expect(results.map(({ content }) => /result-\d/.exec(String(content))?.[0])).toEqual(['result-1', 'result-2']);
  expect(said('what came out').join('\n')).toContain('I see you work.');
  expect((await transcript.texts()).filter((text) => text.endsWith('I see you work.'))).toHaveLength(1);
}, 180_000);
