import { describe, expect, test } from 'bun:test';
import { scopeDelegations } from './delegations.ts';
import { type Plan, planOf } from './statements.ts';

const write = (sessions: readonly (number | string)[], more: object = {}): Plan => ({
  kind: 'write',
  creates: false,
  sessions,
  parents: [],
  insert: false,
  ...more,
});

describe('writes whose sessions are named', () => {
  test.each<[string, Plan]>([
    ['INSERT INTO messages (session_id, role, timestamp) VALUES (?, ?, ?)', write([0], { insert: true })],
    ['INSERT INTO messages (role, session_id) VALUES (?, ?)', write([1], { insert: true })],
    ["INSERT INTO messages (role, session_id) VALUES ('user', ?)", write([0], { insert: true })],
    ['INSERT INTO messages (role, session_id) VALUES (:r, :s)', write(['s'], { insert: true })],
    [
      'INSERT INTO sessions (id, source, parent_session_id) VALUES (?, ?, ?) ON CONFLICT(id) DO UPDATE SET model = COALESCE(sessions.model, excluded.model), parent_session_id = COALESCE(sessions.parent_session_id, excluded.parent_session_id)',
      write([0], { insert: true, creates: true, parents: [2] }),
    ],
    ['INSERT OR IGNORE INTO compression_locks (session_id, holder) VALUES (?, ?)', write([0], { insert: true })],
    ['UPDATE sessions SET title = ? WHERE id = ?', write([1])],
    ['UPDATE sessions SET title = ? WHERE id = ? AND title IS NULL', write([1])],
    ["UPDATE sessions SET ended_at = ? WHERE id = ? AND (ended_at IS NULL OR end_reason = 'x')", write([1])],
    ['UPDATE sessions SET cost = CASE WHEN ? IS NULL THEN cost ELSE ? END, n = n + ? WHERE id = ?', write([3])],
    ['UPDATE "messages" SET active = 0 WHERE session_id = ? AND active = 1', write([0])],
    ['UPDATE sessions SET parent_session_id = NULL WHERE parent_session_id IN (?, ?)', write([0, 1])],
    ['UPDATE sessions SET parent_session_id = ? WHERE id = ?', write([1], { parents: [0] })],
    ['DELETE FROM messages WHERE session_id IN (?,?)', write([0, 1])],
    ['DELETE FROM compression_locks WHERE session_id = ? AND expires_at < ?', write([0])],
  ])('%s', (sql, plan) => expect(planOf(sql)).toEqual(plan));
});

