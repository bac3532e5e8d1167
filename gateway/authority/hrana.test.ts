import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test';
import { rmSync } from 'node:fs';
import { HranaDatabase, HranaError, type SqlArgument } from '../../machine/agentfs/hrana.ts';
import type { WirePipelineResponse, WireRequest, WireValue } from '../../machine/agentfs/hrana-wire.ts';
import { addressOf, type ServedAuthority, serveAuthority, TOKENS } from './authority-on-socket.ts';

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

const post = (path: string, body: string | Uint8Array, token = TOKENS.sessiondb): Promise<Response> =>
  fetch(`http://localhost${path}`, {
    unix: authority.socket,
    method: 'POST',
    headers: { authorization: `Bearer ${token}` },
    body,
  });

async function pipeline(
  baton: string | null,
  ...requests: WireRequest[]
): Promise<{ status: number; body: WirePipelineResponse & { code?: string } }> {
  const response = await post('/sessiondb/v2/pipeline', JSON.stringify({ baton, requests }));
  return { status: response.status, body: (await response.json()) as WirePipelineResponse & { code?: string } };
}
const execute = (sql: string, ...args: WireValue[]): WireRequest => ({ type: 'execute', stmt: { sql, args } });
const failure = async (promise: Promise<unknown>): Promise<HranaError> => {
  const error = await promise.then(
    () => null,
    (reason: unknown) => reason,
  );
  if (!(error instanceof HranaError)) throw new Error('it should have failed with a HranaError');
  return error;
};

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
    expect(await failure(database.execute(sql, args))).toMatchObject({ kind: 'sql', code: 'ARGS_INVALID' });
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
    expect(await failure(database.execute(sql))).toMatchObject({ kind: 'sql', code });
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
    expect(await failure(database.execute('SELECT a FROM big'))).toMatchObject({ code: 'ANSWER_TOO_LARGE' });
    expect(await failure(database.execute('UPDATE big SET a = -1 RETURNING a'))).toMatchObject({
      code: 'ANSWER_TOO_LARGE',
    });
    expect((await database.execute('SELECT count(*) FROM big WHERE a < 0')).rows).toEqual([[0]]);
    await database.execute('DROP TABLE big');
  });
});

