import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test';
import { rmSync } from 'node:fs';
import { HranaDatabase } from '../../machine/agentfs/hrana.ts';
import { addressOf, failureOf, postTo, type ServedAuthority, serveAuthority, TOKENS } from './authority.fixture.ts';

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
  postTo(authority.socket, path, body, token);

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
      await failureOf(nowhere.execute('SELECT 1')),
      await failureOf(
        new HranaDatabase({ ...addressOf(authority.socket, 'sessiondb'), token: secret }).execute('SELECT 1'),
      ),
      await failureOf(
        new HranaDatabase(addressOf(authority.socket, 'sessiondb'), { maxRequestBytes: 10 }).execute('SELECT 1'),
      ),
      await failureOf(
        new HranaDatabase(addressOf(authority.socket, 'sessiondb'), { maxAnswerBytes: 10 }).execute('SELECT 1'),
      ),
      await failureOf(
        new HranaDatabase({ url: 'http://127.0.0.1:1/x', token: secret, socket: null }).execute('SELECT 1'),
      ),
      await failureOf(
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
    expect(await failureOf(hurried.execute('CREATE TABLE late(a)'))).toMatchObject({ kind: 'timeout' });
    await holder.close();
  });
});
