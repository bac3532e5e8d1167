import { describe, expect, test } from 'bun:test';
import type { LoggedEvent, Role } from '../domain.ts';
import type { ConversationId, Locator, MessageId } from '../ids.ts';
import { createEventBus } from './bus.ts';
import { clientUpdate, type Frame } from './frames.ts';
import { createJoin } from './joined.ts';
import {
  defaultSubscriberLimits,
  type Sink,
  Subscriber,
  type SubscriberLimits,
  type SubscriberParts,
} from './subscriber.ts';

const a = 'conv_a' as ConversationId;
const b = 'conv_b' as ConversationId;
const at = new Date(0);

/** A log, a bus and a connection, all in memory; texts are delivered when the test says so. */
function world(options: { role?: Role; limits?: Partial<SubscriberLimits>; oldest?: number } = {}) {
  const events: LoggedEvent[] = [];
  const bus = createEventBus(0, { gapMs: 5, maxHeld: 100 });
  const frames: Frame[] = [];
  const reports: string[] = [];
  const state = {
    reads: 0,
    buffered: 0,
    closed: null as number | null,
    beforeRead: () => {},
    drain: () => {},
    texts: new Map<string, Promise<{ text: string }>>(),
    textReads: 0,
    failLog: false,
  };
  const log = {
    lastSeq: () => events.at(-1)?.seq ?? 0,
    eventsAfter: async (seq: number, limit: number) => {
      state.reads += 1;
      if (state.failLog) throw new Error('no database');
      const page = events.filter((event) => event.seq > seq).slice(0, limit);
      await Bun.sleep(0);
      state.beforeRead();
      return { events: page, oldest: options.oldest ?? 1 };
    },
  };
  const join = createJoin(
    (locator) => {
      state.textReads += 1;
      return state.texts.get(locator) ?? Promise.resolve({ text: `text of ${locator}` });
    },
    () => undefined,
  );
  const parts: SubscriberParts = {
    bus,
    log,
    join,
    limits: { ...defaultSubscriberLimits, ...options.limits },
    report: (what) => reports.push(what),
  };
  const sink: Sink = {
    send: (frame) => frames.push(frame),
    buffered: () => state.buffered,
    drained: () =>
      new Promise((resolve) => {
        state.drain = resolve;
      }),
    close: (code) => {
      state.closed = code;
    },
  };
  const subscriber = new Subscriber(parts, options.role ?? 'client', sink);
  /** Commits an event without publishing it. */
  const commit = (conversation: ConversationId, locator?: string): LoggedEvent => {
    const seq = events.length + 1;
    const event: LoggedEvent =
      locator === undefined
        ? { seq, conversation, at, type: 'conversation.updated' }
        : {
            seq,
            conversation,
            at,
            type: 'reply.delivered',
            message: 'msg_x' as MessageId,
            locator: locator as Locator,
          };
    events.push(event);
    return event;
  };
  return {
    ...{ bus, frames, reports, state, parts, sink, subscriber, commit },
    happen: (conversation: ConversationId, locator?: string) => bus.publish(commit(conversation, locator)),
    say: (text: string, conversation = a) =>
      bus.update({
        type: 'session.update',
        conversation,
        at,
        update: { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } },
      }),
    /** What was sent, in short. */
    sent: () =>
      frames.map(({ type, seq, json }) => {
        const { update, text } = JSON.parse(json);
        return seq ?? (type === 'session.update' ? update.content.text : (text ?? type));
      }),
    subscribe: (conversation: ConversationId, after: number | null) =>
      subscriber.subscribe(conversation, after ?? bus.position, () => {}),
  };
}

const settle = () => Bun.sleep(20);