describe('batches', () => {
  test('a transaction is all or nothing, and names the statement that failed', async () => {
    await database.execute('CREATE TABLE b(a UNIQUE)');
    const error = await failure(
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
    const error = await failure(
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
    expect(await failure(stream.execute('SELECT 1'))).toMatchObject({ kind: 'stream-expired' });
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
    expect(await failure(reader.execute('INSERT INTO stale VALUES (2)'))).toMatchObject({
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
    expect(await failure(database.execute('CREATE TABLE never(a)'))).toMatchObject({
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
    const waiting = failure(database.stream().execute('BEGIN IMMEDIATE', [], { signal: impatient.signal }));
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

describe('refusals', () => {
  test.each([
    ['/sessiondb/v2/pipeline', TOKENS.agentfs],
    ['/sessiondb/v2/pipeline', `${TOKENS.sessiondb}x`],
    ['/agentfs/v2/pipeline', TOKENS.sessiondb],
    ['/agentfs/pull-updates', ''],
  ])('%s with another token is 401', async (path, token) => {
    expect((await post(path, '{"requests":[]}', token)).status).toBe(401);
  });

  test.each(['/sessiondb/pull-updates', '/other/v2/pipeline', '/', '/sessiondb/v4/pipeline', '/sessiondb'])(
    '%s is 404',
    async (path) => {
      expect((await post(path, '{}')).status).toBe(404);
    },
  );

  test.each([
    '',
    'no json',
    '[]',
    'null',
    '{"requests":1}',
    '{"requests":[{"type":"explode"}]}',
    '{"requests":[{"type":"execute"}]}',
    '{"requests":[{"type":"execute","stmt":{"sql":1}}]}',
    '{"requests":[{"type":"execute","stmt":{"sql":"SELECT ?","args":[1]}}]}',
    '{"requests":[{"type":"batch","batch":{"steps":[{"stmt":{"sql":"SELECT 1"},"condition":{"type":"maybe"}}]}}]}',
    `{"requests":[{"type":"batch","batch":{"steps":[{"stmt":{"sql":"SELECT 1"},"condition":${'{"type":"not","cond":'.repeat(40)}{"type":"is_autocommit"}${'}'.repeat(40)}}]}}]}`,
    `{"requests":[{"type":"execute","stmt":{"sql":"${' '.repeat(1024 * 1024)}SELECT 1"}}]}`,
    '{"baton":5,"requests":[]}',
  ])('body %#: what is no pipeline is 400', async (body) => {
    const response = await post('/sessiondb/v2/pipeline', body);
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ code: 'BAD_REQUEST' });
  });

  test('bytes that are not UTF-8 are 400', async () => {
    expect((await post('/sessiondb/v2/pipeline', new Uint8Array([0x7b, 0xff, 0xfe]))).status).toBe(400);
  });

  test('a body beyond the limit is 413', async () => {
    expect((await post('/sessiondb/v2/pipeline', new Uint8Array(32 * 1024 * 1024 + 1))).status).toBe(413);
    expect((await post('/agentfs/pull-updates', new Uint8Array(4 * 1024 * 1024 + 1), TOKENS.agentfs)).status).toBe(413);
  });

  test('a body that does not say how long it is is 411', async () => {
    const stream = new ReadableStream({
      pull: (controller) => {
        controller.enqueue(new TextEncoder().encode('{"requests":[]}'));
        controller.close();
      },
    });
    const response = await fetch('http://localhost/sessiondb/v2/pipeline', {
      unix: authority.socket,
      method: 'POST',
      headers: { authorization: `Bearer ${TOKENS.sessiondb}` },
      body: stream,
    });
    expect(response.status).toBe(411);
  });

  test('the client tells its failures apart and never shows the token', async () => {
    const secret = 'very-secret-token';
    const nowhere = new HranaDatabase({ url: 'http://localhost/x', token: secret, socket: '/nonexistent/socket' });
    const errors = [
      await failure(nowhere.execute('SELECT 1')),
      await failure(
        new HranaDatabase({ ...addressOf(authority.socket, 'sessiondb'), token: secret }).execute('SELECT 1'),
      ),
      await failure(
        new HranaDatabase(addressOf(authority.socket, 'sessiondb'), { maxRequestBytes: 10 }).execute('SELECT 1'),
      ),
      await failure(
        new HranaDatabase(addressOf(authority.socket, 'sessiondb'), { maxAnswerBytes: 10 }).execute('SELECT 1'),
      ),
      await failure(
        new HranaDatabase({ url: 'http://127.0.0.1:1/x', token: secret, socket: null }).execute('SELECT 1'),
      ),
      await failure(
        new HranaDatabase({ url: 'http://localhost/other', token: secret, socket: authority.socket }).execute(
          'SELECT 1',
        ),
      ),
    ];
    expect(errors.map(({ kind }) => kind)).toEqual([
      'unreachable',
      'unauthorized',
      'too-large',
      'too-large',
      'unreachable',
      'protocol',
    ]);
    expect(
      JSON.stringify(errors.map((error) => [error.message, error.code, error.stack, String(error.cause)])),
    ).not.toContain(secret);
  });

  test('the client gives up in time', async () => {
    const holder = database.stream();
    await holder.execute('BEGIN IMMEDIATE');
    const hurried = new HranaDatabase(addressOf(authority.socket, 'sessiondb'), { timeout: 50 });
    expect(await failure(hurried.execute('CREATE TABLE late(a)'))).toMatchObject({ kind: 'timeout' });
    await holder.close();
  });
});
