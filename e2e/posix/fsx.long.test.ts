/** An hour of fsx on our mount. `EDGE_FSX_SEED` repeats a run, `EDGE_FSX_SECONDS` shortens it. */
import { afterAll, beforeAll, expect, test } from 'bun:test';
import { canMount } from '../../machine/fuse/device.fixture.ts';
import { removeScratch, scratchDirectory } from '../harness/scratch.ts';
import { prepare } from './apart.ts';
import { compileTimeoutMs, crateProgram } from './crates.ts';
import { exercise } from './fsx.ts';

let scratch: string;
beforeAll(() => {
  if (!canMount) return;
  crateProgram('fsx');
  scratch = scratchDirectory('fsx');
  prepare(scratch);
}, compileTimeoutMs);
afterAll(() => {
  if (canMount) removeScratch(scratch);
});

test.skipIf(!canMount)(
  'an hour of random operations on files, and every read is right',
  async () => {
    const seed = Number(process.env.EDGE_FSX_SEED ?? Date.now() % 1_000_000_000);
    console.log(`fsx: EDGE_FSX_SEED=${seed}`);
    const { runs } = await exercise(scratch, seed, Number(process.env.EDGE_FSX_SECONDS ?? 3600));
    console.log(`fsx: ${runs} runs`);
    expect(runs).toBeGreaterThan(0);
  },
  2 * 3600_000,
);
