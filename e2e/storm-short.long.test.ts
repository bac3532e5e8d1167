/**
 * A storm: messages in many conversations, clients that retry, reconnect and send twice, and every part killed at every
 * named step of the path. Exactly once holds all the same (acceptance 7). EDGE_TEST_SEED=N plays the same storm again.
 *
 * Not among the tests of every run yet: 674951367 leaves a conversation whose session the agent does not know.
 */
import { expect, test } from 'bun:test';
import { planOf } from './storm/plan.ts';
import { playStorm } from './storm/storm.ts';

const seed = Number(process.env.EDGE_TEST_SEED ?? Math.floor(Math.random() * 2 ** 31));

test(`a short storm, seed ${seed}`, async () => {
  console.log(`storm: EDGE_TEST_SEED=${seed}`);
  const verdict = await playStorm(planOf(seed, { conversations: 4, messages: 64, strikes: 12 }));
  console.log(`storm: ${JSON.stringify({ ...verdict, complaints: verdict.complaints.length })}`);
  expect(verdict.complaints).toEqual([]);
  expect(verdict.strikes).toBeGreaterThanOrEqual(8);
  expect(verdict.ends['reply.delivered'] ?? 0).toBeGreaterThan(10);
}, 600_000);
