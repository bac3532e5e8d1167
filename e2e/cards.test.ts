/**
 * A question card reaches a client as a card, never as its text: on every surface, however the model cuts it into chunks.
 * Experts get what the agent wrote. A block that is no card is prose, and every reply is delivered (ADR-046 §4, amendment).
 */
import { afterAll, beforeAll, expect, test } from 'bun:test';
import * as v from 'valibot';
import { EventClient, type Frame } from './harness/events.ts';
import { Gateway } from './harness/gateway.ts';
import { Api } from './harness/http.ts';
import { call, ScriptedModel, type Step, say } from './harness/model.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';
import { Arrivals } from './harness/waiting.ts';

const card = {
  question: 'Which colour, "warm" or >>> cold?',
  options: [
    { id: 'red', label: 'Red' },
    { id: 'blue', label: 'Blau 👩‍👩‍👧' },
  ],
  allowText: true,
};
const block = (value: unknown = card) => `<<<HW_QUESTION\n${JSON.stringify(value, null, 1)}\n>>>`;
const second = block({ ...card, question: 'And then?' });
const broken = '<<<HW_QUESTION {"question": "Which?", }>>>';

/** Name → what the model says, what a client gets of it, and whether that has the card. */
const replies: Readonly<Record<string, readonly [reply: string, shown: string, hasCard: boolean]>> = {
  alone: [block(), '', true],
  between: [`Well.\n\n${block()}\n\nSo?`, 'Well.\n\n\nSo?', true],
  inline: [`Choose ${block()} now.`, 'Choose  now.', true],
  twice: [`a\n${block()}\n${second}\nb`, `a\n${second}\nb`, true],
  malformed: [`a\n${broken}\nb`, `a\n${broken}\nb`, false],
  unclosed: [`a\n${block().slice(0, -2)}`, `a\n${block().slice(0, -2)}`, false],
  nested: [`<<<HW_QUESTION {"question": ${block()}} >>> b`, `<<<HW_QUESTION {"question": ${block()}} >>> b`, false],
};

