import { test } from 'bun:test';
import { killAtPoints } from './kill-points.fixture.ts';

const points = Number(process.env.EDGE_TEST_KILL_POINTS ?? 300);
test(
  `kill -9 of machine or authority at ${points} random points loses nothing that was synced`,
  () => killAtPoints(points, 1_000),
  3_600_000,
);
