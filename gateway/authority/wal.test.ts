import { Database } from 'bun:sqlite';
import { afterEach, beforeEach, expect, test } from 'bun:test';
import { mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PAGE_BYTES, WriteAheadLog } from './wal.ts';

const FRAME = 24 + PAGE_BYTES;
let directory: string;
let file: string;
let database: Database;
let log: WriteAheadLog;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'wal-'));
  file = join(directory, 'x.db');
  database = new Database(file);
  database.run('PRAGMA journal_mode=WAL');
  database.run('PRAGMA wal_autocheckpoint=0');
  database.run('CREATE TABLE t(a INTEGER PRIMARY KEY, b BLOB)');
  log = new WriteAheadLog(`${file}-wal`);
});
afterEach(() => {
  log.close();
  database.close();
  rmSync(directory, { recursive: true });
});

/** The database rebuilt from the main file and what the log reader found, as SQLite must read it. */
function rebuild(pages: Map<number, number>, databasePages: number): Database {
  const image = new Uint8Array(databasePages * PAGE_BYTES);
  image.set(readFileSync(file).subarray(0, image.length));
  for (const [page, position] of pages) log.readPage(position, image, (page - 1) * PAGE_BYTES);
  // Reading version 1: no log stands beside the copy.
  image[18] = 1;
  image[19] = 1;
  return Database.deserialize(image);
}

test('committed pages are found once, with their newest content', () => {
  const all = new Map<number, number>();
  const first = log.advance();
  expect(first.databasePages).toBe(2);
  for (const [page, position] of first.pages) all.set(page, position);
  const insert = database.prepare('INSERT INTO t(b) VALUES (randomblob(3000))');
  for (let i = 0; i < 200; i++) insert.run();
  const second = log.advance();
  expect(second.pages.size).toBeGreaterThan(150);
  for (const [page, position] of second.pages) all.set(page, position);
  expect(log.advance().pages.size).toBe(0);
  const copy = rebuild(all, second.databasePages!);
  expect(copy.query('SELECT a, hex(b) FROM t').values()).toEqual(database.query('SELECT a, hex(b) FROM t').values());
  expect(copy.query('PRAGMA integrity_check').values()).toEqual([['ok']]);
});

test('frames without a commit are not taken', () => {
  log.advance();
  database.run('PRAGMA cache_size=2');
  database.run('BEGIN');
  for (let i = 0; i < 50; i++) database.run('INSERT INTO t(b) VALUES (randomblob(3000))');
  const spilled = readFileSync(`${file}-wal`).length;
  expect(spilled).toBeGreaterThan(32 + 20 * FRAME);
  expect(log.advance()).toMatchObject({ databasePages: null, pages: new Map() });
  database.run('COMMIT');
  expect(log.advance().pages.size).toBeGreaterThan(40);
});

test('a log that was started over is read from its beginning, not mixed with what stands behind', () => {
  for (let i = 0; i < 30; i++) database.run('INSERT INTO t(b) VALUES (randomblob(3000))');
  expect(log.advance().restarted).toBe(true);
  const before = log.identity!;
  expect(database.query('PRAGMA wal_checkpoint(PASSIVE)').values()[0]![0]).toBe(0);
  expect(log.advance().pages.size).toBe(0);
  database.run('UPDATE t SET b = 1 WHERE a = 3');
  const { pages, restarted } = log.advance();
  expect(restarted).toBe(true);
  expect(pages.size).toBeLessThan(4);
  expect(log.identity!.salt1).not.toBe(before.salt1);
});

test('a flipped bit or a cut-off tail ends the log before the frame', () => {
  for (let i = 0; i < 10; i++) database.run('INSERT INTO t(b) VALUES (randomblob(3000))');
  const bytes = readFileSync(`${file}-wal`);
  const copy = join(directory, 'copy-wal');
  const read = (content: Uint8Array) => {
    writeFileSync(copy, content);
    const reader = new WriteAheadLog(copy);
    const found = reader.advance();
    const frames = reader.identity?.frames ?? null;
    reader.close();
    return { found, frames };
  };
  const whole = read(bytes).frames!;
  expect(whole).toBe((bytes.length - 32) / FRAME);
  for (const place of [0, 5, 8, 12, 16, 24, 500, FRAME - 1]) {
    const broken = Uint8Array.from(bytes);
    broken[32 + 4 * FRAME + place]! ^= 1;
    const { frames } = read(broken);
    expect(frames).toBeLessThanOrEqual(4);
  }
  expect(read(bytes.subarray(0, bytes.length - 1)).frames).toBeLessThan(whole);
  const badHeader = Uint8Array.from(bytes);
  badHeader[20]! ^= 1;
  expect(read(badHeader).frames).toBeNull();
  expect(read(bytes.subarray(0, 31)).frames).toBeNull();
  truncateSync(copy, 0);
});
