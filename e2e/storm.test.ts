/**
 * A storm: messages in many conversations, clients that retry, reconnect and send twice, and every part killed at every
 * named step of the path. Exactly once holds all the same (acceptance 7). EDGE_TEST_SEED=N plays the same storm again.
 */
import { expect, test } from 'bun:test';
import { planOf } from './storm/plan.ts';
import { playStorm } from './storm/storm.ts';

const seed = Number(process.env.EDGE_TEST_SEED ?? Math.floor(Math.random() * 2 ** 31));

test(`a short storm, seed ${seed}`, async () => {
  console.log(`storm: EDGE_TEST_SEED=${seed}`);
  const verdict = await playStorm(planOf(seed, { conversations: 4, messages: 48, strikes: 12 }));
  console.log(`storm: ${JSON.stringify({ ...verdict, complaints: verdict.complaints.length })}`);
  expect(verdict.complaints).toEqual([]);
  expect(verdict.messages).toBeGreaterThanOrEqual(48);
  expect(verdict.strikes).toBeGreaterThanOrEqual(12);
  expect(verdict.ends['reply.delivered'] ?? 0).toBeGreaterThan(10);
}, 900_000);
