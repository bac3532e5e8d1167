/**
 * Trouble with the two cloud authorities: without AgentFS turns go on and what they changed waits; without SessionDB a turn
 * fails with that reason, and the next message after it works. Nothing waits for ever.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, setDefaultTimeout, test } from 'bun:test';
import { join } from 'node:path';
import * as v from 'valibot';
import { CloudFiles } from '../machine/agentfs/cloud.ts';
import { HranaDatabase } from '../machine/agentfs/hrana.ts';
import { Cloud, type CloudDatabase, type Trouble } from './harness/cloud.ts';
import { firstToken } from './harness/first-token.ts';
import { Gateway } from './harness/gateway.ts';
import { hermesProcesses } from './harness/holders.ts';
import { type Answer, Api } from './harness/http.ts';
import { call, lastUserText, type ModelRequest, ScriptedModel, say } from './harness/model.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';
import { until } from './harness/waiting.ts';

setDefaultTimeout(240_000);

let directory: string;
let cloud: Cloud;
let model: ScriptedModel;
let gateway: Gateway;
let api: Api;
let conversation: string;
let token: string | null;

beforeAll(async () => {
  directory = scratchDirectory('trouble');
  cloud = await Cloud.start(directory);
  model = ScriptedModel.start();
  model.on('write it', call('terminal', { command: 'date > /workspace/written.txt' }), say('Written.'));
  model.on('slowly', { do: 'say-slowly', text: 'one two three four five six', pauseMs: 200 });
  // Hermes sends what was not answered together with what comes next.
  model.on('hello again', say('ok'));
  token = null;
  await start();
  await api.post('/v1/specialists', { name: 'Eleanora', persona: 'Be brief.' });
});
beforeEach(async () => {
  cloud.trouble = noTrouble;
  conversation = await api.createConversation('Eleanora');
  await api.say(conversation, 'hello');
});
afterAll(async () => {
  await gateway?.[Symbol.asyncDispose]();
  await model?.stop();
  await cloud?.stop();
  removeScratch(directory);
});

async function start(): Promise<void> {
  const environment = { ...cloud.environment, EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted' };
  const dataDirectory = join(directory, 'data');
  token ??= firstToken({ ...environment, EDGE_DATA_DIR: dataDirectory });
  gateway = await Gateway.start({ command: 'serve', environment, dataDirectory });
  api = new Api(gateway.url, token);
}

const without =
  (database: CloudDatabase, answer: () => Promise<Response>): Trouble =>
  (request) =>
    request.database === database ? answer() : undefined;
const noTrouble: Trouble = () => undefined;
const refusing = async () => new Response('down', { status: 503 });
const silent = () => new Promise<Response>(() => undefined);

const readySchema = v.object({
  status: v.string(),
  agentfs: v.string(),
  pendingChanges: v.boolean(),
  checks: v.record(v.string(), v.looseObject({ ok: v.boolean() })),
});
async function readiness() {
  const answer = await api.get('/readyz');
  expect(answer.status).toBe(200);
  const { checks, ...rest } = v.parse(readySchema, answer.json());
  return { ...rest, unwell: Object.keys(checks).filter((name) => !checks[name]!.ok) };
}
async function metric(name: string): Promise<number> {
  const { text } = await api.get('/metrics');
  return Number(new RegExp(`^${name} (.*)$`, 'm').exec(text)?.[1]);
}

const send = (text: string) =>
  api.request('POST', `/v1/conversations/${conversation}/messages`, {
    json: { text },
    headers: { prefer: 'wait=200' },
    timeoutMs: 220_000,
  });
const problemSchema = v.object({ type: v.string(), message: v.string() });

/** A turn has begun whose reply takes more than a second. */
async function slowTurn(): Promise<void> {
  const from = model.requests.all.length;
  const isIt = ({ kind, body }: ModelRequest) => kind === 'turn' && lastUserText(body).includes('slowly');
  await model.requests.wait('a slow turn', isIt, 60_000, from);
}

/** The message failed for want of SessionDB, and says so whenever it is asked. */
async function expectFailed(answer: Answer): Promise<void> {
  expect({ status: answer.status, text: answer.text }).toEqual({
    status: 503,
    text: expect.stringContaining('sessiondb'),
  });
  const { type, message } = v.parse(problemSchema, answer.json());
  expect(type).toBe('urn:edge-gateway:problem:sessiondb-unavailable');
  const kept = await api.get(`/v1/conversations/${conversation}/messages/${message}`);
  expect(kept.json()).toMatchObject({ state: 'failed', problem: { type } });
}

const files = () => new CloudFiles(new HranaDatabase({ ...cloud.address('agentfs'), socket: null }));
const written = () => files().stat(`/conversations/${conversation}/work/written.txt`);

