import { describe, expect, test } from 'bun:test';
import type { RelayedChild } from '../../hermes-run/server.ts';
import { type Holder, Holders, type Start } from './holders.ts';

class FakeHolder implements Holder {
  readonly child: RelayedChild;
  readonly log: string[] = [];
  readonly #end = Promise.withResolvers<void>();
  readonly ended = this.#end.promise;
  readonly #silence = Promise.withResolvers<void>();
  readonly silent = this.#silence.promise;

  constructor(generation: number) {
    this.child = { generation, write: async () => undefined, peek: async () => null, take: () => undefined };
  }

  beginWork = () => void this.log.push('begin');
  endWork = () => void this.log.push('end');
  retire = () => this.#ending('retire');
  kill = () => this.#ending('kill');

  /** Its output ends; the rest of it is not cleared before `kill` or `retire`. */
  fallSilent() {
    this.#silence.resolve();
  }

  #ending(how: string) {
    this.log.push(how);
    queueMicrotask(() => this.#end.resolve());
  }
}

function registry(maxHolders = 2, attachedLimitMs?: number) {
  const started: FakeHolder[] = [];
  const holders = new Holders(
    async (conversation, _session, generation): Promise<Start> => {
      if (conversation === 'unknown') return { outcome: 'refused', refusal: 'unknown-conversation', detail: 'unknown' };
      if (conversation === 'broken') throw new Error('broken');
      const holder = new FakeHolder(generation);
      started.push(holder);
      return { outcome: 'started', holder, admissionMs: 1 };
    },
    maxHolders,
    attachedLimitMs,
  );
  return { holders, started };
}

async function admitted(holders: Holders, conversation: string) {
  const admission = await holders.admit(conversation, null);
  if (admission.outcome !== 'admitted') throw new Error(admission.refusal);
  return admission;
}

