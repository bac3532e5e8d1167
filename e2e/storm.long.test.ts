/** The whole storm: 1,000 messages in 20 conversations, at least 300 kills. EDGE_TEST_SEED=N plays the same one again. */
import { expect, test } from 'bun:test';
import { planOf } from './storm/plan.ts';
import { playStorm } from './storm/storm.ts';

const seed = Number(process.env.EDGE_TEST_SEED ?? Math.floor(Math.random() * 2 ** 31));

test(
  `a long storm, seed ${seed}`,
  async () => {
    console.log(`storm: EDGE_TEST_SEED=${seed}`);
    const verdict = await playStorm(planOf(seed, { conversations: 20, messages: 1_000, strikes: 300 }));
    console.log(`storm: ${JSON.stringify({ ...verdict, complaints: verdict.complaints.length })}`);
    expect(verdict.complaints).toEqual([]);
    expect(verdict.messages).toBeGreaterThanOrEqual(1_000);
    expect(verdict.strikes).toBeGreaterThanOrEqual(300);
    // Everybody was struck at every step of the path.
    expect(verdict.missed).toEqual([]);
  },
  100 * 60_000,
);
