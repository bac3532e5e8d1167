/**
 * The connection to SessionDB is cut when a transaction was carried out and before its answer comes: no row is doubled, none is
 * lost, and what is said of it is true. Hermes' own rows, an edit and a human reply.
 */

import { Database } from 'bun:sqlite';
import { afterAll, beforeAll, beforeEach, expect, test } from 'bun:test';
import { join } from 'node:path';
import { Cloud } from './harness/cloud.ts';
import { CutLine } from './harness/cut-line.ts';
import { firstToken } from './harness/first-token.ts';
import { Gateway } from './harness/gateway.ts';
import { Api } from './harness/http.ts';
import { call, ScriptedModel, say } from './harness/model.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';
import { TranscriptClient } from './harness/transcript.ts';

const limitMs = 180_000;
let directory: string;
let cloud: Cloud;
let line: CutLine;
let model: ScriptedModel;
let gateway: Gateway;
let api: Api;
let conversation: string;

beforeAll(async () => {
  directory = scratchDirectory('lost-commit');
  cloud = await Cloud.start(directory);
  line = await CutLine.before(Number(new URL(cloud.address('sessiondb').url).port));
  model = ScriptedModel.start();
  model.on('with a tool', call('terminal', { command: 'echo a-tool-ran' }), say('The tool ran.'));
  model.on('hello', say('Good day.'));
  model.on('go on', say('Going on.'));
  const environment = {
    ...cloud.environment,
    SESSIONDB_URL: `http://127.0.0.1:${line.port}/sessiondb`,
    EDGE_MODEL_URL: model.url,
    EDGE_MODEL: 'scripted',
  };
  const dataDirectory = join(directory, 'data');
  const token = firstToken({ ...environment, EDGE_DATA_DIR: dataDirectory });
  gateway = await Gateway.start({ command: 'serve', environment, dataDirectory });
  api = new Api(gateway.url, token);
  await api.post('/v1/specialists', { name: 'Eleanora', persona: 'Be brief.' });
}, limitMs);
beforeEach(async () => {
  line.cuts = () => false;
  conversation = await api.createConversation('Eleanora');
  await api.say(conversation, 'hello');
}, limitMs);
afterAll(async () => {
  await gateway?.[Symbol.asyncDispose]();
  await model?.stop();
  await line?.stop();
  await cloud?.stop();
  removeScratch(directory);
}, limitMs);

/** Every live row of the conversation, as SessionDB has them. */
function rows(): string[] {
  using database = new Database(join(cloud.dataDirectory, 'sessiondb.db'), { readonly: true });
  const [last] = database.query('SELECT session_id FROM messages ORDER BY id DESC LIMIT 1').values();
  return database
    .query('SELECT role, content FROM messages WHERE session_id = ? AND active = 1 ORDER BY id')
    .values(String(last?.[0]))
    .map(([role, content]) => `${role}: ${String(content).slice(0, 40)}`);
}
const once = (wanted: readonly string[]): void => {
  for (const row of wanted) expect(`${row} × ${rows().filter((one) => one.startsWith(row)).length}`).toBe(`${row} × 1`);
};

/** The next request that adds a row with these words loses its answer. */
function loseRow(words: string): void {
  const before = line.count;
  line.cuts = (request) => line.count === before && /INSERT INTO messages/i.test(request) && request.includes(words);
}

test.each([
  ['the question', 'hello once more'],
  ['the reply', 'Good day.'],
])(
  "%s of Hermes: there once, and so is the next turn's",
  async (_, words) => {
    const lost = line.count;
    // The same words stand in the first turn.
    const text = 'hello once more';
    loseRow(words);
    const answer = await api.post(
      `/v1/conversations/${conversation}/messages`,
      { text },
      { prefer: 'wait=120', 'idempotency-key': 'k' },
    );
    expect(line.count).toBe(lost + 1);
    // Its reply was committed, or the turn has none.
    expect(answer.status).toBeOneOf([200, 502, 503]);
    once([`user: ${text}`]);
    const delivered = answer.status === 200 ? 2 : 1;
    expect(rows().filter((row) => row === 'assistant: Good day.')).toHaveLength(delivered);
    const { reply } = await api.say(conversation, 'go on');
    expect(reply.text).toBe('Going on.');
    once([`user: ${text}`, 'user: go on', 'assistant: Going on.']);
    const again = await api.post(
      `/v1/conversations/${conversation}/messages`,
      { text },
      { prefer: 'wait=120', 'idempotency-key': 'k' },
    );
    expect([again.status, again.text]).toEqual([answer.status, answer.text]);
  },
  limitMs,
);

test(
  "a tool's result: there once",
  async () => {
    const lost = line.count;
    loseRow('a-tool-ran');
    const answer = await api.post(
      `/v1/conversations/${conversation}/messages`,
      { text: 'with a tool' },
      { prefer: 'wait=120' },
    );
    expect(line.count).toBe(lost + 1);
    expect(answer.status).toBeOneOf([200, 502, 503]);
    expect((await api.say(conversation, 'go on')).reply.text).toBe('Going on.');
    once(['user: with a tool', 'user: go on', 'assistant: Going on.']);
    expect(rows().filter((row) => row.startsWith('tool:')).length).toBeLessThanOrEqual(1);
  },
  limitMs,
);

test(
  'a human reply and an edit: done once, and said to be',
  async () => {
    const transcript = new TranscriptClient(api, conversation);
    const lost = line.count;
    loseRow('from a human');
    const appended = await transcript.reply('words from a human', 'key');
    expect([appended.status, line.count]).toEqual([201, lost + 1]);
    expect((await transcript.reply('words from a human', 'key')).text).toBe(appended.text);
    once(['assistant: words from a human']);

    const { locator, etag } = (await transcript.read()).findLast(({ role }) => role === 'assistant')!;
    line.cuts = (request) => line.count === lost + 1 && /UPDATE messages SET content/.test(request);
    const edited = await transcript.edit(locator, etag, 'better words');
    expect([edited.status, line.count]).toEqual([200, lost + 2]);
    expect(await transcript.texts()).toEqual(['user: hello', 'assistant: Good day.', 'assistant: better words']);
    expect((await api.say(conversation, 'go on')).reply.text).toBe('Going on.');
    expect(JSON.stringify(model.turns.at(-1)?.body.messages)).toContain('better words');
  },
  limitMs,
);
