import { Database } from 'bun:sqlite';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'bun:test';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Conversation, LoggedEvent, Message, SessionUpdate } from '../domain.ts';
import { createEventBus } from '../events/bus.ts';
import { embeddedDatabase, type TestDatabase } from '../governance/databases.fixture.ts';
import type { Governance } from '../governance/governance.ts';
import { openGovernance } from '../governance/postgres.ts';
import { type Locator, newConversationId, newMessageId } from '../ids.ts';
import { Problem } from '../problem.ts';
import { createSchema, readerOf } from '../transcript/local-sessiondb.fixture.ts';
import { decodeLocator } from '../transcript/locator.ts';
import { createTranscript, type SqlReader } from '../transcript/sessiondb.ts';
import { createTurns, type TurnEngine } from './engine.ts';
import { type FixtureMachine, startMachine } from './machine.fixture.ts';
import type { TurnLimits } from './parts.ts';

// Everything is real but the agent and SessionDB's server: Postgres, the bus, hermes-run, child processes, SQL.
let postgres: TestDatabase;
let governance: Governance;
let directory: string;
let machine: FixtureMachine;
let sessiondb: Database;
let reader: SqlReader;
let engine: TurnEngine;
let events: (LoggedEvent | SessionUpdate)[];
let conversation: Conversation;
let onEvent: (event: LoggedEvent | SessionUpdate) => void;

beforeAll(async () => {
  postgres = await embeddedDatabase();
  governance = await openGovernance({ database: postgres.address, organizationName: 'Test', failedProseDays: 7 });
}, 60_000);
afterAll(async () => {
  await governance.close();
  await postgres.stop();
});

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'edge-turns-'));
  sessiondb = createSchema(join(directory, 'state.db'));
  reader = readerOf(sessiondb);
  machine = startMachine([
    process.execPath,
    join(import.meta.dir, '../acp/agent.fixture.ts'),
    join(directory, 'state.db'),
    join(directory, 'wire'),
  ]);
  engine = makeEngine();
  conversation = await newConversation();
});
afterEach(async () => {
  await engine.close(0);
  await machine.stop();
  sessiondb.close();
  rmSync(directory, { recursive: true, force: true });
});

function makeEngine(over: { governance?: Governance; limits?: Partial<TurnLimits> } = {}): TurnEngine {
  events = [];
  onEvent = () => undefined;
  const bus = createEventBus(governance.lastSeq());
  bus.subscribe((event) => {
    events.push(event);
    onEvent(event);
  });
  return createTurns({
    governance: over.governance ?? governance,
    transcript: createTranscript({ execute: (sql, args) => reader.execute(sql, args) }),
    bus,
    hermesRun: { socketPath: machine.socketPath, token: machine.token },
    limits: { attachMs: 5_000, startMs: 5_000, turnMs: 10_000, cancelMs: 300, settleRetriesMs: [1, 1], ...over.limits },
    logger: { info: () => undefined, warn: () => undefined },
  });
}

async function newConversation(): Promise<Conversation> {
  const specialist = await governance.createSpecialist(`s-${crypto.randomUUID()}`, '');
  return governance.createConversation(newConversationId(), specialist.id);
}

async function submit(text: string, key: string | null = null, where = conversation): Promise<Message> {
  return engine.submit({ conversation: where, content: { text }, idempotencyKey: key, receivedAt: performance.now() });
}
const settled = (message: Message): Promise<Message> =>
  engine.settled(message.conversation, message.id, AbortSignal.timeout(9_000));
const send = async (text: string, where = conversation): Promise<Message> => settled(await submit(text, null, where));
const stored = (message: Message): Promise<Message | null> => governance.findMessage(message.conversation, message.id);
async function replyText(message: Message): Promise<string> {
  if (message.state !== 'delivered') throw new Error(`the message is ${message.state}: ${JSON.stringify(message)}`);
  return (await engine.reply(message.locator)).text;
}
const problemOf = (message: Message | null): string =>
  message?.state === 'failed' ? (message.problem.type.split(':').at(-1) ?? '') : (message?.state ?? 'missing');
const types = (): string[] => events.map(({ type }) => type).filter((type) => type !== 'session.update');
const wire = (): Record<string, unknown>[] =>
  readFileSync(join(directory, 'wire'), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);
/** Resolves at the first event or update that `wanted` accepts. */
const seen = (wanted: (event: LoggedEvent | SessionUpdate) => boolean): Promise<void> =>
  new Promise((resolve) => {
    onEvent = (event) => {
      if (wanted(event)) resolve();
    };
  });
const isChunk = (event: LoggedEvent | SessionUpdate): boolean =>
  event.type === 'session.update' && event.update.sessionUpdate === 'agent_message_chunk';

