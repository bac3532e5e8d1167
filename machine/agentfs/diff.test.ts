/** What the delta has otherwise than the base, from the replica's tables and from the cloud's. */
import { afterAll, beforeAll, expect, test } from 'bun:test';
import { startAuthority, type TestAuthority } from './authority.fixture.ts';
import { BaseTree } from './base.ts';
import { type DiffScope, deltaAgainstBase, hranaDiffSql } from './diff.ts';
import type { HranaDatabase } from './hrana.ts';

const file = (path: string) => ({ path, mode: 0o644, bytes: Buffer.from(path) });
const base = new BaseTree(
  ['/skills/a/SKILL.md', '/skills/b/SKILL.md', '/skills/b/x/y.md', '/skills/c/SKILL.md'].map(file),
);

let authority: TestAuthority;
let sql: HranaDatabase;

const whiteout = (path: string) =>
  sql.execute('INSERT INTO fs_whiteout (path, parent_path, created_at) VALUES (?, ?, 1)', [
    path,
    path.slice(0, path.lastIndexOf('/')),
  ]);

beforeAll(async () => {
  authority = await startAuthority();
  sql = authority.sql;
  const put = (path: string) => authority.cloud.writeFileOnce(path, Buffer.from('text'));
  await put('/memory/USER.md');
  await put('/skills/a/SKILL.md');
  await put('/skills/a/new.md');
  await put('/skills/ä/SKILL.md');
  for (const name of [
    'work/b.txt',
    'work/a/deep/er.txt',
    'work/a.txt',
    'artifacts/inbound/photo',
    '.env',
    'state/auth.json',
  ]) {
    await put(`/conversations/conv_a/${name}`);
  }
  await put('/conversations/conv_b/work/other.txt');
  for (const path of ['/skills/b', '/skills/b/SKILL.md', '/skills/c/SKILL.md', '/skills/elsewhere'])
    await whiteout(path);
});
afterAll(() => authority.stop());

async function pages(scope: DiffScope, limit: number): Promise<string[]> {
  const lines: string[] = [];
  for (let after: string | null = null, page = 0; page < 100; page++) {
    const { changes, next } = await deltaAgainstBase(hranaDiffSql(sql), scope, { limit, after, base });
    lines.push(...changes.map(({ path, change, kind, now }) => `${change} ${kind} ${path} ${now?.size ?? '-'}`));
    if (next === null) return lines;
    after = next;
  }
  throw new Error('the pages do not end');
}

const shared = [
  'added file /memory/USER.md 4',
  'changed file /skills/a/SKILL.md 4',
  'added file /skills/a/new.md 4',
  'deleted directory /skills/b -',
  'deleted file /skills/c/SKILL.md -',
  'added directory /skills/ä 0',
  'added file /skills/ä/SKILL.md 4',
];
const conversation = [
  'added directory /conversations/conv_a/artifacts/inbound 0',
  'added file /conversations/conv_a/artifacts/inbound/photo 4',
  'added directory /conversations/conv_a/work/a 0',
  'added directory /conversations/conv_a/work/a/deep 0',
  'added file /conversations/conv_a/work/a/deep/er.txt 4',
  'added file /conversations/conv_a/work/a.txt 4',
  'added file /conversations/conv_a/work/b.txt 4',
];

test('the shared paths: added, changed, deleted, and nothing that only carries what is in it', async () => {
  expect(await pages({ kind: 'shared' }, 1000)).toEqual(shared);
});

test('a conversation: its work and artifacts, no private file, no other conversation', async () => {
  expect(await pages({ kind: 'conversation', conversation: 'conv_a' }, 1000)).toEqual(conversation);
  expect(await pages({ kind: 'conversation', conversation: 'conv_none' }, 1000)).toEqual([]);
});

test('pages of any length say the same', async () => {
  for (const limit of [1, 2, 3, 5]) {
    expect(await pages({ kind: 'shared' }, limit)).toEqual(shared);
    expect(await pages({ kind: 'conversation', conversation: 'conv_a' }, limit)).toEqual(conversation);
  }
});
