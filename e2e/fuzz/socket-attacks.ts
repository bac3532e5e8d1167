/** What a hostile client does to the WebSocket, a connection at a time. */
import { frameBytes, opcodes, type RawWebSocket, textFrame } from '../harness/raw-web-socket.ts';
import { hostileText, pick } from './hostile-json.ts';

type Random = (below: number) => number;

export interface Attack {
  readonly name: string;
  /** After it the connection is in the middle of a frame: whether it still answers cannot be asked. */
  readonly leavesHalf?: true;
  readonly run: (socket: RawWebSocket, random: Random, conversation: string) => Promise<void>;
}

const bytes = (random: Random, size: number): Buffer => Buffer.from(Array.from({ length: size }, () => random(256)));
const many = (count: number, make: (index: number) => Uint8Array): Uint8Array[] =>
  Array.from({ length: count }, (_, index) => make(index));
const empty = Buffer.alloc(0);

const single: readonly Attack[] = [
  {
    name: 'texts that are no frames',
    run: async (socket, random, conversation) => {
      for (let count = 1 + random(12); count > 0; count -= 1)
        await socket.send(textFrame(hostileText(random, conversation)));
    },
  },
  {
    name: 'binary frames',
    run: (socket, random) =>
      socket.send(
        ...many(1 + random(8), () => frameBytes({ opcode: opcodes.binary, payload: bytes(random, random(5_000)) })),
      ),
  },
  {
    name: 'a text that is no UTF-8',
    run: (socket, random) =>
      socket.send(
        frameBytes({
          opcode: opcodes.text,
          payload: Buffer.concat([Buffer.from('{"'), Buffer.from([0xff, 0xc0, 0x80]), bytes(random, 20)]),
        }),
      ),
  },
  {
    name: 'reserved opcodes and bits',
    run: (socket, random) =>
      socket.send(
        frameBytes({
          opcode: pick(random, [3, 7, 11, 15, 1]),
          reserved: 1 + random(7),
          payload: bytes(random, random(200)),
        }),
      ),
  },
  {
    name: 'frames without a mask',
    run: (socket, random) =>
      socket.send(frameBytes({ opcode: pick(random, [1, 2, 9]), masked: false, payload: bytes(random, 50) })),
  },
  {
    name: 'control frames that are long or in fragments',
    run: (socket, random) =>
      socket.send(
        frameBytes({
          opcode: pick(random, [8, 9, 10]),
          fin: random(2) === 0,
          payload: bytes(random, 126 + random(70_000)),
        }),
      ),
  },
  {
    name: 'continuations of nothing',
    run: (socket, random) =>
      socket.send(
        ...many(1 + random(20), () =>
          frameBytes({ opcode: opcodes.continuation, fin: random(2) === 0, payload: bytes(random, 10) }),
        ),
      ),
  },
  {
    name: 'a message in thousands of fragments, some empty, with pings between them',
    run: async (socket, random, conversation) => {
      const text = Buffer.from(JSON.stringify({ type: 'subscribe', conversation, id: 'x'.repeat(100) }));
      await socket.send(frameBytes({ opcode: opcodes.text, fin: false, payload: text.subarray(0, 1) }));
      for (let at = 1; at < text.length; at += 1) {
        await socket.send(
          ...many(random(20), () => frameBytes({ opcode: opcodes.continuation, fin: false, payload: empty })),
          frameBytes({ opcode: opcodes.ping, payload: bytes(random, 4) }),
          frameBytes({ opcode: opcodes.continuation, fin: at === text.length - 1, payload: text.subarray(at, at + 1) }),
        );
      }
    },
  },
  {
    name: 'a message that begins within another',
    run: (socket, random) =>
      socket.send(
        ...many(2 + random(5), () => frameBytes({ opcode: opcodes.text, fin: false, payload: bytes(random, 10) })),
      ),
  },
  {
    name: 'a frame that claims to be huge',
    leavesHalf: true,
    run: (socket, random) =>
      socket.send(
        frameBytes({
          opcode: pick(random, [1, 2]),
          payload: bytes(random, 2_000),
          length: { value: pick(random, [2n ** 63n, 2n ** 64n - 1n, 2n ** 32n, 5_000_000n, 10n ** 12n]), bytes: 8 },
        }),
      ),
  },
  {
    name: 'a length in more bytes than it needs',
    run: (socket, random) =>
      socket.send(
        frameBytes({
          opcode: opcodes.text,
          payload: bytes(random, 5),
          length: { value: 5n, bytes: pick(random, [2, 8]) },
        }),
      ),
  },
  {
    name: 'a frame as large as may be, and a larger one',
    run: async (socket, random) => {
      await socket.send(textFrame('x'.repeat(4 * 1024 * 1024)));
      await socket.send(frameBytes({ opcode: opcodes.text, payload: Buffer.alloc(6 * 1024 * 1024, 32 + random(90)) }));
    },
  },
  {
    name: 'a frame that breaks off',
    leavesHalf: true,
    run: async (socket, random, conversation) => {
      const frame = textFrame(JSON.stringify({ type: 'subscribe', conversation }));
      await socket.send(frame.subarray(0, 1 + random(frame.length - 1)));
      if (random(2) === 0) socket.halfClose();
    },
  },
  {
    name: 'bytes that are no frames',
    leavesHalf: true,
    run: (socket, random) => socket.send(bytes(random, 1 + random(3_000))),
  },
  {
    name: 'pings and pongs, thousands',
    run: (socket, random) =>
      socket.send(
        ...many(5_000, (index) =>
          frameBytes({ opcode: index % 3 === 0 ? opcodes.pong : opcodes.ping, payload: bytes(random, random(20)) }),
        ),
      ),
  },
  {
    name: 'closes that are none',
    run: (socket, random) =>
      socket.send(
        frameBytes({
          opcode: opcodes.close,
          payload: pick(random, [
            empty,
            Buffer.from([3]),
            Buffer.from([0, 0]),
            Buffer.from([0x03, 0xed]),
            Buffer.from([0xff, 0xff, 0xff]),
            bytes(random, 125),
          ]),
        }),
      ),
  },
  {
    name: 'a flood of right frames',
    run: (socket, random, conversation) =>
      socket.send(
        ...many(2_000, (id) =>
          textFrame(JSON.stringify({ type: random(2) === 0 ? 'subscribe' : 'unsubscribe', id, conversation })),
        ),
      ),
  },
  {
    name: 'a flood of right frames whose answers are not read',
    leavesHalf: true,
    run: async (socket, _random, conversation) => {
      socket.stopReading();
      const frame = textFrame(JSON.stringify({ type: 'subscribe', id: 'x'.repeat(128), conversation, after: 0 }));
      await Promise.race([socket.send(...many(20_000, () => frame)), Bun.sleep(2_000)]);
    },
  },
  {
    name: 'a subscription to everything that there is not',
    run: (socket, random) =>
      socket.send(
        ...many(300, () =>
          textFrame(
            JSON.stringify({ type: 'subscribe', conversation: `conv_${String(random(1e9)).padStart(26, '0')}` }),
          ),
        ),
      ),
  },
  { name: 'nothing', run: async () => undefined },
];