describe('refused', () => {
  test.each([
    'DELETE FROM messages',
    'UPDATE messages SET content = ?',
    'UPDATE messages SET content = ? WHERE id = ?',
    'UPDATE messages SET session_id = ? WHERE session_id = ?',
    'UPDATE sessions SET id = ? WHERE id = ?',
    'UPDATE sessions SET (id, title) = (?, ?) WHERE id = ?',
    "UPDATE sessions SET parent_session_id = 'theirs' WHERE id = ?",
    'UPDATE sessions SET parent_session_id = (SELECT id FROM sessions LIMIT 1) WHERE id = ?',
    'UPDATE sessions SET title = ? WHERE id = ? OR 1 = 1',
    'UPDATE sessions SET title = ? WHERE NOT id = ?',
    'UPDATE sessions SET title = ? WHERE title BETWEEN 1 AND id = ?',
    'UPDATE sessions SET title = ? WHERE CASE WHEN 1 AND id = ? AND 1 THEN 1 ELSE 1 END',
    'UPDATE sessions SET title = ? WHERE id = ? || title',
    'UPDATE sessions SET title = ? WHERE id = ?1 AND 1',
    'UPDATE sessions SET title = ? WHERE 1 -- AND id = ?',
    "UPDATE sessions SET title = ? WHERE ' AND id = ? '",
    'UPDATE sessions SET title = ? WHERE (id = ?) IS NULL',
    'UPDATE sessions AS a SET title = ? WHERE id = ?',
    'UPDATE sessions SET title = ? FROM messages WHERE id = ?',
    'UPDATE OR REPLACE sessions SET title = ? WHERE id = ?',
    'DELETE FROM sessions AS s WHERE id = ?',
    'INSERT INTO messages (session_id, role) VALUES (?, ?), (?, ?)',
    "INSERT INTO messages (session_id, role) VALUES ('theirs', ?)",
    'INSERT INTO messages (session_id, role) VALUES (? || ?, ?)',
    'INSERT INTO messages (session_id, role) SELECT ?, ?',
    'INSERT INTO messages VALUES (?, ?)',
    'INSERT INTO messages (role) VALUES (?)',
    'INSERT OR REPLACE INTO sessions (id, title) VALUES (?, ?)',
    'REPLACE INTO messages (session_id, id) VALUES (?, ?)',
    'INSERT INTO sessions (id, title) VALUES (?, ?) ON CONFLICT(title) DO UPDATE SET model = ?',
    'INSERT INTO sessions (id, title) VALUES (?, ?) ON CONFLICT(id) DO UPDATE SET id = ?',
    'INSERT INTO sessions (id, parent_session_id) VALUES (?, lower(?))',
    'INSERT INTO state_meta (key, value) VALUES (?, ?)',
    'INSERT INTO messages_fts(messages_fts) VALUES (?)',
    'WITH x AS (SELECT 1) DELETE FROM messages WHERE session_id = ?',
    'WITH x AS (SELECT 1) INSERT INTO messages (session_id) VALUES (?)',
    'UPDATE sqlite_master SET sql = ? WHERE id = ?',
    'CREATE TRIGGER t AFTER INSERT ON messages BEGIN DELETE FROM messages; END',
    'CREATE TABLE IF NOT EXISTS other (a)',
    'DROP TABLE messages',
    "ATTACH 'x' AS y",
    'PRAGMA writable_schema=ON',
    'PRAGMA journal_size_limit=1',
    'SELECT 1; DELETE FROM messages',
    "SELECT 'unfinished",
    '/* */',
    '',
  ])('%s', (sql) => expect(planOf(sql).kind).toBe('refused'));
});

test('reads, transactions, and what is answered here', () => {
  expect(planOf('  -- why\n SELECT 1;').kind).toBe('read');
  expect(planOf("WITH a AS (SELECT ';' AS s) SELECT * FROM a").kind).toBe('read');
  expect(planOf('PRAGMA table_info("messages")').kind).toBe('read');
  for (const sql of ['BEGIN IMMEDIATE', 'begin', 'COMMIT', 'ROLLBACK']) expect(planOf(sql).kind).toBe('transaction');
  for (const sql of ['PRAGMA journal_mode', 'PRAGMA journal_mode=WAL', 'PRAGMA wal_checkpoint(PASSIVE)', 'VACUUM'])
    expect(planOf(sql).kind).toBe('local');
  expect(planOf('PRAGMA foreign_keys=ON')).toEqual({ kind: 'foreign-keys', on: true });
  expect(planOf('PRAGMA foreign_keys = off')).toEqual({ kind: 'foreign-keys', on: false });
  expect(planOf('UPDATE messages SET active = 1\n WHERE active IS NULL').kind).toBe('schema');
});

test('delegations are limited to the own ones, in every place of a statement', () => {
  const own = "parent_session_id IN ('a', 'it''s')";
  const view = `(SELECT * FROM async_delegations WHERE ${own})`;
  const sessions = ['a', "it's"];
  expect(planOf('SELECT x FROM async_delegations')).toMatchObject({ kind: 'read', scoped: true });
  expect(planOf('DELETE FROM async_delegations WHERE delegation_id=?')).toMatchObject({ kind: 'delegation' });
  expect(planOf('DELETE FROM async_delegations').kind).toBe('refused');
  expect(scopeDelegations('SELECT COUNT(*) FROM async_delegations WHERE state = ?', sessions)).toBe(
    `SELECT COUNT(*) FROM ${view} WHERE state = ?`,
  );
  expect(scopeDelegations('UPDATE async_delegations SET state=? WHERE a=? OR b=?', sessions)).toBe(
    `UPDATE async_delegations SET state=? WHERE ( a=? OR b=?) AND ${own}`,
  );
  expect(
    scopeDelegations('DELETE FROM async_delegations WHERE id IN (SELECT id FROM async_delegations LIMIT ?)', sessions),
  ).toBe(`DELETE FROM async_delegations WHERE ( id IN (SELECT id FROM ${view} LIMIT ?)) AND ${own}`);
});
