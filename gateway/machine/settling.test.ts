import { expect, test } from 'bun:test';
import type { Settle } from '../../machine/launch.ts';
import { Settling } from './settling.ts';

function machine(limitMs?: number) {
  const asked: Settle[] = [];
  const settling = new Settling((line) => asked.push(line), limitMs);
  return { asked, settling };
}

/** Lets everything go as far as it can. */
const rest = () => Bun.sleep(1);

test('callers at once share one settle; who calls after it began gets another', async () => {
  const { asked, settling } = machine();
  const first = [settling.settle(1_000), settling.settle(1_000)];
  await rest();
  const second = [settling.settle(1_000), settling.settle(1_000)];
  await rest();
  expect(asked).toEqual([{ settle: { id: 1 } }]);
  settling.heard({ settled: { id: 1, state: 'clean' } });
  expect(await Promise.all(first)).toEqual([{ state: 'clean' }, { state: 'clean' }]);
  await rest();
  expect(asked).toEqual([{ settle: { id: 1 } }, { settle: { id: 2 } }]);
  settling.heard({ settled: { id: 2, state: 'failing', reason: 'no cloud' } });
  expect(await Promise.all(second)).toEqual([
    { state: 'failing', reason: 'no cloud' },
    { state: 'failing', reason: 'no cloud' },
  ]);
});

test('a caller does not wait longer than it wants to', async () => {
  const { settling } = machine();
  expect(await settling.settle(5)).toMatchObject({ state: 'failing', reason: expect.stringContaining('5 ms') });
});

test('a machine that never answers holds up nobody for ever, and a late answer is for nobody', async () => {
  const { asked, settling } = machine(5);
  expect(await settling.settle(1_000)).toMatchObject({ state: 'failing' });
  const second = settling.settle(1_000);
  await Promise.resolve();
  settling.heard({ settled: { id: 1, state: 'clean' } });
  expect(await second).toMatchObject({ state: 'failing' });
  expect(asked.length).toBe(2);
});

test('the end of the machine ends every wait', async () => {
  const { asked, settling } = machine();
  const waiting = settling.settle(1_000);
  await rest();
  settling.close();
  expect(await waiting).toEqual({ state: 'failing', reason: 'the machine has ended' });
  expect(await settling.settle(1_000)).toEqual({ state: 'failing', reason: 'the machine has ended' });
  expect(asked.length).toBe(1);
});