describe('a turn', () => {
  test('hands the reply that settling read to those who wait, without asking for it again', async () => {
    const message = await send('reply once');
    if (message.state !== 'delivered') throw new Error('not delivered');
    let reads = 0;
    reader = {
      execute(sql, args) {
        reads++;
        return readerOf(sessiondb).execute(sql, args);
      },
    };
    const event = events.find(({ type }) => type === 'reply.delivered')!;
    for (const of of [message, event])
      expect(await engine.reply(message.locator, of)).toEqual({ locator: message.locator, text: 'reply once' });
    expect(reads).toBe(0);
    sessiondb.run("UPDATE messages SET content = 'edited since' WHERE role = 'assistant'");
    expect((await engine.reply(message.locator, { ...message })).text).toBe('edited since');
    expect(reads).toBe(1);
  });

  test('cold, then warm: delivered once each, with events in order, locators that resolve and all timings', async () => {
    const first = await send('reply one');
    expect(await replyText(first)).toBe('reply one');
    expect(types()).toEqual(['message.accepted', 'turn.started', 'reply.delivered']);
    expect(events.filter(isChunk)).toHaveLength(1);
    expect(first.timings?.admissionMs).toBeGreaterThan(0);
    const second = await send('reply two');
    expect(await replyText(second)).toBe('reply two');
    expect(second.timings).toEqual({
      attachMs: expect.any(Number),
      admissionMs: null,
      firstUpdateMs: expect.any(Number),
      loopMs: expect.any(Number),
      settleMs: expect.any(Number),
    });
    expect(machine.admissions.map(({ admission }) => admission)).toEqual(['cold', 'warm']);
    expect(wire().map(({ method }) => method)).toEqual([
      'initialize',
      'session/new',
      'session/prompt',
      'session/prompt',
    ]);
    const started = events.flatMap((event) => (event.type === 'turn.started' ? [event.admission] : []));
    expect(started).toEqual(['cold', 'warm']);
    const kept = await stored(second);
    expect(kept).toMatchObject({ state: 'delivered', locator: (second as { locator: string }).locator });
    expect(kept?.timings?.loopMs).toBeCloseTo(second.timings?.loopMs ?? -1, 3);
  });

  test('a known conversation whose child is gone gets a prompt after initialize, never a new session or a load', async () => {
    await send('reply one');
    const session = (await governance.findConversation(conversation.id))?.session;
    machine.child(conversation.id)?.kill('SIGKILL');
    await machine.child(conversation.id)?.exited;
    await send('reply two');
    expect(wire().map(({ method }) => method)).toEqual([
      'initialize',
      'session/new',
      'session/prompt',
      'initialize',
      'session/prompt',
    ]);
    expect(wire().at(-1)?.params).toMatchObject({ sessionId: session });
    expect(machine.admissions.map((admission) => admission.session)).toEqual([null, session ?? 'none']);
  });

  test('a warm turn asks SessionDB once, after its end', async () => {
    await send('reply one');
    const statements: string[] = [];
    const inner = reader;
    reader = {
      execute(sql, args) {
        statements.push(sql);
        return inner.execute(sql, args);
      },
    };
    await send('reply two');
    expect(statements).toHaveLength(1);
    expect(statements[0]).toContain('finish_reason');
  });

  test('turns of a conversation run in order, of several side by side', async () => {
    const other = await newConversation();
    const messages = await Promise.all([
      submit('reply 1'),
      submit('reply 2'),
      submit('reply 3'),
      submit('reply x', null, other),
    ]);
    const ends = await Promise.all(messages.map(settled));
    expect(await Promise.all(ends.map(replyText))).toEqual(['reply 1', 'reply 2', 'reply 3', 'reply x']);
    const order = events.flatMap((event) =>
      'message' in event && event.conversation === conversation.id && event.type !== 'message.accepted'
        ? [event.message]
        : [],
    );
    const [a, b, c] = messages.map(({ id }) => id);
    expect(order.map(String)).toEqual([a, a, b, b, c, c].map(String));
  });

  test('a line that a detach cuts in two arrives whole at the next turn', async () => {
    expect(await replyText(await send('cut here'))).toBe('cut here');
    const titles = () =>
      events.filter((event) => event.type === 'session.update' && event.update.sessionUpdate === 'session_info_update');
    expect(titles()).toHaveLength(0);
    expect(await replyText(await send('reply on'))).toBe('reply on');
    expect(titles()).toMatchObject([{ update: { title: 'x'.repeat(1000) } }]);
    expect(machine.admissions.map(({ admission }) => admission)).toEqual(['cold', 'warm']);
  });

  test('permission requests are answered and leave nothing behind', async () => {
    const options = [{ optionId: 'yes', name: 'Allow once', kind: 'allow_once' }];
    const message = await send(`permission ${JSON.stringify(options)}`);
    expect(await replyText(message)).toBe('{"outcome":{"outcome":"selected","optionId":"yes"}}');
    expect(types()).toEqual(['message.accepted', 'turn.started', 'reply.delivered']);
  });
});

