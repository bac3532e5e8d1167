/**
 * The native ledger (ADR-046 §6, acceptance 12): what a conversation executes is one row each of AgentFS' `tool_calls`, from where
 * it ran; the audit reads it there, nothing of it is anywhere else, and rows alone make no request.
 */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import { Cloud } from './harness/cloud.ts';
import { builtExecutable, plainEnvironment } from './harness/executable.ts';
import { Gateway } from './harness/gateway.ts';
import { Api } from './harness/http.ts';
import { call, ScriptedModel, say } from './harness/model.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';
import { untilQuiet } from './harness/waiting.ts';

setDefaultTimeout(180_000);

const callSchema = v.object({
  id: v.string(),
  name: v.string(),
  status: v.string(),
  parameters: v.looseObject({ argv: v.array(v.string()), cwd: v.string() }),
  result: v.nullable(v.looseObject({ exitCode: v.optional(v.nullable(v.number())), signal: v.optional(v.string()) })),
  error: v.nullable(v.string()),
  startedAt: v.string(),
  durationMs: v.nullable(v.number()),
});
type Call = v.InferOutput<typeof callSchema>;
const callsSchema = v.object({ calls: v.array(callSchema), upToDate: v.boolean(), next: v.optional(v.string()) });
const entriesSchema = v.looseObject({
  entries: v.array(v.looseObject({ file: v.optional(v.looseObject({ path: v.string() })) })),
});
const changesSchema = v.looseObject({ changes: v.array(v.looseObject({ path: v.string(), change: v.string() })) });

let directory: string;
let cloud: Cloud;
let model: ScriptedModel;
let gateway: Gateway;
let environment: Record<string, string>;
let conversation: string;
const tokens: Record<string, string> = {};
/** Random: in no file but where the test looks for it. */
const mark = `mark${crypto.randomUUID().replaceAll('-', '')}`;

