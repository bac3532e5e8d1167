/** Who reads the device when, with a pair of sockets in the kernel's place: they keep messages apart as the device does. */
import { dlopen, FFIType } from 'bun:ffi';
import { afterEach, expect, test } from 'bun:test';
import { closeSync, openSync } from 'node:fs';
import type { HolderStream } from '../holders/holder-socket.ts';
import { FuseDevice } from './device.ts';
import { DirectStream } from './direct-stream.ts';
import { Following } from './following.ts';
import { headerBytes, notification, notifyCodes, opcodes } from './wire.ts';

const { socketpair } = dlopen('libc.so.6', {
  socketpair: { args: [FFIType.i32, FFIType.i32, FFIType.i32, FFIType.ptr], returns: FFIType.i32 },
}).symbols;
const unix = 1;
const sequencedPacketsNonBlockingCloexec = 5 | 0x800 | 0x80000;

const kernels: FuseDevice[] = [];
afterEach(() => {
  for (const kernel of kernels.splice(0)) kernel.close();
});

/** The relay's end of the `F` stream: what it was told, and what it says. */
class FakeRelay implements HolderStream {
  readonly told: number[] = [];
  isClosed = false;
  #data: (bytes: Uint8Array) => void = () => undefined;
  #close: () => void = () => undefined;

  write(bytes: Uint8Array): Promise<void> {
    this.told.push(Buffer.from(bytes).readInt32LE(4));
    return Promise.resolve();
  }
  onData(listener: (bytes: Uint8Array) => void): void {
    this.#data = listener;
  }
  onClose(listener: () => void): void {
    this.#close = listener;
  }
  pause(): void {}
  resume(): void {}
  close(): void {
    this.isClosed = true;
    this.#close();
  }
  say(bytes: Uint8Array): void {
    this.#data(bytes);
  }
  sayReadable(): void {
    this.say(request(opcodes.readable, 0));
  }
}

function request(opcode: number, unique: number): Buffer {
  const bytes = Buffer.alloc(headerBytes);
  bytes.writeUInt32LE(headerBytes, 0);
  bytes.writeUInt32LE(opcode, 4);
  bytes.writeUInt32LE(unique, 8);
  return bytes;
}

function answer(unique: number): Buffer {
  const bytes = Buffer.alloc(16);
  bytes.writeUInt32LE(16, 0);
  bytes.writeUInt32LE(unique, 8);
  return bytes;
}

const numberOf = (message: Uint8Array) => Buffer.from(message).readUInt32LE(8);

/** A mount, whose `kernel` is what a test asks and is answered through. */
function mount(following = new Following({ turnMs: 50, waitMicroseconds: 50 })) {
  const ends = new Int32Array(2);
  expect(socketpair(unix, sequencedPacketsNonBlockingCloexec, 0, ends)).toBe(0);
  const kernel = new FuseDevice(ends[0]!);
  kernels.push(kernel);
  const relay = new FakeRelay();
  const logged: string[] = [];
  let device: number | null = ends[1]!;
  const stream = new DirectStream({
    relay,
    following,
    log: (text) => logged.push(text),
    takeDevice: () => {
      const taken = device;
      device = null;
      return taken;
    },
  });
  return {
    kernel,
    relay,
    stream,
    logged,
    device: ends[1]!,
    ask: (unique: number) => kernel.write(request(opcodes.getattr, unique)),
    /** Numbers of all answers that have come. */
    answers: () => {
      const numbers: number[] = [];
      for (;;) {
        const message = kernel.read();
        // At the end of the other socket's life a message of no bytes comes.
        if (!(message instanceof Uint8Array) || message.length === 0) return numbers;
        numbers.push(numberOf(message));
      }
    },
  };
}

const isOpen = (fd: number) => {
  try {
    closeSync(fd);
    return true;
  } catch {
    // EBADF.
    return false;
  }
};

