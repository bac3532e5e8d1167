/** pjdfstest, the POSIX test suite for file systems, on the disk and then on our mount: what passes there passes here. */
import { afterAll, beforeAll, expect, test } from 'bun:test';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { canMount } from '../../machine/fuse/device.fixture.ts';
import { removeScratch, scratchDirectory } from '../harness/scratch.ts';
import { apart, onTree, prepare, users } from './apart.ts';
import { compileTimeoutMs, crateProgram } from './crates.ts';

/** What passes or is skipped on the disk and is skipped on our mount. */
const skippedHere: Readonly<Record<string, string>> = {
  'link::link_count_max': 'glibc knows no LINK_MAX of a FUSE mount, and we have no limit below 2^31',
};

const mountTest = test.skipIf(!canMount);
let scratch: string;
let program: string;

beforeAll(() => {
  if (!canMount) return;
  program = crateProgram('pjdfstest');
  scratch = scratchDirectory('pjd');
  prepare(scratch);
}, compileTimeoutMs);
afterAll(() => {
  if (canMount) removeScratch(scratch);
});

interface Results {
  readonly passed: readonly string[];
  readonly skipped: readonly string[];
  readonly failed: readonly string[];
  readonly output: string;
}

/** Runs the suite in a directory of the scratch directory. Only where a whole mount may be made read-only are remounts tried. */
async function pjdfstest(where: 'plain' | 'tree', pattern: 'erofs' | null = null): Promise<Results> {
  const entries = users.map((user) => `["${user}", "${user}"]`).join(', ');
  const configuration = join(scratch, 'pjdfstest.toml');
  const features = ['posix_fallocate', 'rename_ctime', 'utime_now', 'utimensat'].map((name) => `${name} = {}`);
  const settings = ['naptime = 0.01', `allow_remount = ${pattern === 'erofs'}`];
  const sections = ['[features]', ...features, '[settings]', ...settings, '[dummy_auth]', `entries = [${entries}]`];
  writeFileSync(configuration, sections.join('\n'));
  const options = ['-c', configuration, '-p', join(scratch, where), '-s', join(scratch, 'second')];
  const command = [program, ...options, ...(pattern ? [pattern] : [])];
  const argv = apart(scratch, where === 'tree' ? onTree(scratch, command) : command);
  const child = Bun.spawn(argv, {
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
    env: { ...process.env, NO_COLOR: '1' },
  });
  const [out, err] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()]);
  await child.exited;
  const named = (word: string) =>
    [...out.matchAll(new RegExp(`^(\\S+::\\S+) +${word}$`, 'gm'))].map((match) => match[1]!);
  return { passed: named('ok'), skipped: named('skipped'), failed: named('FAILED'), output: out + err };
}

let plain: Results | null = null;

mountTest(
  'on the disk, to compare',
  async () => {
    plain = await pjdfstest('plain');
    expect(plain.passed.length + plain.skipped.length + plain.failed.length).toBe(398);
    expect(plain.failed).toEqual([]);
    console.log(`pjdfstest on the disk: ${plain.passed.length} passed, ${plain.skipped.length} skipped`);
  },
  240_000,
);

mountTest(
  'on our mount nothing fails, and only what is listed is skipped beyond that',
  async () => {
    const here = await pjdfstest('tree');
    if (here.failed.length > 0 || here.passed.length === 0) console.log(here.output.slice(-20_000));
    expect(here.failed).toEqual([]);
    expect(here.passed.length + here.skipped.length).toBe(398);
    const onDisk = new Set(plain?.skipped);
    expect(here.skipped.filter((name) => !onDisk.has(name))).toEqual(Object.keys(skippedHere));
    console.log(`pjdfstest on our mount: ${here.passed.length} passed, ${here.skipped.length} skipped`);
  },
  240_000,
);

mountTest('what the disk cannot be used for: on our mount made read-only, changes are EROFS', async () => {
  // Alone: tests before them leave files open for writing, and such a mount cannot be made read-only.
  const here = await pjdfstest('tree', 'erofs');
  if (here.failed.length > 0) console.log(here.output);
  expect({ failed: here.failed, skipped: here.skipped }).toEqual({ failed: [], skipped: [] });
  expect(here.passed.length).toBe(13);
});
