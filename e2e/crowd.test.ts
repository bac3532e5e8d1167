/** Many readers of one conversation, and one that does not read (ADR-046 §8: events, no polling; every buffer has a limit). */
import { afterAll, beforeAll, expect, test } from 'bun:test';
import { readFileSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { Crowd } from './harness/crowd.ts';
import { Gateway } from './harness/gateway.ts';
import { ScriptedModel, say } from './harness/model.ts';

const mebibyte = 1024 * 1024;
let model: ScriptedModel;
let gateway: Gateway;

beforeAll(async () => {
  model = ScriptedModel.start();
  gateway = await Gateway.start({
    environment: { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: 'none' },
  });
}, 180_000);

afterAll(async () => {
  await gateway?.[Symbol.asyncDispose]();
  await model?.stop();
}, 60_000);

test('300 clients get each event of a conversation once and in order', async () => {
  const api = gateway.api('superadmin');
  const conversation = await api.createConversation('Eleanora');
  const crowd = await Crowd.gather(api, conversation, 300);
  model.on('to all', say('heard'));
  for (let turn = 0; turn < 3; turn += 1) await api.say(conversation, `to all ${turn}`);
  await crowd.all('reply.delivered', 3);
  const [first] = crowd.got;
  expect(first?.map(({ type }) => type)).toEqual(
    Array.from({ length: 3 }, () => ['message.accepted', 'turn.started', 'reply.delivered']).flat(),
  );
  const seqs = (events: typeof first) => events?.map(({ seq }) => seq);
  expect(seqs(first)).toEqual([...(seqs(first) ?? [])].sort((one, other) => one - other));
  for (const events of crowd.got) expect(seqs(events)).toEqual(seqs(first));
  crowd.leave();
}, 180_000);

/** The most memory that the gateway's own process had since {@link restartPeak}, in bytes. */
const peakBytes = (): number =>
  Number(/^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${gateway.pid}/status`, 'utf8'))?.[1]) * 1024;

/** Counts the peak from now on, and answers what it has now. */
function restartPeak(): number {
  writeFileSync(`/proc/${gateway.pid}/clear_refs`, '5');
  return peakBytes();
}

test('a client that does not read is dropped with a code, and the gateway keeps little for it', async () => {
  const api = gateway.api('superadmin');
  const conversation = await api.createConversation('Eleanora');
  await api.say(conversation, 'get warm');
  const { port } = new URL(gateway.url);
  const head = `GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${gateway.token('superadmin')}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n`;
  const deaf = Array.from({ length: 8 }, () => deafClient(Number(port), head, conversation));
  await Promise.all(deaf.map(({ subscribed }) => subscribed));

  // 8 clients times 48 MiB, if it were kept for them.
  let streamed = 0;
  await using reader = await gateway.events('superadmin');
  reader.onFrame((frame) => {
    if (frame.type === 'session.update') streamed += JSON.stringify(frame).length;
  });
  reader.send({ type: 'subscribe', conversation });
  const pieces = Array.from({ length: 192 }, () => 'x'.repeat(mebibyte / 4));
  model.on('talk much', { do: 'say-in-pieces', pieces });
  const before = restartPeak();
  // More than is kept of one reply: what counts here is what it streams.
  const talking = api.post(`/v1/conversations/${conversation}/messages`, { text: 'talk much' }, { prefer: 'wait=120' });
  const dropped = () => gateway.log.split('a slow client was dropped').length - 1;
  while (dropped() < deaf.length) await Bun.sleep(20);
  for (const { rest } of deaf) {
    const bytes = await rest();
    // The close frame: its opcode, its length, 4008 and the reason.
    const code = bytes.lastIndexOf(Buffer.of(0x0f, 0xa8));
    expect(bytes[code - 2]).toBe(0x88);
    expect(bytes.length).toBeLessThan(16 * mebibyte);
  }
  await talking;
  expect(streamed).toBeGreaterThan(48 * mebibyte);
  const grown = peakBytes() - before;
  console.log(`the gateway has grown by ${Math.round(grown / mebibyte)} MiB at most`);
  expect(grown).toBeLessThan(200 * mebibyte);
}, 180_000);

/** Subscribes, and reads nothing more until `rest`. */
function deafClient(port: number, head: string, conversation: string) {
  const subscribed = Promise.withResolvers<void>();
  const socket = net.connect(port, '127.0.0.1', () => socket.write(head));
  socket.once('data', () => {
    const frame = Buffer.from(JSON.stringify({ type: 'subscribe', conversation }));
    socket.write(Buffer.concat([Buffer.of(0x81, 0x80 | frame.length, 0, 0, 0, 0), frame]));
    socket.once('data', () => {
      socket.pause();
      subscribed.resolve();
    });
  });
  const rest = (): Promise<Buffer> =>
    new Promise((done) => {
      const chunks: Buffer[] = [];
      socket.on('data', (bytes) => chunks.push(bytes as Buffer));
      socket.on('close', () => done(Buffer.concat(chunks)));
      socket.on('error', () => done(Buffer.concat(chunks)));
      socket.resume();
    });
  return { subscribed: subscribed.promise, rest };
}