describe('intake', () => {
  test('what the agent would drop is refused before anything is stored', async () => {
    for (const text of ['/reset', ' ', 'a\0'])
      await expect(submit(text)).rejects.toMatchObject({ document: { status: 422 } });
    expect(events).toEqual([]);
  });

  test('one idempotency key is one message', async () => {
    const first = await submit('reply once', 'key');
    const again = await submit('reply once', 'key');
    expect(again.id).toBe(first.id);
    await expect(submit('reply other', 'key')).rejects.toMatchObject({ problem: 'idempotency-key-reused' });
    const end = await settled(first);
    expect(await submit('reply once', 'key')).toMatchObject({ id: first.id, state: 'delivered' });
    expect(await replyText(end)).toBe('reply once');
    expect(machine.admissions).toHaveLength(1);
  });

  test('one key from 50 at once is one turn, and everybody is told the same', async () => {
    const messages = await Promise.all(Array.from({ length: 50 }, () => submit('reply once', 'key')));
    const ends = await Promise.all(messages.map(settled));
    expect(new Set(ends.map((end) => JSON.stringify(end))).size).toBe(1);
    expect(await stored(messages[0] as Message)).toEqual(ends[0] as Message);
    expect(machine.admissions).toHaveLength(1);
    expect(wire().filter(({ method }) => method === 'session/prompt')).toHaveLength(1);
  });

  test('an organization takes only so many', async () => {
    engine = makeEngine({ limits: { queueTotal: 2 } });
    const first = await submit('slow');
    const second = await submit('reply', null, await newConversation());
    const refused = submit('reply', null, await newConversation());
    await expect(refused).rejects.toMatchObject({ document: { status: 429, retryAfter: 5 } });
    await engine.cancel(conversation.id);
    await settled(first);
    expect(await replyText(await settled(second))).toBe('reply');
    expect(await replyText(await send('reply again'))).toBe('reply again');
  });

  test('what waits is bounded by its bytes too', async () => {
    engine = makeEngine({ limits: { queueBytes: 200 } });
    const first = await submit('slow');
    const large = submit('x'.repeat(170));
    await expect(large).rejects.toMatchObject({ document: { status: 429, retryAfter: 5 } });
    await engine.cancel(conversation.id);
    await settled(first);
  });

  test('a conversation takes only so many', async () => {
    engine = makeEngine({ limits: { queuePerConversation: 2 } });
    const first = await submit('slow');
    const second = await submit('reply');
    await expect(submit('reply')).rejects.toMatchObject({ document: { status: 429, retryAfter: 5 } });
    await engine.cancel(conversation.id);
    await settled(first);
    expect(await replyText(await settled(second))).toBe('reply');
  });
});

describe('failures leave the next message working', () => {
  const cases: [text: string, problem: string, next: 'warm' | 'cold'][] = [
    ['refuse', 'turn-refused', 'cold'],
    ['norow', 'model-unreachable', 'warm'],
    ['silent', 'turn-no-reply', 'cold'],
    ['error', 'agent-failed', 'cold'],
    ['die', 'agent-failed', 'cold'],
  ];
  for (const [text, problem, next] of cases) {
    test(`${text} is ${problem}`, async () => {
      await send('reply first');
      const message = await send(text);
      expect(problemOf(message)).toBe(problem);
      expect(problemOf(await stored(message))).toBe(problem);
      expect(types().slice(-2)).toEqual(['turn.started', 'turn.failed']);
      expect(await replyText(await send('reply after'))).toBe('reply after');
      expect(machine.admissions.at(-1)?.admission).toBe(next);
    });
  }

  test('what the agent says about its failure is told', async () => {
    const message = await send('norow');
    expect(message).toMatchObject({ problem: { detail: expect.stringContaining('Connection error.') } });
  });

  test('a reply is delivered although the agent died right after it', async () => {
    expect(await replyText(await send('reply-and-die now'))).toBe('reply-and-die now');
    expect(await replyText(await send('reply after'))).toBe('reply after');
  });

  test('a refused attach', async () => {
    machine.gate = () => Promise.reject(new Error('all holders are at work'));
    const message = await send('reply');
    expect(problemOf(message)).toBe('agent-unavailable');
    expect(message).toMatchObject({
      timings: null,
      problem: { detail: expect.stringContaining('all holders are at work') },
    });
    machine.gate = async () => undefined;
    expect(await replyText(await send('reply after'))).toBe('reply after');
  });

  test('an attach that takes too long', async () => {
    engine = makeEngine({ limits: { attachMs: 50 } });
    const held = Promise.withResolvers<void>();
    machine.gate = () => held.promise;
    expect(problemOf(await send('reply'))).toBe('agent-unavailable');
    held.resolve();
    engine = makeEngine();
    expect(await replyText(await send('reply after'))).toBe('reply after');
  });

  test('SessionDB does not answer for a moment, or for longer', async () => {
    const inner = reader;
    let failures = 0;
    const flaky = (until: number): SqlReader => ({
      execute(sql, args) {
        if (!sql.includes('finish_reason') || failures >= until) return inner.execute(sql, args);
        failures += 1;
        return readerOf(new Database(':memory:')).execute('SELECT broken', []);
      },
    });
    reader = flaky(2);
    expect(await replyText(await send('reply in the end'))).toBe('reply in the end');
    failures = 0;
    reader = flaky(Number.POSITIVE_INFINITY);
    expect(problemOf(await send('reply lost'))).toBe('sessiondb-unavailable');
    reader = inner;
    expect(await replyText(await send('reply after'))).toBe('reply after');
  });

  test('a message that cannot be stored says nothing to the agent, whose child is given back warm', async () => {
    await send('reply first');
    const released = machine.releases.length;
    const failing: Governance = { ...governance, accept: () => Promise.reject(new Error('connection lost')) };
    const whole = engine;
    engine = makeEngine({ governance: failing });
    await expect(submit('reply lost')).rejects.toThrow('connection lost');
    while (machine.releases.length === released) await Bun.sleep(1);
    expect(machine.releases.at(-1)).toBe('detached');
    await engine.close(0);
    engine = whole;
    expect(await replyText(await send('reply after'))).toBe('reply after');
    expect(machine.admissions.map(({ admission }) => admission)).toEqual(['cold', 'warm', 'warm']);
    // Two turns, each a user's and an agent's row.
    expect(await createTranscript(reader).watermark()).toBe(4);
  });

  test('governance does not answer before the prompt: that is its failure, and the next one works', async () => {
    const failing: Governance = { ...governance, bindSession: () => Promise.reject(new Error('connection lost')) };
    engine = makeEngine({ governance: failing });
    const message = await send('reply lost');
    expect(problemOf(message)).toBe('turn-interrupted');
    expect(await stored(message)).toEqual(message);
    await engine.close(0);
    engine = makeEngine();
    expect(await replyText(await send('reply after'))).toBe('reply after');
    expect(wire().filter(({ method }) => method === 'session/prompt')).toHaveLength(1);
  });

  test('governance fails at the delivery: the message stays dispatched and the next start delivers it', async () => {
    const failing: Governance = { ...governance, deliver: () => Promise.reject(new Error('connection lost')) };
    engine = makeEngine({ governance: failing });
    const message = await send('reply kept');
    expect(message.state).toBe('dispatched');
    await engine.close(0);
    engine = makeEngine();
    await engine.start();
    expect(await replyText((await stored(message)) as Message)).toBe('reply kept');
    expect(types()).toEqual(['reply.delivered']);
  });
});

