/** Files that are announced over the WebSocket, sent by PUT and named by a message, into a real cloud AgentFS. */
import { afterAll, beforeAll, beforeEach, expect, test } from 'bun:test';
import { startAuthority, type TestAuthority } from '../../machine/agentfs/authority.fixture.ts';
import { CloudFiles } from '../../machine/agentfs/cloud.ts';
import { establishConversation, provisionOrganization } from '../establishment.ts';
import { createAnnouncedUploads } from '../files/announced.ts';
import { createInbox } from '../files/inbox.ts';
import type { ConversationId } from '../ids.ts';
import { Problem } from '../problem.ts';
import { ConversationRequests } from './conversation-requests.ts';
import { startGateway, type TestGateway } from './gateway.fixture.ts';

const requests = new ConversationRequests();
let authority: TestAuthority;
let gateway: TestGateway;
let conversation: ConversationId;
let socket: WebSocket;
const frames: Frame[] = [];
const waiting = new Set<() => void>();

interface Frame {
  readonly type: string;
  readonly id?: number;
  readonly upload?: string;
  readonly put?: string;
  readonly message?: { readonly id: string };
  readonly problem?: { readonly type: string };
}

const mebibyte = 1024 * 1024;
/** Long enough for a busy machine to do what a test does meanwhile. */
const keptMs = 1_500;

beforeAll(async () => {
  authority = await startAuthority({ isProvisioned: false });
  await provisionOrganization(authority.cloud);
  const inbox = createInbox({
    sql: authority.sql,
    files: new CloudFiles(authority.sql),
    limits: {
      largestFile: 4 * mebibyte,
      conversation: { bytes: 6 * mebibyte, inodes: 100 },
      organization: { bytes: 100 * mebibyte, inodes: 1_000 },
    },
    log: { info: () => undefined, warn: () => undefined },
  });
  const uploads = createAnnouncedUploads(inbox, { perToken: 4, total: 8, keptMs });
  gateway = await startGateway({ inbox, uploads, requests, limits: { uploadsPerToken: 2 } });
  socket = new WebSocket(`${gateway.url.replace('http', 'ws')}/v1/events`, {
    headers: { authorization: `Bearer ${gateway.tokens.client}` },
  });
  socket.addEventListener('message', ({ data }) => {
    frames.push(JSON.parse(String(data)) as Frame);
    for (const wake of waiting) wake();
    waiting.clear();
  });
  await new Promise((resolve) => socket.addEventListener('open', resolve));
}, 90_000);
afterAll(async () => {
  socket?.close();
  await gateway?.stop();
  await authority?.stop();
});
beforeEach(async () => {
  conversation = await gateway.newConversation();
  await establishConversation(authority.cloud, conversation, gateway.specialist);
});

let lastId = 0;
/** The answer to a frame. */
async function ask(frame: Readonly<Record<string, unknown>>): Promise<Frame> {
  lastId += 1;
  const id = lastId;
  socket.send(JSON.stringify({ id, conversation, ...frame }));
  for (;;) {
    const answer = frames.find((one) => one.id === id);
    if (answer) return answer;
    await new Promise<void>((resolve) => {
      waiting.add(resolve);
    });
  }
}
const announce = async (name: string) => (await ask({ type: 'upload.announce', name, mimeType: 'text/plain' })).put!;
const put = (path: string, body: string | Uint8Array, role: 'client' | 'expert' = 'client') =>
  gateway.call(role, 'PUT', path, { body: Buffer.from(body), headers: { 'content-type': 'application/octet-stream' } });
const uploadOf = (path: string) => ({ upload: path.split('/').at(-1)! });
const problemOf = ({ problem }: Frame) => problem?.type.split(':').at(-1);
const inbound = async () =>
  (await authority.cloud.list(`/conversations/${conversation}/artifacts/inbound`)).map(({ name }) => name);
const nameless = async () =>
  Number((await authority.sql.execute('SELECT count(*) FROM fs_inode WHERE nlink = 0')).rows[0]![0]);
const sha256 = (text: string) => new Bun.CryptoHasher('sha256').update(text).digest('hex');

