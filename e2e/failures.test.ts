/**
 * Every failure of a turn, forced with real Hermes: its own problem type, no reply and no invented prose, the transcript as
 * Hermes left it, and a next message that works (architecture, "Crash rules"; API.md, "How a turn fails").
 */
import { Database } from 'bun:sqlite';
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import { HranaDatabase } from '../machine/agentfs/hrana.ts';
import { Cloud } from './harness/cloud.ts';
import { EventClient } from './harness/events.ts';
import { firstToken } from './harness/first-token.ts';
import { Gateway } from './harness/gateway.ts';
import { hermesProcesses } from './harness/holders.ts';
import { Api } from './harness/http.ts';
import { call, ScriptedModel, type Step, say } from './harness/model.ts';
import { type ProcessInfo, waitForEnd } from './harness/processes.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';

const deadlineS = 75;
const limitMs = 300_000;
/** As the gateway finds them: root, and the controller in one of the two versions. */
const limitsMemory =
  process.getuid?.() === 0 &&
  (existsSync('/sys/fs/cgroup/memory') ||
    (existsSync('/sys/fs/cgroup/cgroup.subtree_control') &&
      readFileSync('/sys/fs/cgroup/cgroup.subtree_control', 'utf8').includes('memory')));

const problemSchema = v.looseObject({ type: v.string(), status: v.number(), detail: v.string(), message: v.string() });
const turnsSchema = v.object({ turns: v.array(v.looseObject({ role: v.string(), text: v.string() })) });

let directory: string;
let cloud: Cloud;
let model: ScriptedModel;
let gateway: Gateway;
let api: Api;
let events: EventClient;

beforeAll(async () => {
  directory = scratchDirectory('failures');
  cloud = await Cloud.start(directory);
  model = ScriptedModel.start();
  const environment = {
    ...cloud.environment,
    EDGE_MODEL_URL: model.url,
    EDGE_MODEL: 'scripted',
    EDGE_TURN_DEADLINE_S: String(deadlineS),
  };
  const dataDirectory = join(directory, 'data');
  const token = firstToken({ ...environment, EDGE_DATA_DIR: dataDirectory });
  gateway = await Gateway.start({ command: 'serve', environment, dataDirectory });
  api = new Api(gateway.url, token);
  await api.post('/v1/specialists', { name: 'Eleanora', persona: 'Be brief.' });
  events = await EventClient.open(gateway.url, token);
}, limitMs);

afterAll(async () => {
  await events?.close();
  await gateway?.[Symbol.asyncDispose]();
  await model?.stop();
  await cloud?.stop();
  removeScratch(directory);
}, limitMs);

/** A conversation with one turn behind it and a warm child. */
async function begun(): Promise<string> {
  const conversation = await api.createConversation('Eleanora');
  events.send({ type: 'subscribe', conversation });
  expect((await api.say(conversation, 'hello')).reply.text).toBe('ok');
  return conversation;
}

/** Hermes hands the words of a failed turn to the model again, in front of the next ones. */
const last = (words: string) => (text: string) => text.trimEnd().endsWith(words);

const post = (conversation: string, text: string) =>
  api.post(`/v1/conversations/${conversation}/messages`, { text }, { prefer: 'wait=200' });

async function turnsOf(conversation: string): Promise<string[]> {
  const answer = await api.get(`/v1/conversations/${conversation}/transcript?view=canonical`);
  return v.parse(turnsSchema, answer.json()).turns.map(({ role, text }) => `${role}: ${text}`);
}

/** The rows of the organization's SessionDB itself, of all conversations. */
function rows(): string[] {
  const database = new Database(join(cloud.dataDirectory, 'sessiondb.db'), { readonly: true });
  try {
    const found = database.query("SELECT role, content FROM messages WHERE role IN ('user', 'assistant')").values();
    return found.map(([role, content]) => `${String(role)}: ${String(content)}`);
  } finally {
    database.close();
  }
}

interface Failed {
  readonly name: string;
  readonly document: v.InferOutput<typeof problemSchema>;
}

/** What everybody is told of the failure: the waiting client, the message, the event; and that nobody was told more. */
async function failed(conversation: string, answer: Promise<{ status: number; json(): unknown }>): Promise<Failed> {
  const { status, json } = await answer;
  const document = v.parse(problemSchema, json());
  expect(document.status).toBe(status);
  const { message, ...problem } = document;
  const stored = (await api.get(`/v1/conversations/${conversation}/messages/${message}`)).json();
  expect(stored).toMatchObject({ state: 'failed', problem });
  const frame = await events.frame('turn.failed', (one) => one.message === message);
  expect(frame).toMatchObject({ problem });
  expect(events.frames.all.filter((one) => one.type === 'reply.delivered' && one.message === message)).toEqual([]);
  return { name: document.type.slice(document.type.lastIndexOf(':') + 1), document };
}

