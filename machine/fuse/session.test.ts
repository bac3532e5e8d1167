/** The protocol without a kernel: framing, bounds, refusals. */
import { afterEach, expect, test } from 'bun:test';
import { errnoNumbers } from '../agentfs/errors.ts';
import { rootIno } from '../agentfs/ids.ts';
import type { StoreLimits } from '../agentfs/limits.ts';
import { type LocalFiles, openLocalFiles } from '../agentfs/local.fixture.ts';
import { seeded } from '../agentfs/model.fixture.ts';
import type { HolderStream } from '../holders/holder-socket.ts';
import { FrameDecoder, maxFrameBytes } from './frames.ts';
import { Gate } from './gate.ts';
import { type NodeNumber, nodeOfNumber, numberOfNode } from './nodes.ts';
import { FuseSession } from './session.ts';
import { opcodes } from './wire.ts';

/** A kernel that sends what a test says. */
class FakeKernel implements HolderStream {
  readonly replies = new Map<bigint, { error: number; payload: Buffer }>();
  readonly notifications: number[] = [];
  writes = 0;
  isPaused = false;
  isClosed = false;
  /** Answers that wait to be taken. */
  held: (() => void)[] | null = null;
  #data: (bytes: Uint8Array) => void = () => undefined;
  #close: () => void = () => undefined;
  #unique = 0n;

  write(bytes: Uint8Array): Promise<void> {
    const buffer = Buffer.from(bytes);
    this.writes += 1;
    for (let at = 0; at < buffer.length; at += buffer.readUInt32LE(at)) {
      const message = buffer.subarray(at, at + buffer.readUInt32LE(at));
      expect(message.readUInt32LE(0)).toBe(message.length);
      const unique = message.readBigUInt64LE(8);
      if (unique === 0n) this.notifications.push(message.readInt32LE(4));
      else {
        expect(this.replies.has(unique)).toBe(false);
        this.replies.set(unique, { error: Math.abs(message.readInt32LE(4)), payload: message.subarray(16) });
      }
    }
    return new Promise((resolve) => (this.held ? this.held.push(resolve) : resolve()));
  }

  onData(listener: (bytes: Uint8Array) => void): void {
    this.#data = listener;
  }

  onClose(listener: () => void): void {
    this.#close = listener;
  }

  pause(): void {
    this.isPaused = true;
  }

  resume(): void {
    this.isPaused = false;
  }

  close(): void {
    this.isClosed = true;
    this.#close();
  }

