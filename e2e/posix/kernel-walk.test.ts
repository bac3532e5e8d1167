/**
 * Thousands of random operations through the kernel, with the server killed now and then: on one mount, whose kernel remembers
 * what it was told, and on two mounts of one tree, of which each sees what the other does. `EDGE_WALK_SEED` repeats a run.
 */
import { afterEach, expect, test } from 'bun:test';
import { join } from 'node:path';
import { canMount } from '../../machine/fuse/device.fixture.ts';
import { removeScratch, scratchDirectory } from '../harness/scratch.ts';
import { apart, prepare } from './apart.ts';

const scratches: string[] = [];
afterEach(() => {
  for (const scratch of scratches.splice(0)) removeScratch(scratch);
});

for (const { mounts, steps, name } of [
  { mounts: 1, steps: 4000, name: 'one mount' },
  { mounts: 2, steps: 2000, name: 'two mounts at once' },
]) {
  test.skipIf(!canMount)(
    `random operations, ${name}: what was synced outlives the server`,
    async () => {
      const scratch = scratchDirectory('walk');
      scratches.push(scratch);
      prepare(scratch);
      const seed = process.env.EDGE_WALK_SEED ?? String(Date.now() % 1_000_000_000);
      console.log(`EDGE_WALK_SEED=${seed}`);
      const script = join(import.meta.dir, 'kernel-walk.ts');
      const argv = apart(scratch, [process.execPath, script, scratch, seed, String(steps), String(mounts)]);
      const child = Bun.spawn(argv, { stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' });
      const [out, err] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()]);
      if ((await child.exited) !== 0) throw new Error(`seed ${seed}: ${out}${err}`);
      console.log(out.trim());
      expect(out).toContain(`${steps} operations agreed`);
    },
    300_000,
  );
}
