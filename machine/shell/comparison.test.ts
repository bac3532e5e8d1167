/** HyperSH Git against a real git: the same commands give the same answers, and the same repositories come of them. */
import { describe, expect, test } from 'bun:test';
import { rmSync } from 'node:fs';
import { branches } from './comparison/branches.fixture.ts';
import { everyday } from './comparison/everyday.fixture.ts';
import { histories } from './comparison/histories.fixture.ts';
import { pitfalls } from './comparison/pitfalls.fixture.ts';
import { type Compared, described, hasGit, type Scenario, TwoWorlds } from './comparison.fixture.ts';

const scenarios: readonly Scenario[] = [...everyday, ...branches, ...histories, ...pitfalls];
const all: Compared[] = [];

function shown({ words, native, engine }: Compared): string {
  const text = (answer: Compared['native'] | null) =>
    answer === null ? '' : `exit ${answer.exitCode}\n${answer.stdout}--- stderr\n${answer.stderr}`;
  return `\n===== ${words}\n----- git\n${text(native)}\n----- engine\n${text(engine)}\n`;
}

describe.skipIf(!hasGit)('HyperSH Git answers as git does', () => {
  for (const { name, steps } of scenarios) {
    test(name, async () => {
      const worlds = await TwoWorlds.open();
      const wrong: Compared[] = [];
      try {
        for (const step of steps) {
          const compared = await worlds.step(step);
          if (!compared) continue;
          all.push(compared);
          if (!compared.engine) continue;
          if (!Bun.deepEquals(compared.engine, compared.native)) wrong.push(compared);
        }
        expect(wrong.map(shown).join('')).toBe('');
        const exported = await worlds.export();
        try {
          expect(await described(worlds, exported)).toEqual(await described(worlds, worlds.root));
        } finally {
          rmSync(exported, { recursive: true });
        }
      } finally {
        await worlds.close();
      }
    }, 60_000);
  }

  test('at least 200 invocations, 160 of them by the engine itself', () => {
    const left = all.filter(({ engine }) => engine === null);
    console.log(`${all.length} invocations, ${all.length - left.length} by the engine, ${left.length} left to git:`);
    for (const { words, reason } of left) console.log(`  ${words}: ${reason}`);
    expect(all.length).toBeGreaterThanOrEqual(200);
    expect(all.length - left.length).toBeGreaterThanOrEqual(160);
  });
});
