/** Hunks against those of a real git, over random texts of the kind that make a diff choose. */
import { expect, test } from 'bun:test';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { hasGit } from '../comparison.fixture.ts';
import { changes, linesOf } from './lines.ts';
import { hunksOf } from './patch.ts';

const kinds = [
  '{',
  '}',
  '  return x;',
  '  if (a) {',
  '  }',
  '',
  'foo()',
  'bar()',
  '  baz();',
  'def f():',
  '    pass',
  '\tx',
];

function random(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
    return Math.floor((state / 0x7fffffff) * below) % below;
  };
}

test.skipIf(!hasGit)('60 random pairs of texts give the hunks of git diff', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'git-hunks-'));
  const below = random(11);
  const word = () => kinds[below(kinds.length)]!;
  for (let round = 0; round < 60; round++) {
    const before = Array.from({ length: below(60) }, () => word() + (below(4) === 0 ? below(5) : ''));
    const after = before.flatMap((line) => {
      const chance = below(12);
      return chance === 0 ? [] : chance === 1 ? [line, word()] : chance === 2 ? [word()] : [line];
    });
    const text = (lines: string[]) => lines.join('\n') + (below(5) > 0 && lines.length > 0 ? '\n' : '');
    const [one, two] = [text(before), text(after)];
    writeFileSync(join(directory, 'one'), one);
    writeFileSync(join(directory, 'two'), two);
    const argv = ['git', 'diff', '--no-index', join(directory, 'one'), join(directory, 'two')];
    const said = Bun.spawnSync(argv).stdout.toString();
    const [old, young] = [linesOf(Buffer.from(one)), linesOf(Buffer.from(two))];
    const hunks = hunksOf(old, young, await changes(old, young), 3);
    expect(hunks).toBe(said.includes('\n@@ -') ? said.slice(said.indexOf('\n@@ -') + 1) : '');
  }
  rmSync(directory, { recursive: true });
});