test('who asks again at once is read without the relay, which watches once nobody asks', () => {
  const { kernel, relay, stream, ask, answers } = mount();
  const handled: number[] = [];
  stream.onData((message) => {
    handled.push(numberOf(message));
    stream.write(answer(numberOf(message)));
    if (handled.length < 5) kernel.write(request(opcodes.getattr, handled.length + 1));
    expect(relay.told).toEqual([]);
  });
  ask(1);
  relay.sayReadable();
  expect(handled).toEqual([1, 2, 3, 4, 5]);
  expect(answers()).toEqual([1, 2, 3, 4, 5]);
  expect(relay.told).toEqual([notifyCodes.watch]);
});

test('an answer that only the microtasks bring is one like any other', () => {
  const { kernel, relay, stream, ask, answers } = mount();
  let asked = 1;
  stream.onData(async (message) => {
    await null;
    await null;
    stream.write(answer(numberOf(message)));
    if (asked < 3) kernel.write(request(opcodes.getattr, ++asked));
  });
  ask(1);
  relay.sayReadable();
  expect(answers()).toEqual([1, 2, 3]);
});

test('who waits for something else is left to the relay, and answered when it comes', async () => {
  const { relay, stream, ask, answers } = mount();
  const elsewhere = Promise.withResolvers<void>();
  stream.onData(async (message) => {
    if (numberOf(message) === 1) await elsewhere.promise;
    stream.write(answer(numberOf(message)));
  });
  ask(1);
  relay.sayReadable();
  expect(relay.told).toEqual([notifyCodes.watch]);
  // Others are answered meanwhile.
  ask(2);
  relay.sayReadable();
  expect(answers()).toEqual([2]);
  elsewhere.resolve();
  await Bun.sleep(0);
  expect(answers()).toEqual([1]);
  expect(relay.told).toEqual([notifyCodes.watch, notifyCodes.watch]);
});

test('two mounts take turns, message by message', () => {
  const following = new Following({ turnMs: 10_000, waitMicroseconds: 50 });
  const [one, other] = [mount(following), mount(following)];
  const order: string[] = [];
  const serve = (name: string, { stream, ask }: ReturnType<typeof mount>) =>
    stream.onData((message) => {
      order.push(name);
      stream.write(answer(numberOf(message)));
      // The first has always something to do; the other begins in the midst of it.
      if (name === 'one' && order.length < 30) ask(numberOf(message) + 1);
      if (order.length === 10) other.relay.sayReadable();
    });
  serve('one', one);
  serve('other', other);
  for (let unique = 1; unique <= 5; unique++) other.ask(unique);
  one.ask(1);
  one.relay.sayReadable();
  expect(order.slice(10, 20)).toEqual(Array.from({ length: 5 }, () => ['other', 'one']).flat());
  expect(order.length).toBe(30);
});

test('the event loop has its turn while a mount never rests', async () => {
  const { kernel, relay, stream, ask } = mount(new Following({ turnMs: 0, waitMicroseconds: 50 }));
  let handled = 0;
  let isEnough = false;
  stream.onData((message) => {
    handled += 1;
    stream.write(answer(numberOf(message)));
    expect(numberOf(kernel.read() as Uint8Array)).toBe(handled);
    // So many that a loop without turns would be seen to end before the first timer.
    if (!isEnough && handled < 100_000) ask(handled + 1);
  });
  ask(1);
  relay.sayReadable();
  // A timer and something that the kernel brings.
  await Bun.sleep(1);
  await Bun.file('/proc/self/stat').text();
  expect(handled).toBeGreaterThan(1);
  expect(handled).toBeLessThan(100_000);
  isEnough = true;
  while (relay.told.length === 0) await Bun.sleep(1);
});

