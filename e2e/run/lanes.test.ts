import { expect, test } from 'bun:test';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { linesOf } from '../harness/lines.ts';
import { descendants, waitForEnd } from '../harness/processes.ts';
import { removeScratch, scratchDirectory } from '../harness/scratch.ts';
import { runApart } from './child.ts';
import { noCounts } from './junit.ts';
import { inLanes, type Work } from './lanes.ts';
import { namedFiles, orderOf } from './order.ts';
import { testFiles } from './test-files.ts';

const root = join(import.meta.dir, '../..');

/** Pieces of work that note when they begin and end, and end when they are told to. */
function pieces(count: number) {
  const steps: string[] = [];
  const gates = Array.from({ length: count }, () => Promise.withResolvers<void>());
  const work = gates.map(({ promise }, at): Work => {
    const run = async () => {
      steps.push(`begin ${at}`);
      await promise;
      steps.push(`end ${at}`);
      return { counts: { ...noCounts, passed: at }, output: '', processorS: null };
    };
    return { name: String(at), run };
  });
  return { steps, work, let: (at: number) => gates[at]!.resolve() };
}

test('two lanes work from both ends, each piece once, and answer in order', async () => {
  const { steps, work, let: end } = pieces(5);
  const told: string[] = [];
  const all = inLanes(work, 2, async ({ name }) => {
    told.push(name);
  });
  for (const at of [0, 1, 2, 3, 4]) end(at);
  const ended = await all;
  expect(steps.slice(0, 2)).toEqual(['begin 0', 'begin 4']);
  expect(steps.filter((step) => step.startsWith('begin')).toSorted()).toEqual(work.map((_, at) => `begin ${at}`));
  expect(ended.map(({ name, outcome }) => [name, outcome.counts.passed])).toEqual(work.map((_, at) => [`${at}`, at]));
  expect(told.toSorted()).toEqual(['0', '1', '2', '3', '4']);
});

test('a lane goes on while the other one is held up', async () => {
  const { steps, work, let: end } = pieces(4);
  for (const at of [1, 2, 3]) end(at);
  const othersEnded = Promise.withResolvers<void>();
  const all = inLanes(work, 2, async ({ name }) => {
    if (name === '1') othersEnded.resolve();
  });
  await othersEnded.promise;
  expect(steps.filter((step) => step.startsWith('end'))).toEqual(['end 3', 'end 2', 'end 1']);
  end(0);
  expect((await all).length).toBe(4);
});

test('one lane runs one after the other from the front', async () => {
  const { steps, work, let: end } = pieces(3);
  for (const at of [0, 1, 2]) end(at);
  await inLanes(work, 1, async () => undefined);
  expect(steps).toEqual([0, 1, 2].flatMap((at) => [`begin ${at}`, `end ${at}`]));
});

test('what one tells is not mixed with what another tells', async () => {
  const { work, let: end } = pieces(4);
  for (const at of [0, 1, 2, 3]) end(at);
  let telling = 0;
  await inLanes(work, 2, async () => {
    telling += 1;
    await Bun.sleep(1);
    expect(telling).toBe(1);
    telling -= 1;
  });
});

test('each test file is in the order once, and each that the order names is there', () => {
  const files = testFiles(root, { long: true, words: [] });
  const { together, alone } = orderOf(files);
  expect([...together, ...alone].toSorted()).toEqual([...files.unit, ...files.endToEnd].toSorted());
  expect(alone).toContain('e2e/escape/end.test.ts');
  expect(together.filter((file) => file.includes('.long.'))).toEqual([]);
  expect(namedFiles.filter((file) => !existsSync(join(root, file)))).toEqual([]);
});

test('a program has its output kept, and a temporary directory that goes with it', async () => {
  const directory = scratchDirectory('apart');
  try {
    const program = 'echo out; echo error >&2; mkdir "$TMPDIR/left"; echo "$TMPDIR"; exit 3';
    const log = join(directory, 'log');
    const options = { directory, environment: { EXTRA: '1' }, timeoutMs: 10_000, log };
    const { succeeded, output, left } = await runApart({ argv: ['sh', '-c', program], ...options });
    expect([succeeded, left]).toEqual([false, ['left']]);
    const [out, error, temporary] = output.split('\n');
    expect([out, error]).toEqual(['out', 'error']);
    expect(temporary).toMatch(/^\/tmp\/eg-/);
    expect(existsSync(temporary!)).toBe(false);
    const hangs = { ...options, argv: ['sh', '-c', 'echo begun; exec sleep 60'], timeoutMs: 200 };
    expect(await runApart(hangs)).toMatchObject({ succeeded: false, output: 'begun\n' });
  } finally {
    removeScratch(directory);
  }
});

test('a signal ends what runs, and leaves no temporary directory', async () => {
  const directory = scratchDirectory('signal');
  try {
    const run = JSON.stringify({
      argv: ['sh', '-c', 'echo $$ $TMPDIR; exec sleep 60'],
      directory,
      environment: {},
      timeoutMs: 60_000,
      log: null,
    });
    const program = `import { endWithUs, runApart } from ${JSON.stringify(join(import.meta.dir, 'child.ts'))};
      endWithUs();
      await runApart(${run});`;
    const child = Bun.spawn([process.execPath, '-e', program], { stdin: 'ignore', stdout: 'pipe', stderr: 'inherit' });
    const { value: line } = await linesOf(child.stdout).next();
    const [pid, temporary] = String(line).split(' ');
    expect(existsSync(temporary!)).toBe(true);
    const [sleeping] = descendants(child.pid).filter((one) => one.pid === Number(pid));
    child.kill('SIGTERM');
    expect(await child.exited).toBe(1);
    await waitForEnd([sleeping!], 10_000);
    expect(existsSync(temporary!)).toBe(false);
  } finally {
    removeScratch(directory);
  }
});
