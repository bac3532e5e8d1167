/** Eight agents, fifty turns each, one SessionDB. */
import { test } from 'bun:test';
import { manyTurns } from './many-turns.ts';

test('8 conversations × 50 turns at once', () => manyTurns(8, 50), 3600_000);
