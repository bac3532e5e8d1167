import { expect, test } from 'bun:test';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { exposedFiles } from './skills.ts';

const folder = join(import.meta.dir, 'skills');

test('every file of skills/ is exposed, and nothing else is', () => {
  const inFolder = readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => `/skills${join(parentPath, name).slice(folder.length)}`);
  expect(exposedFiles.map(({ path }) => path).toSorted()).toEqual(inFolder.toSorted());
  for (const { path, asset } of exposedFiles) expect(asset.endsWith(path), asset).toBe(true);
});

test('each skill has a front matter whose name is its directory, and a description that Hermes shows whole', () => {
  for (const { path, asset } of exposedFiles.filter((file) => file.path.endsWith('/SKILL.md'))) {
    const front = /^---\n([\s\S]*?)\n---\n/.exec(readFileSync(asset, 'utf8'))?.[1] ?? '';
    expect(/^name: (.*)$/m.exec(front)?.[1]).toBe(path.split('/').at(-2)!);
    const description = /^description: (.*)$/m.exec(front)?.[1] ?? '';
    // Of a longer one the model's list shows a part.
    expect(description.length).toBeWithin(20, 61);
    expect(description).not.toInclude(': ');
  }
});