/** How the model hands a text out: character by character, with cuts in the marker and its end, or whole. */
const cuts: Readonly<Record<string, (text: string) => readonly string[]>> = {
  'by character': (text) => [...text],
  'in the marks': (text) => text.split(/(?<=<<|HW_|")|(?=>>)/),
  whole: (text) => [text],
};

let model: ScriptedModel;
let gateway: Gateway;
let admin: string;
let data: string;

const start = () =>
  Gateway.start({
    dataDirectory: data,
    environment: { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: 'none' },
  });

beforeAll(async () => {
  model = ScriptedModel.start();
  for (const [name, [reply]] of Object.entries(replies)) {
    for (const [how, cut] of Object.entries(cuts)) {
      model.on(`Say ${name} ${how}.`, { do: 'say-in-pieces', pieces: cut(reply) });
    }
  }
  data = scratchDirectory('cards');
  gateway = await start();
  const made = await gateway.api('superadmin').post('/v1/tokens', { role: 'client_admin', name: 'An admin' });
  admin = v.parse(v.looseObject({ token: v.string() }), made.json()).token;
}, 180_000);

afterAll(async () => {
  await gateway?.[Symbol.asyncDispose]();
  await model?.stop();
  removeScratch(data);
});

const answered = v.looseObject({
  message: v.looseObject({ id: v.string() }),
  reply: v.looseObject({ locator: v.string(), text: v.string(), card: v.optional(v.unknown()) }),
});

async function ask(api: Api, conversation: string, text: string) {
  const headers = { prefer: 'wait=120' };
  const answer = await api.post(`/v1/conversations/${conversation}/messages`, { text }, headers);
  expect(answer.status, answer.text).toBe(200);
  return v.parse(answered, answer.json());
}

/** The text of the reply as it streamed: since the message's turn began, or the last tool call in it. */
function streamed(frames: readonly Frame[], message: string): string {
  const from = frames.findLastIndex((frame) => frame.type === 'turn.started' && frame.message === message);
  let text = '';
  for (const frame of frames.slice(from)) {
    const update = frame.update as { sessionUpdate?: string; content?: { text?: string } } | undefined;
    if (update?.sessionUpdate === 'tool_call') text = '';
    if (update?.sessionUpdate === 'agent_message_chunk') text += update.content?.text ?? '';
    if (frame.type === 'reply.delivered' && frame.message === message) return text;
  }
  throw new Error('it was not delivered');
}

/** Server-Sent Events of a conversation as they come, until `stop`. */
function serverSentEvents(api: Api, conversation: string) {
  const frames = new Arrivals<Frame>();
  const abort = new AbortController();
  const opened = Promise.withResolvers<void>();
  const headers = { authorization: `Bearer ${api.token}` };
  const reading = (async () => {
    const path = `${api.url}/v1/conversations/${conversation}/events`;
    const response = await fetch(path, { headers, signal: abort.signal });
    let text = '';
    for await (const piece of response.body!.pipeThrough(new TextDecoderStream())) {
      opened.resolve();
      text += piece;
      const events = text.split('\n\n');
      text = events.pop() ?? '';
      for (const event of events) {
        const data = /^data: (.*)$/m.exec(event)?.[1];
        if (data !== undefined) frames.add(JSON.parse(data) as Frame);
      }
    }
  })().catch(() => undefined); // ended by stop
  return {
    frames,
    opened: opened.promise,
    stop: async () => {
      abort.abort();
      await reading;
    },
  };
}

async function transcript(api: Api, conversation: string, view = 'client') {
  const answer = await api.get(`/v1/conversations/${conversation}/transcript?view=${view}&limit=500`);
  expect(answer.status).toBe(200);
  const turn = v.looseObject({
    locator: v.string(),
    role: v.string(),
    text: v.string(),
    card: v.optional(v.unknown()),
  });
  return v.parse(v.object({ turns: v.array(turn), next: v.optional(v.string()) }), answer.json()).turns;
}

test('each reply on each surface, to each role, in every cut', async () => {
  const callers = [
    { role: 'client', api: gateway.api(), verbatim: false },
    { role: 'client_admin', api: new Api(gateway.url, admin), verbatim: false },
    { role: 'expert', api: gateway.api('expert'), verbatim: true },
  ];
  const conversation = await gateway.api().createConversation('Eleanora');
  const listeners = await Promise.all(
    callers.map(async (caller) => {
      const socket = await EventClient.open(gateway.url, caller.api.token);
      socket.send({ type: 'subscribe', conversation });
      await socket.frame('subscribed');
      const stream = serverSentEvents(caller.api, conversation);
      await stream.opened;
      return { ...caller, socket, stream };
    }),
  );
  const delivered: { reply: string; shown: string; hasCard: boolean; locator: string; message: string }[] = [];
  let turn = 0;
  for (const [name, [reply, shown, hasCard]] of Object.entries(replies)) {
    for (const how of Object.keys(cuts)) {
      const caller = callers[turn % callers.length]!;
      turn += 1;
      const answer = await ask(caller.api, conversation, `Say ${name} ${how}.`);
      expect(answer.reply.text, `${name} ${how}, waited for by ${caller.role}`).toBe(caller.verbatim ? reply : shown);
      expect(answer.reply.card).toEqual(hasCard ? card : undefined);
      delivered.push({ reply, shown, hasCard, locator: answer.reply.locator, message: answer.message.id });
    }
  }
  for (const { role, socket, stream, verbatim, api } of listeners) {
    const last = delivered.at(-1)!;
    const isLast = (frame: Frame) => frame.type === 'reply.delivered' && frame.message === last.message;
    await socket.frames.wait('the last reply', isLast);
    await stream.frames.wait('the last reply', isLast);
    for (const [surface, frames] of [
      ['WebSocket', socket.frames.all],
      ['SSE', stream.frames.all],
    ] as const) {
      for (const { reply, shown, hasCard, locator, message } of delivered) {
        const where = `${surface}, ${role}, ${JSON.stringify(reply)}`;
        const text = verbatim ? reply : shown;
        expect(streamed(frames, message), where).toBe(text);
        const told = frames.filter((frame) => frame.locator === locator);
        expect(
          told.map((frame) => [frame.type, frame.text ?? frame.card]),
          where,
        ).toEqual([['reply.delivered', text], ...(hasCard ? [['card.opened', card]] : [])]);
      }
      const sequence = frames.flatMap(({ seq }) => (seq === undefined ? [] : [seq]));
      expect(sequence).toEqual([...new Set(sequence)].sort((a, b) => a - b));
    }
    const texts = (turns: Awaited<ReturnType<typeof transcript>>) =>
      turns.filter((one) => one.role === 'assistant').map((one) => [one.locator, one.text, one.card]);
    expect(texts(await transcript(api, conversation))).toEqual(
      delivered.map(({ locator, shown, hasCard }) => [locator, shown, hasCard ? card : undefined]),
    );
    await stream.stop();
    await socket.close();
  }
  const canonical = await transcript(gateway.api('expert'), conversation, 'canonical');
  expect(canonical.filter(({ role }) => role === 'assistant').map(({ text }) => text)).toEqual(
    delivered.map(({ reply }) => reply),
  );
}, 240_000);

test('who comes while a card streams sees no part of it; the card after a tool call is the reply’s', async () => {
  const reply = `Here:\n${block()}\nChoose.`;
  const pieces = [...reply];
  const go = Promise.withResolvers<void>();
  const pause: Step = { do: 'say-in-pieces', pieces, pause: [reply.indexOf('question') + 3, go.promise] };
  model.on('Look first, then ask.', call('terminal', { command: 'echo looked' }), pause);
  const api = gateway.api();
  const conversation = await api.createConversation('Eleanora');
  await using early = await gateway.events('client');
  early.send({ type: 'subscribe', conversation });
  const asking = ask(api, conversation, 'Look first, then ask.');
  const isHere = (frame: Frame) => JSON.stringify(frame.update ?? '').includes('"text":"\\n"');
  await early.frame('session.update', isHere);
  await using late = await gateway.events('client');
  late.send({ type: 'subscribe', conversation });
  await late.frame('subscribed');
  go.resolve();
  const { message, reply: answer } = await asking;
  expect(answer).toMatchObject({ text: 'Here:\nChoose.', card });
  for (const client of [early, late]) await client.frame('card.opened');
  expect(streamed(early.frames.all, message.id).trim()).toBe('Here:\nChoose.');
  const seen = late.frames.all.flatMap(
    ({ update }) => (update as { content?: { text?: string } })?.content?.text ?? [],
  );
  expect(seen.join('')).toBe('Choose.');
  expect(JSON.stringify([...early.frames.all, ...late.frames.all])).not.toContain('HW_');
}, 120_000);

test('a card is answered by an ordinary message, and is still a card after a restart', async () => {
  model.on('Ask me.', say(`Well.\n${block()}`));
  const conversation = await gateway.api().createConversation('Eleanora');
  const asked = await ask(gateway.api(), conversation, 'Ask me.');
  const from = model.turns.length;
  await ask(gateway.api(), conversation, 'red');
  // The agent has its own words before it, as it wrote them.
  expect(JSON.stringify(model.turns[from]?.body.messages)).toContain(JSON.stringify(block()).slice(1, -1));
  const before = await transcript(gateway.api(), conversation);
  expect(before.map(({ text, card: shown }) => [text, shown])).toEqual([
    ['Ask me.', undefined],
    ['Well.\n', card],
    ['red', undefined],
    ['ok', undefined],
  ]);
  expect(await gateway.stop()).toBe(0);
  gateway = await start();
  expect(await transcript(gateway.api(), conversation)).toEqual(before);
  await using late = await gateway.events('client', '?after=0');
  late.send({ type: 'subscribe', conversation });
  expect(await late.frame('card.opened')).toMatchObject({ locator: asked.reply.locator, card });
}, 120_000);
