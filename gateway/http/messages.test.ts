import { afterAll, afterEach, beforeAll, describe, expect, test } from 'bun:test';
import { Unanswered } from '../governance/connection.ts';
import type { ConversationId, MessageId } from '../ids.ts';
import { Problem } from '../problem.ts';
import { startGateway, type TestGateway } from './gateway.fixture.ts';

let gateway: TestGateway;
let conversation: ConversationId;
let path: string;

beforeAll(async () => {
  gateway = await startGateway();
  conversation = await gateway.newConversation();
  path = `/v1/conversations/${conversation}/messages`;
}, 60_000);
afterAll(() => gateway?.stop());
afterEach(() => {
  gateway.turns.script = () => undefined;
});

interface Answer {
  readonly message: { readonly id: MessageId; readonly state: string };
  readonly reply?: { readonly locator: string; readonly text: string };
}

const send = (body: unknown, headers: Record<string, string> = {}) =>
  gateway.call('client', 'POST', path, { body, headers });
const lastContent = () => gateway.turns.submissions.at(-1)?.content;
/** Waits for something that the server does by itself after the client has gone. */
async function until(condition: () => boolean): Promise<void> {
  for (let turns = 0; !condition(); turns += 1) {
    if (turns > 500) throw new Error('it did not come to pass');
    await Bun.sleep(10);
  }
}

describe('content is handed on exactly', () => {
  test.each([
    ['NFC', 'é'],
    ['NFD', 'e\u0301'],
    ['line ends', ' a\r\nb\rc\u2028d\u2029 '],
    ['a family', '👨‍👩‍👧‍👦'],
    ['right to left', '\u202eabc\u202c مرحبا'],
    ['lone surrogates', 'a\ud800b\udc00'],
    ['nothing visible', 'a\u0000\u0001\u007f\ufeff\ufffe\uffff'],
    ['JSON in it', '{"text":"a","__proto__":1}'],
    ['wrappers', '<user_message>/etc/hosts <<<HW_QUESTION>>></user_message>'],
    ['a mebibyte', 'ab'.repeat(512 * 1024)],
  ])('text: %s', async (_, text) => {
    const response = await send({ text });
    expect(response.status).toBe(202);
    const content = lastContent();
    expect(content).toEqual({ text });
    expect(JSON.stringify(content)).toBe(JSON.stringify({ text }));
  });

  test.each([
    ['unknown members', '{"type":"text","text":"a","x":{"y":[1,{"z":null}]},"_meta":{}}'],
    ['a prototype', '{"type":"text","__proto__":{"polluted":true},"constructor":{"prototype":{"x":1}}}'],
    ['a prototype deeper', '{"type":"text","a":[{"__proto__":null}]}'],
    ['key order', '{"z":1,"type":"text","b":1,"a":2,"B":3}'],
    ['index names in front', '{"1":1,"20":2,"type":"text","01":3,"4294967295":4}'],
    ['numbers', '{"type":"n","a":[0,1,-1,0.1,5e-324,1.7976931348623157e+308,9007199254740991,1e-7]}'],
    ['escapes', '{"type":"text","text":"\\ud800\\u0000\\"\\\\"}'],
    ['odd names', '{"type":"text","":1," ":2,"\\"":3,"toString":4,"hasOwnProperty":5,"toJSON":6}'],
    ['empty things', '{"type":"","a":{},"b":[],"c":"","d":null,"e":false}'],
    ['a name like a number', '{"type":"t","1.5":1,"-1":2,"1e3":3}'],
  ])('blocks: %s', async (_, block) => {
    const body = `{"blocks":[${block},{"type":"text","text":"b"}]}`;
    const response = await send(body);
    expect(response.status).toBe(202);
    expect(JSON.stringify(lastContent())).toBe(body);
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined();
  });

  test('floats that are written differently keep their value', async () => {
    expect((await send('{"blocks":[{"type":"t","a":1.0,"b":1E2,"c":0.10}]}')).status).toBe(202);
    expect(lastContent()).toEqual({ blocks: [{ type: 't', a: 1, b: 100, c: 0.1 }] });
  });

  test.each([
    ['an order that would be lost', '{"type":"t","10":1,"9":2}'],
    ['an index behind a name', '{"type":"t","1":1}'],
    ['an integer too long for a double', '{"type":"t","n":9007199254740993}'],
    ['a decimal zero below nothing', '{"type":"t","n":-0.0}'],
  ])('refused: %s', async (_, block) => {
    const response = await send(`{"blocks":[${block}]}`);
    expect(response.status).toBe(400);
    expect(((await response.json()) as { detail: string }).detail).toMatch(/passed on/);
  });

  test('a body that comes in pieces, split inside a character', async () => {
    const bytes = Buffer.from('{"text":"👩‍🚀é"}');
    const pieces = new ReadableStream<Uint8Array>({
      async start(controller) {
        for (const byte of bytes) {
          controller.enqueue(Uint8Array.of(byte));
          await Bun.sleep(0);
        }
        controller.close();
      },
    });
    expect((await send(pieces)).status).toBe(202);
    expect(lastContent()).toEqual({ text: '👩‍🚀é' });
  });
});

test('what the database did not answer is said as not known, and logged with its reason', async () => {
  gateway.turns.failNext = new Unanswered('CONNECTION_CLOSED write');
  const response = await send({ text: 'a' });
  expect([response.status, await response.json()]).toMatchObject([
    500,
    { type: 'urn:edge-gateway:problem:outcome-unknown', detail: expect.stringContaining('before you ask again') },
  ]);
  expect(response.headers.get('retry-after')).toBeNull();
  expect(gateway.log.join('\n')).toContain('CONNECTION_CLOSED');
});

