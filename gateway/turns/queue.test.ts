import { describe, expect, test } from 'bun:test';
import { newConversationId } from '../ids.ts';
import { TurnQueue } from './queue.ts';

/** A turn that ends when told to, and a log of what began and ended. */
function script(log: string[]) {
  const ends = new Map<string, () => void>();
  return {
    turn: (name: string) => () => {
      log.push(`+${name}`);
      return new Promise<void>((resolve) => {
        ends.set(name, () => {
          log.push(`-${name}`);
          resolve();
        });
      });
    },
    async end(name: string): Promise<void> {
      ends.get(name)?.();
      await Bun.sleep(0);
    },
  };
}

const limits = { perConversation: 3, total: 5, bytes: 100, running: 2 };

describe('the order of turns', () => {
  test('one at a time in a conversation, in the order in which they joined', async () => {
    const log: string[] = [];
    const { turn, end } = script(log);
    const queue = new TurnQueue(limits);
    const a = newConversationId();
    const first = queue.take(a);
    const second = queue.take(a);
    const third = queue.take(a);
    second.run(turn('second'));
    third.run(turn('third'));
    first.run(turn('first'));
    expect(log).toEqual(['+second']);
    await end('second');
    await end('third');
    await end('first');
    expect(log).toEqual(['+second', '-second', '+third', '-third', '+first', '-first']);
    expect(queue.running).toBe(0);
  });

  test('conversations run beside each other, as many as allowed, and take turns', async () => {
    const log: string[] = [];
    const { turn, end } = script(log);
    const queue = new TurnQueue(limits);
    const [a, b, c] = [newConversationId(), newConversationId(), newConversationId()];
    queue.take(a).run(turn('a1'));
    queue.take(a).run(turn('a2'));
    queue.take(b).run(turn('b1'));
    queue.take(c).run(turn('c1'));
    expect(log).toEqual(['+a1', '+b1']);
    await end('a1');
    expect(log).toEqual(['+a1', '+b1', '-a1', '+c1']);
    await end('c1');
    expect(log.at(-1)).toBe('+a2');
    await end('a2');
    await end('b1');
    expect(queue.running).toBe(0);
  });
});

describe('a place that is given up while its turn waits', () => {
  test('the others keep their order, the place is free at once, and what has begun is not taken back', async () => {
    const log: string[] = [];
    const { turn, end } = script(log);
    const queue = new TurnQueue(limits);
    const a = newConversationId();
    const places = ['1', '2', '3'].map((name) => {
      const place = queue.take(a);
      place.run(turn(name));
      return place;
    });
    expect(places.map((place) => place.withdraw())).toEqual([false, true, true]);
    expect(places.map((place) => place.withdraw())).toEqual([false, false, false]);
    queue.take(a).run(turn('4'));
    queue.take(a).run(turn('5'));
    expect(() => queue.take(a)).toThrow();
    for (const name of ['1', '4', '5']) await end(name);
    expect(log).toEqual(['+1', '-1', '+4', '-4', '+5', '-5']);
    expect(queue.take(a).withdraw()).toBe(false);
  });

  test('a conversation that waited for a seat with it alone needs none, and comes back at the end', async () => {
    const log: string[] = [];
    const { turn, end } = script(log);
    const queue = new TurnQueue({ ...limits, running: 1 });
    const [a, b, c] = [newConversationId(), newConversationId(), newConversationId()];
    queue.take(a).run(turn('a'));
    const waiting = queue.take(b);
    waiting.run(turn('never'));
    queue.take(c).run(turn('c'));
    const emptied = queue.emptied(b);
    expect(waiting.withdraw()).toBe(true);
    await emptied;
    queue.take(b).run(turn('b'));
    for (const name of ['a', 'c', 'b']) await end(name);
    expect(log).toEqual(['+a', '-a', '+c', '-c', '+b', '-b']);
    await queue.stop();
  });
});

describe('bounds', () => {
  const refused = (take: () => unknown): unknown => {
    try {
      take();
      return null;
    } catch (error) {
      return error;
    }
  };

  test('a full conversation is refused with a time to come back, and a place that came free is given again', async () => {
    const { turn, end } = script([]);
    const queue = new TurnQueue(limits);
    const a = newConversationId();
    queue.take(a).run(turn('1'));
    queue.take(a).run(turn('2'));
    const unused = queue.take(a);
    expect(refused(() => queue.take(a))).toMatchObject({
      problem: 'too-many-requests',
      document: { status: 429, retryAfter: 5 },
    });
    expect(refused(() => queue.take(newConversationId()))).toBeNull();
    unused.release();
    unused.release();
    expect(refused(() => queue.take(a))).toBeNull();
    expect(refused(() => queue.take(a))).not.toBeNull();
    await end('1');
    expect(refused(() => queue.take(a))).toBeNull();
  });

  test('the bytes of all are bounded; one alone and what is stored always has room, and room is given back', async () => {
    const { turn, end } = script([]);
    const queue = new TurnQueue(limits);
    const take = (bytes: number, stored = false) => queue.take(newConversationId(), { stored, bytes });
    const whole = take(101);
    whole.run(turn('whole'));
    expect(refused(() => take(1))).toMatchObject({ problem: 'too-many-requests', document: { retryAfter: 5 } });
    take(1_000, true).release();
    await end('whole');
    take(60).release();
    take(60);
    expect(refused(() => take(41))).not.toBeNull();
    expect(refused(() => take(40))).toBeNull();
  });

  test('the total is bounded', () => {
    const queue = new TurnQueue({ ...limits, perConversation: 1 });
    for (let index = 0; index < 5; index += 1) queue.take(newConversationId());
    expect(refused(() => queue.take(newConversationId()))).toMatchObject({ problem: 'too-many-requests' });
  });
});

test('after stop nothing begins, and it waits for what runs', async () => {
  const log: string[] = [];
  const { turn, end } = script(log);
  const queue = new TurnQueue(limits);
  const a = newConversationId();
  queue.take(a).run(turn('1'));
  queue.take(a).run(turn('2'));
  let stopped = false;
  const stop = queue.stop().then(() => {
    stopped = true;
  });
  await Bun.sleep(0);
  expect(stopped).toBe(false);
  await end('1');
  await stop;
  expect(log).toEqual(['+1', '-1']);
  await new TurnQueue(limits).stop();
});
