/** The same for twenty minutes. */
import { expect, test } from 'bun:test';
import { checkApi } from './fuzz/check.ts';

test('Schemathesis finds no fault in the HTTP interface in twenty minutes', async () => {
  const seed = Number(process.env.EDGE_FUZZ_SEED ?? Date.now() % 1_000_000);
  console.log(`seed ${seed}`);
  const { faults, report, grownMiB } = await checkApi({ seconds: 1_200, seed });
  if (faults.length > 0) console.error(report);
  expect(faults).toEqual([]);
  expect(grownMiB).toBeLessThan(250);
}, 3_000_000);
