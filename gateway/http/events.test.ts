import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import net from 'node:net';
import type { Role } from '../domain.ts';
import type { ConversationId, MessageId } from '../ids.ts';
import { startGateway, type TestGateway } from './gateway.fixture.ts';

const bufferedBytes = 256 * 1024;
const connectionsPerToken = 4;
let gateway: TestGateway;
let conversation: ConversationId;

beforeAll(async () => {
  gateway = await startGateway({
    limits: { connectionsPerToken, messageBytes: 64 * 1024, ticketsPerToken: 3 },
    subscriberLimits: { bufferedBytes },
  });
  conversation = await gateway.newConversation();
}, 60_000);
afterAll(() => gateway?.stop());

type Got = Readonly<Record<string, unknown>> & { readonly type: string };

/** A real WebSocket client that keeps what it gets. */
class Client {
  readonly got: Got[] = [];
  readonly socket: WebSocket;
  readonly closed: Promise<{ code: number; reason: string }>;
  #wake: () => void = () => undefined;

  constructor(query: string, role: Role | null = 'client') {
    const headers = role === null ? {} : { authorization: `Bearer ${gateway.tokens[role]}` };
    this.socket = new WebSocket(`${gateway.url.replace('http', 'ws')}/v1/events${query}`, { headers } as never);
    this.socket.onmessage = ({ data }) => {
      this.got.push(JSON.parse(String(data)));
      this.#wake();
    };
    this.closed = new Promise((resolve) => {
      this.socket.onclose = ({ code, reason }) => {
        resolve({ code, reason });
        this.#wake();
      };
    });
  }

  static async open(query = '', role: Role | null = 'client'): Promise<Client> {
    const client = new Client(query, role);
    await new Promise((resolve, reject) => {
      client.socket.onopen = resolve;
      client.socket.onerror = reject;
    });
    return client;
  }

  send(frame: unknown): void {
    this.socket.send(typeof frame === 'string' ? frame : JSON.stringify(frame));
  }

