// The turn engine with the pinned Hermes itself: real ACP adapter, real SessionDB rows; only its model is scripted.
import { Database } from 'bun:sqlite';
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Conversation, LoggedEvent, Message, SessionUpdate } from '../domain.ts';
import { createEventBus } from '../events/bus.ts';
import { embeddedDatabase, type TestDatabase } from '../governance/databases.fixture.ts';
import { type OpenedGovernance, openGovernance } from '../governance/postgres.ts';
import { newConversationId } from '../ids.ts';
import { readerOf } from '../transcript/local-sessiondb.fixture.ts';
import { createTranscript } from '../transcript/sessiondb.ts';
import type { Transcript } from '../transcript/transcript.ts';
import { createTurns, type TurnEngine } from './engine.ts';
import { type FixtureMachine, startMachine } from './machine.fixture.ts';
import { type FixtureModel, startModel } from './model.fixture.ts';

const python = process.env.EDGE_TEST_PYTHON ?? '';
const haveHermes = python !== '' && existsSync(python);
if (!haveHermes)
  console.warn('EDGE_TEST_PYTHON names no Python with hermes-agent[acp]: real Hermes is not tested here.');

let home: string;
let model: FixtureModel;
let machine: FixtureMachine;
let postgres: TestDatabase;
let governance: OpenedGovernance;
let transcript: Transcript;
let engine: TurnEngine;
let conversation: Conversation;
let events: (LoggedEvent | SessionUpdate)[];
let onEvent: (event: LoggedEvent | SessionUpdate) => void = () => undefined;

const config = (url: string): string => `
model: {provider: custom, base_url: ${url}, default: scripted, api_key: none, context_length: 64000}
compression: {protect_first_n: 0, protect_last_n: 2}
agent: {environment_probe: false}
security: {tirith_enabled: false}
logging: {level: ERROR}
`;

