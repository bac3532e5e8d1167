import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test';
import { rmSync } from 'node:fs';
import { HranaDatabase, type SqlArgument } from '../../machine/agentfs/hrana.ts';
import type { WireRequest, WireValue } from '../../machine/agentfs/hrana-wire.ts';
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

const execute = (sql: string, ...args: WireValue[]): WireRequest => ({ type: 'execute', stmt: { sql, args } });
const pipeline = (baton: string | null, ...requests: WireRequest[]) => pipelineOn(authority.socket, baton, requests);

describe('values', () => {
  const cases: [string, SqlArgument, string][] = [
    ['null', null, 'null'],
    ['text', 'häß😀\u0000x', 'text'],
    ['empty text', '', 'text'],
    ['zero', 0, 'integer'],
    ['2^53 - 1', Number.MAX_SAFE_INTEGER, 'integer'],
    ['2^53 + 1', 2n ** 53n + 1n, 'integer'],
    ['the largest integer', 2n ** 63n - 1n, 'integer'],
    ['the smallest integer', -(2n ** 63n), 'integer'],
    ['a blob', new Uint8Array([0, 1, 254, 255]), 'blob'],
    ['an empty blob', new Uint8Array(0), 'blob'],
    ['a fraction', 0.1, 'real'],
    ['a large float', 1e300, 'real'],
    ['a small float', 5e-324, 'real'],
    ['infinity', Number.NEGATIVE_INFINITY, 'real'],
  ];
  test.each(cases)('%s goes there and back exactly', async (_name, value, type) => {
    const { rows } = await database.execute('SELECT ?1, typeof(?1)', [value]);
    expect(rows).toEqual([[value as never, type]]);
  });

  test('a float without a fraction stays a float, and behaves as a plain parameter does', async () => {
    await database.batch(
      [
        { sql: 'CREATE TABLE f(any, words TEXT, whole INTEGER, number REAL)' },
        { sql: 'INSERT INTO f VALUES (?, ?, ?, ?)', args: [{ real: 1 }, { real: 1 }, { real: 1 }, 1] },
      ],
      { transaction: true },
    );
    const { rows } = await database.execute('SELECT typeof(any), words, typeof(whole), typeof(number) FROM f');
    expect(rows).toEqual([['real', '1.0', 'integer', 'real']]);
    // A column's TEXT affinity is applied to a bare parameter, which a CAST alone would prevent.
    expect((await database.execute('SELECT count(*) FROM f WHERE words = ?', [{ real: 1 }])).rows).toEqual([[1]]);
    expect((await database.execute("SELECT count(*) FROM f WHERE words || '' = ?", [{ real: 1 }])).rows).toEqual([[0]]);
    await database.execute("UPDATE f SET words = '1'");
    expect((await database.execute('SELECT count(*) FROM f WHERE words = ?', [{ real: 1 }])).rows).toEqual([[0]]);
    await database.execute("UPDATE f SET words = '1.0'");
    expect((await database.execute('SELECT count(*) FROM f WHERE words = ?', [1])).rows).toEqual([[0]]);
    const named = await database.execute('SELECT ?, typeof(?) AS t', [{ real: 3 }, { real: 3 }]);
    expect(named).toMatchObject({ columns: ['?', 't'], rows: [[3, 'real']] });
    const wire = await pipeline(null, execute('SELECT ?', { type: 'float', value: 2 }), { type: 'close' });
    expect(wire.body.results[0]).toMatchObject({ response: { result: { rows: [[{ type: 'float', value: 2 }]] } } });
  });

  test('named arguments are found with and without their prefix', async () => {
    const stmt = {
      sql: 'SELECT :a, @b, $c, :a, ?2',
      named_args: [
        { name: 'a', value: { type: 'integer', value: '1' } },
        { name: '@b', value: { type: 'float', value: 2 } },
        { name: 'c', value: { type: 'null' } },
      ],
    } as const;
    const { body } = await pipeline(null, { type: 'execute', stmt }, { type: 'close' });
    expect(body.results[0]).toMatchObject({
      response: {
        result: {
          rows: [
            [
              { type: 'integer', value: '1' },
              { type: 'float', value: 2 },
              { type: 'null' },
              { type: 'integer', value: '1' },
              { type: 'float', value: 2 },
            ],
          ],
        },
      },
    });
  });

  test.each([
    ['an argument too many', 'SELECT ?', [1, 2]],
    ['an argument too few', 'SELECT ?, ?', [1]],
  ])('%s is refused', async (_name, sql, args) => {
    expect(await failureOf(database.execute(sql, args))).toMatchObject({ kind: 'sql', code: 'ARGS_INVALID' });
  });

  test.each([
    { type: 'integer', value: '9223372036854775808' },
    { type: 'integer', value: '1e3' },
    { type: 'integer', value: 1 },
    { type: 'float', value: '1' },
    { type: 'blob', base64: '*not base64*' },
    { type: 'text' },
    { type: 'date', value: 'x' },
    {},
  ])('%p is refused as a value', async (value) => {
    const { body } = await pipeline(null, execute('SELECT ?', value as WireValue), { type: 'close' });
    expect(body.results[0]).toMatchObject({ type: 'error', error: { code: 'ARGS_INVALID' } });
  });
});

