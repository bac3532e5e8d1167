/**
 * ADR-046 §1, acceptance 1: the agent's standard input carries exactly the blocks that the API accepted, and the model
 * gets exactly what it gets from bare hermes-acp given those blocks.
 */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { copyFileSync, cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { BareHermes } from './harness/bare-hermes.ts';
import { repository } from './harness/executable.ts';
import { Gateway } from './harness/gateway.ts';
import { hardTexts, oneMebibyte } from './harness/hard-texts.ts';
import { hermesProcesses } from './harness/holders.ts';
import { lastUserText, type ModelRequest, ScriptedModel } from './harness/model.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';
import { StdinTap } from './harness/stdin-tap.ts';

type Blocks = readonly Readonly<Record<string, unknown>>[];

const image = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

/** Lists of blocks that a client composed itself, with members that nobody has defined. */
const blockLists: Readonly<Record<string, Blocks>> = {
  'two texts': [
    { type: 'text', text: 'first' },
    { type: 'text', text: 'second' },
  ],
  'a text with unknown members': [
    {
      type: 'text',
      text: 'annotated',
      annotations: { audience: ['user'], priority: 0.5 },
      _meta: { 'x.y/z': [1, null, { a: '\u2028' }] },
    },
  ],
  'a text, a link and a text': [
    { type: 'text', text: 'Read this:' },
    { type: 'resource_link', name: 'missing.txt', uri: 'file:///workspace/missing.txt' },
    { type: 'text', text: 'and tell me.' },
  ],
  'a link to the web': [
    { type: 'text', text: 'Look' },
    {
      type: 'resource_link',
      name: 'page',
      uri: 'https://example.invalid/a?b=c#d',
      mimeType: 'text/html',
      size: 12,
      title: 'T',
    },
  ],
  'an image by address': [
    { type: 'text', text: 'What is this?' },
    { type: 'image', mimeType: 'image/png', data: '', uri: 'https://example.invalid/i.png' },
  ],
};

const cases: readonly (readonly [name: string, blocks: Blocks])[] = [
  ...Object.entries(hardTexts).map(([name, text]) => [name, [{ type: 'text', text }]] as const),
  ...Object.entries(blockLists),
];

let model: ScriptedModel;
let gateway: Gateway;
let scratch: string;

beforeAll(async () => {
  scratch = scratchDirectory('exact');
  model = ScriptedModel.start();
  gateway = await Gateway.start({
    environment: { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: 'none' },
  });
  const plain = await gateway.api('superadmin').post('/v1/specialists', { name: 'Plain', persona: '' });
  expect(plain.status).toBe(201);
}, 180_000);

afterAll(async () => {
  await gateway?.[Symbol.asyncDispose]();
  await model?.stop();
  removeScratch(scratch);
});

/** Sends each list of blocks through the gateway; answers what the child read and what the model got. */
async function throughGateway(lists: readonly Blocks[]): Promise<{ stdin: string; requests: ModelRequest[] }> {
  const api = gateway.api('expert');
  const before = new Set(hermesProcesses(gateway.pid).map(({ pid }) => pid));
  const conversation = await api.createConversation('Plain');
  const from = model.turns.length;
  await api.say(conversation, 'warm up');
  const child = hermesProcesses(gateway.pid).find(({ pid }) => !before.has(pid));
  if (!child) throw new Error('no Hermes process');
  const tap = await StdinTap.attach(child.pid, join(scratch, `stdin-${conversation}`));
  for (const blocks of lists) await api.say(conversation, blocks);
  return { stdin: (await tap.stop()).toString('utf8'), requests: ofMessages(model.turns.slice(from)) };
}

/** The same through bare hermes-acp with the same configuration. */
async function throughBareHermes(lists: readonly Blocks[]): Promise<ModelRequest[]> {
  const directory = join(scratch, `bare-${crypto.randomUUID()}`);
  mkdirSync(join(directory, 'home'), { recursive: true });
  for (const name of ['config.yaml', 'SOUL.md']) {
    copyFileSync(join(repository, 'bunfs-assets', name), join(directory, 'home', name));
  }
  // What an organization sees of the embedded base.
  cpSync(join(repository, 'bunfs-assets/skills'), join(directory, 'home/skills'), { recursive: true });
  writeFileSync(join(directory, 'home/.env'), '');
  const from = model.turns.length;
  await using hermes = BareHermes.start({
    directory,
    environment: {
      EDGE_MODEL_PROVIDER: 'custom',
      EDGE_MODEL_URL: model.url,
      EDGE_MODEL: 'scripted',
      EDGE_MODEL_KEY: 'none',
    },
  });
  await hermes.acp.initialize();
  const session = await hermes.acp.newSession('/workspace');
  for (const blocks of [[{ type: 'text', text: 'warm up' }], ...lists]) await hermes.acp.prompt(session, blocks);
  return ofMessages(model.turns.slice(from));
}

/** Without Hermes' own review of a conversation, which it makes beside the turns, every ten or so, at a time of its own. */
const ofMessages = (requests: readonly ModelRequest[]) =>
  requests.filter(({ body }) => !lastUserText(body).startsWith('Review the conversation above'));

/** What is bound to differ between two sessions: their ids and the minute. Nothing of a user's message looks like it. */
function comparable(request: ModelRequest): unknown {
  const text = JSON.stringify(request.body.messages)
    .replaceAll(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, 'SESSION')
    .replaceAll(/Conversation started: [^\\"]+/g, 'Conversation started: THEN');
  return JSON.parse(text);
}

function promptsIn(stdin: string): { raw: string; prompt: unknown }[] {
  return stdin
    .split('\n')
    .filter((line) => line !== '')
    .map((raw) => ({ raw, message: JSON.parse(raw) as { method?: string; params?: { prompt?: unknown } } }))
    .filter(({ message }) => message.method === 'session/prompt')
    .map(({ raw, message }) => ({ raw, prompt: message.params?.prompt }));
}

async function expectExact(lists: readonly (readonly [string, Blocks])[]): Promise<void> {
  const blocks = lists.map(([, list]) => list);
  const through = await throughGateway(blocks);
  const prompts = promptsIn(through.stdin);
  expect(prompts.length).toBe(lists.length);
  for (const [index, [name, list]] of lists.entries()) {
    expect(prompts[index]?.prompt, name).toEqual(list);
    expect(prompts[index]?.raw.includes(JSON.stringify(list)), `${name}: the bytes of the blocks`).toBe(true);
  }
  const bare = await throughBareHermes(blocks);
  expect(through.requests.length).toBe(bare.length);
  for (const [index, request] of through.requests.entries()) {
    expect(comparable(request), `model request ${index}`).toEqual(comparable(bare[index]!));
  }
}

describe('exactness', () => {
  test('there are at least 40 hard texts', () => {
    expect(Object.keys(hardTexts).length).toBeGreaterThanOrEqual(40);
  });

  test('hard texts and mixed blocks reach the agent and the model unchanged', async () => {
    await expectExact(cases);
  }, 300_000);

  test('one mebibyte of text reaches the agent and the model unchanged', async () => {
    const text = oneMebibyte();
    expect(Buffer.byteLength(text)).toBe(1024 * 1024);
    await expectExact([['1 MiB', [{ type: 'text', text }]]]);
  }, 120_000);

  test.each([
    ['nothing', ''],
    ['spaces', '   '],
    ['line breaks', '\r\n\t \n'],
    ['no-break and ideographic spaces', '\u00a0\u3000\u2028'],
    ['a NUL, which SessionDB cannot keep', 'a\u0000b'],
  ])('a text that is blank or cannot be kept (%s) is refused with 422', async (_, text) => {
    const path = `/v1/conversations/${gateway.conversation}/messages`;
    const answer = await gateway.api().post(path, { text });
    expect(answer.status).toBe(422);
    expect(answer.headers.get('content-type')).toContain('application/problem+json');
    expect(answer.json()).toMatchObject({ type: 'urn:edge-gateway:problem:unprocessable-message' });
  });

  test('inline data is refused with 422 and says to upload it', async () => {
    const path = `/v1/conversations/${gateway.conversation}/messages`;
    const blocks = [
      { type: 'text', text: 'see' },
      { type: 'image', mimeType: 'image/png', data: image },
    ];
    const answer = await gateway.api().post(path, { blocks });
    expect(answer.status).toBe(422);
    expect(answer.json()).toMatchObject({ type: 'urn:edge-gateway:problem:unprocessable-message' });
  });
});
