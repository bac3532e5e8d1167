/** A few kill points; all of them: kill-points.long.test.ts. EDGE_TEST_SEED=N plays the same ones again. */
import { expect, test } from 'bun:test';
import { installedPostgres } from '../gateway/governance/databases.fixture.ts';
import { planOf } from './kill-points/plan.ts';
import { playKills } from './kill-points/play.ts';

const bin = installedPostgres();
if (bin === null) console.error('SKIPPED: no installed Postgres (apt install postgresql); nothing is killed here');
const seed = Number(process.env.EDGE_TEST_SEED ?? Math.floor(Math.random() * 2 ** 31));

test.skipIf(bin === null)(
  `kill -9 of authority, machine and gateway at 5 points loses and doubles nothing, seed ${seed}`,
  async () => {
    const verdict = await playKills(bin!, seed, planOf(seed, { authority: 1, machine: 1, gateway: 3 }));
    console.log(`kill points: ${JSON.stringify(verdict)}`);
    expect(verdict.flaws).toEqual([]);
    expect(verdict.done.edits! + verdict.done.replies!).toBeGreaterThan(0);
  },
  600_000,
);
