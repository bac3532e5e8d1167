/** Half of the required 300 kill points: of the machine and its authority alone. The others: e2e/kill-points.long.test.ts. */
import { test } from 'bun:test';
import { killAtPoints } from './kill-points.fixture.ts';

const points = Number(process.env.EDGE_TEST_KILL_POINTS ?? 150);
test(
  `kill -9 of machine or authority at ${points} points loses nothing that was synced`,
  () => killAtPoints(points, 1_000),
  3_600_000,
);