describe('a session that SessionDB does not have', () => {
  const methods = (): unknown[] => wire().map(({ method }) => method);
  const lose = (): void => {
    sessiondb.run('DELETE FROM messages');
    sessiondb.run('DELETE FROM sessions');
  };
  const killChild = async (): Promise<void> => {
    machine.child(conversation.id)?.kill('SIGKILL');
    await machine.child(conversation.id)?.exited;
  };

  test('is not routed to when it was not kept, and the next message makes another', async () => {
    sessiondb.run('CREATE TRIGGER lost BEFORE INSERT ON sessions BEGIN SELECT RAISE(IGNORE); END');
    expect(problemOf(await send('reply one'))).toBe('sessiondb-unavailable');
    expect((await governance.findConversation(conversation.id))?.session).toBeNull();
    expect(methods()).toEqual(['initialize', 'session/new']);
    sessiondb.run('DROP TRIGGER lost');
    expect(await replyText(await send('reply two'))).toBe('reply two');
  });

  test('is replaced when it was lost between its routing and its first prompt', async () => {
    const reached = Promise.withResolvers<void>();
    const dying: Governance = {
      ...governance,
      dispatch: () => {
        reached.resolve();
        return new Promise(() => undefined);
      },
    };
    engine = makeEngine({ governance: dying });
    const message = await submit('reply one');
    await reached.promise;
    const lost = (await governance.findConversation(conversation.id))?.session;
    expect(lost).toBeString();
    await engine.close(0);
    await killChild();
    lose();
    engine = makeEngine();
    await engine.start();
    expect(await replyText(await settled(message))).toBe('reply one');
    const session = (await governance.findConversation(conversation.id))?.session;
    expect(session).toBeString();
    expect(session).not.toBe(lost ?? '');
    expect(await replyText(await send('reply two'))).toBe('reply two');
    expect(methods()).toEqual([
      'initialize',
      'session/new',
      'initialize',
      'session/new',
      'session/prompt',
      'session/prompt',
    ]);
  });

  test('is replaced when all that went before has failed', async () => {
    expect(problemOf(await send('die'))).toBe('agent-failed');
    lose();
    expect(await replyText(await send('reply after'))).toBe('reply after');
  });

  test('is a failure of its own, again and again, once there was a reply', async () => {
    await send('reply one');
    await killChild();
    lose();
    expect(problemOf(await send('reply two'))).toBe('session-lost');
    expect(problemOf(await send('reply three'))).toBe('session-lost');
    expect(methods().filter((method) => method === 'session/new')).toHaveLength(1);
    expect(methods().filter((method) => method === 'session/prompt')).toHaveLength(1);
  });

  test('is a failure of its own after a cancelled turn, whose text only it had, and after a row made by hand', async () => {
    const chunk = seen(isChunk);
    const message = await submit('slow');
    await chunk;
    await engine.cancel(conversation.id);
    expect((await settled(message)).state).toBe('cancelled');
    lose();
    expect(problemOf(await send('reply'))).toBe('session-lost');

    conversation = await newConversation();
    expect(problemOf(await send('die'))).toBe('agent-failed');
    await governance.log(conversation.id, { type: 'transcript.appended', locator: 'L' as Locator });
    lose();
    expect(problemOf(await send('reply'))).toBe('session-lost');
  });

  test('is told apart from a refusal when a child that knew it does not find it any more', async () => {
    await send('reply one');
    lose();
    expect(problemOf(await send('reply two'))).toBe('session-lost');
  });
});