  /** The first frame that is like this, once it is there. */
  async frame(like: Readonly<Record<string, unknown>>): Promise<Got> {
    for (;;) {
      const found = this.got.find((one) => Object.entries(like).every(([name, value]) => one[name] === value));
      if (found !== undefined) return found;
      if (this.socket.readyState === WebSocket.CLOSED) throw new Error(`closed without ${JSON.stringify(like)}`);
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  async ask(frame: Readonly<Record<string, unknown>>): Promise<Got> {
    this.send(frame);
    return this.frame({ id: frame.id });
  }

  async close(): Promise<void> {
    this.socket.close();
    await this.closed;
  }
}

async function send(text: string, to = conversation): Promise<MessageId> {
  const response = await gateway.call('client', 'POST', `/v1/conversations/${to}/messages`, { body: { text } });
  return ((await response.json()) as { message: { id: MessageId } }).message.id;
}
const chunk = (text: string) => ({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } });
const thought = { sessionUpdate: 'agent_thought_chunk', content: { type: 'text', text: 'hm' } };

describe('the WebSocket', () => {
  test('a message is seen accepted, started, streamed and delivered, each once and in order', async () => {
    const client = await Client.open();
    const expert = await Client.open('', 'expert');
    const answer = await client.ask({ type: 'subscribe', id: 1, conversation });
    expect(answer).toEqual({ type: 'subscribed', id: 1, conversation, after: gateway.bus.position });
    await expert.ask({ type: 'subscribe', id: 1, conversation });

    const id = await send('hi');
    await gateway.turns.start(id);
    gateway.publishUpdate(conversation, thought);
    gateway.publishUpdate(conversation, chunk('hel'));
    const locator = await gateway.turns.deliver(id, 'hello');
    await client.frame({ type: 'reply.delivered' });
    await expert.frame({ type: 'reply.delivered' });
    const types = ({ type }: Got) => type;
    expect(client.got.slice(1).map(types)).toEqual([
      'message.accepted',
      'turn.started',
      'session.update',
      'reply.delivered',
    ]);
    expect(expert.got.slice(1).map(types)).toEqual([
      'message.accepted',
      'turn.started',
      'session.update',
      'session.update',
      'reply.delivered',
    ]);
    expect(client.got.at(-1)).toMatchObject({ conversation, message: id, locator, text: 'hello' });
    expect(client.got.find(({ type }) => type === 'session.update')).not.toHaveProperty('seq');
    expect(expert.got.find(({ type }) => type === 'session.update')).toMatchObject({ update: thought });
    const seqs = client.got.flatMap(({ seq }) => (typeof seq === 'number' ? [seq] : []));
    expect(seqs).toEqual([...new Set(seqs)].sort((one, other) => one - other));
    await Promise.all([client.close(), expert.close()]);
    expect(gateway.log.join('\n')).toContain('"route":"GET /v1/events","status":101');
  });

  test('what was missed comes first, with its text', async () => {
    const own = await gateway.newConversation();
    const before = gateway.bus.position;
    for (const text of ['one', 'two']) {
      const id = await send('q', own);
      await gateway.turns.start(id);
      await gateway.turns.deliver(id, text);
    }
    const client = await Client.open(`?after=${before}`);
    client.send({ type: 'subscribe', id: 'x', conversation: own });
    await client.frame({ text: 'two' });
    const seen = client.got.flatMap(({ type, text }) => (type === 'reply.delivered' ? [text] : []));
    expect(seen).toEqual(['one', 'two']);
    expect(client.got.filter(({ type }) => type === 'message.accepted')).toHaveLength(2);
    const last = client.got.at(-1)?.seq as number;
    await client.close();

    const again = await Client.open();
    expect(await again.ask({ type: 'subscribe', id: 1, conversation: own, after: last })).toMatchObject({
      after: last,
    });
    const third = await send('three', own);
    expect(await again.frame({ type: 'message.accepted' })).toMatchObject({ message: third });
    expect(again.got).toHaveLength(2);
    again.send({ type: 'subscribe', conversation: own, after: 1e9 });
    expect(await again.frame({ type: 'resync' })).toMatchObject({ conversation: own });
    await again.close();
  });

  test('while others write, a client that comes back gets each frame once and in order', async () => {
    const [own, other] = [await gateway.newConversation(), await gateway.newConversation()];
    const before = gateway.bus.position;
    let writing = true;
    const writers = [own, own, other, other].map(async (to, writer) => {
      for (let n = 0; n < 25; n += 1) {
        const id = await send(`w${writer} ${n}`, to);
        await gateway.turns.start(id);
        await gateway.turns.deliver(id, `to ${id}`);
      }
    });
    const everything = Promise.all(writers).finally(() => {
      writing = false;
    });
    // A client that goes away every few frames, without having read to any end, and resumes after the last one it has.
    const seen: Got[] = [];
    let last = before;
    const follow = async (frames: number): Promise<void> => {
      const client = await Client.open();
      client.send({ type: 'subscribe', conversation: own, after: last });
      while (writing && client.got.filter(({ seq }) => seq !== undefined).length < frames) await Bun.sleep(2);
      const got = client.got.filter(({ seq }) => seq !== undefined);
      seen.push(...got);
      last = Number(got.at(-1)?.seq ?? last);
      await client.close();
    };
    while (writing) await follow(7);
    await everything;
    const client = await Client.open();
    client.send({ type: 'subscribe', conversation: own, after: last });
    const end = await send('the end', own);
    await client.frame({ type: 'message.accepted', message: end });
    seen.push(...client.got.filter(({ seq }) => seq !== undefined));
    await client.close();

    const logged = await gateway.governance.eventsAfter(before, 10_000);
    const expected = logged.events.filter((event) => event.conversation === own);
    expect(seen.map(({ seq, type }) => `${seq} ${type}`)).toEqual(expected.map(({ seq, type }) => `${seq} ${type}`));
    expect(expected.length).toBe(151);
    const texts = seen.filter(({ type }) => type === 'reply.delivered');
    expect(texts.every(({ text, message }) => text === `to ${message}`)).toBe(true);
  }, 60_000);

  test('messages are sent over it, in order and exactly', async () => {
    const client = await Client.open();
    const count = gateway.turns.submissions.length;
    for (let at = 0; at < 5; at += 1) {
      client.send({
        type: 'message.send',
        id: `m${at}`,
        conversation,
        idempotencyKey: `k${at}`,
        text: `t${at} \ud800`,
      });
    }
    const block = '{"type":"text","text":"b","z":{"__proto__":{"x":1}},"a":1}';
    client.send(`{"type":"message.send","id":"blocks","conversation":"${conversation}","blocks":[${block}]}`);
    const sent = await client.frame({ id: 'blocks' });
    expect(sent).toMatchObject({ type: 'message.sent', message: { state: 'accepted', conversation } });
    const contents = gateway.turns.submissions.slice(count).map(({ content }) => content);
    expect(contents.slice(0, 5)).toEqual([0, 1, 2, 3, 4].map((at) => ({ text: `t${at} \ud800` })));
    expect(JSON.stringify(contents[5])).toBe(`{"blocks":[${block}]}`);
    const first = await client.frame({ id: 'm0' });
    const again = await client.ask({
      ...{ type: 'message.send', id: 'again', conversation, idempotencyKey: 'k0', text: 't0 \ud800' },
    });
    expect((again.message as { id: string }).id).toBe((first.message as { id: string }).id);
    await client.close();
  });

  test.each<[string, unknown, string]>([
    ['a blank message', { type: 'message.send', id: 1, text: ' ' }, 'unprocessable-message'],
    ['no blocks', { type: 'message.send', id: 1, blocks: [] }, 'unprocessable-message'],
    ['a bad key', { type: 'message.send', id: 1, text: 'a', idempotencyKey: 'a b' }, 'invalid-request'],
    ['an unknown conversation', { type: 'subscribe', id: 1, conversation: `conv_${'0'.repeat(26)}` }, 'not-found'],
    ['a malformed conversation', { type: 'subscribe', id: 1, conversation: 'x' }, 'not-found'],
  ])('refused and gone on: %s', async (_, frame, name) => {
    const client = await Client.open();
    for (let times = 0; times < 6; times += 1) client.send({ conversation, ...(frame as object) });
    expect(await client.frame({ type: 'error', id: 1 })).toMatchObject({
      problem: { type: `urn:edge-gateway:problem:${name}` },
    });
    expect((await client.ask({ type: 'unsubscribe', id: 2, conversation })).type).toBe('unsubscribed');
    await client.close();
  });

  test.each<[string, string | Uint8Array]>([
    ['no JSON', 'hello'],
    ['a number', '123'],
    ['no type', '{}'],
    ['an unknown type', '{"type":"publish"}'],
    ['an unknown member', '{"type":"unsubscribe","conversation":"x","y":1}'],
    ['text and blocks', '{"type":"message.send","conversation":"x","text":"a","blocks":[]}'],
    ['neither', '{"type":"message.send","conversation":"x"}'],
    ['a member twice', '{"type":"unsubscribe","conversation":"x","conversation":"y"}'],
    ['an after that is no number', '{"type":"subscribe","conversation":"x","after":"1"}'],
    ['binary', Uint8Array.of(1, 2, 3)],
  ])('an invalid frame is refused, and repeated it ends the connection: %s', async (_, frame) => {
    const client = await Client.open();
    for (let times = 0; times < 5; times += 1) client.socket.send(frame);
    expect(await client.closed).toMatchObject({ code: 4400 });
    expect(client.got).toHaveLength(5);
    expect(client.got[0]).toMatchObject({ type: 'error', problem: { status: 400 } });
  });

  test.each<[string, unknown, unknown]>([
    ['of an unknown type', { type: 'publish', id: 'p1' }, 'p1'],
    ['with an unknown member', { type: 'unsubscribe', id: 7, conversation: 'x', y: 1 }, 7],
    ['with an id that is none', { type: 'publish', id: { deep: 1 } }, undefined],
    ['with an id that is too long', { type: 'publish', id: 'x'.repeat(129) }, undefined],
  ])('a refusal repeats the id of a frame %s', async (_, frame, id) => {
    const client = await Client.open();
    client.send(frame);
    const refusal = await client.frame({ type: 'error' });
    expect(refusal.id).toBe(id as never);
    expect(refusal).toMatchObject({ problem: { status: 400 } });
    await client.close();
  });

  test('a frame that is too large ends the connection', async () => {
    const client = await Client.open();
    client.send({ type: 'message.send', conversation, text: 'x'.repeat(80 * 1024) });
    expect((await client.closed).code).toBe(1009);
  });

  test('too many frames at once are refused, not queued', async () => {
    const client = await Client.open();
    // Frames that the database answers: one that memory answers may be done before the next arrives.
    for (let at = 0; at < 40; at += 1) client.send({ type: 'message.send', id: at, conversation, text: `many ${at}` });
    await client.frame({ id: 39 });
    const refused = client.got.filter(({ problem }) => (problem as { status?: number })?.status === 429);
    expect(refused.length).toBeGreaterThan(0);
    expect(client.socket.readyState).toBe(WebSocket.OPEN);
    await client.close();
  });
});

describe('who may connect', () => {
  const ticket = async () => {
    const response = await gateway.call('expert', 'POST', '/v1/events/tickets');
    expect(response.status).toBe(201);
    return ((await response.json()) as { ticket: string }).ticket;
  };

  test('a ticket is good once, and for nothing else', async () => {
    const secret = await ticket();
    const elsewhere = await gateway.call(null, 'GET', `/v1/organization?ticket=${secret}`);
    expect(elsewhere.status).toBe(401);
    const client = await Client.open(`?ticket=${secret}`, null);
    await client.ask({ type: 'subscribe', id: 1, conversation });
    gateway.publishUpdate(conversation, thought);
    expect(await client.frame({ type: 'session.update' })).toMatchObject({ update: thought });
    expect(Client.open(`?ticket=${secret}`, null)).rejects.toBeDefined();
    await client.close();
    expect(Client.open('', null)).rejects.toBeDefined();
  });

  test('unused tickets are bounded', async () => {
    const statuses: number[] = [];
    for (let count = 0; count < 4; count += 1) {
      statuses.push((await gateway.call('superadmin', 'POST', '/v1/events/tickets')).status);
    }
    expect(statuses).toEqual([201, 201, 201, 429]);
  });

  test('connections of a token are bounded, and a place is given back', async () => {
    const clients: Client[] = [];
    for (let count = 0; count < connectionsPerToken; count += 1) clients.push(await Client.open('', 'client_admin'));
    const events = `/v1/conversations/${conversation}/events`;
    expect((await gateway.call('client_admin', 'GET', events)).status).toBe(429);
    expect(Client.open('', 'client_admin')).rejects.toBeDefined();
    await clients[0]?.close();
    const stream = await gateway.call('client_admin', 'GET', events);
    expect(stream.status).toBe(200);
    const reader = stream.body?.getReader();
    await reader?.read();
    expect((await gateway.call('client_admin', 'GET', events)).status).toBe(429);
    await reader?.cancel();
    await Promise.all(clients.map((client) => client.close()));
  });

  test('a revoked token loses its streams', async () => {
    const { caller, secret } = await gateway.governance.createToken('client', 'short');
    const headers = { authorization: `Bearer ${secret}` };
    const socket = new WebSocket(`${gateway.url.replace('http', 'ws')}/v1/events`, { headers } as never);
    await new Promise((resolve) => {
      socket.onopen = resolve;
    });
    const closed = new Promise<number>((resolve) => {
      socket.onclose = ({ code }) => resolve(code);
    });
    const stream = await fetch(`${gateway.url}/v1/conversations/${conversation}/events`, { headers });
    expect((await gateway.call('superadmin', 'DELETE', `/v1/tokens/${caller.token}`)).status).toBe(204);
    expect(await closed).toBe(4401);
    expect(await stream.text()).toBe(': connected\n\n');
  });
});

describe('Server-Sent Events', () => {
  interface Event {
    readonly id?: string;
    readonly event: string;
    readonly data: Got;
  }

  async function* follow(
    query = '',
    headers: Record<string, string> = {},
    role: Role = 'client',
  ): AsyncGenerator<Event> {
    const path = `/v1/conversations/${conversation}/events${query}`;
    const response = await gateway.call(role, 'GET', path, { headers });
    expect(response.headers.get('content-type')).toBe('text/event-stream');
    let text = '';
    for await (const bytes of response.body as unknown as AsyncIterable<Uint8Array>) {
      text += new TextDecoder().decode(bytes);
      for (let end = text.indexOf('\n\n'); end !== -1; end = text.indexOf('\n\n')) {
        const fields = Object.fromEntries(
          text
            .slice(0, end)
            .split('\n')
            .map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 2)]),
        );
        text = text.slice(end + 2);
        if (fields.data !== undefined) yield { ...fields, data: JSON.parse(fields.data) } as Event;
      }
    }
  }

  test('follows one conversation and resumes', async () => {
    const from = gateway.bus.position;
    const id = await send('hi');
    await gateway.turns.start(id);
    const seen: Event[] = [];
    for await (const event of follow(`?after=${from}`)) {
      seen.push(event);
      if (seen.length === 2) {
        gateway.publishUpdate(conversation, chunk('line\nbreak'));
        await gateway.turns.deliver(id, 'two\r\n\nlines\ud800');
      }
      if (event.event === 'reply.delivered') break;
    }
    expect(seen.map(({ event }) => event)).toEqual([
      'message.accepted',
      'turn.started',
      'session.update',
      'reply.delivered',
    ]);
    expect(seen[2]).not.toHaveProperty('id');
    expect(seen[2]?.data).toMatchObject({ update: chunk('line\nbreak') });
    expect(seen[3]).toMatchObject({ id: String(seen[3]?.data.seq), data: { text: 'two\r\n\nlines\ud800' } });

    for await (const event of follow(`?after=${from}`, { 'last-event-id': seen[1]?.id ?? '' })) {
      expect(event.event).toBe('reply.delivered');
      break;
    }
    const bad = await gateway.call('client', 'GET', `/v1/conversations/${conversation}/events`, {
      headers: { 'last-event-id': 'x' },
    });
    expect(bad.status).toBe(400);
  });
});

