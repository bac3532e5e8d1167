/**
 * A FUSE device that this process reads and writes by itself, by direct system calls: a message each, in the caller's thread.
 * The descriptor does not block, and no answer does either: what may wait in the kernel never comes here.
 */
import { dlopen, FFIType, ptr, read } from 'bun:ffi';
import { closeSync } from 'node:fs';
import { maxFrameBytes } from './frames.ts';

const interrupted = 4;
const noSuchRequest = 2;
const again = 11;
const noSuchDevice = 19;
const notConnected = 107;
const readable = 1;

type Libc = ReturnType<typeof openLibc>;
let libc: Libc | null = null;

function openLibc() {
  const { symbols } = dlopen('libc.so.6', {
    read: { args: [FFIType.i32, FFIType.ptr, FFIType.u64], returns: FFIType.i32 },
    write: { args: [FFIType.i32, FFIType.ptr, FFIType.u64], returns: FFIType.i32 },
    ppoll: { args: [FFIType.ptr, FFIType.u64, FFIType.ptr, FFIType.ptr], returns: FFIType.i32 },
    __errno_location: { args: [], returns: FFIType.ptr },
  });
  const place = symbols.__errno_location();
  if (place === null) throw new Error('no errno');
  return { ...symbols, errno: () => read.i32(place, 0) };
}

/** The kernel refuses to read into less than its largest message. Messages are copied out, so all devices share it. */
const buffer = new Uint8Array(maxFrameBytes);
const bufferPointer = ptr(buffer);

/** The kernel does not take an answer, or gives no request, for a reason that no working mount has. */
export class DeviceError extends Error {
  constructor(what: string, errno: number) {
    super(`${what} the FUSE device: errno ${errno}`);
    this.name = 'DeviceError';
  }
}

export class FuseDevice {
  readonly #libc: Libc;
  #fd: number;

  /** Takes the descriptor over, which must not block. */
  constructor(fd: number) {
    libc ??= openLibc();
    this.#libc = libc;
    this.#fd = fd;
  }

  /** Negative once it is closed. */
  get fd(): number {
    return this.#fd;
  }

  /** One whole message, the caller's own; null when none is there now, `gone` when none will come. Throws DeviceError. */
  read(): Uint8Array | null | 'gone' {
    if (this.#fd < 0) return 'gone';
    const length = this.#libc.read(this.#fd, bufferPointer, buffer.length);
    if (length >= 0) return buffer.slice(0, length);
    const errno = this.#libc.errno();
    // A request that was given up while it was read: the next look finds the next one.
    if (errno === again || errno === interrupted || errno === noSuchRequest) return null;
    if (errno === noSuchDevice) return 'gone';
    throw new DeviceError('read from', errno);
  }

  /** Gives the kernel one message. Throws DeviceError when it is none that the kernel understands. */
  write(message: Uint8Array): void {
    while (this.#fd >= 0) {
      if (this.#libc.write(this.#fd, message, message.length) >= 0) return;
      const errno = this.#libc.errno();
      if (errno === interrupted) continue;
      // Nobody waits any more, the kernel does not know the inode, or there is no mount any more: its reader learns that.
      if (errno === noSuchRequest || errno === noSuchDevice || errno === notConnected) return;
      throw new DeviceError('write to', errno);
    }
  }

  close(): void {
    if (this.#fd < 0) return;
    const fd = this.#fd;
    this.#fd = -1;
    closeSync(fd);
  }
}

const secondWords = 4;
const patience = new Uint32Array(secondWords);
let watched = new Int32Array(16);

/** Blocks the thread until one of the descriptors can be read; at most so many microseconds (below a second). */
export function waitReadable(fds: readonly number[], microseconds: number): boolean {
  libc ??= openLibc();
  if (watched.length < 2 * fds.length) watched = new Int32Array(4 * fds.length);
  for (let index = 0; index < fds.length; index++) {
    watched[2 * index] = fds[index]!;
    watched[2 * index + 1] = readable;
  }
  patience[2] = microseconds * 1000;
  // An interrupted wait is a wait without a result.
  return libc.ppoll(watched, fds.length, patience, null) > 0;
}