describe.skipIf(!haveHermes)('with real Hermes', () => {
  beforeAll(async () => {
    home = mkdtempSync(join(tmpdir(), 'edge-hermes-'));
    model = startModel();
    writeFileSync(join(home, 'config.yaml'), config(model.url));
    machine = startMachine([python, '-m', 'acp_adapter.entry'], {
      PATH: process.env.PATH ?? '',
      HOME: home,
      HERMES_HOME: home,
      PYTHONDONTWRITEBYTECODE: '1',
      NO_PROXY: '127.0.0.1',
    });
    postgres = await embeddedDatabase();
    governance = await openGovernance({ database: postgres.address, organizationName: 'Test', failedProseDays: 7 });
    let sessiondb: Database | null = null;
    transcript = createTranscript({
      execute(sql, args) {
        sessiondb ??= existsSync(join(home, 'state.db')) ? new Database(join(home, 'state.db')) : null;
        return readerOf(sessiondb ?? new Database(':memory:')).execute(sql, args);
      },
    });
    const bus = createEventBus(governance.lastSeq());
    events = [];
    bus.subscribe((event) => {
      events.push(event);
      onEvent(event);
    });
    engine = createTurns({
      governance,
      transcript,
      bus,
      hermesRun: { socketPath: machine.socketPath, token: machine.token },
      logger: { info: () => undefined, warn: () => undefined },
    });
    conversation = await newConversation();
  }, 90_000);
  afterAll(async () => {
    await engine.close(0);
    await machine.stop();
    await model.stop();
    await governance.close();
    await postgres.stop();
    rmSync(home, { recursive: true, force: true });
  }, 30_000);

  async function submit(text: string, to = conversation): Promise<Message> {
    events = [];
    const known = (await governance.findConversation(to.id)) as Conversation;
    return engine.submit({
      conversation: known,
      content: { text },
      idempotencyKey: null,
      receivedAt: performance.now(),
    });
  }
  async function newConversation(): Promise<Conversation> {
    const specialist = await governance.createSpecialist(`s-${crypto.randomUUID()}`, '');
    return governance.createConversation(newConversationId(), specialist.id);
  }
  const settled = (message: Message): Promise<Message> =>
    engine.settled(message.conversation, message.id, AbortSignal.timeout(90_000));
  const send = async (text: string, to = conversation): Promise<Message> => settled(await submit(text, to));
  async function replyText(message: Message): Promise<string> {
    if (message.state !== 'delivered') throw new Error(`the message is ${message.state}: ${JSON.stringify(message)}`);
    return (await engine.reply(message.locator)).text;
  }
  const problemOf = (message: Message): string =>
    message.state === 'failed' ? (message.problem.type.split(':').at(-1) ?? '') : message.state;
  const updates = (): string[] =>
    events.flatMap((event) => (event.type === 'session.update' ? [String(event.update.sessionUpdate)] : []));
  const seen = (wanted: (event: LoggedEvent | SessionUpdate) => boolean): Promise<void> =>
    new Promise((resolve) => {
      onEvent = (event) => {
        if (wanted(event)) resolve();
      };
    });
  async function texts(of = conversation): Promise<string[]> {
    const known = (await governance.findConversation(of.id)) as Conversation;
    const { turns } = await transcript.read(known, 'client', null, 100);
    return turns.map(({ role, text }) => `${role}: ${text}`);
  }

  test('replies, cold and warm, and is given its history', async () => {
    expect(await replyText(await send('first words'))).toBe('You said: first words');
    expect(updates()).toContain('agent_message_chunk');
    expect(await replyText(await send('/etc/hosts is prose'))).toBe('You said: /etc/hosts is prose');
    expect(machine.admissions.map(({ admission }) => admission)).toEqual(['cold', 'warm']);
    const seenByModel = model.requests.at(-1)?.messages.map(({ role }) => role);
    expect(seenByModel).toEqual(['system', 'user', 'assistant', 'user']);
    expect(await texts()).toEqual([
      'user: first words',
      'assistant: You said: first words',
      'user: /etc/hosts is prose',
      'assistant: You said: /etc/hosts is prose',
    ]);
  }, 120_000);

  test('a dangerous command is allowed once, at once', async () => {
    const from = performance.now();
    expect(await replyText(await send('SCRIPT:danger'))).toBe('danger done');
    // Hermes denies by itself after 60 s without an answer.
    expect(performance.now() - from).toBeLessThan(50_000);
    expect(updates()).toContain('tool_call');
    const result = model.requests.at(-1)?.messages.at(-1);
    expect(result?.role).toBe('tool');
    expect(JSON.stringify(result)).not.toContain('denied');
    const known = (await governance.findConversation(conversation.id)) as Conversation;
    const { turns } = await transcript.read(known, 'canonical', null, 100);
    expect(turns.at(-2)?.toolCalls).toMatchObject([{ function: { name: 'terminal' } }]);
    expect((await texts()).slice(-2)).toEqual(['user: SCRIPT:danger', 'assistant: danger done']);
  }, 120_000);

  test('a cancel while the model streams leaves no reply and a conversation that works', async () => {
    model.begun = Promise.withResolvers();
    const message = await submit('SCRIPT:slow');
    await model.begun.promise;
    await seen((event) => event.type === 'session.update');
    expect(await engine.cancel(conversation.id)).toBe(true);
    expect((await settled(message)).state).toBe('cancelled');
    expect(await replyText(await send('after the cancel'))).toContain('after the cancel');
    expect(machine.admissions.at(-1)?.admission).toBe('cold');
  }, 120_000);

  test('a cancel while a tool runs, which breaks the child, too', async () => {
    const tool = seen((event) => event.type === 'session.update' && event.update.sessionUpdate === 'tool_call');
    const message = await submit('SCRIPT:sleep');
    await tool;
    await engine.cancel(conversation.id);
    expect((await settled(message)).state).toBe('cancelled');
    expect(await replyText(await send('after the tool'))).toContain('after the tool');
  }, 120_000);

  test('no answer and an error of the model are failures, and the next message works', async () => {
    const other = await newConversation();
    expect(problemOf(await send('SCRIPT:empty', other))).toBe('turn-no-reply');
    expect(problemOf(await send('SCRIPT:broken', other))).toBe('model-refused');
    expect(await replyText(await send('still there', other))).toContain('still there');
    expect((await texts(other)).filter((text) => text.includes('(empty)'))).toEqual([]);
  }, 180_000);

  test('a session that SessionDB does not hold: replaced before there was a reply, a failure of its own afterwards', async () => {
    const lost = await newConversation();
    await governance.bindSession(lost.id, crypto.randomUUID());
    expect(await replyText(await send('hello', lost))).toBe('You said: hello');
    const session = (await governance.findConversation(lost.id))?.session ?? '';
    const sessiondb = new Database(join(home, 'state.db'));
    sessiondb.run('DELETE FROM messages WHERE session_id = ?', [session]);
    sessiondb.run('DELETE FROM sessions WHERE id = ?', [session]);
    sessiondb.close();
    machine.child(lost.id)?.kill('SIGKILL');
    await machine.child(lost.id)?.exited;
    expect(problemOf(await send('who am I?', lost))).toBe('session-lost');
    expect(await texts(lost)).toEqual([]);
  }, 120_000);

  test('context compaction: the reply is the new one, the transcript shows everything once', async () => {
    const long = await newConversation();
    const sent: string[] = [];
    const columns = 'count(*), sum(compacted)';
    const rows = async (): Promise<number[]> => {
      const session = (await governance.findConversation(long.id))?.session ?? '';
      return new Database(join(home, 'state.db'), { readonly: true })
        .prepare(`SELECT ${columns} FROM messages WHERE session_id = ?`)
        .values(session)[0] as number[];
    };
    for (let turn = 1; turn <= 8; turn += 1) {
      const text = `${turn} ${'long words '.repeat(3_000)}${turn}`;
      const message = await send(text, long);
      expect(await replyText(message)).toBe(`You said: ${text}`.trim());
      sent.push(`user: ${text}`, `assistant: You said: ${text}`);
    }
    const [all = 0, compacted = 0] = await rows();
    expect(compacted).toBeGreaterThan(0);
    expect(all).toBeGreaterThan(sent.length);
    expect((await texts(long)).map((text) => text.slice(0, 40))).toEqual(sent.map((text) => text.slice(0, 40)));
    expect(await texts(long)).toEqual(sent);
  }, 240_000);

  test('a model that is not there: told as a failure with what Hermes says about it', async () => {
    await model.stop();
    const message = await send('anybody?');
    expect(problemOf(message)).toBe('model-unreachable');
    expect(message).toMatchObject({ problem: { detail: expect.stringContaining('It said: ') } });
    expect(await texts()).not.toContain('assistant: anybody?');
  }, 180_000);
});
