import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test';
import { rmSync } from 'node:fs';
import { HranaDatabase } from '../../machine/agentfs/hrana.ts';
import type { WireRequest } from '../../machine/agentfs/hrana-wire.ts';
import { addressOf, failureOf, pipelineOn, type ServedAuthority, serveAuthority } from './authority.fixture.ts';

setDefaultTimeout(30_000);

let authority: ServedAuthority;
let database: HranaDatabase;
beforeAll(() => {
  authority = serveAuthority();
  database = new HranaDatabase(addressOf(authority.socket, 'sessiondb'));
});
afterAll(async () => {
  await authority.stop();
  expect(authority.log).toEqual([]);
  rmSync(authority.directory, { recursive: true });
});

const execute = (sql: string): WireRequest => ({ type: 'execute', stmt: { sql } });
const pipeline = (baton: string | null, ...requests: WireRequest[]) => pipelineOn(authority.socket, baton, requests);

describe('streams', () => {
  test('a stream keeps its transaction between requests; closing it rolls back', async () => {
    await database.execute('CREATE TABLE r(a)');
    const stream = database.stream();
    await stream.execute('BEGIN IMMEDIATE');
    await stream.execute('INSERT INTO r VALUES (1)');
    expect((await stream.execute('SELECT * FROM r')).rows).toEqual([[1]]);
    expect((await database.execute('SELECT * FROM r')).rows).toEqual([]);
    await stream.close();
    expect((await database.execute('SELECT * FROM r')).rows).toEqual([]);
    expect(await failureOf(stream.execute('SELECT 1'))).toMatchObject({ kind: 'stream-expired' });
  });

  test('writers wait behind an open transaction in their order, while readers do not', async () => {
    await database.execute('CREATE TABLE w(a)');
    const first = database.stream();
    await first.execute('BEGIN IMMEDIATE');
    await first.execute('INSERT INTO w VALUES (1)');
    const order: number[] = [];
    const waiting: Promise<unknown>[] = [];
    for (const value of [2, 3, 4]) {
      waiting.push(database.execute('INSERT INTO w VALUES (?)', [value]).then(() => order.push(value)));
      // Answered at once, and after the insert before it has reached the queue.
      expect((await database.execute('SELECT count(*) FROM w')).rows).toEqual([[0]]);
    }
    expect(order).toEqual([]);
    await first.execute('COMMIT');
    await Promise.all(waiting);
    expect((await database.execute('SELECT a FROM w ORDER BY rowid')).rows).toEqual([[1], [2], [3], [4]]);
    await first.close();
  });

  test('a stale deferred transaction is told so at once instead of waiting', async () => {
    await database.execute('CREATE TABLE stale(a)');
    const reader = database.stream();
    await reader.execute('BEGIN');
    await reader.execute('SELECT * FROM stale');
    await database.execute('INSERT INTO stale VALUES (1)');
    expect(await failureOf(reader.execute('INSERT INTO stale VALUES (2)'))).toMatchObject({
      code: 'SQLITE_BUSY_SNAPSHOT',
      message: 'database is locked',
    });
    await reader.execute('ROLLBACK');
    await reader.execute('INSERT INTO stale VALUES (2)');
    await reader.close();
  });

  test('a writer gives up after the bounded wait, as SQLite would', async () => {
    const holder = database.stream();
    await holder.execute('BEGIN IMMEDIATE');
    expect(await failureOf(database.execute('CREATE TABLE never(a)'))).toMatchObject({
      kind: 'sql',
      code: 'SQLITE_BUSY',
      message: 'database is locked',
    });
    await holder.execute('ROLLBACK');
    await database.execute('CREATE TABLE then_(a)');
    await holder.close();
  });

  test('a client that goes away while it waits leaves no lock behind', async () => {
    await database.execute('CREATE TABLE gone(a)');
    const holder = database.stream();
    await holder.execute('BEGIN IMMEDIATE');
    const impatient = new AbortController();
    const waiting = failureOf(database.stream().execute('BEGIN IMMEDIATE', [], { signal: impatient.signal }));
    await database.execute('SELECT 1');
    impatient.abort();
    expect(await waiting).toMatchObject({ kind: 'aborted' });
    await holder.execute('COMMIT');
    await database.execute('INSERT INTO gone VALUES (1)');
    await holder.close();
  });

  test('a baton works once, and only for the stream it was given to', async () => {
    const first = await pipeline(null, execute('SELECT 1'));
    const second = await pipeline(first.body.baton, execute('SELECT 2'));
    expect(second.status).toBe(200);
    expect(await pipeline(first.body.baton, execute('SELECT 3'))).toMatchObject({
      status: 400,
      body: { code: 'BATON_REUSED' },
    });
    expect(await pipeline('guess.1', execute('SELECT 3'))).toMatchObject({
      status: 400,
      body: { code: 'STREAM_EXPIRED' },
    });
    const [third, fourth] = await Promise.all([
      pipeline(second.body.baton, execute('SELECT 4')),
      pipeline(second.body.baton, execute('SELECT 4')),
    ]);
    expect([third.status, fourth.status].sort()).toEqual([200, 400]);
    const baton = third.body.baton ?? fourth.body.baton;
    const closed = await pipeline(baton, { type: 'close' }, execute('SELECT 5'));
    expect(closed.body).toMatchObject({
      baton: null,
      results: [{ type: 'ok' }, { type: 'error', error: { code: 'STREAM_CLOSED' } }],
    });
    expect((await pipeline(baton, execute('SELECT 6'))).status).toBe(400);
  });

  test('settings and temporary tables of a stream do not reach the next one', async () => {
    for (let round = 0; round < 3; round++) {
      const stream = database.stream();
      expect((await stream.execute('PRAGMA foreign_keys')).rows).toEqual([[0]]);
      expect((await stream.execute('PRAGMA recursive_triggers')).rows).toEqual([[0]]);
      await stream.execute('PRAGMA foreign_keys=ON');
      if (round > 0) await stream.execute('PRAGMA recursive_triggers=ON');
      expect((await stream.execute('PRAGMA foreign_keys')).rows).toEqual([[1]]);
      if (round > 0) await stream.execute('CREATE TEMP TABLE mine(a)');
      await stream.close();
    }
  });

  test('the number of open streams is bounded', async () => {
    const batons: (string | null)[] = [];
    let refused: { status: number; body: { code?: string } } | null = null;
    while (!refused && batons.length < 1_000) {
      const answer = await pipeline(null, { type: 'get_autocommit' });
      if (answer.status === 200) batons.push(answer.body.baton);
      else refused = answer;
    }
    expect(refused).toMatchObject({ status: 503, body: { code: 'TOO_MANY_STREAMS' } });
    for (const baton of batons) await pipeline(baton, { type: 'close' });
    expect((await pipeline(null, { type: 'close' })).status).toBe(200);
  });
});
