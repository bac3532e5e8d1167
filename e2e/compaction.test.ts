/**
 * Context compaction in a long conversation with real Hermes: the transcript stays whole, locators from before stay good, what
 * a human changed stays changed (ADR-046 §6).
 */
import { afterAll, beforeAll, expect, test } from 'bun:test';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CloudFiles } from '../machine/agentfs/cloud.ts';
import { HranaDatabase } from '../machine/agentfs/hrana.ts';
import { Cloud } from './harness/cloud.ts';
import { repository } from './harness/executable.ts';
import { firstToken } from './harness/first-token.ts';
import { Gateway } from './harness/gateway.ts';
import { ScriptedModel, say } from './harness/model.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';
import { TranscriptClient } from './harness/transcript.ts';

let directory: string;
let cloud: Cloud;
let model: ScriptedModel;
let gateway: Gateway;
let sessiondb: HranaDatabase;

let token: string;

const environment = () => ({
  ...cloud.environment,
  EDGE_MODEL_URL: model.url,
  EDGE_MODEL: 'scripted',
  EDGE_MODEL_KEY: 'none',
});
const start = (): Promise<Gateway> =>
  Gateway.start({ command: 'serve', dataDirectory: join(directory, 'data'), environment: environment() });

beforeAll(async () => {
  directory = scratchDirectory('compaction');
  model = ScriptedModel.start();
  cloud = await Cloud.start(directory);
  const { AGENTFS_URL, AGENTFS_TOKEN, SESSIONDB_URL, SESSIONDB_TOKEN } = cloud.environment as Record<string, string>;
  sessiondb = new HranaDatabase({ url: SESSIONDB_URL!, token: SESSIONDB_TOKEN!, socket: null });
  const files = new CloudFiles(new HranaDatabase({ url: AGENTFS_URL!, token: AGENTFS_TOKEN!, socket: null }), 1e9);
  await files.provision();
  // The organization's own defaults, which a first start leaves as they are: the smallest context that Hermes takes.
  const config = readFileSync(join(repository, 'bunfs-assets/config.yaml'), 'utf8');
  const small = config.replace('context_length: 200000', 'context_length: 64000');
  expect(small).not.toBe(config);
  const compression = '\ncompression: {protect_first_n: 0, protect_last_n: 2}\n';
  await files.writeFileOnce('/config.yaml', new TextEncoder().encode(small + compression), 0o600);
  token = firstToken({ ...environment(), EDGE_DATA_DIR: join(directory, 'data') });
  gateway = await start();
}, 180_000);
afterAll(async () => {
  await gateway?.[Symbol.asyncDispose]();
  await cloud?.stop();
  await model?.stop();
  removeScratch(directory);
});

const words = (name: string): string => `${name} ${'long words '.repeat(3_000)}${name}`;
const brief = (name: string): string => `${name} in brief`;
const short = (texts: readonly string[]): string[] => texts.map((text) => text.slice(0, 24));

/** How often the session was compacted: each time, its live rows are put away together. */
async function compactions(): Promise<number> {
  const { rows } = await sessiondb.execute(
    "SELECT count(*) FROM messages WHERE content LIKE '[CONTEXT COMPACTION%' OR content LIKE '%[END OF PRIOR CONTEXT%'",
  );
  return Number(rows[0]?.[0]);
}
/** Numbers of the answers that were put away and that the model still has word by word. */
async function copied(): Promise<number[]> {
  const { rows } = await sessiondb.execute(
    `SELECT o.content FROM messages o WHERE o.content LIKE 'answer-%' AND o.active = 0 AND o.compacted = 1
      AND EXISTS (SELECT 1 FROM messages c WHERE c.active = 1 AND c.id > o.id AND c.content = o.content)`,
  );
  return rows.map(([content]) => Number(/^answer-(\d+)/.exec(String(content))?.[1]));
}