describe('statements', () => {
  test('counts and row ids are those of the statement itself', async () => {
    await database.batch(
      [
        { sql: 'CREATE TABLE c(id INTEGER PRIMARY KEY, x)' },
        { sql: 'CREATE TABLE audit(x)' },
        {
          sql: 'CREATE TRIGGER c_audit AFTER INSERT ON c BEGIN INSERT INTO audit VALUES (1); INSERT INTO audit VALUES (2); END',
        },
      ],
      { transaction: true },
    );
    const run = async (sql: string) => {
      const { affectedRowCount, lastInsertRowid } = await database.execute(sql);
      return [affectedRowCount, lastInsertRowid];
    };
    expect(await run('INSERT INTO c(x) VALUES (1), (2)')).toEqual([2, 2]);
    expect(await run('INSERT INTO c(x) VALUES (3) RETURNING id')).toEqual([1, 3]);
    expect(await run(`INSERT INTO c(id, x) VALUES (${2n ** 62n}, 4)`)).toEqual([1, 2n ** 62n]);
    expect(await run('UPDATE c SET x = 9 WHERE id < 3')).toEqual([2, null]);
    expect(await run('UPDATE c SET x = 9 WHERE id < 3 RETURNING id')).toEqual([2, null]);
    expect(await run('UPDATE c SET x = 9 WHERE id = 77 RETURNING id')).toEqual([0, null]);
    expect(await run('SELECT * FROM c')).toEqual([0, null]);
    expect(await run('WITH n AS (SELECT 1) SELECT * FROM n')).toEqual([0, null]);
    expect(await run('CREATE TABLE d(x)')).toEqual([0, null]);
    expect(await run('WITH n AS (SELECT 1) DELETE FROM c')).toEqual([4, null]);
  });

  test('columns of the same name keep their places', async () => {
    const { columns, rows } = await database.execute('SELECT 1 AS a, 2 AS a, 3 AS __proto__');
    expect([columns, rows]).toEqual([['a', 'a', '__proto__'], [[1, 2, 3]]]);
  });

  test('a prepared statement follows a changed schema', async () => {
    await database.execute('CREATE TABLE s(a)');
    await database.execute('INSERT INTO s VALUES (1)');
    const stream = database.stream();
    expect((await stream.execute('SELECT * FROM s')).columns).toEqual(['a']);
    await database.execute('ALTER TABLE s ADD COLUMN b DEFAULT 2');
    expect(await stream.execute('SELECT * FROM s')).toMatchObject({ columns: ['a', 'b'], rows: [[1, 2]] });
    await stream.execute('BEGIN IMMEDIATE');
    await stream.execute('ALTER TABLE s ADD COLUMN c');
    expect((await stream.execute('SELECT * FROM s')).columns).toEqual(['a', 'b', 'c']);
    await stream.execute('ROLLBACK');
    expect((await stream.execute('SELECT * FROM s')).columns).toEqual(['a', 'b']);
    await stream.close();
  });

  test('FTS5 with the trigram tokenizer finds text', async () => {
    await database.batch(
      [
        { sql: 'CREATE VIRTUAL TABLE words USING fts5(body)' },
        { sql: "CREATE VIRTUAL TABLE parts USING fts5(body, tokenize='trigram')" },
        { sql: 'INSERT INTO words VALUES (?), (?)', args: ['the quick brown fox', 'a lazy dog'] },
        { sql: 'INSERT INTO parts SELECT body FROM words' },
      ],
      { transaction: true },
    );
    const found = await database.execute(
      "SELECT snippet(words, 0, '[', ']', '…', 3) FROM words WHERE words MATCH 'quick' ORDER BY rank",
    );
    expect(found.rows).toEqual([['the [quick] brown…']]);
    expect((await database.execute("SELECT body FROM parts WHERE parts MATCH 'azy'")).rows).toEqual([['a lazy dog']]);
  });

  test.each([
    ['SELECT * FROM nowhere', 'SQLITE_ERROR'],
    ['INSERT INTO c(id) VALUES (1), (1)', 'SQLITE_CONSTRAINT_PRIMARYKEY'],
    ['SELECT 1; SELECT 2', 'SQL_MANY_STATEMENTS'],
    ['-- nothing', 'SQL_NO_STATEMENT'],
    ["ATTACH '/etc/passwd' AS x", 'SQL_NOT_ALLOWED'],
    ["VACUUM INTO '/tmp/x'", 'SQL_NOT_ALLOWED'],
    ['PRAGMA wal_checkpoint(TRUNCATE)', 'SQL_NOT_ALLOWED'],
    ["SELECT load_extension('x')", 'SQL_NOT_ALLOWED'],
  ])('%s fails as %s', async (sql, code) => {
    expect(await failureOf(database.execute(sql))).toMatchObject({ kind: 'sql', code });
  });

  test('a trailing semicolon and comment are no second statement', async () => {
    expect((await database.execute('SELECT 1; -- done')).rows).toEqual([[1]]);
  });

  test('a sequence runs all its statements, a describe none', async () => {
    const { body } = await pipeline(
      null,
      { type: 'sequence', sql: 'CREATE TABLE q(a TEXT); INSERT INTO q VALUES (1); INSERT INTO q VALUES (2);' },
      { type: 'describe', sql: 'DELETE FROM q WHERE a = :a AND ? RETURNING a, 1 AS b' },
      execute('SELECT count(*) FROM q'),
      { type: 'close' },
    );
    expect(body.results).toMatchObject([
      { type: 'ok', response: { type: 'sequence' } },
      {
        response: {
          result: {
            params: [{ name: ':a' }, { name: null }],
            cols: [
              { name: 'a', decltype: 'TEXT' },
              { name: 'b', decltype: null },
            ],
            is_readonly: false,
          },
        },
      },
      { response: { result: { rows: [[{ type: 'integer', value: '2' }]] } } },
      { type: 'ok' },
    ]);
  });

  test('stored SQL is used by its id until it is closed', async () => {
    const byId: WireRequest = { type: 'execute', stmt: { sql_id: 7 } };
    const { body } = await pipeline(
      null,
      { type: 'store_sql', sql_id: 7, sql: 'SELECT 42' },
      byId,
      { type: 'close_sql', sql_id: 7 },
      byId,
      { type: 'close' },
    );
    expect(body.results).toMatchObject([
      { type: 'ok' },
      { response: { result: { rows: [[{ value: '42' }]] } } },
      { type: 'ok' },
      { type: 'error', error: { code: 'SQL_NOT_FOUND' } },
      { type: 'ok' },
    ]);
    expect(body.baton).toBeNull();
  });

  test('an answer beyond the limit is refused, and a change that returned it is undone', async () => {
    await database.execute('CREATE TABLE big(a)');
    await database.execute(
      'INSERT INTO big SELECT value FROM (WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n LIMIT 200001) SELECT value FROM n)',
    );
    expect(await failureOf(database.execute('SELECT a FROM big'))).toMatchObject({ code: 'ANSWER_TOO_LARGE' });
    expect(await failureOf(database.execute('UPDATE big SET a = -1 RETURNING a'))).toMatchObject({
      code: 'ANSWER_TOO_LARGE',
    });
    expect((await database.execute('SELECT count(*) FROM big WHERE a < 0')).rows).toEqual([[0]]);
    await database.execute('DROP TABLE big');
  });
});