test('announced, sent, named: the message has its blocks, each file is there once, and a retry is the first message', async () => {
  const [a, b] = [await announce('a note.txt'), await announce('b.txt')];
  const answer = await put(a, 'first');
  expect([answer.status, await answer.json()]).toEqual([200, { ...uploadOf(a), size: 5, sha256: sha256('first') }]);
  expect((await put(b, 'second')).status).toBe(200);
  expect(await inbound()).toEqual([]);
  const frame = {
    type: 'message.send',
    idempotencyKey: crypto.randomUUID(),
    parts: [{ text: 'see ' }, uploadOf(b), { text: 'and' }, uploadOf(a)],
  };
  const [sent, again] = await Promise.all([ask(frame), ask(frame)]);
  expect(sent!.type).toBe('message.sent');
  expect(again!.message!.id).toBe(sent!.message!.id);
  expect((await ask(frame)).message!.id).toBe(sent!.message!.id);
  const link = (text: string, name: string, stored: string) => ({
    type: 'resource_link',
    uri: `file:///artifacts/inbound/${sha256(text).slice(0, 16)}-${stored}`,
    name,
    mimeType: 'text/plain',
    size: text.length,
  });
  expect(gateway.turns.submissions.at(-1)!.content).toEqual({
    blocks: [
      { type: 'text', text: 'see ' },
      link('second', 'b.txt', 'b.txt'),
      { type: 'text', text: 'and' },
      link('first', 'a note.txt', 'a_note.txt'),
    ],
  });
  expect((await inbound()).length).toBe(2);
  expect(await nameless()).toBe(0);
});

test('announced anew, as after a restart, a known message gets its answer and nothing of it is stored again', async () => {
  const upload = async (contents: string) => {
    const path = await announce('x.txt');
    expect((await put(path, contents)).status).toBe(200);
    return { type: 'message.send', idempotencyKey: 'anew', parts: [{ text: 'see' }, uploadOf(path)] };
  };
  const first = await ask(await upload('contents'));
  expect(first.type).toBe('message.sent');
  const before = await inbound();
  const again = await upload('contents');
  expect(await nameless()).toBe(1);
  expect((await ask(again)).message?.id).toBe(first.message!.id);
  expect([await inbound(), await nameless()]).toEqual([before, 0]);
  expect((await ask(again)).message?.id).toBe(first.message!.id);
  const other = await upload('other contents');
  expect(problemOf(await ask(other))).toBe('idempotency-key-reused');
  expect(await inbound()).toEqual(before);
  expect((await ask({ ...other, idempotencyKey: 'other' })).type).toBe('message.sent');
  expect([(await inbound()).length, await nameless()]).toEqual([2, 0]);
});

test('a refused message names nothing, and its uploads can be sent again', async () => {
  const path = await announce('x.txt');
  await put(path, 'contents');
  const frame = { type: 'message.send', parts: [uploadOf(path)] };
  gateway.turns.refuse = () => new Problem('unprocessable-message', 'Add a text');
  expect(problemOf(await ask(frame))).toBe('unprocessable-message');
  gateway.turns.refuse = () => null;
  gateway.turns.failNext = new Problem('too-many-requests', 'The queue is full');
  expect(problemOf(await ask(frame))).toBe('too-many-requests');
  expect(await inbound()).toEqual([]);
  expect((await ask(frame)).type).toBe('message.sent');
  expect((await inbound()).length).toBe(1);
  expect(await nameless()).toBe(0);
});

test('what is not there, not arrived, too large or somebody else’s', async () => {
  const path = await announce('x.txt');
  expect(problemOf(await ask({ type: 'message.send', parts: [{ text: 'a' }, uploadOf(path)] }))).toBe('conflict');
  expect(problemOf(await ask({ type: 'message.send', parts: [{ upload: 'upl_nothing' }] }))).toBe('not-found');
  expect((await put(path, 'x', 'expert')).status).toBe(404);
  expect((await put(path, new Uint8Array(4 * mebibyte + 1))).status).toBe(413);
  expect(await nameless()).toBe(0);
  expect((await put(path, new Uint8Array(4 * mebibyte))).status).toBe(200);
  expect((await put(path, 'again')).status).toBe(409);
  // What waits to be named takes its room already.
  const second = await announce('y.txt');
  expect((await put(second, new Uint8Array(3 * mebibyte))).status).toBe(413);
  const own = conversation;
  conversation = await gateway.newConversation();
  await establishConversation(authority.cloud, conversation, gateway.specialist);
  expect(problemOf(await ask({ type: 'message.send', parts: [uploadOf(path)] }))).toBe('not-found');
  expect((await put(path.replace(own, conversation), 'x')).status).toBe(404);
}, 30_000);

