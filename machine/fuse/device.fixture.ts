/**
 * For tests: mounts that this process serves, and the kernel's messages from /dev/fuse. Needs root. Who serves a mount must
 * never look at it itself.
 */
import { dlopen, ptr } from 'bun:ffi';
import { accessSync, closeSync, constants, openSync, read, write, writeSync } from 'node:fs';
import type { FileView } from '../agentfs/views.ts';
import type { HolderStream } from '../holders/holder-socket.ts';
import type { Gate } from './gate.ts';
import { FuseSession, type TouchBoundary } from './session.ts';
import { headerBytes, mayWait, notifyCodes, opcodes } from './wire.ts';

const libc = dlopen('libc.so.6', {
  mount: { args: ['ptr', 'ptr', 'ptr', 'u64', 'ptr'], returns: 'i32' },
  umount2: { args: ['ptr', 'i32'], returns: 'i32' },
  unshare: { args: ['i32'], returns: 'i32' },
});
const text = (value: string) => ptr(Buffer.from(`${value}\0`));
const newMountNamespace = 0x20000;
const recursivePrivate = 0x4000n | 0x40000n;
const noSuidNoDev = 6n;
const detach = 2;

/** Root may mount, where there is something to mount with. */
export const canMount = process.getuid?.() === 0 && isAccessible('/dev/fuse');

function isAccessible(path: string): boolean {
  try {
    accessSync(path, constants.R_OK | constants.W_OK);
    return true;
  } catch {
    // Missing, or not ours to open.
    return false;
  }
}

/** Gives this process' main thread and its children a mount namespace of their own. */
export function leaveMountNamespace(): void {
  if (libc.symbols.unshare(newMountNamespace) !== 0) throw new Error('unshare failed');
  libc.symbols.mount(text('none'), text('/'), null, recursivePrivate, null);
}

export interface ServedMount {
  readonly session: FuseSession;
  /** Messages that the kernel sent, by opcode. */
  readonly requests: Map<number, number>;
  /** Resolves when nothing of it is open any more. */
  unmount(): Promise<void>;
}

const untouched: TouchBoundary = {
  touch: () => null,
  onStale: () => () => undefined,
  onFlush: () => () => undefined,
};

/** Mounts a view on a directory and serves it. Set-user-id bits and devices count only on a `privileged` mount. */
export function serveMount(
  path: string,
  view: FileView,
  gate: Gate,
  options: { boundary?: TouchBoundary; privileged?: boolean } = {},
): ServedMount {
  const fd = openSync('/dev/fuse', 'r+');
  const data = `fd=${fd},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions`;
  const flags = options.privileged ? 0n : noSuidNoDev;
  if (libc.symbols.mount(text('agentfs'), text(path), text('fuse'), flags, text(data)) !== 0) {
    throw new Error('mount failed');
  }
  const stream = new DeviceStream(fd);
  const session = new FuseSession({ view, gate, boundary: options.boundary ?? untouched, stream });
  return {
    session,
    requests: stream.requests,
    unmount: async () => {
      libc.symbols.umount2(text(path), detach);
      await session.ended;
    },
  };
}

/** The relay of a holder, without the holder: /dev/fuse itself. */
class DeviceStream implements HolderStream {
  readonly requests = new Map<number, number>();
  readonly #fd: number;
  #notified: Promise<void> = Promise.resolve();
  #paused = false;
  #held: Uint8Array[] = [];
  #data: (bytes: Uint8Array) => void = () => undefined;
  #close: () => void = () => undefined;

  constructor(fd: number) {
    this.#fd = fd;
    queueMicrotask(() => this.#read());
  }

  /** As the holder's relay, which takes the messages of a stream apart. */
  async write(messages: Uint8Array): Promise<void> {
    const lengths = new DataView(messages.buffer, messages.byteOffset, messages.byteLength);
    for (let at = 0; at < messages.length; at += lengths.getUint32(at, true))
      this.#give(messages.subarray(at, at + lengths.getUint32(at, true)));
  }

  #give(bytes: Uint8Array): void {
    if (mayWait(bytes)) {
      // As the holder's notifier: beside the answers, which the kernel may wait for, and in order.
      const before = this.#notified;
      this.#notified = before.then(() => this.#notify(bytes));
      return;
    }
    try {
      writeSync(this.#fd, bytes);
    } catch (error) {
      // The request was given up, or the node was forgotten: as the holder's relay, go on.
      if (!/ENOENT|ENODEV|EPERM|EBADF/.test(String(error))) console.error('relay:', error);
    }
  }

  #notify(bytes: Uint8Array): Promise<void> {
    const message = Buffer.from(bytes);
    if (message.readInt32LE(4) !== notifyCodes.barrier) {
      // What the kernel does not know needs no notice.
      return new Promise((resolve) => write(this.#fd, bytes, 0, bytes.length, null, () => resolve()));
    }
    const reached = Buffer.alloc(headerBytes);
    reached.writeUInt32LE(headerBytes, 0);
    reached.writeUInt32LE(opcodes.notifyReply, 4);
    reached.set(message.subarray(16, 24), 8);
    this.#arrived(reached);
    return Promise.resolve();
  }

  onData(listener: (bytes: Uint8Array) => void): void {
    this.#data = listener;
  }

  onClose(listener: () => void): void {
    this.#close = listener;
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
    for (const bytes of this.#held.splice(0)) this.#data(bytes);
  }

  close(): void {}

  #read(): void {
    const buffer = Buffer.allocUnsafe(1024 * 1024 + 4096);
    read(this.#fd, buffer, 0, buffer.length, null, (error, length) => {
      if (error) {
        if (error.code === 'ENODEV' || error.code === 'EBADF') {
          closeSync(this.#fd);
          this.#close();
          return;
        }
      } else {
        this.#arrived(buffer.subarray(0, length));
      }
      this.#read();
    });
  }

  #arrived(bytes: Buffer): void {
    const opcode = bytes.readUInt32LE(4);
    this.requests.set(opcode, (this.requests.get(opcode) ?? 0) + 1);
    if (this.#paused) this.#held.push(bytes);
    else this.#data(bytes);
  }
}
