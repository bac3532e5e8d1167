import { expect, test } from 'bun:test';
import { judgePragma } from './pragma.ts';

test.each([
  ['PRAGMA table_info(messages)', { use: 'read' }],
  ['pragma main.table_xinfo("a b")', { use: 'read' }],
  ['PRAGMA user_version', { use: 'read' }],
  ['PRAGMA journal_mode', { use: 'read' }],
  ['PRAGMA user_version = 3', { use: 'write' }],
  ['PRAGMA foreign_keys=ON', { use: 'setting', name: 'foreign_keys' }],
  ['PRAGMA foreign_keys(1)', { use: 'setting', name: 'foreign_keys' }],
  ['PRAGMA integrity_check', { use: 'read' }],
] as const)('%s may be used', (sql, use) => {
  expect(judgePragma(sql)).toEqual(use);
});

test.each([
  'PRAGMA journal_mode=DELETE',
  'PRAGMA journal_mode(delete)',
  'PRAGMA synchronous=OFF',
  'PRAGMA wal_checkpoint(TRUNCATE)',
  'PRAGMA wal_checkpoint',
  'PRAGMA busy_timeout=5000',
  'PRAGMA locking_mode=EXCLUSIVE',
  'PRAGMA writable_schema=ON',
  'PRAGMA temp_store_directory = "/tmp"',
  'PRAGMA other.user_version=1',
  'PRAGMA "journal_mode"=DELETE',
  'PRAGMA/**/journal_mode=DELETE',
  'PRAGMA journal_mode/**/=DELETE',
  'PRAGMA',
])('%s is refused', (sql) => {
  expect(() => judgePragma(sql)).toThrow('cannot be used');
});