describe('a subscriber', () => {
  test('gets its conversations and no other', () => {
    const { happen, say, subscribe, subscriber, sent } = world();
    happen(a);
    subscribe(a, null);
    happen(a);
    happen(b);
    say('x');
    say('y', b);
    happen(a);
    subscriber.unsubscribe(a);
    happen(a);
    expect(sent()).toEqual([2, 'x', 4]);
  });

  test('gets the text of a reply, and what follows it afterwards', async () => {
    const { happen, say, subscribe, sent, frames, state } = world();
    subscribe(a, null);
    const late = Promise.withResolvers<{ text: string }>();
    state.texts.set('loc', late.promise);
    happen(a, 'loc');
    say('later');
    happen(a);
    expect(sent()).toEqual([]);
    late.resolve({ text: 'hello' });
    await settle();
    expect(sent()).toEqual([1, 'later', 2]);
    expect(JSON.parse(frames[0]?.json ?? '')).toEqual({
      seq: 1,
      type: 'reply.delivered',
      conversation: a,
      at: at.toISOString(),
      message: 'msg_x',
      locator: 'loc',
      text: 'hello',
    });
  });

  test('is told when a text cannot be read', async () => {
    const { happen, subscribe, frames, state } = world();
    subscribe(a, null);
    state.texts.set('loc', Promise.reject(new Error('secret cause')));
    happen(a, 'loc');
    happen(a);
    await settle();
    expect(frames).toHaveLength(2);
    expect(frames[0]?.json).toContain('"text":null');
    expect(frames[0]?.json).not.toContain('secret');
  });

  test('reads one text for all of its connections', async () => {
    const { happen, subscribe, parts, sink, sent, state } = world();
    subscribe(a, null);
    new Subscriber(parts, 'client', sink).subscribe(a, 0, () => {});
    happen(a, 'loc');
    await settle();
    expect(sent()).toEqual([1, 1]);
    expect(state.textReads).toBe(1);
  });

  test('gets what it missed, then what happens now, without a hole or a repetition', async () => {
    const { happen, commit, bus, subscribe, sent, state } = world({ limits: { pageEvents: 2 } });
    for (let count = 0; count < 7; count += 1) happen(count % 3 === 2 ? b : a, count === 3 ? 'loc' : undefined);
    let during = 0;
    state.beforeRead = () => {
      // While the log is read: one that is published, and one that is committed and published later.
      during += 1;
      if (during === 1) happen(a);
      if (during === 2) {
        const later = commit(a);
        setTimeout(() => bus.publish(later), 5);
      }
    };
    subscribe(a, 1);
    await settle();
    happen(a);
    expect(sent()).toEqual([2, 4, 5, 7, 8, 9, 10]);
    const reads = state.reads;
    happen(a);
    await settle();
    expect(sent().at(-1)).toBe(11);
    expect(state.reads).toBe(reads);
  });

  test('gets updates that come during a replay where they belong', async () => {
    const { happen, say, subscribe, sent, state } = world();
    happen(a);
    state.beforeRead = () => {
      state.beforeRead = () => {};
      say('after 1');
      happen(a);
      say('after 2');
    };
    subscribe(a, 0);
    await settle();
    say('live');
    expect(sent()).toEqual([1, 'after 1', 2, 'after 2', 'live']);
  });

  test.each([
    ['the log begins later', { oldest: 3 }, 1],
    ['it is further behind than may be replayed', { limits: { replayEvents: 3, pageEvents: 2 } }, 0],
    ['it names a number of the future', {}, 99],
  ])('reloads when %s', async (_, options, after) => {
    const { happen, subscribe, frames } = world(options);
    for (let count = 0; count < 6; count += 1) happen(b);
    subscribe(a, after);
    await settle();
    happen(a);
    expect(frames.map(({ json }) => JSON.parse(json))).toMatchObject([
      { type: 'resync', conversation: a, from: 6 },
      { seq: 7 },
    ]);
    expect(frames[0]?.seq).toBeNull();
  });

  test('a client that subscribes again and again costs no more reads of the log, and gets what it missed once', async () => {
    const { happen, subscribe, sent, state } = world();
    for (let count = 0; count < 3; count += 1) happen(a);
    for (let count = 0; count < 1_000; count += 1) subscribe(a, 0);
    await settle();
    expect(sent()).toEqual([1, 2, 3]);
    expect(state.reads).toBeLessThanOrEqual(2);
  });

  test('a read of the log that fails ends the connection, and not the process', async () => {
    const { happen, subscribe, state } = world();
    happen(a);
    happen(b);
    state.failLog = true;
    subscribe(a, 0);
    subscribe(b, 0);
    await settle();
    expect(state.closed).toBe(1011);
  });

  test('a replay waits for the client to read', async () => {
    const { happen, subscribe, sent, state } = world();
    for (let count = 0; count < 4; count += 1) happen(a);
    state.buffered = 1;
    subscribe(a, 0);
    await settle();
    expect(sent()).toEqual([]);
    state.buffered = 0;
    state.drain();
    await settle();
    expect(sent()).toEqual([1, 2, 3, 4]);
    expect(state.closed).toBeNull();
  });

  test('a gap on the bus is filled from the log', async () => {
    const { happen, commit, bus, subscribe, sent } = world();
    subscribe(a, null);
    happen(a);
    commit(a);
    bus.publish(commit(a));
    expect(sent()).toEqual([1]);
    await settle();
    happen(a);
    await settle();
    expect(sent()).toEqual([1, 2, 3, 4]);
  });

  test('is dropped when it does not read', () => {
    const { happen, subscribe, sent, state, reports } = world({ limits: { bufferedBytes: 10 } });
    subscribe(a, null);
    state.buffered = 10;
    happen(a);
    state.buffered = 11;
    happen(a);
    happen(a);
    expect(sent()).toEqual([1]);
    expect(state.closed).toBe(4008);
    expect(reports).toEqual(['a slow client was dropped']);
  });

  test('is dropped when too much waits for a text', () => {
    const { happen, subscribe, state } = world({ limits: { queuedFrames: 3 } });
    subscribe(a, null);
    state.texts.set('loc', new Promise(() => {}));
    happen(a, 'loc');
    for (let count = 0; count < 3; count += 1) happen(a);
    expect(state.closed).toBeNull();
    happen(a);
    expect(state.closed).toBe(4008);
  });

  test('is closed when the log cannot be read', async () => {
    const { happen, subscribe, state } = world();
    happen(a);
    state.failLog = true;
    subscribe(a, 0);
    await settle();
    expect(state.closed).toBe(1011);
  });

  test('may not listen to any number of conversations', () => {
    const { subscribe } = world({ limits: { conversations: 1 } });
    expect(subscribe(a, null)).toBe(true);
    expect(subscribe(a, null)).toBe(true);
    expect(subscribe(b, null)).toBe(false);
  });

  test('listens to nothing after it closed', () => {
    const { happen, subscribe, subscriber, sent } = world();
    subscribe(a, null);
    subscriber.close();
    happen(a);
    expect(sent()).toEqual([]);
  });
});