describe('a client that does not read is dropped', () => {
  /** Connects, reads the head of the answer and then nothing until `resume`. */
  function deaf(request: string): Promise<{ socket: net.Socket; rest: () => Promise<Buffer> }> {
    return new Promise((resolve) => {
      const socket = net.connect(gateway.port, '127.0.0.1', () => socket.write(request));
      socket.once('data', () => {
        socket.pause();
        resolve({
          socket,
          rest: () =>
            new Promise((done) => {
              const chunks: Buffer[] = [];
              socket.on('data', (bytes) => chunks.push(bytes as Buffer));
              socket.on('close', () => done(Buffer.concat(chunks)));
              socket.on('error', () => done(Buffer.concat(chunks)));
              socket.resume();
            }),
        });
      });
    });
  }
  const head = (path: string, more = '') =>
    `GET ${path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${gateway.tokens.expert}\r\n${more}\r\n`;
  const dropped = () => gateway.log.filter((line) => line.includes('slow client')).length;

  /** Publishes until a client is dropped; answers how many bytes that took. */
  async function flood(to: ConversationId): Promise<number> {
    const before = dropped();
    const text = 'x'.repeat(64 * 1024);
    let bytes = 0;
    while (dropped() === before) {
      gateway.publishUpdate(to, chunk(text));
      bytes += text.length;
      if (bytes > 200 * 1024 * 1024) throw new Error('it was buffered without end');
      await Bun.sleep(1);
    }
    return bytes;
  }

  test('over WebSocket, with its code', async () => {
    const own = await gateway.newConversation();
    const upgrade =
      'Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n';
    const { socket, rest } = await deaf(head('/v1/events', upgrade));
    const frame = Buffer.from(JSON.stringify({ type: 'subscribe', conversation: own }));
    socket.write(Buffer.concat([Buffer.of(0x81, 0x80 | frame.length, 0, 0, 0, 0), frame]));
    await Bun.sleep(50);
    const other = await Client.open('', 'superadmin');
    await other.ask({ type: 'subscribe', id: 1, conversation: own });
    await flood(own);
    const bytes = await rest();
    // The close frame: its opcode, its length, 4008 and the reason.
    const code = bytes.lastIndexOf(Buffer.of(0x0f, 0xa8));
    expect(bytes[code - 2]).toBe(0x88);
    expect(bytes.subarray(code + 2).toString()).toStartWith('too slow');
    expect(other.socket.readyState).toBe(WebSocket.OPEN);
    await other.close();
  }, 30_000);

  test('over Server-Sent Events', async () => {
    const own = await gateway.newConversation();
    const { rest } = await deaf(head(`/v1/conversations/${own}/events`));
    await flood(own);
    expect((await rest()).length).toBeGreaterThan(bufferedBytes / 2);
  }, 30_000);
});

test('stopping closes every stream', async () => {
  const own = await startGateway();
  const id = await own.newConversation();
  const headers = { authorization: `Bearer ${own.tokens.client}` };
  const socket = new WebSocket(`${own.url.replace('http', 'ws')}/v1/events`, { headers } as never);
  await new Promise((resolve) => {
    socket.onopen = resolve;
  });
  const closed = new Promise<number>((resolve) => {
    socket.onclose = ({ code }) => resolve(code);
  });
  const stream = await fetch(`${own.url}/v1/conversations/${id}/events`, { headers });
  await own.stop();
  expect(await closed).toBe(1001);
  expect(await stream.text()).toBe(': connected\n\n');
}, 60_000);
