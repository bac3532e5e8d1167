import { describe, expect, test } from 'bun:test';
import type { LoggedEvent } from '../domain.ts';
import type { ConversationId } from '../ids.ts';
import { createEventBus } from './bus.ts';

const event = (seq: number): LoggedEvent => ({
  seq,
  type: 'conversation.updated',
  conversation: 'conv_a' as ConversationId,
  at: new Date(0),
});

/** A bus, and the numbers that a listener of it gets. */
function bus(lastSeq: number, options: Parameters<typeof createEventBus>[1] = {}) {
  const got: (number | string)[] = [];
  const reports: string[] = [];
  const made = createEventBus(lastSeq, { report: (what) => reports.push(what), ...options });
  made.subscribe(
    (item) => got.push('seq' in item ? item.seq : item.type),
    (last) => got.push(`gap after ${last}`),
  );
  return { made, got, reports };
}

describe('the event bus', () => {
  test.each([[[1, 2, 3, 4]], [[4, 3, 2, 1]], [[2, 1, 4, 3]], [[3, 1, 4, 2]], [[1, 1, 2, 4, 4, 3, 3, 2]]])(
    'hands out %p in order and once',
    (order) => {
      const { made, got } = bus(0);
      for (const seq of order) made.publish(event(seq));
      expect(got).toEqual([1, 2, 3, 4]);
      expect(made.position).toBe(4);
    },
  );

  test('goes on where the log stood, and ignores what is older', () => {
    const { made, got } = bus(41);
    made.publish(event(41));
    made.publish(event(43));
    expect(got).toEqual([]);
    expect(made.position).toBe(41);
    made.publish(event(42));
    expect(got).toEqual([42, 43]);
  });

  test('updates do not wait for a gap', () => {
    const { made, got } = bus(0);
    made.publish(event(2));
    made.update({ type: 'session.update', conversation: 'conv_a' as ConversationId, at: new Date(0), update: {} });
    expect(got).toEqual(['session.update']);
  });

  test('a gap is given up when too many events wait for it', () => {
    const { made, got, reports } = bus(0, { maxHeld: 3 });
    for (const seq of [3, 4, 6]) made.publish(event(seq));
    expect(got).toEqual([]);
    made.publish(event(7));
    expect(got).toEqual(['gap after 0', 3, 4]);
    expect(reports).toHaveLength(1);
    made.publish(event(1));
    made.publish(event(5));
    expect(got).toEqual(['gap after 0', 3, 4, 5, 6, 7]);
  });

  test('a gap is given up after a while', async () => {
    const { made, got } = bus(0, { gapMs: 5 });
    made.publish(event(2));
    await Bun.sleep(50);
    expect(got).toEqual(['gap after 0', 2]);
    made.publish(event(4));
    made.publish(event(3));
    await Bun.sleep(50);
    expect(got).toEqual(['gap after 0', 2, 3, 4]);
  });

  test('a listener that throws or leaves harms no other', () => {
    const { made, got, reports } = bus(0);
    const late: number[] = [];
    made.subscribe(() => {
      throw new Error('mine');
    });
    const leave = made.subscribe((item) => late.push('seq' in item ? item.seq : 0));
    made.publish(event(1));
    leave();
    made.publish(event(2));
    expect(got).toEqual([1, 2]);
    expect(late).toEqual([1]);
    expect(reports).toHaveLength(2);
  });

  test('closed, it is silent', async () => {
    const { made, got } = bus(0, { gapMs: 5 });
    made.publish(event(2));
    made.close();
    await Bun.sleep(30);
    expect(got).toEqual([]);
  });
});