describe('holders', () => {
  test('the first attachment is cold, the next ones are warm and the same child', async () => {
    const { holders, started } = registry();
    const first = await admitted(holders, 'a');
    holders.release(first.child, 'detached');
    const second = await admitted(holders, 'a');
    expect([first.admission, second.admission]).toEqual(['cold', 'warm']);
    expect(second.child).toBe(first.child);
    expect(started[0]?.log).toEqual(['end', 'begin']);
  });

  test('who asks for a fresh child gets no warm one: that is retired in order, and its end awaited', async () => {
    const { holders, started } = registry(2, 20);
    const first = await admitted(holders, 'a');
    expect(await holders.admit('a', null, true)).toMatchObject({ refusal: 'busy' });
    holders.release(first.child, 'detached');
    const both = await Promise.all([holders.admit('a', null, true), holders.admit('a', null, true)]);
    expect(both.map(({ outcome }) => outcome).toSorted()).toEqual(['admitted', 'refused']);
    expect(started.map(({ log }) => log.join())).toEqual(['end,retire', '']);
    expect(both).toContainEqual(expect.objectContaining({ admission: 'cold', child: started[1]?.child as never }));
  });

  test('two attachments at once: one is busy when the other stays, whatever the interleaving', async () => {
    const { holders, started } = registry(2, 20);
    const both = await Promise.all([holders.admit('a', null), holders.admit('a', null)]);
    expect(both.map((admission) => (admission.outcome === 'refused' ? admission.refusal : 'admitted')).sort()).toEqual([
      'admitted',
      'busy',
    ]);
    expect(started.length).toBe(1);
  });

  test('an attachment waits for the one before it: warm after a detach, cold after an abandon, cold after an end', async () => {
    const { holders, started } = registry();
    let child = (await admitted(holders, 'a')).child;
    for (const leave of ['detached', 'abandoned', 'ended'] as const) {
      const next = admitted(holders, 'a');
      let early = true;
      void next.finally(() => {
        early = false;
      });
      await Bun.sleep(5);
      expect(early).toBe(true);
      if (leave === 'ended') started.at(-1)?.kill();
      else holders.release(child, leave);
      const { admission, child: now } = await next;
      expect(admission).toBe(leave === 'detached' ? 'warm' : 'cold');
      child = now;
    }
    expect(started).toHaveLength(3);
  });

  test('of several that wait each gets it once', async () => {
    const { holders } = registry();
    const { child } = await admitted(holders, 'a');
    const waiting = [1, 2, 3].map(async () => {
      const { child: mine } = await admitted(holders, 'a');
      await Bun.sleep(1);
      holders.release(mine, 'detached');
      return mine;
    });
    holders.release(child, 'detached');
    expect(await Promise.all(waiting)).toEqual([child, child, child]);
  });

  test('an abandoned child is killed, and the next attachment waits for its end and is cold', async () => {
    const { holders, started } = registry();
    const first = await admitted(holders, 'a');
    holders.release(first.child, 'abandoned');
    const second = await admitted(holders, 'a');
    expect(started[0]?.log).toContain('kill');
    expect(second.admission).toBe('cold');
    expect(second.child.generation).toBeGreaterThan(first.child.generation);
  });

  test('a child that ends by itself is forgotten', async () => {
    const { holders, started } = registry();
    const first = await admitted(holders, 'a');
    started[0]?.kill();
    await started[0]?.ended;
    await Promise.resolve();
    holders.release(first.child, 'abandoned');
    expect((await admitted(holders, 'a')).admission).toBe('cold');
  });

  test('nobody is attached to a child that has ended, even while its holder is still being cleared', async () => {
    const { holders, started } = registry();
    const first = await admitted(holders, 'a');
    holders.release(first.child, 'detached');
    started[0]?.fallSilent();
    await Promise.resolve();
    const second = await admitted(holders, 'a');
    expect(second.admission).toBe('cold');
    expect(started[0]?.log).toContain('retire');
    // The same while somebody is attached, who lets go of it only afterwards.
    started[1]?.fallSilent();
    await Promise.resolve();
    holders.release(second.child, 'detached');
    expect((await admitted(holders, 'a')).child.generation).toBe(3);
  });

  test('the room of an ending holder is for one', async () => {
    const { holders } = registry(1);
    const a = await admitted(holders, 'a');
    holders.release(a.child, 'abandoned');
    const both = await Promise.all([holders.admit('b', null), holders.admit('c', null)]);
    expect(both.map(({ outcome }) => outcome)).toEqual(['admitted', 'refused']);
  });

  test('no room: the idle one used longest ago goes; without an idle one the attachment is refused', async () => {
    const { holders, started } = registry(2);
    const a = await admitted(holders, 'a');
    const b = await admitted(holders, 'b');
    expect(await holders.admit('c', null)).toMatchObject({ refusal: 'full' });
    holders.release(b.child, 'detached');
    holders.release(a.child, 'detached');
    await admitted(holders, 'c');
    expect(started[1]?.log).toContain('retire');
    expect(started[0]?.log).not.toContain('retire');
  });

  test('a start that is refused or fails leaves the conversation free', async () => {
    const { holders } = registry(1);
    expect(await holders.admit('unknown', null)).toMatchObject({ refusal: 'unknown-conversation' });
    await expect(holders.admit('broken', null)).rejects.toThrow('broken');
    expect((await admitted(holders, 'a')).admission).toBe('cold');
  });

  test('closing retires idle children, kills attached ones and refuses everybody', async () => {
    const { holders, started } = registry();
    const a = await admitted(holders, 'a');
    await admitted(holders, 'b');
    holders.release(a.child, 'detached');
    await holders.close();
    expect(started[0]?.log).toContain('retire');
    expect(started[1]?.log).toContain('kill');
    expect(await holders.admit('a', null)).toMatchObject({ refusal: 'closing' });
  });

  test('replacing: an idle child ends, one at work or starting ends behind that, and only its own conversation has a new one', async () => {
    const { holders, started } = registry(4);
    expect(holders.replace('a')).toBe('none');
    const a = await admitted(holders, 'a');
    const b = await admitted(holders, 'b');
    holders.release(a.child, 'detached');
    expect([holders.replace('a'), holders.replace('b')]).toEqual(['ended', 'after-turn']);
    expect(started.map(({ log }) => log.includes('retire'))).toEqual([true, false]);
    expect(started[1]?.log).not.toContain('kill');
    holders.release(b.child, 'detached');
    expect(started[1]?.log).toContain('retire');
    const again = [await admitted(holders, 'a'), await admitted(holders, 'b')];
    expect(again.map(({ admission }) => admission)).toEqual(['cold', 'cold']);
    for (const { child } of again) holders.release(child, 'detached');
    // Once: the new ones stay.
    expect([(await admitted(holders, 'a')).admission, (await admitted(holders, 'b')).admission]).toEqual([
      'warm',
      'warm',
    ]);

    const starting = admitted(holders, 'c');
    expect(holders.replace('c')).toBe('after-turn');
    holders.release((await starting).child, 'detached');
    expect((await admitted(holders, 'c')).admission).toBe('cold');
  });

  test('ending: whatever the child does, nothing of it is left then', async () => {
    const { holders, started } = registry(4);
    expect(await holders.end('a')).toBe('none');
    const a = await admitted(holders, 'a');
    holders.release(a.child, 'detached');
    await admitted(holders, 'b');
    const starting = holders.admit('c', null);
    expect(await Promise.all([holders.end('a'), holders.end('b'), holders.end('c')])).toEqual([
      'ended',
      'ended',
      'ended',
    ]);
    expect(started.map(({ log }) => log.at(-1))).toEqual(['retire', 'kill', 'kill']);
    await starting;
    expect((await admitted(holders, 'a')).admission).toBe('cold');
  });
});