  bytes(
    opcode: number,
    node: NodeNumber,
    body: Uint8Array = new Uint8Array(16),
    pid = 100,
  ): { unique: bigint; bytes: Buffer } {
    const bytes = Buffer.alloc(40 + body.length);
    bytes.writeUInt32LE(bytes.length, 0);
    bytes.writeUInt32LE(opcode, 4);
    bytes.writeBigUInt64LE(++this.#unique, 8);
    bytes.writeUInt32LE(node.low, 16);
    bytes.writeUInt32LE(node.high, 20);
    bytes.writeUInt32LE(pid, 32);
    bytes.set(body, 40);
    return { unique: this.#unique, bytes };
  }

  send(bytes: Uint8Array): void {
    this.#data(bytes);
  }

  /** Sends one request and waits for its answer. */
  async ask(
    opcode: number,
    node: NodeNumber,
    body?: Uint8Array,
    pid?: number,
  ): Promise<{ error: number; payload: Buffer }> {
    const { unique, bytes } = this.bytes(opcode, node, body, pid);
    this.send(bytes);
    while (!this.replies.has(unique)) await Bun.sleep(1);
    return this.replies.get(unique)!;
  }
}

const root: NodeNumber = { high: 0, low: 1 };
const opened: LocalFiles[] = [];
afterEach(async () => {
  for (const local of opened.splice(0)) await local.close();
});

async function serve(options: { limits?: Partial<StoreLimits>; minor?: number; log?: (text: string) => void } = {}) {
  const local = await openLocalFiles(options.limits);
  opened.push(local);
  const { names } = local.files;
  const conversations = await names.makeDirectory({ parent: rootIno, name: 'conversations' }, 0o755);
  await names.makeDirectory({ parent: conversations.ino, name: 'conv_a' }, 0o755);
  const kernel = new FakeKernel();
  const gate = new Gate((tid) => tid);
  gate.arm(100);
  const session = new FuseSession({
    view: (await local.files.view('conv_a'))!,
    gate,
    boundary: { touch: () => null, onStale: () => () => undefined, onFlush: () => () => undefined },
    stream: kernel,
    log: options.log ?? ((text) => expect(text).toBe('nothing')),
  });
  const body = Buffer.alloc(64);
  for (const [at, value] of [7, options.minor ?? 45, 1 << 20, 0x7fffffff, 0x10].entries())
    body.writeUInt32LE(value, at * 4);
  const init = await kernel.ask(opcodes.init, { high: 0, low: 0 }, body, 0);
  const workspace = numberOfNode('workspace', (await local.files.find('/conversations/conv_a/work'))!.ino);
  return { local, kernel, session, init, workspace };
}

function createBody(name: string, flags = 0o102): Buffer {
  const body = Buffer.alloc(16 + name.length + 1);
  body.writeUInt32LE(flags, 0);
  body.writeUInt32LE(0o100644, 4);
  body.write(name, 16);
  return body;
}

function writeBody(handle: bigint, offset: number, data: Uint8Array): Buffer {
  const body = Buffer.alloc(40 + data.length);
  body.writeBigUInt64LE(handle, 0);
  body.writeBigUInt64LE(BigInt(offset), 8);
  body.writeUInt32LE(data.length, 16);
  body.set(data, 40);
  return body;
}

async function create(
  kernel: FakeKernel,
  workspace: NodeNumber,
  name: string,
): Promise<{ node: NodeNumber; handle: bigint }> {
  const { error, payload } = await kernel.ask(opcodes.create, workspace, createBody(name));
  expect(error).toBe(0);
  return {
    node: { low: payload.readUInt32LE(0), high: payload.readUInt32LE(4) },
    handle: payload.readBigUInt64LE(128),
  };
}

test('nobody waits for the answer of a close: it goes with the next one, or soon alone, and not too many wait', async () => {
  const { kernel, workspace } = await serve();
  const opened: Awaited<ReturnType<typeof create>>[] = [];
  for (let number = 0; number < 20; number++) opened.push(await create(kernel, workspace, `f${number}`));
  const release = ({ node, handle }: Awaited<ReturnType<typeof create>>) => {
    const body = Buffer.alloc(24);
    body.writeBigUInt64LE(handle);
    const { unique, bytes } = kernel.bytes(opcodes.release, node, body);
    kernel.send(bytes);
    return unique;
  };
  const before = kernel.writes;
  const first = release(opened[0]!);
  expect(kernel.replies.has(first)).toBe(false);
  await kernel.ask(opcodes.getattr, workspace);
  expect(kernel.replies.get(first)?.error).toBe(0);
  expect(kernel.writes).toBe(before + 1);
  const rest = opened.slice(1).map(release);
  expect(kernel.replies.has(rest[15]!)).toBe(true);
  while (!kernel.replies.has(rest.at(-1)!)) await Bun.sleep(1);
  expect(kernel.writes).toBe(before + 3);
});

test('frames come whole, however the stream is cut', () => {
  const random = seeded(7);
  const messages = Array.from({ length: 200 }, (_, at) => {
    const message = Buffer.alloc(40 + random(3) * random(3000), at);
    message.writeUInt32LE(message.length, 0);
    return message;
  });
  const stream = Buffer.concat(messages);
  const decoder = new FrameDecoder();
  const got: Buffer[] = [];
  for (let at = 0; at < stream.length; ) {
    const end = Math.min(stream.length, at + 1 + random(random(4) === 0 ? 9000 : 60));
    decoder.feed(Uint8Array.from(stream.subarray(at, end)), (message) => got.push(Buffer.from(message)));
    at = end;
  }
  expect(got).toEqual(messages);
  for (const length of [0, 39, maxFrameBytes + 1]) {
    const bad = Buffer.alloc(8);
    bad.writeUInt32LE(length, 0);
    expect(() => new FrameDecoder().feed(bad, () => undefined)).toThrow(`a message of ${length} bytes`);
  }
});

test('node numbers say zone and inode, and no other number is one', () => {
  for (const ino of [2 ** 32, 2 ** 52 - 1, 123_456_789_012_345]) {
    for (const zone of ['workspace', 'inbound', 'secret', 'skills'] as const) {
      expect(nodeOfNumber(numberOfNode(zone, ino))).toEqual({ zone, ino });
    }
  }
  expect(nodeOfNumber(numberOfNode('root', rootIno))).toEqual({ zone: 'root', ino: rootIno });
  for (const number of [
    { high: 0, low: 2 },
    { high: 0xff00_0000, low: 2 },
    { high: 0x0110_0000, low: 0 },
  ]) {
    expect(nodeOfNumber(number)).toBeNull();
  }
});

test('INIT asks for what is needed and never for locks, write-back, splice or truncation by open', async () => {
  const { init } = await serve();
  expect(init.error).toBe(0);
  expect(init.payload.readUInt32LE(0)).toBe(7);
  const flags = init.payload.readUInt32LE(12);
  for (const bit of [1, 3, 10, 16]) expect(flags & (1 << bit)).toBe(0);
  for (const bit of [0, 12, 30]) expect((flags >>> bit) & 1).toBe(1);
  expect(init.payload.readUInt32LE(20)).toBe(1024 * 1024);
  expect(init.payload.readUInt32LE(32)).toBe(1 << 4);
});

test('a kernel that cannot forget at once remembers nothing', async () => {
  for (const [minor, seconds] of [
    [45, 86_400n],
    [38, 0n],
  ] as const) {
    const { kernel, workspace, session } = await serve({ minor });
    const { node } = await create(kernel, workspace, 'file');
    const { payload } = await kernel.ask(opcodes.lookup, workspace, Buffer.from('file\0'));
    expect([payload.readBigUInt64LE(16), payload.readBigUInt64LE(24)]).toEqual([seconds, seconds]);
    expect({ low: payload.readUInt32LE(0), high: payload.readUInt32LE(4) }).toEqual(node);
    session.forgetCaches('pulled');
    expect(kernel.notifications).toEqual(minor === 45 ? [8, 2] : []);
  }
});

test('private zones are never remembered and opened for direct I/O', async () => {
  const { kernel, local } = await serve();
  const home = numberOfNode('home', (await local.files.find('/conversations/conv_a/state'))!.ino);
  const { payload } = await kernel.ask(opcodes.create, home, createBody('auth.json'));
  expect([payload.readBigUInt64LE(16), payload.readBigUInt64LE(24)]).toEqual([0n, 0n]);
  expect(payload.readUInt32LE(136)).toBe(1);
  const refused = await kernel.ask(opcodes.lookup, home, Buffer.from('auth.json\0'), 200);
  expect(refused.error).toBe(errnoNumbers.EACCES);
});

test('what a kernel never sends is refused, and the rest goes on', async () => {
  const { kernel, workspace } = await serve();
  const errors: [number, NodeNumber, Uint8Array | undefined, keyof typeof errnoNumbers][] = [
    [9999, root, undefined, 'ENOSYS'],
    [opcodes.getxattr, workspace, undefined, 'ENOSYS'],
    [opcodes.getattr, { high: 0x7700_0000, low: 7 }, undefined, 'ESTALE'],
    [opcodes.getattr, numberOfNode('workspace', 2 ** 40), undefined, 'ESTALE'],
    [opcodes.read, workspace, Buffer.alloc(40, 0xff), 'EBADF'],
    [opcodes.lookup, workspace, Buffer.from(`${'n'.repeat(256)}\0`), 'ENAMETOOLONG'],
    [opcodes.mkdir, root, Buffer.from('\0\0\0\0\0\0\0\0new\0'), 'EROFS'],
    [opcodes.mkdir, workspace, Buffer.from('\0\0\0\0\0\0\0\0a/b\0'), 'EINVAL'],
    [opcodes.mkdir, workspace, Buffer.from('\0\0\0\0\0\0\0\0..\0'), 'EINVAL'],
  ];
  for (const [opcode, node, body, errno] of errors) {
    expect([opcode, (await kernel.ask(opcode, node, body)).error]).toEqual([opcode, errnoNumbers[errno]]);
  }
  expect((await kernel.ask(opcodes.getattr, workspace)).error).toBe(0);
});

test('a broken length ends the session and closes what was open', async () => {
  const said: string[] = [];
  const { kernel, workspace, session, local } = await serve({ log: (text) => said.push(text) });
  const { handle } = await create(kernel, workspace, 'file');
  await kernel.ask(opcodes.write, workspace, writeBody(handle, 0, Buffer.from('kept')));
  kernel.send(Buffer.alloc(40));
  await session.ended;
  expect(kernel.isClosed).toBe(true);
  expect(said[0]).toContain('a message of 0 bytes');
  const ino = (await local.files.find('/conversations/conv_a/work/file'))!.ino;
  expect(local.files.store.isOpen(ino)).toBe(false);
  expect(String((await local.driver.get('SELECT data FROM fs_data WHERE ino = ?', ino))!.data)).toBe('kept');
});

test('a stream whose answers are not taken is not read any further', async () => {
  const { kernel, workspace } = await serve();
  kernel.held = [];
  for (let at = 0; at < 600; at++) kernel.send(kernel.bytes(opcodes.getattr, workspace).bytes);
  expect(kernel.isPaused).toBe(true);
  const held = kernel.held;
  kernel.held = null;
  for (const take of held) take();
  await Bun.sleep(5);
  expect(kernel.isPaused).toBe(false);
});

test('a file beyond its limit is EFBIG, an organization beyond its quota ENOSPC, and both change nothing', async () => {
  const { kernel, workspace, local } = await serve({
    limits: { largestFile: 300_000, organization: { bytes: 2_000_000, inodes: 1_000 } },
  });
  const { handle, node } = await create(kernel, workspace, 'file');
  const chunk = Buffer.alloc(200_000, 'x');
  expect((await kernel.ask(opcodes.write, node, writeBody(handle, 0, chunk))).error).toBe(0);
  expect((await kernel.ask(opcodes.write, node, writeBody(handle, 200_000, chunk))).error).toBe(errnoNumbers.EFBIG);
  expect((await local.files.find('/conversations/conv_a/work/file'))!.size).toBe(200_000);
  const errors: number[] = [];
  for (let at = 0; at < 12; at++) {
    const other = await create(kernel, workspace, `other${at}`);
    errors.push((await kernel.ask(opcodes.write, other.node, writeBody(other.handle, 0, chunk))).error);
    await kernel.ask(opcodes.flush, other.node, writeBody(other.handle, 0, Buffer.alloc(0)));
  }
  expect(errors.slice(0, 3)).toEqual([0, 0, 0]);
  expect(errors.at(-1)).toBe(errnoNumbers.ENOSPC);
  expect((await local.files.find('/conversations/conv_a/work/other11'))!.size).toBe(0);
});

test('written data is committed after a while by itself', async () => {
  const { kernel, workspace, local } = await serve({ limits: { commitAfterMs: 500 } });
  const { handle, node } = await create(kernel, workspace, 'file');
  await kernel.ask(opcodes.write, node, writeBody(handle, 0, Buffer.from('open for long')));
  const { ino } = (await local.files.find('/conversations/conv_a/work/file'))!;
  // Not the driver for others: that would write it at once.
  const row = () => local.files.store.sql.get('SELECT data FROM fs_data WHERE ino = ?', ino);
  expect(await row()).toBeUndefined();
  while (!(await row())) await Bun.sleep(5);
  expect(String((await row())!.data)).toBe('open for long');
});
