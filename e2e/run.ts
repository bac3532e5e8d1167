/**
 * `bun run test`: sets everything up, builds, checks and tests, and ends with the one line `N passed, N failed`.
 * Options: `--long` adds the long suites; other words choose the test files whose path contains one of them.
 */
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { PrerequisiteError, requirePrerequisites } from '../bunfs-assets/make/prerequisites.ts';
import { toolsPython } from '../bunfs-assets/make/python-tools.ts';
import { type Counts, countJunit, crashed, noCounts, sum } from './run/junit.ts';
import { installPrograms } from './run/programs.ts';
import { type TestFiles, testFiles } from './run/test-files.ts';
import { zigTests } from './run/zig.ts';

const root = join(import.meta.dir, '..');
const bun = process.execPath;
const zigPython = toolsPython(join(root, 'build/python'));
const reports = join(root, 'build/reports');
/** A check, and each file of tests, may take this long; what hangs costs itself and nothing else. Long suites have longer. */
const phaseTimeoutMs = 15 * 60_000;
const longFileTimeoutMs = 2 * 3600_000;
const perTestTimeoutMs = 120_000;

/** Where tests find the programs that the build made: tests that need one are skipped without it. */
function testEnvironment(): Record<string, string> {
  const current = join(root, 'dist/runtime/current');
  if (!existsSync(current)) return {};
  const hermesPython = join(root, 'dist/runtime', readFileSync(current, 'utf8').trim(), 'bin/python');
  return { EDGE_TEST_PYTHON: hermesPython };
}

async function succeeds(argv: readonly string[], timeoutMs = phaseTimeoutMs): Promise<boolean> {
  const child = Bun.spawn([...argv], {
    cwd: root,
    env: { ...process.env, ...testEnvironment() },
    stdin: 'ignore',
    stdout: 'inherit',
    stderr: 'inherit',
    timeout: timeoutMs,
    killSignal: 'SIGKILL',
  });
  return (await child.exited) === 0;
}

/** A check without a test report counts as one test. */
async function check(name: string, argv: readonly string[]): Promise<Counts> {
  console.log(`\n== ${name}`);
  return (await succeeds(argv)) ? { ...noCounts, passed: 1 } : crashed(name);
}

/** Each file has a process of its own: one that hangs or crashes takes no other with it. */
async function runTestFile(file: string): Promise<Counts> {
  const report = join(reports, `${file.replaceAll('/', '-')}.xml`);
  mkdirSync(reports, { recursive: true });
  rmSync(report, { force: true });
  const flags = ['--reporter=junit', `--reporter-outfile=${report}`, `--timeout=${perTestTimeoutMs}`];
  const timeoutMs = file.includes('.long.test.') ? longFileTimeoutMs : phaseTimeoutMs;
  const good = await succeeds([bun, 'test', ...flags, `./${file}`], timeoutMs);
  if (!(await Bun.file(report).exists())) return crashed(`${file}: no report`);
  const counts = countJunit(await Bun.file(report).text());
  // An error outside every test shows in the exit code alone.
  return good || counts.failed > 0 ? counts : sum([counts, crashed(file)]);
}

async function runTestFiles(name: string, files: readonly string[]): Promise<Counts> {
  console.log(`\n== ${name}`);
  const counts: Counts[] = [];
  for (const file of files) counts.push(await runTestFile(file));
  return sum(counts);
}

async function main(argv: readonly string[]): Promise<Counts> {
  const long = argv.includes('--long');
  const words = argv.filter((word) => !word.startsWith('--'));
  requirePrerequisites();
  if (!(await succeeds([bun, 'install', '--frozen-lockfile']))) return crashed('bun install');
  if (!(await succeeds([bun, 'build.ts']))) return crashed('build');
  const files: TestFiles = testFiles(root, { long, words });
  await installPrograms([...files.unit, ...files.endToEnd].map((file) => join(root, file)));
  const counts: Counts[] = [];
  if (words.length === 0) {
    counts.push(await check('lint', [bun, 'x', 'biome', 'check', '--error-on-warnings', '.']));
    counts.push(await check('types', [bun, 'x', 'tsc', '--noEmit']));
    console.log('\n== zig');
    counts.push(await zigTests(zigPython, root));
  }
  counts.push(await runTestFiles('beside the code', files.unit));
  counts.push(await runTestFiles('end to end', files.endToEnd));
  return sum(counts);
}

async function result(): Promise<Counts> {
  try {
    return await main(process.argv.slice(2));
  } catch (error) {
    console.error(error instanceof PrerequisiteError ? error.message : error);
    return crashed('set-up');
  }
}

const { passed, failed, skipped, failures } = await result();
if (failures.length > 0) console.log(['', 'Failed:', ...failures.map((name) => `  ${name}`)].join('\n'));
const skips = skipped > 0 ? `, ${skipped} skipped` : '';
console.log(`\n${passed} passed, ${failed} failed${skips}`);
process.exit(failed > 0 || passed === 0 ? 1 : 0);