describe('batches', () => {
  test('a transaction is all or nothing, and names the statement that failed', async () => {
    await database.execute('CREATE TABLE b(a UNIQUE)');
    const error = await failureOf(
      database.batch(
        [{ sql: 'INSERT INTO b VALUES (1)' }, { sql: 'INSERT INTO b VALUES (1)' }, { sql: 'INSERT INTO b VALUES (2)' }],
        { transaction: true },
      ),
    );
    expect(error).toMatchObject({ kind: 'sql', code: 'SQLITE_CONSTRAINT_UNIQUE', statement: 1 });
    expect((await database.execute('SELECT * FROM b')).rows).toEqual([]);
    const results = await database.batch(
      [{ sql: 'INSERT INTO b VALUES (1)' }, { sql: 'SELECT a + ? FROM b', args: [1] }],
      { transaction: true },
    );
    expect(results.map(({ rows }) => rows)).toEqual([[], [[2]]]);
  });

  test('without a transaction what went well before the failure stays', async () => {
    await database.execute('CREATE TABLE b2(a UNIQUE)');
    const error = await failureOf(
      database.batch(
        [
          { sql: 'INSERT INTO b2 VALUES (1)' },
          { sql: 'INSERT INTO b2 VALUES (1)' },
          { sql: 'INSERT INTO b2 VALUES (2)' },
        ],
        { transaction: false },
      ),
    );
    expect(error.statement).toBe(1);
    expect((await database.execute('SELECT * FROM b2')).rows).toEqual([[1]]);
  });

  test('conditions decide on each step', async () => {
    const bad = 'SELECT * FROM nowhere';
    const steps = [
      { stmt: { sql: 'SELECT 0' } },
      { stmt: { sql: bad } },
      { condition: { type: 'ok', step: 0 }, stmt: { sql: 'SELECT 2' } },
      { condition: { type: 'ok', step: 1 }, stmt: { sql: 'SELECT 3' } },
      { condition: { type: 'error', step: 1 }, stmt: { sql: 'SELECT 4' } },
      { condition: { type: 'error', step: 3 }, stmt: { sql: 'SELECT 5' } },
      { condition: { type: 'not', cond: { type: 'ok', step: 1 } }, stmt: { sql: 'BEGIN' } },
      { condition: { type: 'is_autocommit' }, stmt: { sql: 'SELECT 7' } },
      {
        condition: {
          type: 'and',
          conds: [
            { type: 'ok', step: 0 },
            { type: 'ok', step: 1 },
          ],
        },
        stmt: { sql: 'SELECT 8' },
      },
      {
        condition: {
          type: 'or',
          conds: [
            { type: 'ok', step: 0 },
            { type: 'ok', step: 1 },
          ],
        },
        stmt: { sql: 'ROLLBACK' },
      },
      { condition: { type: 'is_autocommit' }, stmt: { sql: 'SELECT 10' } },
    ] as const;
    const { body } = await pipeline(null, { type: 'batch', batch: { steps } }, { type: 'close' });
    const result = body.results[0];
    if (result?.type !== 'ok' || result.response.type !== 'batch') throw new Error('not a batch result');
    const { step_results, step_errors } = result.response.result;
    expect(step_results.map((one) => one !== null)).toEqual([
      true,
      false,
      true,
      false,
      true,
      false,
      true,
      false,
      false,
      true,
      true,
    ]);
    expect(step_errors.map((one) => one !== null).indexOf(true)).toBe(1);
    expect(step_errors.filter((one) => one !== null)).toHaveLength(1);
  });
});
