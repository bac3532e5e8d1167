/** Statements in the caller's thread: results, failures, several at once, and the engine that they were written for. */
import { afterAll, beforeAll, expect, test } from 'bun:test';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect } from '@tursodatabase/sync';
import type { LocalDatabase } from './driver.ts';
import { directStatements } from './statements.ts';

const directory = mkdtempSync(join(tmpdir(), 'agentfs-statements-'));
let database: LocalDatabase;
let close: () => Promise<void>;
const megabytes = 8;

beforeAll(async () => {
  const path = join(directory, 'some.db');
  const first = await connect({ path });
  await first.exec('CREATE TABLE t (a INTEGER PRIMARY KEY, b)');
  await first.exec('CREATE TABLE large (a INTEGER PRIMARY KEY, b)');
  for (let row = 0; row < megabytes; row++) await first.exec('INSERT INTO large (b) VALUES (randomblob(1000000))');
  await first.close();
  // Another connection: nothing is in the engine's cache.
  const second = await connect({ path });
  database = directStatements(second);
  close = () => second.close();
});
afterAll(async () => {
  await close();
  rmSync(directory, { recursive: true });
});

test('rows, changes, and a failure after which the statement works again', async () => {
  const insert = await database.prepare('INSERT INTO t VALUES (?, ?)');
  expect(await insert.run(1, 'x')).toEqual({ changes: 1 });
  expect(insert.run(1, 'y')).rejects.toThrow(/UNIQUE|constraint/i);
  expect(await insert.run(2, new Uint8Array([1, 2]))).toEqual({ changes: 1 });
  const change = await database.prepare('UPDATE t SET b = ? WHERE a = ?');
  expect(await change.run(null, 3)).toEqual({ changes: 0 });
  const all = await database.prepare('SELECT a, b FROM t ORDER BY a');
  expect((await all.all()).map(({ a }) => a)).toEqual([1, 2]);
  const one = await database.prepare('SELECT b FROM t WHERE a = ?');
  expect((await one.get(1))?.b).toBe('x');
  expect(await one.get(9)).toBeUndefined();
});

test('each kind of value comes by its name', async () => {
  const sql =
    "SELECT 1 AS one, 9007199254740991 AS large, 1.5 AS half, 'é' AS text, x'00ff' AS bytes, NULL AS none, ? AS given";
  const kinds = await database.prepare(sql);
  for (const given of ['first', 'second']) {
    const row = {
      one: 1,
      large: 2 ** 53 - 1,
      half: 1.5,
      text: 'é',
      bytes: Buffer.from([0, 255]),
      none: null,
      given,
    };
    expect(await kinds.get(given)).toEqual(row);
    expect(await kinds.all(given)).toEqual([row]);
  }
});

test('rows of megabytes come whole, several at once', async () => {
  const sum = await database.prepare('SELECT total(length(hex(b))) AS n FROM large WHERE a > ?');
  const results = await Promise.all([sum.get(0), sum.get(megabytes - 1), sum.get(0)]);
  expect(results.map((row) => Number(row?.n))).toEqual([megabytes * 2e6, 2e6, megabytes * 2e6]);
});

/** An engine whose every statement waits for the disk `waits` times before it fails or is done. */
function slowEngine(waits: number, log: string[]) {
  return {
    exec: async () => undefined,
    db: {
      prepare: (sql: string) => {
        let left = waits;
        const stepSync = () => {
          log.push(`${sql} step`);
          if (left-- > 0) return 3;
          if (sql === 'fails') throw new Error('refused');
          return 2;
        };
        return { bindAt: () => 0, stepSync, row: () => ({}), reset: () => (left = waits), finalize: () => undefined };
      },
      ioLoopSync: () => log.push('reads'),
      ioLoopAsync: async () => {
        await Bun.sleep(1);
        log.push('others');
      },
      totalChanges: () => 0,
      changes: () => 0,
    },
  };
}

test('one that reads for long lets the machine go on, and no other statement in', async () => {
  const log: string[] = [];
  const engine = directStatements(slowEngine(3, log), 0);
  const [one, two] = [await engine.prepare('one'), await engine.prepare('fails')];
  const first = one.all();
  expect(two.all()).rejects.toThrow('refused');
  await first;
  await one.all();
  const others = log.filter((line) => line === 'others').length;
  expect(others).toBeGreaterThan(2);
  const order = log.filter((line) => line.endsWith('step')).map((line) => line.split(' ')[0]);
  expect(order).toEqual([...Array(4).fill('one'), ...Array(4).fill('fails'), ...Array(4).fill('one')]);
});

test('what is no engine of this version is refused', () => {
  expect(() => directStatements({ exec: async () => undefined })).toThrow('not the version');
});