/** The failed turn left `left` in the transcript and nothing else, and the conversation goes on. */
async function expectGoesOn(conversation: string, left: readonly string[]): Promise<void> {
  const before = ['user: hello', 'assistant: ok', ...left];
  expect(await turnsOf(conversation)).toEqual(before);
  for (const turn of left) expect(rows()).toContain(turn);
  expect((await api.say(conversation, 'and now?')).reply.text).toBe('ok');
  expect(await turnsOf(conversation)).toEqual([...before, 'user: and now?', 'assistant: ok']);
}

describe('of the model', () => {
  const cases: readonly (readonly [name: string, step: Step, members: object])[] = [
    ['model-refused', { do: 'fail', status: 401, message: 'no such key' }, { modelStatus: 401 }],
    ['model-overloaded', { do: 'fail', status: 429, message: 'slow down' }, { modelStatus: 429, retryAfter: 30 }],
    ['model-failed', { do: 'fail', status: 500, message: 'it broke' }, { modelStatus: 500 }],
    ['turn-no-reply', say(''), {}],
    ['turn-deadline', { do: 'hang' }, {}],
  ];

  test.concurrent.each(cases)(
    '%s',
    async (name, step, members) => {
      const conversation = await begun();
      const words = `force ${name}`;
      model.on(last(words), step);
      const failure = await failed(conversation, post(conversation, words));
      expect(failure.name).toBe(name);
      expect(failure.document).toMatchObject(members);
      await expectGoesOn(conversation, [`user: ${words}`]);
    },
    limitMs,
  );

  test(
    'a reply beyond its output limit is cut off, and says so',
    async () => {
      const conversation = await begun();
      const words = 'force too much';
      // Hermes asks the model to go on, some times, with words of its own.
      model.on((text) => last(words)(text) || text.includes('[System:'), {
        do: 'say-too-much',
        text: 'Half of an',
      });
      expect((await failed(conversation, post(conversation, words))).name).toBe('turn-output-limit');
      const left = (await turnsOf(conversation)).slice(2);
      expect(left[0]).toBe(`user: ${words}`);
      for (const turn of left.slice(1)) expect(turn).toMatch(/^assistant: (Half of an)+$/);
      await expectGoesOn(conversation, left);
    },
    limitMs,
  );

  test(
    'it cannot be reached: what Hermes says about that is no reply',
    async () => {
      const conversation = await begun();
      const port = Number(new URL(model.url).port);
      await model.stop();
      const failure = await failed(conversation, post(conversation, 'anybody?'));
      model = ScriptedModel.start(port);
      expect(failure.name).toBe('model-unreachable');
      expect(failure.document.detail).toContain('It said: ');
      await expectGoesOn(conversation, ['user: anybody?']);
    },
    limitMs,
  );
});

describe('of the agent', () => {
  /** The Hermes of the conversation that runs a tool which tells its own conversation's process. */
  async function hermesOf(work: () => Promise<unknown>): Promise<ProcessInfo> {
    const before = new Set(hermesProcesses(gateway.pid).map(({ pid }) => pid));
    await work();
    const [mine] = hermesProcesses(gateway.pid).filter(({ pid }) => !before.has(pid));
    if (mine === undefined) throw new Error('no new Hermes process');
    return mine;
  }

  test(
    'it crashes',
    async () => {
      let conversation = '';
      const hermes = await hermesOf(async () => {
        conversation = await begun();
      });
      model.on(last('force a crash'), { do: 'hang' });
      const answer = post(conversation, 'force a crash');
      await model.waitForTurn('force a crash');
      process.kill(hermes.pid, 'SIGKILL');
      const failure = await failed(conversation, answer);
      expect(failure.name).toBe('agent-failed');
      expect(failure.document).toMatchObject({ signal: 'SIGKILL' });
      await expectGoesOn(conversation, ['user: force a crash']);
    },
    limitMs,
  );

  test.skipIf(!limitsMemory)(
    'its memory is full',
    async () => {
      let conversation = '';
      const hermes = await hermesOf(async () => {
        conversation = await begun();
      });
      const full = Promise.withResolvers<void>();
      const pieces = ['so ', ...Array.from({ length: 32 }, () => `${'x'.repeat(1024 * 1024)} `)];
      model.on(last('fill it'), { do: 'say-in-pieces', pieces, pause: [1, full.promise] });
      const answer = post(conversation, 'fill it');
      await model.waitForTurn('fill it');
      await events.frame('session.update', (frame) => frame.conversation === conversation && says(frame, 'so '));
      limitMemory(hermes.pid);
      full.resolve();
      const failure = await failed(conversation, answer);
      await waitForEnd([hermes], 30_000);
      expect(failure.name).toBe('agent-out-of-memory');
      expect(failure.document.detail).toContain('EDGE_HOLDER_MEMORY_MIB');
      await expectGoesOn(conversation, ['user: fill it']);
    },
    limitMs,
  );
});

