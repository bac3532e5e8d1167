import { afterEach, beforeEach, expect, test } from 'bun:test';
import { copyFileSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { AgentFS } from 'agentfs-sdk';
import { rootIno } from './ids.ts';
import { Ledger, type LedgerCall } from './ledger.ts';
import { type LocalFiles, openLocalFiles } from './local.fixture.ts';

let local: LocalFiles;
let ledger: Ledger;
let logged: string[];

beforeEach(async () => {
  local = await openLocalFiles();
  logged = [];
  ledger = new Ledger(local.files, (line) => logged.push(line));
});
afterEach(() => local.close());

const call = (more: Partial<LedgerCall> = {}): LedgerCall => ({
  name: 'shell',
  conversation: 'conv_a',
  parameters: { command: 'ls -l', cwd: '/workspace' },
  result: { exitCode: 0 },
  error: null,
  startedAt: 1_700_000_000_123.4,
  endedAt: 1_700_000_001_400,
  ...more,
});

const rows = () => local.driver.all('SELECT * FROM tool_calls ORDER BY started_at, id');

test('a row has the units of the public schema, the conversation and an exact duration', async () => {
  await ledger.record(call());
  const [row] = await rows();
  expect(row).toMatchObject({
    name: 'shell',
    error: null,
    status: 'success',
    started_at: 1_700_000_000,
    completed_at: 1_700_000_001,
    duration_ms: 1277,
    result: '{"exitCode":0}',
    parameters: '{"conversation":"conv_a","startedAtMs":1700000000123,"command":"ls -l","cwd":"/workspace"}',
  });
  expect(Number(row?.id)).toBeGreaterThan(2 ** 32);
});

test('what a command says about itself is never taken for the conversation', async () => {
  await ledger.record(call({ parameters: { command: 'x'.repeat(30_000), conversation: 'conv_b', startedAtMs: 1 } }));
  const [row] = await rows();
  expect(JSON.parse(String(row?.parameters))).toMatchObject({ conversation: 'conv_a', startedAtMs: 1_700_000_000_123 });
});

test('long texts are cut between characters, and say so', async () => {
  await ledger.record(call({ parameters: { command: `a${'é'.repeat(20_000)}` }, error: 'e'.repeat(5_000) }));
  const [row] = await rows();
  const { command } = JSON.parse(String(row?.parameters));
  expect(command).toMatch(/^aé+… \[cut: 245\d\d of 40001 bytes\]$/);
  expect(String(row?.error).length).toBe(2048);
  expect(String(row?.parameters).length).toBeLessThan(25_000);
});

test('agentfs-sdk reads the rows', async () => {
  await ledger.record(call());
  await ledger.record(
    call({ name: 'git', result: { exitCode: 128 }, error: 'exit code 128', startedAt: 1_800_000_000_000 }),
  );
  await local.files.flush();
  const directory = mkdtempSync(join(tmpdir(), 'agentfs-ledger-'));
  for (const suffix of ['', '-wal']) {
    if (existsSync(local.path + suffix)) copyFileSync(local.path + suffix, join(directory, `x.db${suffix}`));
  }
  const sdk = await AgentFS.open({ path: join(directory, 'x.db') });
  const recent = await sdk.tools.getRecent(1_600_000_000);
  expect(recent.map(({ name, status, started_at }) => [name, status, started_at])).toEqual([
    ['git', 'error', 1_800_000_000],
    ['shell', 'success', 1_700_000_000],
  ]);
  expect(recent[1]?.parameters).toMatchObject({ conversation: 'conv_a', command: 'ls -l' });
  expect(recent[0]).toMatchObject({ result: { exitCode: 128 }, error: 'exit code 128' });
  expect(await sdk.tools.get(Number(recent[1]?.id))).toMatchObject({ name: 'shell', duration_ms: 1277 });
  // A row that the SDK adds does not meet ours.
  await sdk.tools.record('other', 1, 2, {}, 'ok');
  await sdk.close();
  rmSync(directory, { recursive: true });
});

test('rows that come while the store is busy go into one group, with files', async () => {
  const commits = countCommits();
  const release = await local.files.store.acquire();
  const written = Array.from({ length: 50 }, (_, at) => ledger.record(call({ startedAt: at * 1000 })));
  release();
  await Promise.all(written);
  await local.files.names.create({ parent: rootIno, name: 'file' }, 0o100644);
  await ledger.record(call({ startedAt: 51_000 }));
  expect(commits()).toBe(0);
  await local.files.store.sync();
  expect(commits()).toBe(1);
  expect((await rows()).length).toBe(51);
});

/** How often a transaction has been committed since. */
function countCommits(): () => number {
  const { sql } = local.files.store;
  let commits = 0;
  const run = sql.run.bind(sql);
  sql.run = (text, ...args) => {
    if (text === 'COMMIT') commits += 1;
    return run(text, ...args);
  };
  return () => commits;
}

test('no command waits for ever or fails: what does not fit is counted, logged and said by the next row', async () => {
  const release = await local.files.store.acquire();
  const written = Array.from({ length: 1_003 }, () => ledger.record(call()));
  ledger.lost('conv_a', 4);
  release();
  await Promise.all(written);
  expect((await rows()).length).toBe(1_000);
  const [said] = await local.driver.all("SELECT parameters FROM tool_calls WHERE parameters LIKE '%lostBefore%'");
  expect(JSON.parse(String(said?.parameters)).lostBefore).toBe(7);
  expect(logged).toEqual(['ledger: 7 executed commands are not recorded']);
  ledger.lost('conv_b', 1);
  await ledger.record(call({ startedAt: 1_900_000_000_000 }));
  expect((await rows()).filter(({ parameters }) => String(parameters).includes('lostBefore')).length).toBe(1);
});

test('rows that cannot be written are lost, which is said, and nothing breaks', async () => {
  await local.driver.run('ALTER TABLE tool_calls RENAME TO elsewhere');
  await ledger.record(call());
  await local.driver.run('ALTER TABLE elsewhere RENAME TO tool_calls');
  await ledger.record(call());
  expect(JSON.parse(String((await rows())[0]?.parameters))).toMatchObject({ lostBefore: 1 });
  expect(logged.join('\n')).toContain('no such table');
});
