import { afterAll, beforeEach, expect, test } from 'bun:test';
import { fromWire, HranaDatabase, HranaError, type HranaErrorKind, toWire } from './hrana.ts';
import type { WirePipelineRequest } from './hrana-wire.ts';

const TOKEN = 'a-token-that-must-not-leak';
/** A server over TCP that answers as told, for what a real authority never answers. */
let answer: (request: Request, body: WirePipelineRequest) => Response | Promise<Response>;
let seen: { url: string; authorization: string | null; body: WirePipelineRequest }[] = [];
const server = Bun.serve({
  port: 0,
  hostname: '127.0.0.1',
  fetch: async (request) => {
    const body =
      request.method === 'POST' ? ((await request.json()) as WirePipelineRequest) : { baton: null, requests: [] };
    seen.push({ url: request.url, authorization: request.headers.get('authorization'), body });
    return answer(request, body);
  },
});
const address = { url: `${server.url.href}db/`, token: TOKEN, socket: null };
const database = new HranaDatabase(address);
afterAll(() => server.stop(true));
beforeEach(() => {
  seen = [];
});

const ok = (result: object) => ({ type: 'ok', response: { type: 'execute', result } });
const empty = { cols: [], rows: [], affected_row_count: 0, last_insert_rowid: null };
const closed = { type: 'ok', response: { type: 'close' } };

async function failure(promise: Promise<unknown>): Promise<HranaError> {
  const error = await promise.then(
    () => null,
    (reason: unknown) => reason,
  );
  if (!(error instanceof HranaError)) throw new Error('it should have failed with a HranaError');
  return error;
}

test('one statement is one request to the pipeline below the database, with the token in its header', async () => {
  answer = () =>
    Response.json({ baton: null, base_url: null, results: [ok({ ...empty, affected_row_count: 3 }), closed] });
  const result = await database.execute('UPDATE t SET a = ?', [true]);
  expect(result).toEqual({ columns: [], rows: [], affectedRowCount: 3, lastInsertRowid: null });
  expect(seen).toEqual([
    {
      url: `${server.url.href}db/v3/pipeline`,
      authorization: `Bearer ${TOKEN}`,
      body: {
        baton: null,
        requests: [
          {
            type: 'execute',
            stmt: { sql: 'UPDATE t SET a = ?', args: [{ type: 'integer', value: '1' }], want_rows: true },
          },
          { type: 'close' },
        ],
      },
    },
  ]);
});

const answers: [string, () => Response, HranaErrorKind][] = [
  ['no JSON', () => new Response('<html>'), 'protocol'],
  ['too few results', () => Response.json({ baton: null, results: [ok(empty)] }), 'protocol'],
  ['a result of another kind', () => Response.json({ baton: null, results: [closed, closed] }), 'protocol'],
  ['a result without rows', () => Response.json({ baton: null, results: [ok({}), closed] }), 'protocol'],
  [
    'a value of an unknown type',
    () => Response.json({ baton: null, results: [ok({ ...empty, cols: [{}], rows: [[{ type: 'date' }]] }), closed] }),
    'protocol',
  ],
  [
    'an integer that is none',
    () =>
      Response.json({ baton: null, results: [ok({ ...empty, rows: [[{ type: 'integer', value: '1.5' }]] }), closed] }),
    'protocol',
  ],
  [
    'an error of the statement',
    () =>
      Response.json({
        baton: null,
        results: [{ type: 'error', error: { message: 'no', code: 'SQLITE_BUSY' } }, closed],
      }),
    'sql',
  ],
  ['401', () => new Response(TOKEN, { status: 401 }), 'unauthorized'],
  ['500', () => Response.json({ error: 'broken' }, { status: 500 }), 'protocol'],
  ['503', () => new Response('', { status: 503 }), 'unreachable'],
  ['an invalid baton in words', () => new Response('Received an invalid baton', { status: 400 }), 'stream-expired'],
  ['a stream not found', () => Response.json({ error: 'stream not found: 1' }, { status: 404 }), 'stream-expired'],
  ['a redirect', () => Response.redirect(`${server.url.href}elsewhere`), 'unreachable'],
];
test.each(answers)('%s is told apart', async (_name, response, kind) => {
  answer = response;
  const error = await failure(database.execute('SELECT 1'));
  expect(error.kind).toBe(kind);
  expect(`${error.message} ${error.code} ${error.stack}`).not.toContain(TOKEN);
  // The token went to the one place only.
  expect(seen).toHaveLength(1);
});