describe('without AgentFS', () => {
  test.each([
    ['refuses', refusing],
    ['never answers', silent],
  ])('which %s: turns go on, changes wait and are pushed at the next boundary', async (_, answer) => {
    expect(await readiness()).toEqual({ status: 'ready', agentfs: 'reachable', pendingChanges: false, unwell: [] });
    cloud.trouble = without('agentfs', answer);
    expect((await api.say(conversation, 'write it')).reply.text).toBe('Written.');
    // The boundary's end is behind the reply, and has its limit.
    await until('pending changes are told', async () => (await metric('edge_agentfs_pending_changes')) === 1, 60_000);
    expect(await readiness()).toEqual({
      status: 'degraded',
      agentfs: 'unreachable',
      pendingChanges: true,
      unwell: ['agentfs'],
    });
    expect(await metric('edge_agentfs_up')).toBe(0);
    expect(await metric('edge_ready')).toBe(1);
    expect((await api.say(conversation, 'hello again')).reply.text).toBe('ok');
    const refused = await api.post('/v1/conversations', { specialist: 'Eleanora' });
    expect({ status: refused.status, text: refused.text }).toEqual({
      status: 503,
      text: expect.stringContaining('agentfs-unavailable'),
    });

    cloud.trouble = noTrouble;
    expect(await written()).toBeNull();
    await api.say(conversation, 'hello once more');
    await until('nothing is pending', async () => (await readiness()).status === 'ready', 60_000);
    expect(await readiness()).toEqual({ status: 'ready', agentfs: 'reachable', pendingChanges: false, unwell: [] });
    expect(await written()).not.toBeNull();
  });

  test('a machine that is killed meanwhile says at its start what is pending, and loses none of it', async () => {
    cloud.trouble = without('agentfs', refusing);
    await api.say(conversation, 'write it');
    await until('pending changes are told', async () => (await metric('edge_agentfs_pending_changes')) === 1, 60_000);
    await gateway.killTree();
    cloud.trouble = noTrouble;
    await start();
    expect(await readiness()).toMatchObject({ status: 'ready', pendingChanges: true });
    expect(await written()).toBeNull();
    await api.say(conversation, 'hello again');
    await until('nothing is pending', async () => !(await readiness()).pendingChanges, 60_000);
    expect(await written()).not.toBeNull();
  });
});

describe('without SessionDB', () => {
  const away = () => {
    cloud.trouble = without('sessiondb', refusing);
  };
  const back = () => {
    cloud.trouble = noTrouble;
  };

  test.each<[string, () => Promise<Answer>]>([
    [
      'before a turn',
      () => {
        away();
        return send('hello');
      },
    ],
    [
      'before the first turn of a conversation',
      async () => {
        conversation = await api.createConversation('Eleanora');
        away();
        return send('hello');
      },
    ],
    [
      'from the middle of a turn on',
      async () => {
        const begun = slowTurn();
        const sending = send('slowly');
        await begun;
        away();
        return sending;
      },
    ],
    [
      'while the reply is written, and not when the turn is settled',
      async () => {
        const begun = slowTurn();
        const sending = send('slowly');
        await begun;
        cloud.trouble = (request) =>
          request.database === 'sessiondb' && request.sql.some((sql) => /insert into messages/i.test(sql))
            ? refusing()
            : undefined;
        return sending;
      },
    ],
  ])('%s: the turn fails with that reason, and the next one works', async (_, sent) => {
    await expectFailed(await sent());
    back();
    expect((await api.say(conversation, 'hello again')).reply.text).toBe('ok');
    expect(await readiness()).toMatchObject({ status: 'ready', unwell: [] });
  });

  test('readyz answers 503 and metrics say it', async () => {
    away();
    const answer = await api.get('/readyz');
    expect(answer.status).toBe(503);
    expect(answer.json()).toMatchObject({
      type: 'urn:edge-gateway:problem:not-ready',
      checks: { sessiondb: { ok: false }, database: { ok: true } },
    });
    expect(answer.headers.get('retry-after')).not.toBeNull();
    expect([await metric('edge_ready'), await metric('edge_sessiondb_up')]).toEqual([0, 0]);
  });

  test('one that never answers ends the turn all the same', async () => {
    cloud.trouble = without('sessiondb', silent);
    await expectFailed(await send('hello'));
    back();
    expect((await api.say(conversation, 'hello again')).reply.text).toBe('ok');
  });
});

test('an agent that is killed while its reply is on the way to SessionDB: delivered, as it stands there', async () => {
  const inserts = Promise.withResolvers<void>();
  const passes = Promise.withResolvers<void>();
  const begun = slowTurn();
  const sending = send('slowly');
  await begun;
  cloud.trouble = (request, pass) => {
    if (request.database !== 'sessiondb' || !request.sql.some((sql) => /insert into messages/i.test(sql))) return;
    inserts.resolve();
    return passes.promise.then(pass);
  };
  await inserts.promise;
  for (const { pid } of hermesProcesses(gateway.pid)) process.kill(pid, 'SIGKILL');
  // Longer than it takes to settle a turn whose agent has ended.
  await Promise.race([sending, Bun.sleep(1_500)]);
  passes.resolve();
  const answer = await sending;
  expect({ status: answer.status, text: answer.text }).toEqual({
    status: 200,
    text: expect.stringContaining('one two three four five six'),
  });
  const transcript = (await api.get(`/v1/conversations/${conversation}/transcript`)).text;
  expect(transcript.split('one two three four five six').length - 1).toBe(1);
  cloud.trouble = noTrouble;
  expect((await api.say(conversation, 'hello again')).reply.text).toBe('ok');
});

test('an authority that is killed and comes back: the turn fails, nothing of before is lost, the next one works', async () => {
  await api.say(conversation, 'write it');
  const begun = slowTurn();
  const sending = send('slowly');
  await begun;
  await cloud.endAuthority('SIGKILL');
  await expectFailed(await sending);
  expect((await api.get('/readyz')).status).toBe(503);
  await cloud.startAuthority();
  expect((await api.say(conversation, 'hello again')).reply.text).toBe('ok');
  expect(JSON.stringify(model.turns.at(-1)?.body.messages)).toContain('write it');
  expect(await written()).not.toBeNull();
});