const says = (frame: unknown, text: string): boolean => JSON.stringify(frame).includes(JSON.stringify(text));

/** Leaves the cgroup of that process no more memory than it has, by the hierarchy that limits it. */
function limitMemory(pid: number): void {
  for (const line of readFileSync(`/proc/${pid}/cgroup`, 'utf8').split('\n')) {
    const [, controllers, path] = line.split(':');
    if (path === undefined) continue;
    const second = join('/sys/fs/cgroup', path, 'memory.max');
    const first = join('/sys/fs/cgroup/memory', path);
    if (controllers === '' && existsSync(second)) {
      writeFileSync(second, readFileSync(join('/sys/fs/cgroup', path, 'memory.current'), 'utf8').trim());
    } else if (controllers === 'memory' && existsSync(first)) {
      writeFileSync(
        join(first, 'memory.limit_in_bytes'),
        readFileSync(join(first, 'memory.usage_in_bytes'), 'utf8').trim(),
      );
    }
  }
}

describe('of SessionDB', () => {
  test(
    'it does not answer before the prompt: nothing is sent to the model',
    async () => {
      const conversation = await begun();
      const asked = model.turns.length;
      const other = await api.createConversation('Eleanora');
      events.send({ type: 'subscribe', conversation: other });
      cloud.trouble = ({ database }) => (database === 'sessiondb' ? down() : undefined);
      const failure = await failed(other, post(other, 'are you there?'));
      cloud.trouble = () => undefined;
      expect(failure.name).toBe('sessiondb-unavailable');
      expect(model.turns).toHaveLength(asked);
      expect((await api.say(other, 'and now?')).reply.text).toBe('ok');
      await expectGoesOn(conversation, []);
    },
    limitMs,
  );

  test(
    'it goes away in the middle: no reply is made up, and none appears later',
    async () => {
      const conversation = await begun();
      const away = Promise.withResolvers<void>();
      model.on(last('go on alone'), {
        do: 'say-in-pieces',
        pieces: ['I will ', 'not be kept.'],
        pause: [1, away.promise],
      });
      const answer = post(conversation, 'go on alone');
      await events.frame('session.update', (frame) => says(frame, 'I will '));
      cloud.trouble = ({ database }) => (database === 'sessiondb' ? down() : undefined);
      away.resolve();
      const failure = await failed(conversation, answer);
      cloud.trouble = () => undefined;
      expect(failure.name).toBe('sessiondb-unavailable');
      await expectGoesOn(conversation, ['user: go on alone']);
    },
    limitMs,
  );

  test(
    'it does not say what was said so far: the agent does not go on as if nothing had been',
    async () => {
      const conversation = await begun();
      // Its child remembers; another one has to read.
      model.on(last('end now'), { do: 'hang' });
      const cut = post(conversation, 'end now');
      await model.waitForTurn('end now');
      await api.post(`/v1/conversations/${conversation}/cancel`, {});
      expect((await cut).status).toBe(409);
      const asked = model.turns.length;
      // What a fresh Hermes reads a conversation with, and nobody else.
      const restores = (sql: string) =>
        sql.includes('FROM messages WHERE session_id IN') && sql.includes('effect_disposition');
      let refused = 0;
      cloud.trouble = ({ database, sql }) => {
        if (database !== 'sessiondb' || !sql.some(restores)) return undefined;
        refused += 1;
        return down();
      };
      const failure = await failed(conversation, post(conversation, 'what did I say?'));
      cloud.trouble = () => undefined;
      expect(refused).toBeGreaterThan(0);
      expect(failure.name).toBe('sessiondb-unavailable');
      expect(model.turns).toHaveLength(asked);
      await expectGoesOn(conversation, ['user: end now']);
    },
    limitMs,
  );

  test(
    'it has the session of a conversation as one of another program: Hermes itself refuses the turn',
    async () => {
      const conversation = await begun();
      const database = new HranaDatabase({ ...cloud.address('sessiondb'), socket: null });
      const { rows } = await database.execute('SELECT session_id FROM messages ORDER BY id DESC LIMIT 1');
      const setSource = (source: string) =>
        database.execute('UPDATE sessions SET source = ? WHERE id = ?', [source, String(rows[0]?.[0])]);
      await setSource('cli');
      // What it remembers it does not read.
      for (const { pid } of hermesProcesses(gateway.pid)) process.kill(pid, 'SIGKILL');
      await waitForEnd(hermesProcesses(gateway.pid), 30_000);
      const before = await turnsOf(conversation);
      const asked = model.turns.length;
      const names: string[] = [];
      // The machine may see the end of the child only when it gives it away.
      do names.push((await failed(conversation, post(conversation, 'and now?'))).name);
      while (names.at(-1) === 'agent-failed' && names.length < 3);
      expect(names.at(-1)).toBe('turn-refused');
      expect(model.turns).toHaveLength(asked);
      expect(await turnsOf(conversation)).toEqual(before);
      await setSource('acp');
      await expectGoesOn(conversation, []);
    },
    limitMs,
  );

  test(
    'it has lost the session of a conversation: never a fresh one in its place',
    async () => {
      const conversation = await begun();
      const other = await begun();
      await cloud.endAuthority('orderly');
      const database = new Database(join(cloud.dataDirectory, 'sessiondb.db'));
      const [session] = database.query('SELECT session_id FROM messages ORDER BY id DESC LIMIT 1').values()[0] ?? [];
      database.run('DELETE FROM messages WHERE session_id = ?', [String(session)]);
      database.run('DELETE FROM sessions WHERE id = ?', [String(session)]);
      database.close();
      await cloud.startAuthority();
      for (const { pid } of hermesProcesses(gateway.pid)) process.kill(pid, 'SIGKILL');
      await waitForEnd(hermesProcesses(gateway.pid), 30_000);
      const asked = model.turns.length;
      // The machine may see the end of the child only when it gives it away.
      const first = (await failed(other, post(other, 'who am I?'))).name;
      expect(first).toBeOneOf(['session-lost', 'agent-failed']);
      for (const words of ['and now?', 'and then?'])
        expect((await failed(other, post(other, words))).name).toBe('session-lost');
      expect(model.turns).toHaveLength(asked);
      expect(await turnsOf(other)).toEqual([]);
      await api.post(`/v1/conversations/${conversation}/messages`, { text: 'the same there' }, { prefer: 'wait=60' });
      expect((await api.say(conversation, 'and now?')).reply.text).toBe('ok');
    },
    limitMs,
  );
});

