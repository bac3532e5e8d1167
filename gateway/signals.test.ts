import { expect, test } from 'bun:test';
import { signalAsksFor } from './signals.ts';

test('the first signal asks for an orderly end, a later one for the end at once', () => {
  expect(signalAsksFor(null, 1_000)).toBe('orderly-end');
  expect(signalAsksFor(1_000, 4_000)).toBe('end-at-once');
});

test('one Ctrl-C that arrives twice, as under `bun run`, asks for nothing new', () => {
  expect(signalAsksFor(1_000, 1_001)).toBe('nothing-new');
});