describe('stopping a turn', () => {
  test('cancelled while it streams: cancelled, the child is replaced', async () => {
    await send('reply first');
    const chunk = seen(isChunk);
    const message = await submit('slow');
    await chunk;
    expect(await engine.cancel(conversation.id)).toBe(true);
    expect((await settled(message)).state).toBe('cancelled');
    expect((await stored(message))?.state).toBe('cancelled');
    expect(types().at(-1)).toBe('turn.cancelled');
    expect(await engine.cancel(conversation.id)).toBe(false);
    expect(await replyText(await send('reply after'))).toBe('reply after');
    expect(machine.admissions.map(({ admission }) => admission)).toEqual(['cold', 'warm', 'cold']);
    expect(machine.releases.slice(0, 2)).toEqual(['detached', 'abandoned']);
  });

  test('a reply that was complete when the cancel came is delivered', async () => {
    const chunk = seen(isChunk);
    const message = await submit('slow-reply done');
    await chunk;
    await engine.cancel(conversation.id);
    expect(await replyText(await settled(message))).toBe('slow-reply done');
    await send('reply after');
    expect(machine.releases[0]).toBe('abandoned');
  });

  test('a cancel that crosses the end of its turn takes nothing from it, and does not reach the next one', async () => {
    const chunk = seen(isChunk);
    const message = await submit('crossing done');
    const next = await submit('reply next');
    await chunk;
    expect(await engine.cancel(conversation.id)).toBe(true);
    expect(await replyText(await settled(message))).toBe('crossing done');
    expect(await replyText(await settled(next))).toBe('reply next');
    // The child that was told to stop is not asked again: when it stops, nobody knows.
    expect(machine.admissions.map(({ admission }) => admission)).toEqual(['cold', 'cold']);
  });

  test('a cancel that comes while the reply is being recorded is too late, and says so', async () => {
    const recording = Promise.withResolvers<void>();
    const asked = Promise.withResolvers<void>();
    const slow: Governance = {
      ...governance,
      deliver: async (...of) => {
        asked.resolve();
        await recording.promise;
        return governance.deliver(...of);
      },
    };
    engine = makeEngine({ governance: slow });
    const message = await submit('reply one');
    const next = await submit('reply two');
    await asked.promise;
    expect(await engine.cancel(conversation.id)).toBe(false);
    expect(await engine.cancel(conversation.id, message.id)).toBe(false);
    recording.resolve();
    expect(await replyText(await settled(message))).toBe('reply one');
    expect(await replyText(await settled(next))).toBe('reply two');
    expect(machine.admissions.map(({ admission }) => admission)).toEqual(['cold', 'warm']);
  });

  test('a cancel for one message does not reach the next one, which runs already', async () => {
    const first = await send('reply one');
    const chunk = seen(isChunk);
    const next = await submit('slow-reply two');
    await chunk;
    expect(await engine.cancel(conversation.id, first.id)).toBe(false);
    expect(await engine.cancel(conversation.id, next.id)).toBe(true);
    expect(await replyText(await settled(next))).toBe('slow-reply two');
  });

  test('an agent that ignores the cancel is not waited for', async () => {
    const chunk = seen(isChunk);
    const message = await submit('stubborn');
    await chunk;
    await engine.cancel(conversation.id);
    expect((await settled(message)).state).toBe('cancelled');
    expect(await replyText(await send('reply after'))).toBe('reply after');
  });

  test('cancelled before it is attached: nothing is sent, the next one works', async () => {
    const held = Promise.withResolvers<void>();
    machine.gate = () => held.promise;
    const message = await submit('reply never');
    const next = await submit('reply after');
    expect(await engine.cancel(conversation.id)).toBe(true);
    expect((await settled(message)).state).toBe('cancelled');
    held.resolve();
    expect(await replyText(await settled(next))).toBe('reply after');
    expect(wire().filter(({ method }) => method === 'session/prompt')).toHaveLength(1);
  });

  test('the deadline', async () => {
    engine = makeEngine({ limits: { turnMs: 400 } });
    expect(problemOf(await send('slow'))).toBe('turn-deadline');
    expect(problemOf(await send('stubborn'))).toBe('turn-deadline');
    expect(await replyText(await send('reply after'))).toBe('reply after');
  });

  test('a cancel behind the deadline says that it stops nothing more', async () => {
    engine = makeEngine({ limits: { turnMs: 400, cancelMs: 500 } });
    const message = await submit('stubborn');
    const isAsked = () => wire().some(({ method }) => method === 'session/cancel');
    await seen(isChunk);
    while (!isAsked()) await Bun.sleep(1);
    expect(await engine.cancel(conversation.id, message.id)).toBe(false);
    expect(problemOf(await settled(message))).toBe('turn-deadline');
    expect(await engine.cancel(conversation.id, message.id)).toBe(false);
  });

  test('who waits gets the message as it stands when he stops waiting', async () => {
    const started = seen((event) => event.type === 'turn.started');
    const message = await submit('slow');
    await started;
    const now = await engine.settled(conversation.id, message.id, AbortSignal.timeout(20));
    expect(now.state).toBe('dispatched');
    await engine.cancel(conversation.id);
    await settled(message);
    await expect(engine.settled(conversation.id, newMessageId(), AbortSignal.timeout(1))).rejects.toMatchObject({
      problem: 'not-found',
    });
  });
});

