import { afterEach, expect, test } from 'bun:test';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { UsageError } from '../usage-error.ts';
import { readConfiguration } from './configuration.ts';
import { nearest } from './nearest.ts';
import { settingNames, settings } from './settings.ts';

function mistake(environment: Record<string, string>, file: string | null = null): string {
  try {
    readConfiguration(environment, file);
  } catch (error) {
    if (error instanceof UsageError) return error.message;
    throw error;
  }
  throw new Error('it was accepted');
}

const scratch: string[] = [];
afterEach(() => {
  for (const directory of scratch.splice(0)) rmSync(directory, { recursive: true });
});

function fileOf(content: string): string {
  const directory = mkdtempSync(join(tmpdir(), 'egw-config-'));
  scratch.push(directory);
  const file = join(directory, 'c.json');
  writeFileSync(file, content);
  return file;
}

test('without anything the defaults hold and all is embedded', () => {
  const configuration = readConfiguration({ PATH: '/bin', HOME: '/root', EDGE_MODEL_URL: '' }, null);
  expect(configuration).toMatchObject({
    host: '127.0.0.1',
    port: 8787,
    databaseUrl: null,
    agentfs: null,
    sessiondb: null,
    hermesRuntime: null,
    caBundle: null,
    model: null,
  });
  expect(configuration.dataDirectory).toBe('/root/.local/share/edge-gateway/data');
  expect(readConfiguration({ XDG_DATA_HOME: '/d' }, null).dataDirectory).toBe('/d/edge-gateway/data');
});

test('every default is accepted by its own schema', () => {
  for (const name of settingNames) {
    const { default: fallback } = settings[name];
    if (fallback !== null) readConfiguration({ [name]: fallback }, null);
  }
});

test('the environment goes before the file', () => {
  const file = fileOf('{"EDGE_PORT": 9000, "EDGE_HOST": "::1", "DATABASE_URL": null}');
  expect(readConfiguration({ EDGE_PORT: '9001' }, file)).toMatchObject({ port: 9001, host: '::1', databaseUrl: null });
});

test('an unknown name is refused with the nearest one', () => {
  expect(mistake({ EDGE_PROT: '1' })).toBe('EDGE_PROT is not a setting; did you mean EDGE_PORT?');
  const file = fileOf('{"EDGE_MAX_HOLDER": 3, "database_url": "x"}');
  expect(mistake({}, file)).toContain('EDGE_MAX_HOLDER in ');
  expect(mistake({}, file)).toContain('did you mean EDGE_MAX_HOLDERS?');
  expect(nearest('EDGE_DATADIR', settingNames)).toBe('EDGE_DATA_DIR');
});

test('all mistakes are told at once, without the secrets in them', () => {
  const said = mistake({
    EDGE_PORT: '70000',
    EDGE_MAX_HOLDERS: '0x10',
    DATABASE_URL: 'mysql://u:hunter2@h/d',
    AGENTFS_URL: 'https://a.example',
    SESSIONDB_TOKEN: 'hunter2 hunter2',
    EDGE_MODEL_URL: 'https://u:hunter2@m.example/v1',
  });
  expect(said.split('\n')).toHaveLength(7);
  for (const name of [
    'EDGE_PORT',
    'EDGE_MAX_HOLDERS',
    'DATABASE_URL',
    'AGENTFS_TOKEN',
    'SESSIONDB_TOKEN',
    'SESSIONDB_URL',
    'EDGE_MODEL_URL',
  ]) {
    expect(said).toContain(name);
  }
  expect(said).not.toContain('hunter2');
});

test.each([
  ['not JSON', '{"EDGE_MODEL_KEY": "hunter2", '],
  ['must be one JSON object', '["hunter2"]'],
  ['must be one JSON object', '{"EDGE_PORT": {"hunter2": 1}}'],
])('a bad file: %s', (what, content) => {
  const said = mistake({}, fileOf(content));
  expect(said).toContain(what);
  expect(said).not.toContain('hunter2');
});

test('a missing file is named', () => {
  expect(mistake({}, '/nonexistent/c.json')).toContain('/nonexistent/c.json');
});

test('remote authorities; libsql is https', () => {
  const { agentfs } = readConfiguration({ AGENTFS_URL: 'libsql://org.example/', AGENTFS_TOKEN: 't' }, null);
  expect(agentfs).toEqual({ url: 'https://org.example', token: 't' });
});

test('one key is enough for the real thing', () => {
  expect(readConfiguration({ OPENROUTER_API_KEY: 'k' }, null).model?.hermesEnvironment).toEqual({
    EDGE_MODEL_PROVIDER: 'openrouter',
    EDGE_MODEL_URL: 'https://openrouter.ai/api/v1',
    EDGE_MODEL: 'z-ai/glm-5.2',
    EDGE_MODEL_KEY: 'k',
    OPENROUTER_API_KEY: 'k',
  });
  const both = { OPENROUTER_API_KEY: 'k', ANTHROPIC_API_KEY: 'a', EDGE_MODEL_PROVIDER: 'anthropic', EDGE_MODEL: 'm' };
  expect(readConfiguration(both, null).model?.hermesEnvironment).toEqual({
    EDGE_MODEL_PROVIDER: 'anthropic',
    EDGE_MODEL_URL: 'https://api.anthropic.com',
    EDGE_MODEL: 'm',
    EDGE_MODEL_KEY: 'a',
    ANTHROPIC_API_KEY: 'a',
  });
});

test('an own endpoint goes before keys and needs the name of a model', () => {
  const own = { EDGE_MODEL_URL: 'http://127.0.0.1:11434/v1/', OPENAI_API_KEY: 'k' };
  expect(mistake(own)).toContain('needs EDGE_MODEL');
  expect(readConfiguration({ ...own, EDGE_MODEL: 'llama' }, null).model).toEqual({
    description: 'llama at 127.0.0.1:11434',
    hermesEnvironment: {
      EDGE_MODEL_PROVIDER: 'custom',
      EDGE_MODEL_URL: 'http://127.0.0.1:11434/v1',
      EDGE_MODEL: 'llama',
      EDGE_MODEL_KEY: 'no-key-required',
    },
  });
});

test.each([
  [{ EDGE_MODEL_KEY: 'k' }, 'EDGE_MODEL_URL'],
  [{ EDGE_MODEL: 'm' }, 'EDGE_MODEL_URL'],
  [{ EDGE_MODEL_PROVIDER: 'openai' }, 'OPENAI_API_KEY'],
  [{ EDGE_MODEL_PROVIDER: 'azure', OPENAI_API_KEY: 'k' }, 'openrouter, anthropic'],
] as const)('half a model is refused: %p', (environment, names) => {
  expect(mistake(environment)).toContain(names);
});