test('a compacted conversation', async () => {
  let api = gateway.api({ token });
  expect((await api.post('/v1/specialists', { name: 'Eleanora', persona: '' })).status).toBe(201);
  const conversation = await api.createConversation('Eleanora');
  let transcript = new TranscriptClient(api, conversation);
  const spoken: string[] = [];
  const locators = new Map<string, string>();
  model.on(/^turn-\d+/, say('unused'));
  const turn = async (n: number, fill: (name: string) => string = words): Promise<void> => {
    const [question, answer] = [fill(`turn-${n}`), fill(`answer-${n}`)];
    model.on(`turn-${n} `, say(answer));
    const { reply } = await api.say(conversation, question);
    expect(reply.text).toBe(answer);
    spoken.push(`user: ${question}`, `assistant: ${answer}`);
    locators.set(reply.locator, answer);
  };
  const check = async (): Promise<void> => {
    const texts = await transcript.texts();
    expect(short(texts)).toEqual(short(spoken));
    expect(texts).toEqual(spoken);
    expect((await transcript.read('client', 3)).map(({ role, text }) => `${role}: ${text}`)).toEqual(spoken);
    expect((await transcript.read('canonical')).map(({ role, text }) => `${role}: ${text}`)).toEqual(spoken);
    for (const [locator, text] of locators) expect((await transcript.turn(locator)).text).toBe(text);
  };
  const change = async (n: number, text: string): Promise<void> => {
    const [locator, before] = [...locators].find(([, known]) => known.startsWith(`answer-${n} `)) ?? [];
    if (locator === undefined) throw new Error('no such answer');
    await transcript.change(locator, text);
    spoken[spoken.indexOf(`assistant: ${before}`)] = `assistant: ${text}`;
    locators.set(locator, text);
  };

  const lastRequest = (): string => JSON.stringify(model.turns.at(-1)?.body.messages);

  let n = 0;
  do await turn(++n);
  while ((await compactions()) === 0);
  await check();

  // Of rows that were put away: one that the model has no more, and one that it still has word by word.
  const [newest = 0] = (await copied()).toReversed();
  expect(newest).toBeGreaterThan(1);
  await change(1, 'The first answer, corrected.');
  await change(newest, 'A later answer, corrected.');
  await check();
  await turn(++n, brief);
  const seen = lastRequest();
  expect(seen).toContain('A later answer, corrected.');
  expect(seen).not.toContain(`answer-${newest} long`);
  await check();

  // A child that read its history from the database keeps the times of rows when it compacts. While it does, a human
  // edits and replies: it knows nothing of either, and neither may be lost.
  await gateway.stop();
  gateway = await start();
  api = gateway.api({ token });
  transcript = new TranscriptClient(api, conversation);
  const before = await compactions();
  const during = Promise.withResolvers<void>();
  let edited = 0;
  model.beforeAnswer = async ({ kind, raw }) => {
    if (kind !== 'auxiliary' || edited > 0 || !raw.includes('long words')) return;
    edited = n - 1;
    await change(edited, 'Edited while the context was compacted.').then(during.resolve, during.reject);
    expect((await transcript.reply('A human speaks meanwhile.', 'meanwhile')).status).toBe(201);
    spoken.push('assistant: A human speaks meanwhile.');
  };
  do await turn(++n);
  while ((await compactions()) === before);
  model.beforeAnswer = async () => undefined;
  await during.promise;
  spoken.splice(spoken.indexOf('assistant: A human speaks meanwhile.'), 1);
  const humanAt = (await transcript.texts()).indexOf('assistant: A human speaks meanwhile.');
  spoken.splice(humanAt, 0, 'assistant: A human speaks meanwhile.');
  await check();
  await turn(++n, brief);
  const next = lastRequest();
  expect(next).toContain('A human speaks meanwhile.');
  expect(next).toContain('Edited while the context was compacted.');
  expect(next).not.toContain(`answer-${edited} `);
  await check();
}, 600_000);