describe('cancelling a message that waits', () => {
  const prompts = (): unknown[] => wire().filter(({ method }) => method === 'session/prompt');
  const cancels = ({ id }: Message): number =>
    events.filter((event) => event.type === 'turn.cancelled' && event.message === id).length;
  /** A turn that is at work until it is cancelled. */
  async function busy(): Promise<Message> {
    const chunk = seen(isChunk);
    const message = await submit('slow');
    await chunk;
    return message;
  }

  test('it is cancelled for good, who waits for it is told, its place is free, and the others keep their order', async () => {
    engine = makeEngine({ limits: { queuePerConversation: 4 } });
    const running = await busy();
    const [one, two, three] = [await submit('reply 1'), await submit('reply 2'), await submit('reply 3')];
    await expect(submit('reply 4')).rejects.toMatchObject({ problem: 'too-many-requests' });
    const waiting = settled(two);
    expect(await engine.cancel(conversation.id, two.id)).toBe(true);
    expect(await waiting).toEqual({ ...two, state: 'cancelled' });
    expect(await stored(two)).toEqual({ ...two, state: 'cancelled' });
    const four = await submit('reply 4');
    expect(await engine.cancel(conversation.id, running.id)).toBe(true);
    const ends = await Promise.all([one, three, four].map(settled));
    expect(await Promise.all(ends.map(replyText))).toEqual(['reply 1', 'reply 3', 'reply 4']);
    expect(cancels(two)).toBe(1);
    expect(events.filter((event) => 'message' in event && event.message === two.id).map(({ type }) => type)).toEqual([
      'message.accepted',
      'turn.cancelled',
    ]);
    expect(prompts()).toHaveLength(4);
    const order = events.flatMap((event) => (event.type === 'turn.started' ? [event.message] : []));
    expect(order).toEqual([running.id, one.id, three.id, four.id]);
  });

  test('asked for again, at once or later, the answer and the event are the same one', async () => {
    const running = await busy();
    const waiting = await submit('reply never');
    const cancel = () => engine.cancel(conversation.id, waiting.id);
    expect(await Promise.all(Array.from({ length: 10 }, cancel))).toEqual(Array(10).fill(true));
    expect(await cancel()).toBe(true);
    expect(cancels(waiting)).toBe(1);
    expect(await engine.cancel(conversation.id, running.id)).toBe(true);
    await settled(running);
    expect(await engine.cancel(conversation.id, running.id)).toBe(true);
    const done = await send('reply done');
    expect(await engine.cancel(conversation.id, done.id)).toBe(false);
    expect(prompts()).toHaveLength(2);
  });

  test('that of another conversation, and one that never was, are not found', async () => {
    const running = await busy();
    const waiting = await submit('reply kept');
    const other = await newConversation();
    for (const [where, id] of [
      [other.id, waiting.id],
      [other.id, running.id],
      [conversation.id, newMessageId()],
    ] as const)
      await expect(engine.cancel(where, id)).rejects.toMatchObject({ problem: 'not-found' });
    expect(await engine.cancel(other.id)).toBe(false);
    await engine.cancel(conversation.id);
    expect(await replyText(await settled(waiting))).toBe('reply kept');
  });

  test('one whose conversation waits for a seat', async () => {
    engine = makeEngine({ limits: { runningTurns: 1 } });
    const running = await busy();
    const other = await newConversation();
    const [never, after] = [await submit('reply never', null, other), await submit('reply after', null, other)];
    expect(await engine.cancel(other.id)).toBe(false);
    expect(await engine.cancel(other.id, never.id)).toBe(true);
    expect((await settled(never)).state).toBe('cancelled');
    await engine.cancel(conversation.id, running.id);
    expect(await replyText(await settled(after))).toBe('reply after');
    expect(prompts()).toHaveLength(2);
  });

  /** An engine whose dispatch stands still: before its statement, or behind it. */
  function standing(at: 'before' | 'behind') {
    const reached = Promise.withResolvers<void>();
    const go = Promise.withResolvers<void>();
    const stop = async () => {
      reached.resolve();
      await go.promise;
    };
    const dispatch: Governance['dispatch'] = async (...order) => {
      if (at === 'before') await stop();
      const event = await governance.dispatch(...order);
      if (at === 'behind') await stop();
      return event;
    };
    engine = makeEngine({ governance: { ...governance, dispatch } });
    return { reached: reached.promise, go: go.resolve };
  }

  test('the cancel is first: the dispatch finds nothing, and the child is given back warm', async () => {
    await send('reply first');
    const { reached, go } = standing('before');
    const message = await submit('reply never');
    const next = await submit('reply next');
    await reached;
    expect(await engine.cancel(conversation.id, message.id)).toBe(true);
    expect((await settled(message)).state).toBe('cancelled');
    go();
    expect(await replyText(await settled(next))).toBe('reply next');
    expect(await stored(message)).toMatchObject({ state: 'cancelled' });
    expect(cancels(message)).toBe(1);
    expect(prompts()).toHaveLength(2);
    expect(machine.admissions.map(({ admission }) => admission)).toEqual(['cold', 'warm', 'warm']);
  });

  test('the dispatch is first, and nobody has heard of it: the turn is ended, and told once', async () => {
    const { reached, go } = standing('behind');
    const message = await submit('reply never');
    await reached;
    expect((await stored(message))?.state).toBe('dispatched');
    expect(await engine.cancel(conversation.id, message.id)).toBe(true);
    go();
    expect((await settled(message)).state).toBe('cancelled');
    expect(types()).toEqual(['message.accepted', 'turn.started', 'turn.cancelled']);
    expect(await replyText(await send('reply after'))).toBe('reply after');
    expect(prompts()).toHaveLength(1);
  });

  test('both at once, again and again: each message ends in one state, and is prompted only if it was dispatched', async () => {
    await send('reply first');
    const outcomes = new Set<string>();
    for (let round = 0; round < 20; round += 1) {
      const message = await submit('slow-reply late');
      await Bun.sleep(round / 4);
      const cancelled = await engine.cancel(conversation.id, message.id);
      const end = await settled(message);
      const mine = events.filter((event) => 'message' in event && event.message === message.id).map(({ type }) => type);
      outcomes.add(mine.join(' '));
      expect(mine.filter((type) => type === 'turn.cancelled' || type === 'reply.delivered')).toHaveLength(1);
      if (end.state === 'cancelled') expect(cancelled).toBe(true);
      expect(await stored(message)).toEqual(end);
    }
    console.log(`what cancels met: ${[...outcomes].join(' | ')}`);
  });

  test('a turn that fails before its dispatch while it is being cancelled is cancelled', async () => {
    const held = Promise.withResolvers<void>();
    machine.gate = () => held.promise;
    const failing: Governance = {
      ...governance,
      // As if the refusal of the attach had come before the cancel was heard of.
      cancelWaiting: async (...which) => {
        const cancellation = await governance.cancelWaiting(...which);
        held.reject(new Error('all holders are at work'));
        await Bun.sleep(50);
        return cancellation;
      },
    };
    engine = makeEngine({ governance: failing });
    const message = await submit('reply never');
    const waiting = settled(message);
    expect(await engine.cancel(conversation.id, message.id)).toBe(true);
    expect((await waiting).state).toBe('cancelled');
    machine.gate = async () => undefined;
    expect(await replyText(await send('reply after'))).toBe('reply after');
    expect(types().filter((type) => type !== 'message.accepted')).toEqual([
      'turn.cancelled',
      'turn.started',
      'reply.delivered',
    ]);
  });

  test('one whose failure could not be recorded waits for the next start, and is cancelled for good', async () => {
    const failing: Governance = {
      ...governance,
      bindSession: () => Promise.reject(new Error('connection lost')),
      fail: () => Promise.reject(new Error('connection lost')),
    };
    engine = makeEngine({ governance: failing });
    const message = await send('reply never');
    expect(message.state).toBe('accepted');
    expect(await engine.cancel(conversation.id, message.id)).toBe(true);
    expect(await engine.cancel(conversation.id, message.id)).toBe(true);
    expect(cancels(message)).toBe(1);
    await engine.close(0);
    engine = makeEngine();
    await engine.start();
    expect(await replyText(await send('reply after'))).toBe('reply after');
    expect(await stored(message)).toMatchObject({ state: 'cancelled' });
    expect(prompts()).toHaveLength(1);
  });

  test('the process ends between the statement and its answer: the next one runs only the others', async () => {
    const committed = Promise.withResolvers<void>();
    const dying: Governance = {
      ...governance,
      cancelWaiting: async (...which) => {
        await governance.cancelWaiting(...which);
        committed.resolve();
        return new Promise(() => undefined);
      },
    };
    engine = makeEngine({ governance: dying });
    await busy();
    const never = await submit('reply never');
    const kept = await submit('reply kept');
    void engine.cancel(conversation.id, never.id);
    await committed.promise;
    await engine.close(1);
    engine = makeEngine();
    await engine.start();
    expect(await replyText(await settled(kept))).toBe('reply kept');
    expect(await engine.cancel(conversation.id, never.id)).toBe(true);
    expect(await stored(never)).toMatchObject({ state: 'cancelled' });
    expect(prompts()).toHaveLength(2);
  });
});

