/** Runs the tests that stand in the Zig sources, and counts them. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { zigEnvironment } from '../../zig/build.ts';
import { type Counts, crashed, noCounts, sum } from './junit.ts';
import type { Outcome, Work } from './lanes.ts';

/** Compiling and running them may take this long. */
const fileTimeoutMs = 10 * 60_000;

/** What `zig test` printed as counts; null when it did not get that far. */
export function countZig(file: string, output: string): Counts | null {
  const all = /^All (\d+) tests? passed\.$/m.exec(output);
  if (all) return { ...noCounts, passed: Number(all[1]) };
  const some = /^(\d+) passed; (\d+) skipped; (\d+) failed\.$/m.exec(output);
  if (!some) return null;
  const failures = [...output.matchAll(/^\d+\/\d+ (\S.*?)\.\.\.FAIL/gm)].map((found) => `${file}: ${found[1]}`);
  return { passed: Number(some[1]), skipped: Number(some[2]), failed: Number(some[3]), failures };
}

async function testFile(python: string, root: string, file: string): Promise<Outcome> {
  const child = Bun.spawn([python, '-m', 'ziglang', 'test', file], {
    cwd: root,
    env: zigEnvironment(),
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
    timeout: fileTimeoutMs,
    killSignal: 'SIGKILL',
  });
  const [out, errors, code] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  const counts = countZig(file, `${out}\n${errors}`);
  const isGood = code === 0 && counts !== null && counts.failed === 0;
  const whole = counts === null || (code !== 0 && counts.failed === 0);
  return {
    counts: whole ? sum([counts ?? noCounts, crashed(file)]) : counts,
    output: isGood ? '' : `${out}${errors}\n`,
    processorS: null,
  };
}

/** The tests of every file that has some. @param python an interpreter with the Zig compiler */
export function zigTests(python: string, root: string): Work[] {
  return readdirSync(join(root, 'zig'))
    .filter((name) => name.endsWith('.zig') && /^test "/m.test(readFileSync(join(root, 'zig', name), 'utf8')))
    .sort()
    .map((name) => ({ name: `zig/${name}`, run: () => testFile(python, root, `zig/${name}`) }));
}