describe('what a role sees of native updates', () => {
  const call = {
    sessionUpdate: 'tool_call',
    toolCallId: 'c1',
    kind: 'execute',
    title: 'ls',
    status: 'pending',
    rawInput: { command: 'ls /secret' },
    content: [{ type: 'content' }],
    locations: [{ path: '/x' }],
    _meta: { x: 1 },
  };

  test.each([
    [call, { sessionUpdate: 'tool_call', toolCallId: 'c1', kind: 'execute', title: 'ls', status: 'pending' }],
    [
      { sessionUpdate: 'tool_call_update', toolCallId: 'c1', status: 'completed', rawOutput: 'secret' },
      { sessionUpdate: 'tool_call_update', toolCallId: 'c1', status: 'completed' },
    ],
    [
      { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: 'a\ud800', _meta: 1 }, _meta: 2 },
      { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: 'a\ud800' } },
    ],
    [{ sessionUpdate: 'agent_message_chunk', content: { type: 'image', data: 'x' } }, null],
    [{ sessionUpdate: 'agent_message_chunk', content: null }, null],
    [{ sessionUpdate: 'agent_thought_chunk', content: { type: 'text', text: 'hm' } }, null],
    [{ sessionUpdate: 'user_message_chunk', content: { type: 'text', text: 'hm' } }, null],
    [{ sessionUpdate: 'plan', entries: [] }, null],
    [{ sessionUpdate: 'available_commands_update' }, null],
    [{ sessionUpdate: 'usage_update', cost: 1 }, null],
    [{}, null],
  ])('a client: %p', (update, shown) => {
    expect(clientUpdate(update)).toEqual(shown);
  });

  test.each<[Role, boolean]>([
    ['client', false],
    ['client_admin', false],
    ['expert', true],
    ['account_manager', true],
    ['superadmin', true],
  ])('%s gets them verbatim: %p', (role, verbatim) => {
    const { bus, subscribe, frames } = world({ role });
    subscribe(a, null);
    bus.update({ type: 'session.update', conversation: a, at, update: call });
    const { update } = JSON.parse(frames[0]?.json ?? '');
    if (verbatim) expect(JSON.stringify(update)).toBe(JSON.stringify(call));
    else expect(update).not.toHaveProperty('rawInput');
  });
});