describe('a key that was used is answered whatever is full', () => {
  test('the line of the conversation, and that of all', async () => {
    for (const limits of [{ queuePerConversation: 2 }, { queueTotal: 2 }, { queueBytes: 1 }]) {
      await engine.close(0);
      engine = makeEngine({ limits });
      conversation = await newConversation();
      const running = await submit('slow', 'first');
      const chunk = seen(isChunk);
      const second = 'queueBytes' in limits ? null : await submit('reply second', 'second');
      await chunk;
      await expect(submit('reply third', 'third')).rejects.toMatchObject({ problem: 'too-many-requests' });
      expect(await submit('slow', 'first')).toMatchObject({ id: running.id, state: 'dispatched' });
      if (second !== null) expect(await submit('reply second', 'second')).toEqual(second);
      await expect(submit('reply other', 'first')).rejects.toMatchObject({ problem: 'idempotency-key-reused' });
      await expect(submit('slow', null)).rejects.toMatchObject({ problem: 'too-many-requests' });
      await engine.cancel(conversation.id, running.id);
      await settled(running);
      if (second !== null) await settled(second);
      expect(await submit('slow', 'first')).toMatchObject({ id: running.id, state: 'cancelled' });
    }
  });

  test('50 at once of which one takes the last place: one message, and 50 equal answers', async () => {
    engine = makeEngine({ limits: { queuePerConversation: 2 } });
    const chunk = seen(isChunk);
    const running = await submit('slow');
    await chunk;
    const messages = await Promise.all(Array.from({ length: 50 }, () => submit('reply once', 'key')));
    expect(new Set(messages.map(({ id }) => id)).size).toBe(1);
    await engine.cancel(conversation.id, running.id);
    expect(await replyText(await settled(messages[0] as Message))).toBe('reply once');
  });

  test('the log of what is written is full', async () => {
    const first = await submit('reply first', 'key');
    await settled(first);
    const full: Governance = { ...governance, accept: () => Promise.reject(new Problem('not-ready', 'too many')) };
    engine = makeEngine({ governance: full });
    expect(await submit('reply first', 'key')).toMatchObject({ id: first.id, state: 'delivered' });
    await expect(submit('reply new', 'new')).rejects.toMatchObject({ problem: 'not-ready' });
  });
});