/** What is parsed has more ways to be wrong than any other: a third of the attacks. */
export const attacks: readonly Attack[] = [...single, ...Array<Attack>(10).fill(single[0] as Attack)];

/** Requests that are nearly a handshake: each has to be answered with a refusal, or to end. */
export function hostileHandshake(random: Random, host: string, token: string): string {
  const bearer = `Authorization: Bearer ${token}`;
  const usual = [`Host: ${host}`, 'Upgrade: websocket', 'Connection: Upgrade', 'Sec-WebSocket-Version: 13', bearer];
  const key = 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==';
  const request = (line: string, lines: readonly string[]) => [line, ...lines, '', ''].join('\r\n');
  const path = 'GET /v1/events HTTP/1.1';
  return pick(random, [
    request(path, usual),
    request(path, [...usual, 'Sec-WebSocket-Key: short']),
    request(path, [...usual.slice(0, 3), bearer, key, 'Sec-WebSocket-Version: 99']),
    request(path, [`Host: ${host}`, 'Upgrade: h2c', 'Connection: Upgrade', bearer, key]),
    request(path, [...usual, key, `X-Long: ${'x'.repeat(random(100_000))}`]),
    request(path, [...usual, key, key, 'Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=99']),
    request(path, [...usual, key, 'Content-Length: 5']),
    request('POST /v1/events HTTP/1.1', [...usual, key]),
    request('GET /v1/events?after=-1 HTTP/1.1', [...usual, key]),
    request(`GET /v1/events?after=${'9'.repeat(400)} HTTP/1.1`, [...usual, key]),
    request('GET /v1/events?ticket=x&ticket=y HTTP/1.1', [...usual.slice(0, 4), key]),
    request('GET /v1/events?%ff%00 HTTP/1.1', [...usual, key]),
    request('GET /v1//events HTTP/1.1', [...usual, key]),
    request(path, [...usual.slice(0, 4), 'Authorization: Bearer nobody', key]),
    `GET /v1/events HTTP/1.1\r\nHost: ${host}\r\nUpgrade: webso`,
    '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03',
  ]);
}