test('a stream that is closed in the midst of it is read no further, and the device is closed once', () => {
  for (const end of ['session', 'relay'] as const) {
    const { kernel, relay, stream, device, ask } = mount();
    let [handled, closed] = [0, 0];
    stream.onClose(() => {
      closed += 1;
    });
    stream.onData((message) => {
      handled += 1;
      stream.write(answer(numberOf(message)));
      if (end === 'session') stream.close();
      else relay.close();
      stream.write(answer(numberOf(message)));
    });
    ask(1);
    ask(2);
    relay.sayReadable();
    expect({ handled, closed, told: relay.told, isClosed: relay.isClosed }).toEqual({
      handled: 1,
      closed: 1,
      told: [],
      isClosed: true,
    });
    // A reset, because a request was left unread.
    expect(() => kernel.read()).toThrow('errno 104');
    expect(numberOf(kernel.read() as Uint8Array)).toBe(1);
    expect(isOpen(device)).toBe(false);
  }
});

test('a session that has too much to do is not read for, and goes on where it was', async () => {
  const { relay, stream, ask, answers } = mount();
  let handled = 0;
  stream.onData((message) => {
    handled += 1;
    if (handled === 2) stream.pause();
    stream.write(answer(numberOf(message)));
  });
  for (let unique = 1; unique <= 4; unique++) ask(unique);
  relay.sayReadable();
  expect(answers()).toEqual([1, 2]);
  // Nobody watches: there is something to read, and that is known.
  expect(relay.told).toEqual([]);
  await Bun.sleep(2);
  expect(handled).toBe(2);
  stream.resume();
  await Bun.sleep(2);
  expect(answers()).toEqual([3, 4]);
  expect(relay.told).toEqual([notifyCodes.watch]);
});

test('what may wait in the kernel goes through the relay, the rest to the device, message by message', () => {
  const { kernel, relay, stream, ask } = mount();
  stream.onData(() => undefined);
  ask(1);
  relay.sayReadable();
  const invalidation = (offset: bigint) => {
    const { bytes, view } = notification(notifyCodes.invalidateInode, 24);
    view.setBigInt64(24, offset, true);
    return bytes;
  };
  const barrier = notification(notifyCodes.barrier, 8).bytes;
  const epoch = notification(notifyCodes.incrementEpoch, 0).bytes;
  relay.told.length = 0;
  stream.write(Buffer.concat([invalidation(0n), answer(1), epoch, invalidation(-1n), barrier]));
  expect(relay.told).toEqual([notifyCodes.invalidateInode, notifyCodes.barrier]);
  const given = [kernel.read(), kernel.read(), kernel.read()].map((message) => Buffer.from(message as Uint8Array));
  expect(given.map((message) => message.readInt32LE(4))).toEqual([
    0,
    notifyCodes.incrementEpoch,
    notifyCodes.invalidateInode,
  ]);
  expect(given[2]!.readBigInt64LE(24)).toBe(-1n);
  expect(kernel.read()).toBe(null);
});

test('the relay’s words may come in pieces, and a barrier’s answer is the session’s', () => {
  const { relay, stream, ask } = mount();
  const got: number[] = [];
  stream.onData((message) => got.push(numberOf(message)));
  ask(7);
  const words = Buffer.concat([request(opcodes.notifyReply, 5), request(opcodes.readable, 0)]);
  for (const byte of words) relay.say(Uint8Array.of(byte));
  expect(got).toEqual([5, 7]);
});

test('without a device, or with one that fails, there is no mount', () => {
  const relay = new FakeRelay();
  const logged: string[] = [];
  new DirectStream({ relay, takeDevice: () => null, log: (text) => logged.push(text) });
  relay.sayReadable();
  expect(relay.isClosed).toBe(true);
  expect(logged.join()).toContain('no device came');

  const broken = new FakeRelay();
  const directory = openSync('/', 'r');
  const failing = new DirectStream({ relay: broken, takeDevice: () => directory, log: (text) => logged.push(text) });
  failing.onClose(() => undefined);
  broken.sayReadable();
  expect(broken.isClosed).toBe(true);
  expect(logged.at(-1)).toContain('read from the FUSE device: errno 21');
  expect(isOpen(directory)).toBe(false);
});