describe('the end and the next start', () => {
  test('close waits for what runs and starts nothing new', async () => {
    const running = await submit('reply running');
    const closed = engine.close(5_000);
    await expect(submit('reply late')).rejects.toMatchObject({ problem: 'not-ready' });
    await closed;
    expect((await stored(running))?.state).toBe('delivered');
  });

  test('what close does not wait for is settled by the next start: a reply, none, and what never began', async () => {
    const other = await newConversation();
    const [a, b] = [seen(isChunk), await submit('slow')];
    await a;
    const waiting = await submit('reply waited');
    const chunk = seen((event) => isChunk(event) && event.conversation === other.id);
    const answered = await submit('slow-reply was there', null, other);
    await chunk;
    await engine.close(1);
    expect((await stored(b))?.state).toBe('dispatched');
    // The machine of the last process has ended; Hermes had committed one reply just before.
    const session = (await governance.findConversation(other.id))?.session ?? '';
    sessiondb.run(
      "INSERT INTO messages (session_id, role, content, timestamp, finish_reason) VALUES (?, 'assistant', 'was there', 1.5, 'stop')",
      [session],
    );
    engine = makeEngine();
    await engine.start();
    expect(problemOf(await stored(b))).toBe('turn-interrupted');
    const found = (await stored(answered)) as Message;
    expect(await replyText(found)).toBe('was there');
    expect(found).toMatchObject({ timings: null });
    expect(await replyText(await settled(waiting))).toBe('reply waited');
    expect(wire().filter(({ method }) => method === 'session/prompt')).toHaveLength(3);
    expect(await governance.pending()).toEqual([]);
  });

  test('a reply that cannot be read while the gateway ends is left to the next start, which delivers it', async () => {
    const inner = reader;
    const asked = Promise.withResolvers<void>();
    reader = {
      execute(sql, args) {
        if (!sql.includes('finish_reason')) return inner.execute(sql, args);
        asked.resolve();
        return inner.execute('SELECT broken', args);
      },
    };
    engine = makeEngine({ limits: { settleRetriesMs: [50] } });
    const message = await submit('reply kept');
    await asked.promise;
    // As when a part is lost: nothing is waited for.
    await engine.close(0);
    await engine.close(5_000);
    expect((await stored(message))?.state).toBe('dispatched');
    reader = inner;
    engine = makeEngine();
    await engine.start();
    expect(await replyText((await stored(message)) as Message)).toBe('reply kept');
  });

  test('a fragment of an interrupted turn is no reply', async () => {
    const chunk = seen(isChunk);
    const message = await submit('slow');
    await chunk;
    await engine.close(1);
    const session = (await governance.findConversation(conversation.id))?.session ?? '';
    sessiondb.run("INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'assistant', 'part', 1.5)", [
      session,
    ]);
    engine = makeEngine();
    await engine.start();
    expect(problemOf(await stored(message))).toBe('turn-interrupted');
  });

  test('nothing is said about an interrupted turn while SessionDB cannot be read', async () => {
    const chunk = seen(isChunk);
    const message = await submit('slow');
    await chunk;
    await engine.close(1);
    const inner = reader;
    reader = { execute: (_, args) => inner.execute('SELECT broken', args) };
    engine = makeEngine();
    await expect(engine.start()).rejects.toMatchObject({ problem: 'sessiondb-unavailable' });
    expect((await stored(message))?.state).toBe('dispatched');
    reader = inner;
    engine = makeEngine();
    await engine.start();
    expect(problemOf(await stored(message))).toBe('turn-interrupted');
  });
});

test('locators name the row', async () => {
  const message = await send('reply named');
  const address = message.state === 'delivered' ? decodeLocator(message.locator) : null;
  const rows = sessiondb.prepare('SELECT session_id, content FROM messages WHERE id = ?').values(address?.row ?? 0);
  expect(rows).toEqual([[address?.session ?? '', 'reply named']]);
});
