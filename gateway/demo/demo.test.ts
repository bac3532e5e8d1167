import { expect, test } from 'bun:test';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Glob } from 'bun';
import { UsageError } from '../usage-error.ts';
import { demoConfiguration } from './demo.ts';
import { recall, remember } from './memory.ts';

test('everything is embedded, whatever the environment names', () => {
  const environment = {
    HOME: '/home/ada',
    DATABASE_URL: 'postgres://production/x',
    AGENTFS_URL: 'https://production.example',
    SESSIONDB_TOKEN: 'half a pair',
  };
  const configuration = demoConfiguration(environment, undefined, undefined);
  expect(configuration).toMatchObject({ databaseUrl: null, agentfs: null, sessiondb: null, port: 8787, model: null });
  expect(configuration.dataDirectory).toBe('/home/ada/.local/share/edge-gateway/demo');
});

test('flags go before the environment; a key brings the real model', () => {
  const environment = { EDGE_PORT: '1000', EDGE_DATA_DIR: '/a', OPENROUTER_API_KEY: 'k' };
  expect(demoConfiguration(environment, '0', '/b')).toMatchObject({ port: 0, dataDirectory: '/b' });
  expect(demoConfiguration(environment, undefined, undefined)).toMatchObject({ port: 1000, dataDirectory: '/a' });
  expect(demoConfiguration(environment, '0', '/b').model?.hermesEnvironment.EDGE_MODEL_PROVIDER).toBe('openrouter');
  for (const bad of ['x', '-1', '70000', '']) expect(() => demoConfiguration({}, bad, '/b')).toThrow(UsageError);
  // Not the directory of `serve`, which an empty EDGE_DATA_DIR means.
  expect(() => demoConfiguration({}, '0', '')).toThrow('--data');
});

test('the memory outlives a start and survives damage', () => {
  const directory = mkdtempSync(join(tmpdir(), 'egw-memory-'));
  expect(recall(directory)).toEqual({ modelPort: null, conversation: null });
  expect(recall(join(directory, 'missing'))).toEqual({ modelPort: null, conversation: null });
  const memory = { modelPort: 4711, conversation: { id: 'conv_1', model: 'm' } };
  remember(directory, memory);
  expect(recall(directory)).toEqual(memory);
  writeFileSync(join(directory, 'demo.json'), '{"modelPort": ');
  expect(recall(directory)).toEqual({ modelPort: null, conversation: null });
  rmSync(directory, { recursive: true });
});

test('nothing but the demo command imports the demo (ADR-046 §9)', async () => {
  const root = join(import.meta.dir, '..', '..');
  const importers: string[] = [];
  for (const folder of ['gateway', 'machine', 'hermes-run', 'bunfs-assets']) {
    for await (const file of new Glob('**/*.ts').scan({ cwd: join(root, folder) })) {
      const path = join(folder, file);
      if (path.startsWith('gateway/demo/')) continue;
      if (/['"][./]*demo\//.test(await Bun.file(join(root, path)).text())) importers.push(path);
    }
  }
  expect(importers).toEqual([]);
  const entry = await Bun.file(join(root, 'edge-gateway.ts')).text();
  expect(entry.match(/gateway\/demo\/[^']+/g)).toEqual(['gateway/demo/demo.ts']);
});
