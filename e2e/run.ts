/**
 * `bun run test`: sets everything up, builds, checks and tests, and ends with the one line `N passed, N failed`.
 * Options: `--long` adds the long suites; other words choose the test files whose path contains one of them.
 */
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { PrerequisiteError, requirePrerequisites } from '../bunfs-assets/make/prerequisites.ts';
import { toolsPython } from '../bunfs-assets/make/python-tools.ts';
import { endWithUs, type Run, runApart } from './run/child.ts';
import { type Counts, countJunit, crashed, noCounts, sum } from './run/junit.ts';
import { type Ended, inLanes, type Outcome, type Work } from './run/lanes.ts';
import { orderOf } from './run/order.ts';
import { installPrograms } from './run/programs.ts';
import { testFiles } from './run/test-files.ts';
import { zigTests } from './run/zig.ts';

const root = join(import.meta.dir, '..');
const bun = process.execPath;
const zigPython = toolsPython(join(root, 'build/python'));
const reports = join(root, 'build/reports');
/** A check, and each file of tests, may take this long; what hangs costs itself and nothing else. Long suites have longer. */
const phaseTimeoutMs = 15 * 60_000;
const longFileTimeoutMs = 2 * 3600_000;
const perTestTimeoutMs = 120_000;
/** Many files wait more than they work: two at a time keep two processors busy. More would make each other late. */
const lanes = availableParallelism() >= 2 ? 2 : 1;
const longestTold = 15;

/** Where tests find the programs that the build made: tests that need one are skipped without it. */
function testEnvironment(): Record<string, string> {
  const current = join(root, 'dist/runtime/current');
  if (!existsSync(current)) return {};
  const hermesPython = join(root, 'dist/runtime', readFileSync(current, 'utf8').trim(), 'bin/python');
  return { EDGE_TEST_PYTHON: hermesPython };
}

async function succeeds(argv: readonly string[]): Promise<boolean> {
  const child = Bun.spawn([...argv], {
    cwd: root,
    stdin: 'ignore',
    stdout: 'inherit',
    stderr: 'inherit',
    timeout: phaseTimeoutMs,
    killSignal: 'SIGKILL',
  });
  return (await child.exited) === 0;
}

/** @param live its output is seen as it comes, and not kept */
function run(name: string, argv: readonly string[], timeoutMs: number, live: boolean): Promise<Run> {
  const log = live ? null : join(reports, `${name.replaceAll('/', '-')}.log`);
  return runApart({ argv, directory: root, environment: testEnvironment(), timeoutMs, log });
}

/** A check without a test report counts as one test. */
const check = (name: string, argv: readonly string[]): Work => ({
  name,
  async run() {
    const { succeeded, output, processorS } = await run(name, argv, phaseTimeoutMs, false);
    return { counts: succeeded ? { ...noCounts, passed: 1 } : crashed(name), output, processorS };
  },
});

/** Each file has a process of its own: one that hangs or crashes takes no other with it. */
async function runTestFile(file: string, live: boolean): Promise<Outcome> {
  const report = join(reports, `${file.replaceAll('/', '-')}.xml`);
  mkdirSync(reports, { recursive: true });
  rmSync(report, { force: true });
  const flags = ['--reporter=junit', `--reporter-outfile=${report}`, `--timeout=${perTestTimeoutMs}`];
  const timeoutMs = file.includes('.long.test.') ? longFileTimeoutMs : phaseTimeoutMs;
  const { succeeded, output, processorS, left } = await run(
    file,
    [bun, 'test', ...flags, `./${file}`],
    timeoutMs,
    live,
  );
  const leaves = left.length > 0 ? `left in its temporary directory: ${left.join(', ')}\n` : '';
  return { counts: await countsOf(file, report, succeeded), output: `${output}${leaves}`, processorS };
}

async function countsOf(file: string, report: string, succeeded: boolean): Promise<Counts> {
  if (!(await Bun.file(report).exists())) return crashed(`${file}: no report`);
  const counts = countJunit(await Bun.file(report).text());
  // An error outside every test shows in the exit code alone.
  return succeeded || counts.failed > 0 ? counts : sum([counts, crashed(file)]);
}

/** The whole output of one piece of work, under its name. */
async function tell({ name, seconds, outcome }: Ended): Promise<void> {
  const processor = outcome.processorS === null ? '' : `, ${outcome.processorS.toFixed(1)} s of processor time`;
  await Bun.write(Bun.stdout, `\n== ${name}: ${seconds.toFixed(1)} s${processor}\n${outcome.output}`);
}

function tellLongest(all: readonly Ended[]): void {
  const longest = all.toSorted((one, other) => other.seconds - one.seconds).slice(0, longestTold);
  console.log(['\nLongest:', ...longest.map(({ name, seconds }) => `  ${seconds.toFixed(0)} s ${name}`)].join('\n'));
}

async function main(argv: readonly string[]): Promise<Counts> {
  const words = argv.filter((word) => !word.startsWith('--'));
  requirePrerequisites();
  if (!(await succeeds([bun, 'install', '--frozen-lockfile']))) return crashed('bun install');
  if (!(await succeeds([bun, 'build.ts']))) return crashed('build');
  const files = testFiles(root, { long: argv.includes('--long'), words });
  const all = [...files.unit, ...files.endToEnd];
  await installPrograms(all.map((file) => join(root, file)));
  const test = (file: string): Work => ({ name: file, run: () => runTestFile(file, all.length === 1) });
  const order = orderOf(files);
  const checks = [
    check('lint', [bun, 'x', 'biome', 'check', '--error-on-warnings', '.']),
    check('types', [bun, 'x', 'tsc', '--noEmit']),
    ...zigTests(zigPython, root),
  ];
  const together = [...order.together.map(test), ...(words.length === 0 ? checks : [])];
  const ended = [...(await inLanes(together, lanes, tell)), ...(await inLanes(order.alone.map(test), 1, tell))];
  tellLongest(ended);
  return sum(ended.map(({ outcome }) => outcome.counts));
}

async function result(): Promise<Counts> {
  endWithUs();
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
