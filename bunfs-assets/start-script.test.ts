import { expect, test } from 'bun:test';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { startScript } from './start-script.ts';

test('the script holds every part, each behind those that it imports from, and no import between them', () => {
  const script = new TextDecoder().decode(startScript());
  expect(script).not.toMatch(/^from \./m);
  const directory = join(import.meta.dir, 'hermes');
  const parts = readdirSync(directory).filter((name) => name.endsWith('.py'));
  expect(parts.length).toBeGreaterThan(1);
  for (const name of parts) {
    const text = readFileSync(join(directory, name), 'utf8');
    const at = script.indexOf(text.slice(0, text.indexOf('\n')));
    expect(at).toBeGreaterThanOrEqual(0);
    for (const [, imported] of text.matchAll(/^from \.(\w+) import/gm)) {
      const before = readFileSync(join(directory, `${imported}.py`), 'utf8');
      expect(script.indexOf(before.slice(0, before.indexOf('\n')))).toBeLessThan(at);
    }
  }
});
