/**
 * What /openapi.json allows and forbids, sent to the running executable: no fault of ours, no hang, no growth, and no operation
 * left out without a reason. EDGE_FUZZ_SEED replays a run; the seed is printed.
 */
import { expect, test } from 'bun:test';
import { checkApi } from './fuzz/check.ts';
import { judge } from './fuzz/schemathesis.ts';

test('Schemathesis finds no fault in the HTTP interface', async () => {
  const seed = Number(process.env.EDGE_FUZZ_SEED ?? Date.now() % 1_000_000);
  console.log(`seed ${seed}`);
  const { faults, report, grownMiB } = await checkApi({ seconds: 25, seed });
  if (faults.length > 0) console.error(report);
  expect(faults).toEqual([]);
  expect(grownMiB).toBeLessThan(150);
}, 400_000);

test('what breaks in the tool itself is told apart, and nothing else is', () => {
  const good = {
    complete: true,
    stop_reason: 'completed',
    exit_code: 0,
    test_cases: { generated: 1 },
    failures: [],
    errors: [],
  };
  expect(judge(good)).toEqual({ faults: [], ownErrors: [] });
  const errors = (title: string) => ({ ...good, exit_code: 1, errors: [{ title, count: 2 }] });
  expect(judge(errors('Runtime Error'))).toEqual({ faults: [], ownErrors: ['Runtime Error (2)'] });
  for (const title of ['Network Error', 'Server Unavailable', 'Unresponsive Operation', 'Hook Error', 'Schema Error'])
    expect(judge(errors(title))).toEqual({ faults: [`${title} (2)`], ownErrors: [] });
  const failure = { title: 'Server error', count: 1, operations: ['GET /x'] };
  expect(judge({ ...errors('Runtime Error'), failures: [failure] }).faults).toEqual(['Server error (1): ["GET /x"]']);
  expect(judge({ ...good, stop_reason: 'interrupted' }).faults).toEqual(['it stopped: interrupted']);
  expect(judge({ ...good, exit_code: 2 }).faults).toEqual(['it ended with 2']);
});
