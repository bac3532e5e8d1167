import { expect, test } from 'bun:test';
import type { ChildEnd } from '../../machine/launch.ts';
import { ChildEnds, describeChildEnd } from './child-ends.ts';

const killed = (generation: number): ChildEnd => ({
  generation,
  code: null,
  signal: 'SIGKILL',
  report: '',
  outOfMemory: false,
});

test('an end is told to those who asked before and to those who ask after', async () => {
  const ends = new ChildEnds();
  const before = [ends.of(1), ends.of(1), ends.of(2)];
  ends.add(killed(2));
  ends.add(killed(1));
  expect(await Promise.all(before)).toEqual([killed(1), killed(1), killed(2)]);
  expect(await ends.of(2)).toEqual(killed(2));
});

test('a wait for what is never said ends', async () => {
  const ends = new ChildEnds(5);
  expect(await ends.of(7)).toBeNull();
  ends.add(killed(7));
  expect(await ends.of(7)).toEqual(killed(7));
});

test('the end of the machine ends every wait', async () => {
  const ends = new ChildEnds();
  const waiting = ends.of(1);
  ends.add(killed(2));
  ends.close();
  expect(await waiting).toBeNull();
  expect(await ends.of(1)).toBeNull();
  expect(await ends.of(2)).toEqual(killed(2));
});

test('old ends are forgotten', async () => {
  const ends = new ChildEnds(5);
  for (let generation = 1; generation <= 300; generation += 1) ends.add(killed(generation));
  expect(await ends.of(1)).toBeNull();
  expect(await ends.of(300)).toEqual(killed(300));
});

test('an end in words', () => {
  expect(describeChildEnd(killed(1))).toBe('SIGKILL');
  expect(describeChildEnd({ ...killed(1), outOfMemory: true })).toBe(
    'SIGKILL: out of memory, EDGE_HOLDER_MEMORY_MIB is its limit',
  );
  expect(describeChildEnd({ ...killed(1), code: 1, signal: null })).toBe('exit code 1');
  const report = 'confined-exec holder: the notifier ended: EPIPE\nconfined-exec holder: the relay ended: EPIPE';
  expect(describeChildEnd({ ...killed(1), code: 126, signal: null, report })).toBe(
    'exit code 126: confined-exec holder: the notifier ended: EPIPE; confined-exec holder: the relay ended: EPIPE',
  );
});