test('an answer without a length is cut off at the limit', async () => {
  answer = () =>
    new Response(
      new ReadableStream({
        pull: (controller) => controller.enqueue(new Uint8Array(1_000)),
      }),
    );
  const small = new HranaDatabase(address, { maxAnswerBytes: 10_000 });
  expect(await failure(small.execute('SELECT 1'))).toMatchObject({ kind: 'too-large', code: 'ANSWER_TOO_LARGE' });
});

test('a stream passes on its baton, one request at a time, and ends with the first lost answer', async () => {
  let running = 0;
  answer = async (_request, { baton, requests }) => {
    expect(++running).toBe(1);
    await Bun.sleep(5);
    running--;
    if (requests[0]?.type === 'execute' && requests[0].stmt.sql === 'LOSE') return new Response('', { status: 502 });
    return Response.json({ baton: `${baton ?? ''}x`, results: requests.map(() => ok(empty)) });
  };
  const stream = database.stream();
  await Promise.all([stream.execute('A'), stream.execute('B'), stream.execute('C')]);
  expect(seen.map(({ body }) => body.baton)).toEqual([null, 'x', 'xx']);
  expect((await failure(stream.execute('LOSE'))).kind).toBe('unreachable');
  expect((await failure(stream.execute('D'))).kind).toBe('stream-expired');
  // The server may still have it, with its transaction.
  await stream.close();
  expect(seen).toHaveLength(5);
  expect(seen[4]!.body).toEqual({ baton: 'xxx', requests: [{ type: 'close' }] });
  await stream.close();
  expect(seen).toHaveLength(5);
});

test('the failed step of a batch is named, and a step that never ran is no success', async () => {
  const steps = (step_results: unknown[], step_errors: unknown[]) => () =>
    Response.json({
      baton: null,
      results: [{ type: 'ok', response: { type: 'batch', result: { step_results, step_errors } } }, closed],
    });
  const batch = () => database.batch([{ sql: 'A' }, { sql: 'B' }], { transaction: true });
  const error = { message: 'no', code: 'SQLITE_FULL' };
  answer = steps([empty, empty, null, null, empty], [null, null, error, null, null]);
  expect(await failure(batch())).toMatchObject({ kind: 'sql', code: 'SQLITE_FULL', statement: 1 });
  answer = steps([empty, empty, empty, null, empty], [null, null, null, error, null]);
  expect(await failure(batch())).toMatchObject({ kind: 'sql', statement: null });
  answer = steps([null, null, null, null, null], [error, null, null, null, null]);
  expect(await failure(batch())).toMatchObject({ kind: 'sql', statement: null });
  answer = steps([empty, empty, empty, null, null], [null, null, null, null, null]);
  expect(await failure(batch())).toMatchObject({ kind: 'protocol' });
  answer = steps([empty, empty, empty, empty, null], [null, null, null, null, null]);
  expect(await batch()).toHaveLength(2);
});

test('values keep their type and every bit', () => {
  expect([1, 1.5, { real: 1 }, 2n ** 63n - 1n, -0, Number.NaN, true, null, 'x'].map(toWire)).toEqual([
    { type: 'integer', value: '1' },
    { type: 'float', value: 1.5 },
    { type: 'float', value: 1 },
    { type: 'integer', value: '9223372036854775807' },
    { type: 'integer', value: '0' },
    { type: 'null' },
    { type: 'integer', value: '1' },
    { type: 'null' },
    { type: 'text', value: 'x' },
  ]);
  const part = new Uint8Array([9, 1, 2, 9]).subarray(1, 3);
  expect(toWire(part)).toEqual({ type: 'blob', base64: 'AQI=' });
  // sqld leaves the padding out.
  expect(fromWire({ type: 'blob', base64: 'AQI' })).toEqual(new Uint8Array([1, 2]));
  expect(fromWire({ type: 'integer', value: '9007199254740991' })).toBe(9007199254740991);
  expect(fromWire({ type: 'integer', value: '9007199254740993' })).toBe(9007199254740993n);
  expect(fromWire({ type: 'integer', value: '-9223372036854775808' })).toBe(-(2n ** 63n));
});
