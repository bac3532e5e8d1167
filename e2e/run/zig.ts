/** Runs the tests that stand in the Zig sources, and counts them. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { zigEnvironment } from '../../zig/build.ts';
import { type Counts, crashed, noCounts, sum } from './junit.ts';

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

async function testFile(python: string, root: string, file: string): Promise<Counts> {
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
  if (code !== 0 || counts === null || counts.failed > 0) console.log(out, errors);
  if (counts === null || (code !== 0 && counts.failed === 0)) return sum([counts ?? noCounts, crashed(file)]);
  return counts;
}

/** Every file that has named tests. @param python an interpreter with the Zig compiler */
export async function zigTests(python: string, root: string): Promise<Counts> {
  const files = readdirSync(join(root, 'zig'))
    .filter((name) => name.endsWith('.zig') && /^test "/m.test(readFileSync(join(root, 'zig', name), 'utf8')))
    .sort();
  const counts: Counts[] = [];
  for (const name of files) counts.push(await testFile(python, root, `zig/${name}`));
  return sum(counts);
}
