import { test } from 'bun:test';
import { killAtPoints } from './kill-points.fixture.ts';

// 150 points: kill-points.long.test.ts.
test('kill -9 of machine or authority at 12 points loses nothing that was synced', () => killAtPoints(12, 1), 120_000);