const down = () => Promise.resolve(new Response('no authority', { status: 502 }));

describe('cancelled', () => {
  const cancel = async (conversation: string) =>
    expect((await api.post(`/v1/conversations/${conversation}/cancel`, {})).json()).toEqual({ cancelled: true });

  test(
    'while the model speaks: what it has said stays in the transcript, as Hermes left it, and is no reply',
    async () => {
      const conversation = await begun();
      model.on(last('talk on'), { do: 'say-slowly', text: 'word '.repeat(2_000), pauseMs: 20 });
      const answer = post(conversation, 'talk on');
      await events.frame('session.update', (frame) => says(frame, 'word '));
      await cancel(conversation);
      const { status, text } = await answer;
      expect({ status, text }).toMatchObject({ status: 409, text: expect.stringContaining(':turn-cancelled"') });
      const left = (await turnsOf(conversation)).slice(2);
      expect(left[0]).toBe('user: talk on');
      for (const turn of left.slice(1)) expect(turn).toMatch(/^assistant: (word ?)+$/);
      await expectGoesOn(conversation, left);
    },
    limitMs,
  );

  test(
    'while a tool runs, which breaks the pinned Hermes: its child is replaced',
    async () => {
      const conversation = await begun();
      model.on(last('sleep well'), call('terminal', { command: 'sleep 120', timeout: 150 }), say('I slept.'));
      const answer = post(conversation, 'sleep well');
      await events.frame('session.update', (frame) => says(frame, 'tool_call'));
      await cancel(conversation);
      expect((await answer).status).toBe(409);
      await expectGoesOn(conversation, (await turnsOf(conversation)).slice(2));
    },
    limitMs,
  );
});