beforeAll(async () => {
  directory = scratchDirectory('ledger');
  cloud = await Cloud.start(directory);
  model = ScriptedModel.start();
  environment = { ...cloud.environment, EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted' };
  for (const role of ['client', 'expert', 'superadmin']) tokens[role] = newToken(role);
  gateway = await serve();
  await api('superadmin').post('/v1/specialists', { name: 'Eleanora', persona: 'Be brief.' });
  conversation = await api('expert').createConversation('Eleanora');
  model
    .on(
      'work please',
      call('terminal', { command: `echo ${mark}-one > first.txt` }),
      call('terminal', { command: `echo ${mark}-two; exit 3` }),
      call('execute_code', { code: "open('third.txt', 'w').write('x')\nprint('by python')" }),
      say('worked'),
    )
    .on('look please', call('terminal', { command: `ls # ${mark}-look` }), say('looked'))
    .on(
      'commit please',
      call('terminal', { command: `git init -q repository-${mark} && cd repository-${mark} && git status` }),
      say('committed'),
    )
    .on(
      'leave something',
      call('terminal', { command: `sleep 1000 # ${mark}-left`, background: true }),
      call('terminal', { command: `sleep 1000 # ${mark}-pty`, background: true, pty: true }),
      say('left'),
    );
});

afterAll(async () => {
  await gateway?.[Symbol.asyncDispose]();
  await model?.stop();
  await cloud?.stop();
  removeScratch(directory);
});

const dataDirectory = () => join(directory, 'data');
const serve = () => Gateway.start({ command: 'serve', dataDirectory: dataDirectory(), environment });
const api = (role: string) => new Api(gateway.url, tokens[role]!);

function newToken(role: string): string {
  const made = Bun.spawnSync([builtExecutable(), 'token', 'create', '--role', role], {
    env: plainEnvironment({ ...environment, EDGE_DATA_DIR: dataDirectory() }),
  });
  if (made.exitCode !== 0) throw new Error(`token create: ${made.stderr.toString()}`);
  return (JSON.parse(made.stdout.toString()) as { token: string }).token;
}

async function audit(what: string, role: 'expert' | 'superadmin' = 'expert'): Promise<unknown> {
  const answer = await api(role).get(`/v1/conversations/${conversation}/audit/${what}`);
  expect(answer.status, answer.text.slice(0, 500)).toBe(200);
  return answer.json();
}

/** All calls whose arguments hold `word`. */
async function calls(word: string): Promise<Call[]> {
  const page = v.parse(callsSchema, await audit('tool-calls?limit=200'));
  expect([page.upToDate, page.next]).toEqual([true, undefined]);
  return page.calls.filter(({ parameters }) => parameters.argv.join(' ').includes(word));
}

/** Until what a turn leaves to be done is done: its work boundary. */
const quiet = () => untilQuiet(() => cloud.requests.all.length + model.requests.all.length, 2_000);

test('two commands, one of which fails, and a script: one row each, with its end, at once after the turn', async () => {
  await api('expert').say(conversation, 'work please');
  const shell = await calls(mark);
  expect(shell.map(({ name, status, result, error }) => ({ name, status, result, error }))).toEqual([
    { name: 'shell', status: 'success', result: { exitCode: 0 }, error: null },
    { name: 'shell', status: 'error', result: { exitCode: 3 }, error: 'exit code 3' },
  ]);
  expect(shell[0]?.parameters.argv.join(' ')).toContain(`${mark}-one > first.txt`);
  expect(shell[0]?.parameters.cwd).toBe('/workspace');
  const python = await calls('script.py');
  expect(python.map(({ result }) => result)).toEqual([{ exitCode: 0 }]);
});

test('files and calls stand in one timeline; the private files are for superadmins', async () => {
  const paths = async (role: 'expert' | 'superadmin') =>
    v.parse(entriesSchema, await audit('timeline?limit=200', role)).entries.flatMap(({ file }) => file?.path ?? []);
  const seen = await paths('expert');
  expect(seen).toEqual(expect.arrayContaining(['/workspace/first.txt', '/workspace/third.txt']));
  expect(seen.filter((path) => !/^\/(workspace|artifacts)(\/|$)/.test(path))).toEqual([]);
  expect(await paths('superadmin')).toContain(`/conversations/${conversation}/.env`);
  const { changes } = v.parse(changesSchema, await audit('diff'));
  expect(changes).toContainEqual(expect.objectContaining({ path: '/workspace/first.txt', change: 'added' }));
  const refused = await api('client').get(`/v1/conversations/${conversation}/audit/diff`);
  expect(refused.status).toBe(403);
});

test('a warm text turn writes no row and makes no request; a look pulls once, and its row waits for who asks', async () => {
  const before = (await calls('')).length;
  await quiet();
  const from = cloud.requests.all.length;
  const kinds = (since: number) => cloud.since(since, 'agentfs').map(({ kind }) => kind);
  await api('expert').say(conversation, 'just words');
  await quiet();
  expect(kinds(from)).toEqual([]);
  await api('expert').say(conversation, 'look please');
  await quiet();
  expect(kinds(from)).toEqual(['pull']);
  expect((await calls(`${mark}-look`)).length).toBe(1);
  expect((await calls('')).length).toBe(before + 1);
  expect(kinds(from)).toContain('push');
  // Everything is there now: to ask again costs the question alone.
  const settled = cloud.requests.all.length;
  await calls('');
  expect(kinds(settled)).toEqual(['pipeline']);
});

test('each call of git is a row of its own, beside the shell that made it', async () => {
  await api('expert').say(conversation, 'commit please');
  const git = (await calls('')).filter(({ name }) => name === 'git');
  expect(git.map(({ parameters }) => parameters.argv.slice(0, 2))).toEqual([
    ['git', 'init'],
    ['git', 'status'],
  ]);
  expect((await calls(`cd repository-${mark}`)).length).toBe(1);
});

test('what outlives its turn ends with its holder, and its row says so', async () => {
  await api('expert').say(conversation, 'leave something');
  expect([...(await calls(`${mark}-left`)), ...(await calls(`${mark}-pty`))]).toEqual([]);
  await gateway.stop();
  gateway = await serve();
  for (const word of [`${mark}-left`, `${mark}-pty`]) {
    const found = await calls(word);
    expect([word, found.map(({ result, error }) => ({ result, error }))]).toEqual([
      word,
      [{ result: null, error: 'ended with its holder' }],
    ]);
  }
});

test('nothing of it is in Postgres or in a log', async () => {
  await gateway.stop();
  const holding = (below: string) =>
    readdirSync(below, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name))
      .filter((path) => readFileSync(path).includes(mark));
  expect(readdirSync(join(directory, 'data/postgres')).length).toBeGreaterThan(1);
  expect(holding(join(directory, 'data/postgres'))).toEqual([]);
  expect(gateway.log).not.toContain(mark);
  // That the search finds what is there.
  expect(holding(cloud.dataDirectory).length).toBeGreaterThan(0);
});
