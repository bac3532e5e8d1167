/** A minute of fsx on our mount, with another seed each time. `EDGE_FSX_SEED` repeats a run. */
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
  'a minute of random operations on files, and every read is right',
  async () => {
    const seed = Number(process.env.EDGE_FSX_SEED ?? Date.now() % 1_000_000_000);
    console.log(`fsx: EDGE_FSX_SEED=${seed}`);
    const { runs } = await exercise(scratch, seed, 60);
    console.log(`fsx: ${runs} runs`);
    expect(runs).toBeGreaterThan(0);
  },
  240_000,
);
