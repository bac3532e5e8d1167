/**
 * The kill points at which everything runs: half of the required 300 (the others: machine/kill-points.long.test.ts), each
 * named step of a work boundary, a turn and a write of the API, and as many random moments. EDGE_TEST_SEED=N plays the same ones again.
 */
import { expect, test } from 'bun:test';
import { installedPostgres } from '../gateway/governance/databases.fixture.ts';
import { planOf } from './kill-points/plan.ts';
import { mostGrowth, playKills } from './kill-points/play.ts';

const bin = installedPostgres();
if (bin === null) console.error('SKIPPED: no installed Postgres (apt install postgresql); nothing is killed here');
const seed = Number(process.env.EDGE_TEST_SEED ?? Math.floor(Math.random() * 2 ** 31));
const points = Number(process.env.EDGE_TEST_KILL_POINTS ?? 150);
const counts = {
  authority: Math.ceil(points / 6),
  machine: Math.ceil(points / 6),
  gateway: Math.ceil((points * 2) / 3),
};

test.skipIf(bin === null)(
  `kill -9 of authority, machine and gateway at ${points} points loses and doubles nothing, seed ${seed}`,
  async () => {
    console.log(`kill points: EDGE_TEST_SEED=${seed}`);
    const verdict = await playKills(bin!, seed, planOf(seed, counts));
    console.log(`kill points: ${JSON.stringify(verdict)}`);
    expect(verdict.flaws).toEqual([]);
    for (const [who, bytes] of Object.entries(verdict.growth)) expect([who, bytes < mostGrowth]).toEqual([who, true]);
    expect(verdict.missed.length).toBeLessThan(10);
  },
  2 * 3_600_000,
);
