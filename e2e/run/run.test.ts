import { expect, test } from 'bun:test';
import { join } from 'node:path';
import { removeScratch, scratchDirectory } from '../harness/scratch.ts';
import { countJunit, crashed, noCounts, sum } from './junit.ts';
import { missingInHolders, missingPrograms, sourcesReachableFrom } from './programs.ts';
import { testFiles } from './test-files.ts';
import { countZig } from './zig.ts';

const root = join(import.meta.dir, '../..');

test('counts what bun itself reports for passing, failing, skipped and throwing tests', async () => {
  const directory = scratchDirectory('junit');
  const source = `
    import { describe, expect, test } from 'bun:test';
    test('good', () => {});
    test('bad & "quoted"', () => { expect(1).toBe(2); });
    test.skip('left out', () => {});
    test.todo('to do');
    describe('group', () => { test('throws', () => { throw new Error('</testcase>'); }); test('good too', () => {}); });
  `;
  await Bun.write(join(directory, 'sample.test.ts'), source);
  const flags = ['--reporter=junit', `--reporter-outfile=${directory}/report.xml`];
  Bun.spawnSync([process.execPath, 'test', ...flags, './sample.test.ts'], { cwd: directory });
  const counts = countJunit(await Bun.file(join(directory, 'report.xml')).text());
  removeScratch(directory);
  expect(counts).toMatchObject({ passed: 2, failed: 2, skipped: 2 });
  expect(counts.failures).toEqual(['sample.test.ts: bad & "quoted"', 'sample.test.ts: throws']);
});

test('counts what zig test prints', () => {
  expect(countZig('zig/a.zig', '6/6 a.test.x...OK\nAll 6 tests passed.\n')).toEqual({ ...noCounts, passed: 6 });
  const some =
    '1/3 a.test.x...OK\n2/3 a.test.two words...FAIL (Nope)\n3/3 a.test.z...SKIP\n1 passed; 1 skipped; 1 failed.\n';
  const failures = ['zig/a.zig: a.test.two words'];
  expect(countZig('zig/a.zig', some)).toEqual({ passed: 1, skipped: 1, failed: 1, failures });
  expect(countZig('zig/a.zig', 'a.zig:1:1: error: expected type')).toBeNull();
});

test('sums counts and keeps the names of what failed', () => {
  const counts = { passed: 2, failed: 1, skipped: 1, failures: ['a'] };
  expect(sum([counts, crashed('lint'), noCounts])).toEqual({
    passed: 2,
    failed: 2,
    skipped: 1,
    failures: ['a', 'lint'],
  });
});

test('finds the programs that tests ask for by a literal name', () => {
  const sources = [
    `requireProgram('strace')`,
    `const x = requireProgram('curl'); requireProgram('strace')`,
    'requireProgram(x)',
  ];
  expect(missingPrograms(sources, (program) => program === 'curl')).toEqual(['strace']);
});

test('finds the programs that tests use in a holder where it has them', () => {
  const sources = [`testWith(holderHas('rg'), holderHas('ssh-keygen'))(`, `holderHas('rg')`, 'holderHas(name)'];
  expect(missingInHolders(sources, (program) => program === 'rg')).toEqual(['ssh-keygen']);
});

test('finds them also where a test asks through the harness', () => {
  const sources = sourcesReachableFrom([join(root, 'e2e/bare-hermes.test.ts')]);
  expect(sources.some((text) => text.includes('class ScriptedModel'))).toBe(true);
});

test('long and chosen files', () => {
  const files = testFiles(root, { long: false, words: [] });
  expect(files.endToEnd).toContain('e2e/architecture.test.ts');
  expect(files.unit).toContain('e2e/run/run.test.ts');
  expect(
    [...files.unit, ...files.endToEnd].filter((file) => file.includes('.long.') || file.includes('pending')),
  ).toEqual([]);
  expect(testFiles(root, { long: false, words: ['architecture'] })).toEqual({
    unit: [],
    endToEnd: ['e2e/architecture.test.ts'],
  });
});
