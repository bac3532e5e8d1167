import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import net from 'node:net';
import { type Role, roles } from '../domain.ts';
import { type ConversationId, newConversationId, newMessageId } from '../ids.ts';
import { type Problem, problems } from '../problem.ts';
import { access, type Route } from './access.ts';
import { ConversationRequests } from './conversation-requests.ts';
import { noEnvironment, nothingToPurge, startGateway, type TestGateway } from './gateway.fixture.ts';
import { hasUnreadBody, readBody } from './limits.ts';

let gateway: TestGateway;
let conversation: ConversationId;
let messages: string;

beforeAll(async () => {
  gateway = await startGateway();
  conversation = await gateway.newConversation();
  messages = `/v1/conversations/${conversation}/messages`;
}, 60_000);
afterAll(() => gateway?.stop());

/** Checks that a response is a problem document in every respect, and returns its name. */
async function problemOf(response: Response): Promise<string> {
  expect(response.headers.get('content-type')).toBe('application/problem+json');
  const document = (await response.json()) as Record<string, unknown>;
  const name = String(document.type).replace('urn:edge-gateway:problem:', '') as keyof typeof problems;
  expect(problems[name]).toEqual([document.status, document.title] as never);
  expect(document.status).toBe(response.status);
  expect(typeof document.detail).toBe('string');
  expect(JSON.stringify(document)).not.toMatch(/\.ts|node_modules|at .*\(/);
  return name;
}

/** Sends raw bytes and answers with everything that comes back until the connection ends or is silent. */
function raw(bytes: string | Uint8Array, silenceMs = 300): Promise<string> {
  return new Promise((resolve) => {
    let got = '';
    const socket = net.connect(gateway.port, '127.0.0.1', () => socket.write(bytes));
    const done = () => {
      socket.destroy();
      resolve(got);
    };
    let timer = setTimeout(done, 2_000);
    socket.on('data', (data) => {
      got += data;
      clearTimeout(timer);
      timer = setTimeout(done, silenceMs);
    });
    socket.on('close', done);
    socket.on('error', done);
  });
}

describe('access', () => {
  const examples: Readonly<Record<string, string>> = {
    ':conversation': newConversationId(),
    ':message': newMessageId(),
    ':specialist': `spec_${'0'.repeat(26)}`,
    ':token': `tok_${'0'.repeat(26)}`,
    ':user': `user_${'0'.repeat(26)}`,
    ':purge': `op_${'0'.repeat(26)}`,
  };
  const table = Object.entries(access) as [Route, 'public' | readonly Role[]][];

  test.each(table)('%s', async (route, allowed) => {
    const [method = '', pattern = ''] = route.split(' ');
    const path = pattern.replace(/:\w+/g, (name) => examples[name] ?? name);
    const without = await gateway.call(null, method, path);
    if (allowed === 'public') {
      expect(without.status).toBe(200);
    } else {
      expect(await problemOf(without)).toBe('unauthenticated');
      expect(without.headers.get('www-authenticate')).toStartWith('Bearer');
      const wrong = await gateway.call(null, method, path, { headers: { authorization: 'Bearer egw_client_x' } });
      expect(await problemOf(wrong)).toBe('unauthenticated');
      for (const role of roles) {
        const response = await gateway.call(role, method, path);
        if (allowed.includes(role)) expect([401, 403]).not.toContain(response.status);
        else expect(await problemOf(response)).toBe('forbidden');
      }
    }
  });

  test('a revoked token is refused', async () => {
    const made = await gateway.call('superadmin', 'POST', '/v1/tokens', { body: { role: 'client', name: 'short' } });
    const { id, token } = (await made.json()) as { id: string; token: string };
    const authorized = { headers: { authorization: `Bearer ${token}` } };
    expect((await gateway.call(null, 'GET', '/v1/organization', authorized)).status).toBe(200);
    expect((await gateway.call('superadmin', 'DELETE', `/v1/tokens/${id}`)).status).toBe(204);
    expect((await gateway.call(null, 'GET', '/v1/organization', authorized)).status).toBe(401);
    expect(await problemOf(await gateway.call('superadmin', 'DELETE', `/v1/tokens/${id}`))).toBe('not-found');
    const listed = await (await gateway.call('superadmin', 'GET', '/v1/tokens')).text();
    expect(listed).toContain('the client_admin');
    expect(listed).not.toContain('egw_');
  });
});

describe('resources', () => {
  test('a conversation is established before it exists, then listed and read', async () => {
    const before = gateway.established.length;
    const made = await gateway.call('client', 'POST', '/v1/conversations', { body: { specialist: 'Eleanora' } });
    expect(made.status).toBe(201);
    const shown = (await made.json()) as { id: string; specialist: string; createdAt: string };
    expect(shown.specialist).toBe(gateway.specialist.id);
    expect(made.headers.get('location')).toBe(`/v1/conversations/${shown.id}`);
    expect(gateway.established.slice(before)).toEqual([shown.id as ConversationId]);
    expect(await (await gateway.call('client', 'GET', `/v1/conversations/${shown.id}`)).json()).toEqual(shown);
    const first = (await (await gateway.call('client', 'GET', '/v1/conversations?limit=1')).json()) as {
      conversations: unknown[];
      next: string;
    };
    expect(first.conversations).toEqual([shown]);
    const second = await gateway.call('client', 'GET', `/v1/conversations?limit=1&cursor=${first.next}`);
    expect(((await second.json()) as { conversations: unknown[] }).conversations).toHaveLength(1);
  });

  test('a specialist is added, shown by role, offboarded, and takes no conversation then', async () => {
    const made = await gateway.call('account_manager', 'POST', '/v1/specialists', {
      body: { name: 'Ada', persona: 'Count.' },
    });
    expect(made.status).toBe(201);
    const ada = (await made.json()) as { id: string; persona: string };
    expect(ada.persona).toBe('Count.');
    expect(await (await gateway.call('client', 'GET', `/v1/specialists/${ada.id}`)).json()).not.toHaveProperty(
      'persona',
    );
    expect(await (await gateway.call('client', 'GET', '/v1/specialists')).text()).not.toContain('Count.');
    const off = await gateway.call('superadmin', 'POST', `/v1/specialists/${ada.id}/offboard`);
    expect(((await off.json()) as { offboardedAt: unknown }).offboardedAt).toBeString();
    const late = await gateway.call('client', 'POST', '/v1/conversations', { body: { specialist: ada.id } });
    expect(await problemOf(late)).toBe('conflict');
    const again = await gateway.call('superadmin', 'POST', '/v1/specialists', { body: { name: 'Ada' } });
    expect(await problemOf(again)).toBe('conflict');
  });

  test('the transcript has two views, and pages', async () => {
    const turn = (text: string, role: 'user' | 'assistant') =>
      ({ locator: `l${text}`, role, text, at: new Date(0), etag: '"e"', toolCalls: [{ name: 'bash' }] }) as never;
    gateway.transcript.turns = [turn('a', 'user'), turn('b\ud800', 'assistant'), turn('c', 'user')];
    const path = `/v1/conversations/${conversation}/transcript`;
    const page = (await (await gateway.call('client', 'GET', `${path}?limit=2`)).json()) as {
      turns: { text: string; toolCalls?: unknown }[];
      next: string;
    };
    expect(page.turns.map(({ text }) => text)).toEqual(['a', 'b\ud800']);
    expect(page.turns[0]).not.toHaveProperty('toolCalls');
    const rest = (await (await gateway.call('client', 'GET', `${path}?cursor=${page.next}`)).json()) as object;
    expect(rest).not.toHaveProperty('next');
    expect(await problemOf(await gateway.call('client', 'GET', `${path}?view=canonical`))).toBe('forbidden');
    const canonical = (await (await gateway.call('expert', 'GET', `${path}?view=canonical`)).json()) as typeof page;
    expect(canonical.turns[0]?.toolCalls).toEqual([{ name: 'bash' }]);
  });

  test('cancelling says whether something ran', async () => {
    const path = `/v1/conversations/${conversation}/cancel`;
    expect(await (await gateway.call('client', 'POST', path)).json()).toEqual({ cancelled: true });
    const message = `msg_${'0'.repeat(26)}`;
    const ofOne = await gateway.call('client', 'POST', `${path}?message=${message}`);
    expect(await ofOne.json()).toEqual({ cancelled: false });
    expect(gateway.turns.cancelled.map(String)).toEqual([conversation, message]);
    expect(await problemOf(await gateway.call('client', 'POST', `${path}?message=x`))).toBe('invalid-request');
    expect(await (await gateway.call('client', 'GET', '/v1/organization')).json()).toMatchObject({
      name: 'Percy & Sons',
    });
  });
});

describe('bad input is a problem document', () => {
  const send = (body: unknown, headers: Record<string, string> = {}) =>
    gateway.call('client', 'POST', messages, { body, headers });

  test.each<[string, unknown, string]>([
    ['no JSON', '{"text":', 'invalid-request'],
    ['nothing', '', 'invalid-request'],
    ['an array', '[]', 'invalid-request'],
    ['null', 'null', 'invalid-request'],
    ['neither text nor blocks', '{}', 'invalid-request'],
    ['both', '{"text":"a","blocks":[{"type":"text"}]}', 'invalid-request'],
    ['text that is a number', '{"text":1}', 'invalid-request'],
    ['an unknown member', '{"text":"a","to":"b"}', 'invalid-request'],
    ['a prototype beside the text', '{"text":"a","__proto__":{"x":1}}', 'invalid-request'],
    ['blocks that are no list', '{"blocks":{"type":"text"}}', 'invalid-request'],
    ['a block without a type', '{"blocks":[{"text":"a"}]}', 'invalid-request'],
    ['a block that is a string', '{"blocks":["a"]}', 'invalid-request'],
    ['no blocks', '{"blocks":[]}', 'unprocessable-message'],
    ['blank text', '{"text":" \\n"}', 'unprocessable-message'],
    ['a number too large', '{"blocks":[{"type":"text","n":1e400}]}', 'invalid-request'],
    ['a number too long', '{"blocks":[{"type":"text","n":12345678901234567890}]}', 'invalid-request'],
    ['negative zero', '{"blocks":[{"type":"text","n":-0}]}', 'invalid-request'],
    ['a member named twice', '{"blocks":[{"type":"text","a":{"b":1,"\\u0062":2}}]}', 'invalid-request'],
    ['a text named twice', '{"text":"a","text":"b"}', 'invalid-request'],
    ['too deep', `{"blocks":[{"type":"text","n":${'['.repeat(100)}${']'.repeat(100)}}]}`, 'invalid-request'],
    ['far too deep', `{"blocks":${'['.repeat(1_000_000)}${']'.repeat(1_000_000)}}`, 'invalid-request'],
    ['a byte order mark', '\ufeff{"text":"a"}', 'invalid-request'],
    ['invalid UTF-8', Uint8Array.of(...Buffer.from('{"text":"'), 0xc3, 0x28, ...Buffer.from('"}')), 'invalid-request'],
    [
      'a UTF-8 surrogate',
      Uint8Array.of(...Buffer.from('{"text":"'), 0xed, 0xa0, 0x80, ...Buffer.from('"}')),
      'invalid-request',
    ],
    ['a body over the limit', `{"text":"${'a'.repeat(4 * 1024 * 1024)}"}`, 'body-too-large'],
  ])('%s', async (_, body, name) => {
    const before = gateway.turns.submissions.length;
    expect(await problemOf(await send(body))).toBe(name);
    expect(gateway.turns.submissions).toHaveLength(before);
  });

  test.each<[string, Record<string, string>, string]>([
    ['no media type', { 'content-type': '' }, 'unsupported-media-type'],
    ['text/plain', { 'content-type': 'text/plain' }, 'unsupported-media-type'],
    ['a form', { 'content-type': 'application/x-www-form-urlencoded' }, 'unsupported-media-type'],
    ['a form without a boundary', { 'content-type': 'multipart/form-data' }, 'unsupported-media-type'],
    ['another charset', { 'content-type': 'application/json; charset=latin1' }, 'unsupported-media-type'],
    ['a content encoding', { 'content-encoding': 'gzip' }, 'unsupported-media-type'],
    ['an empty idempotency key', { 'idempotency-key': '' }, 'invalid-request'],
    ['an idempotency key with a blank', { 'idempotency-key': 'a b' }, 'invalid-request'],
    ['a long idempotency key', { 'idempotency-key': 'k'.repeat(256) }, 'invalid-request'],
  ])('%s', async (_, headers, name) => {
    expect(await problemOf(await send('{"text":"a"}', headers))).toBe(name);
  });

  test.each<[string, string, string]>([
    ['GET', '/', 'not-found'],
    ['GET', '/v1', 'not-found'],
    ['GET', '/v1/conversations/', 'not-found'],
    ['GET', '/v1/conversations/a/b/c/d', 'not-found'],
    ['GET', '/v1/conversations/nonsense', 'not-found'],
    ['GET', `/v1/conversations/conv_${'0'.repeat(26)}`, 'not-found'],
    ['GET', '/v1/conversations/%E0%A4%A', 'not-found'],
    ['GET', '/v1/conversations/conv_%00', 'not-found'],
    ['GET', '/v1/specialists/__proto__', 'not-found'],
    ['DELETE', '/v1/conversations', 'method-not-allowed'],
    ['PATCH', '/healthz', 'method-not-allowed'],
    ['OPTIONS', '/v1/conversations', 'method-not-allowed'],
    ['HEAD', '/v1/events', 'method-not-allowed'],
    ['GET', '/v1/conversations?limit=0', 'invalid-request'],
    ['GET', '/v1/conversations?limit=1000', 'invalid-request'],
    ['GET', '/v1/conversations?limit=1&limit=2', 'invalid-request'],
    ['GET', '/v1/conversations?cursor=nonsense', 'invalid-request'],
    ['GET', `/v1/conversations?cursor=${'a'.repeat(9_000)}`, 'invalid-request'],
    ['GET', '/v1/events', 'invalid-request'],
    ['GET', '/v1/events?after=-1', 'invalid-request'],
  ])('%s %s', async (method, path, name) => {
    const response = await gateway.call('client', method, path);
    if (method !== 'HEAD') expect(await problemOf(response)).toBe(name);
    expect(response.status).toBe(problems[name as keyof typeof problems][0]);
    if (response.status === 405) expect(response.headers.get('allow')).toMatch(/^[A-Z, ]+$/);
  });

  test('an unknown and a malformed id are answered alike', async () => {
    const bodies = [`conv_${'0'.repeat(26)}`, 'conv_x'].map(async (id) =>
      (await gateway.call('client', 'GET', `/v1/conversations/${id}/transcript`)).text(),
    );
    const [unknown, malformed] = await Promise.all(bodies);
    expect(malformed).toBe(unknown);
  });

  test('other bodies have a smaller limit', async () => {
    const body = { name: 'x', persona: 'p'.repeat(70_000) };
    expect(await problemOf(await gateway.call('superadmin', 'POST', '/v1/specialists', { body }))).toBe(
      'body-too-large',
    );
  });

  test('a body without a length is cut while it is read', async () => {
    const chunk = 'a'.repeat(1_000_000);
    const head = `POST ${messages} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${gateway.tokens.client}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n`;
    const piece = `${chunk.length.toString(16)}\r\n${chunk}\r\n`;
    // It never ends: an answer can only come before the end.
    const answer = await raw(head + piece.repeat(6));
    expect(answer).toContain('413');
    expect(answer.toLowerCase()).toContain('connection: close');
  });

  test.each(['x', 'x?y', 'x/v1/tokens', 'x#y', '', 'u:p@x', 'a.very.long.host.name:8787'])(
    'the host %p',
    async (host) => {
      const get = (path: string) => raw(`GET ${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
      expect(await get('/healthz')).toMatch(/^HTTP\/1\.1 (200|400) [\s\S]*\{"/);
      expect(await get('/v1/tokens')).toMatch(/^HTTP\/1\.1 (401|400) [\s\S]*urn:edge-gateway:problem/);
    },
  );

  test('a body has a time in which to arrive', async () => {
    const slow = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(Buffer.from('{"text":')),
    });
    const request = new Request('http://x/', { method: 'POST', body: slow });
    const error = await readBody(request, 1_000, 0.05).catch((thrown: unknown) => thrown);
    expect((error as Problem).document.detail).toContain('0.05 seconds');
    expect(hasUnreadBody(request)).toBe(true);
  });

  test('a body is not read before the token is known, and not sent on then', async () => {
    const answer = await raw(
      `POST ${messages} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 4000000\r\n\r\n{`,
    );
    expect(answer).toContain('401');
    expect(answer.toLowerCase()).toContain('connection: close');
  });

  test('a fault of ours tells nothing of itself', async () => {
    const broken = 'the secret path /var/lib/x';
    gateway.turns.script = () => {
      throw new Error(broken);
    };
    const response = await send({ text: 'a' });
    gateway.turns.script = () => undefined;
    const text = await response.clone().text();
    expect(await problemOf(response)).toBe('internal');
    expect(text).not.toContain('secret');
    expect(gateway.log.join('\n')).toContain(broken);
  });
});

describe('operation', () => {
  test('health, readiness and HEAD', async () => {
    expect(await (await gateway.call(null, 'GET', '/healthz')).json()).toEqual({ status: 'ok', version: '0.0.0-test' });
    expect(await (await gateway.call(null, 'GET', '/readyz')).json()).toMatchObject({ status: 'ready' });
    const head = await gateway.call(null, 'HEAD', '/healthz');
    expect(head.status).toBe(200);
    expect(await head.text()).toBe('');
  });

  test('metrics are well formed and hold nothing of a client', async () => {
    await gateway.call('client', 'GET', `/v1/conversations/${conversation}`);
    const text = await (await gateway.call(null, 'GET', '/metrics')).text();
    for (const line of text.trimEnd().split('\n')) {
      expect(line).toMatch(/^(# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? [-+.0-9e]+)$/);
    }
    expect(text).toContain('edge_http_requests_total{route="GET /v1/conversations/:conversation",status="200"}');
    expect(text).not.toContain(conversation);
  });

  test('the log holds no secret, no prose, no ticket', async () => {
    await gateway.call('client', 'POST', messages, { body: { text: 'a very private sentence' } });
    await gateway.call('client', 'GET', '/v1/events?ticket=tick_private');
    const log = gateway.log.join('\n');
    expect(log).toContain('"route":"POST /v1/conversations/:conversation/messages","status":202');
    expect(log).not.toMatch(/private|egw_|tick_/);
  });

  test('the document lists every route with schemas, and the page loads nothing', async () => {
    const document = (await (await gateway.call(null, 'GET', '/openapi.json')).json()) as {
      openapi: string;
      info: { title: string; version: string };
      paths: Record<
        string,
        Record<
          string,
          {
            operationId: string;
            requestBody?: unknown;
            responses: object;
            parameters?: { name: string; in: string; required?: boolean; schema: object }[];
          }
        >
      >;
      components: { schemas: object; responses: object };
    };
    expect(document.openapi).toMatch(/^3\.1\.\d+$/);
    expect(document.info.title).not.toBe('');
    expect(document.info.version).toBe('0.0.0-test');
    const ids = new Set<string>();
    const routes = Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => {
        ids.add(operation.operationId);
        expect(Object.keys(operation.responses).length).toBeGreaterThan(1);
        for (const answer of Object.values(operation.responses))
          expect('description' in answer || '$ref' in answer).toBe(true);
        const declared = (operation.parameters ?? []).filter((one) => one.in === 'path').map(({ name }) => name);
        expect(declared).toEqual([...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name as string));
        for (const parameter of operation.parameters ?? []) expect(parameter.schema).toBeObject();
        return `${method.toUpperCase()} ${path.replace(/\{(\w+)\}/g, ':$1')}`;
      }),
    );
    expect(routes.sort()).toEqual(Object.keys(access).sort());
    expect(ids.size).toBe(routes.length);
    const body = (path: string) =>
      document.paths[path]?.post?.requestBody as { content: Record<string, { schema: object }> };
    for (const path of ['/v1/conversations', '/v1/specialists', '/v1/tokens']) {
      expect(Object.keys(body(path).content)).toEqual(['application/json']);
      expect(body(path).content['application/json']?.schema).toMatchObject({ type: 'object', properties: {} });
    }
    const message = body('/v1/conversations/{conversation}/messages').content['application/json']?.schema;
    expect(JSON.stringify(message)).toContain('"blocks"');
    for (const [, reference] of JSON.stringify(document).matchAll(/"\$ref":"#\/([^"]+)"/g)) {
      const target = (reference as string)
        .split('/')
        .reduce<unknown>((at, name) => (at as Record<string, unknown>)?.[name], document);
      expect(target).toBeObject();
    }
    const page = await gateway.call(null, 'GET', '/docs');
    const html = await page.text();
    expect(page.headers.get('content-security-policy')).toContain("default-src 'none'");
    expect(html).not.toMatch(/<script|src=|https?:\/\/|@import|url\(/);
    for (const path of Object.keys(document.paths)) expect(html).toContain(path);
  });
});

test('a port in use is an error, not a shared port', async () => {
  const { createServer } = await import('./server.ts');
  const second = createServer({
    ...gateway,
    logger: { info() {}, error() {} },
    version: '0',
    environment: noEnvironment,
    retention: nothingToPurge,
    requests: new ConversationRequests(),
    establish: async () => {},
    health: async () => ({
      ready: true,
      status: 'ready',
      agentfs: 'reachable',
      pendingChanges: false,
      checks: {},
    }),
  });
  expect(() => second.listen({ hostname: '127.0.0.1', port: gateway.port })).toThrow(/EADDRINUSE|in use/);
});