test('bytes that are a part of the file, or packed, are not the file', async () => {
  const path = await announce('x.txt');
  const send = async (headers: Record<string, string>) =>
    (await gateway.call('client', 'PUT', path, { body: Buffer.from('part'), headers })).status;
  expect(await send({ 'content-range': 'bytes 0-3/100' })).toBe(400);
  expect(await send({ 'content-encoding': 'gzip' })).toBe(415);
  expect(await send({ 'content-encoding': 'identity' })).toBe(200);
});

test('an erasure gives up what comes in, however slowly, and leaves nothing that no message has named', async () => {
  // Until those of other tests are no more.
  await Bun.sleep(keptMs + 200);
  const [slow, whole] = [await announce('slow.txt'), await announce('whole.txt')];
  expect((await put(whole, 'whole')).status).toBe(200);
  const endless = () =>
    new ReadableStream<Uint8Array>({ start: (controller) => controller.enqueue(new Uint8Array(2 * mebibyte)) });
  const coming = [
    gateway.call('client', 'PUT', slow, { body: endless() }),
    gateway.call('client', 'POST', `/v1/conversations/${conversation}/messages`, {
      body: new ReadableStream<Uint8Array>({
        start: (controller) =>
          controller.enqueue(Buffer.from('--zz\r\nContent-Disposition: form-data; name="text"\r\n\r\nhal')),
      }),
      headers: { 'content-type': 'multipart/form-data; boundary=zz' },
    }),
  ];
  while ((await nameless()) < 2) await Bun.sleep(10);
  await requests.ended(conversation);
  expect((await Promise.all(coming)).map(({ status }) => status)).toEqual([404, 404]);
  await gateway.uploads.retire(conversation);
  expect(await nameless()).toBe(0);
  expect((await put(whole, 'whole')).status).toBe(404);
  expect(problemOf(await ask({ type: 'upload.announce', name: 'late.txt' }))).toBe('not-found');
}, 20_000);

test('a token that draws its uploads out leaves room for the others', async () => {
  await Bun.sleep(keptMs + 200);
  const slow = async (path: string) => {
    const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
    const writer = writable.getWriter();
    const answer = gateway.call('client', 'PUT', path, { body: readable });
    await writer.write(new Uint8Array(2 * mebibyte));
    return { answer, end: () => writer.close() };
  };
  const first = [await slow(await announce('a')), await slow(await announce('b'))];
  while ((await nameless()) < 2) await Bun.sleep(10);
  const third = await announce('c');
  expect((await put(third, 'x')).status).toBe(429);
  const form = new FormData();
  form.append('text', 'hello');
  const send = async (role: 'client' | 'superadmin') => {
    const headers = { authorization: `Bearer ${gateway.tokens[role]}` };
    const path = `/v1/conversations/${conversation}/messages`;
    return (await fetch(`${gateway.url}${path}`, { method: 'POST', headers, body: form })).status;
  };
  expect([await send('client'), await send('superadmin')]).toEqual([429, 202]);
  for (const { answer, end } of first) {
    await end();
    expect((await answer).status).toBe(200);
  }
  expect((await put(third, 'x')).status).toBe(200);
  expect(await send('client')).toBe(202);
}, 20_000);

test('what no message names in time is removed, and there are so many at once', async () => {
  await Bun.sleep(keptMs + 200);
  const path = await announce('x.txt');
  await put(path, 'contents');
  expect(await nameless()).toBe(1);
  for (let index = 0; index < 3; index += 1) await announce(`${index}`);
  expect(problemOf(await ask({ type: 'upload.announce', name: 'one more' }))).toBe('too-many-requests');
  for (let turn = 0; (await nameless()) > 0 && turn < 200; turn += 1) await Bun.sleep(50);
  expect(await nameless()).toBe(0);
  expect((await put(path, 'late')).status).toBe(404);
  expect((await ask({ type: 'upload.announce', name: 'x', mimeType: 'no type' })).type).toBe('error');
}, 30_000);