describe('waiting', () => {
  test('without it the answer is 202 at once', async () => {
    const response = await send({ text: 'a' });
    expect(response.status).toBe(202);
    const { message } = (await response.json()) as Answer;
    expect(message).toMatchObject({ conversation, state: 'accepted', timings: null });
    const read = await gateway.call('client', 'GET', `${path}/${message.id}`);
    expect(await read.json()).toEqual(message);
  });

  test('a delivered reply is 200 with its text', async () => {
    gateway.turns.script = ({ id }) => {
      setTimeout(() => gateway.turns.start(id).then(() => gateway.turns.deliver(id, 'hello \ud83d\ude00\ud800')), 30);
    };
    const response = await send({ text: 'a' }, { prefer: 'respond-async, wait=20' });
    expect(response.status).toBe(200);
    expect(response.headers.get('preference-applied')).toBe('wait=20');
    const { message, reply } = (await response.json()) as Answer;
    expect(reply?.text).toBe('hello \ud83d\ude00\ud800');
    expect(message).toMatchObject({ state: 'delivered', reply: { locator: reply?.locator } });
    expect(message).toHaveProperty('timings.attachMs', 1);
  });

  test('a failed turn is its problem with the id of the message', async () => {
    const { document } = new Problem('turn-no-reply', 'The agent said nothing');
    gateway.turns.script = ({ id }) => void gateway.turns.fail(id, document);
    const response = await send({ text: 'a' }, { prefer: 'wait=20' });
    expect(response.status).toBe(502);
    expect(response.headers.get('content-type')).toBe('application/problem+json');
    const problem = (await response.json()) as { message: string };
    expect(problem).toMatchObject(document);
    const read = await gateway.call('client', 'GET', `${path}/${problem.message}`);
    expect(await read.json()).toMatchObject({ state: 'failed', problem: document });
  });

  test('a cancelled turn is 409', async () => {
    gateway.turns.script = ({ id }) => void gateway.turns.cancelMessage(id);
    const response = await send({ text: 'a' }, { prefer: 'wait=20' });
    expect(response.status).toBe(409);
    expect(await response.json()).toMatchObject({ type: 'urn:edge-gateway:problem:turn-cancelled' });
  });

  test('when the wait ends first it is 202', async () => {
    for (const wait of ['wait=0', 'wait=1']) {
      const response = await send({ text: 'a' }, { prefer: wait });
      expect(response.status).toBe(202);
      expect(response.headers.get('preference-applied')).toBe(wait);
    }
    expect(gateway.turns.waiting).toBe(0);
  });

  test.each(['wait', 'wait=', 'wait=-1', 'wait=1e3', 'await=5', 'wait=5x'])(
    'the preference %p is ignored',
    async (prefer) => {
      const response = await send({ text: 'a' }, { prefer });
      expect(response.status).toBe(202);
      expect(response.headers.get('preference-applied')).toBeNull();
    },
  );

  test('closing the connection ends the wait and nothing else', async () => {
    const leaving = new AbortController();
    const request = fetch(`${gateway.url}${path}`, {
      method: 'POST',
      signal: leaving.signal,
      headers: {
        authorization: `Bearer ${gateway.tokens.client}`,
        'content-type': 'application/json',
        prefer: 'wait=600',
      },
      body: '{"text":"a"}',
    }).catch((error: Error) => error.name);
    await until(() => gateway.turns.waiting === 1);
    const id = gateway.turns.submissions.at(-1)?.message as MessageId;
    leaving.abort();
    expect(await request).toBe('AbortError');
    await until(() => gateway.turns.waiting === 0);
    expect((await gateway.governance.findMessage(conversation, id))?.state).toBe('accepted');
    await gateway.turns.start(id);
    await gateway.turns.deliver(id, 'late');
    expect(await (await gateway.call('client', 'GET', `${path}/${id}`)).json()).toMatchObject({ state: 'delivered' });
  });
});

describe('idempotency', () => {
  test('the same key and body answer with the first message', async () => {
    const key = { 'idempotency-key': `!~${'k'.repeat(253)}` };
    const first = (await (await send({ text: 'once' }, key)).json()) as Answer;
    const count = gateway.turns.submissions.length;
    const again = await send({ text: 'once' }, key);
    expect(again.status).toBe(202);
    expect(((await again.json()) as Answer).message.id).toBe(first.message.id);
    expect(gateway.turns.submissions).toHaveLength(count);
    expect((await send({ text: 'other' }, key)).status).toBe(422);
    await gateway.turns.start(first.message.id);
    await gateway.turns.deliver(first.message.id, 'done');
    const settled = await send({ text: 'once' }, { ...key, prefer: 'wait=5' });
    expect(settled.status).toBe(200);
    expect(((await settled.json()) as Answer).reply?.text).toBe('done');
  });
});

test('stopping ends waits with what is known and refuses new work', async () => {
  const own = await startGateway();
  const id = await own.newConversation();
  const waiting = own.call('client', 'POST', `/v1/conversations/${id}/messages`, {
    body: { text: 'a' },
    headers: { prefer: 'wait=600' },
  });
  await until(() => own.turns.waiting === 1);
  const stopped = own.server.stop(2_000);
  const response = await waiting;
  expect(response.status).toBe(202);
  expect(((await response.json()) as Answer).message.state).toBe('accepted');
  await stopped;
  expect(own.call('client', 'GET', '/healthz')).rejects.toThrow();
  await own.stop();
}, 60_000);
