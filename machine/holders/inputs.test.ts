import { afterEach, beforeEach, expect, test } from 'bun:test';
import { closeSync, mkdirSync, mkdtempSync, readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runtimeFile } from '../../bunfs-assets/runtime.ts';
import type { Launch } from '../launch.ts';
import { prepareInputs } from './inputs.ts';

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'edge-inputs-'));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

test('a runtime whose path has white space is named by a link in the run directory', () => {
  const runtimeDirectory = join(root, 'my project');
  mkdirSync(runtimeDirectory);
  const runtime = { python: process.execPath, basePrefix: '/usr', version: '3.11.2' };
  writeFileSync(join(runtimeDirectory, runtimeFile), JSON.stringify(runtime));
  const inputs = prepareInputs({
    runtimeDirectory,
    runDirectory: root,
    hermesEnvironment: {},
    caBundle: null,
    nativeGit: false,
  } as unknown as Launch);
  const fd = inputs.manifest({
    uid: 101000,
    fuseSocket: join(root, 'fuse.sock'),
    fuseToken: 'f'.repeat(64),
    cgroups: [],
    gitSocket: join(root, 'git-1.sock'),
  });
  const manifest = readFileSync(`/proc/self/fd/${fd}`, 'utf8');
  for (const one of [fd, inputs.caBundle, inputs.environment, inputs.startScript]) closeSync(one);
  expect(manifest).toContain(`bind ${join(root, 'runtime')} /opt/hermes\n`);
  expect(manifest).toContain(`git-socket ${join(root, 'git-1.sock')}\ngit-place /usr/local/bin/git\n`);
  expect(manifest).not.toContain('native-git');
  expect(readlinkSync(join(root, 'runtime'))).toBe(runtimeDirectory);
});
