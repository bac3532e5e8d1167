import { afterEach, beforeEach, expect, test } from 'bun:test';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runStep, type Workspace } from './step.ts';

let root: string;
let workspace: Workspace;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'step-'));
  workspace = { root, stamps: join(root, 'stamps'), say: () => {} };
});
afterEach(() => rmSync(root, { recursive: true }));

function copyStep(runs: string[]) {
  const from = join(root, 'in');
  const to = join(root, 'out', 'copy');
  return {
    name: 'copy',
    inputs: [{ path: from }, { text: 'v1' }],
    outputs: [to],
    make: () => {
      runs.push('ran');
      writeFileSync(to, 'made');
    },
  };
}

test('a step runs once for the same contents', async () => {
  writeFileSync(join(root, 'in'), 'a');
  const runs: string[] = [];
  const first = await runStep(workspace, copyStep(runs));
  const second = await runStep(workspace, copyStep(runs));
  expect(runs).toHaveLength(1);
  expect(second).toBe(first);
});

test('a changed, added or renamed input and a lost output each run it again', async () => {
  mkdirSync(join(root, 'in'));
  writeFileSync(join(root, 'in', 'x'), 'a');
  const runs: string[] = [];
  const again = () => runStep(workspace, copyStep(runs));
  await again();
  writeFileSync(join(root, 'in', 'x'), 'b');
  await again();
  writeFileSync(join(root, 'in', 'y'), '');
  await again();
  rmSync(join(root, 'out', 'copy'));
  await again();
  expect(runs).toHaveLength(4);
  writeFileSync(join(root, 'in', 'x.test.ts'), 'a test is no input');
  await again();
  expect(runs).toHaveLength(4);
});

test('bytes that move from one file to its neighbour are a change', async () => {
  mkdirSync(join(root, 'in'));
  writeFileSync(join(root, 'in', 'x'), 'ab');
  writeFileSync(join(root, 'in', 'y'), 'c');
  const runs: string[] = [];
  await runStep(workspace, copyStep(runs));
  writeFileSync(join(root, 'in', 'x'), 'a');
  writeFileSync(join(root, 'in', 'y'), 'bc');
  await runStep(workspace, copyStep(runs));
  expect(runs).toHaveLength(2);
});

test('a step that fails leaves no stamp', async () => {
  writeFileSync(join(root, 'in'), 'a');
  const runs: string[] = [];
  const failing = { ...copyStep(runs), make: () => Promise.reject(new Error('disk on fire')) };
  await expect(runStep(workspace, failing)).rejects.toThrow('disk on fire');
  await runStep(workspace, copyStep(runs));
  expect(runs).toHaveLength(1);
  expect(readFileSync(join(root, 'out', 'copy'), 'utf8')).toBe('made');
});

test('a step that does not make what it promised is an error', async () => {
  await expect(runStep(workspace, { ...copyStep([]), make: () => {} })).rejects.toThrow('did not make');
});
