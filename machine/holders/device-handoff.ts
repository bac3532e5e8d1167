/** How a holder's FUSE device comes to the machine: opened inside the holder's user namespace, sent over a pair of sockets. */
import { dlopen, FFIType, ptr } from 'bun:ffi';
import { closeSync } from 'node:fs';

const familyUnix = 1;
const sequencedPackets = 5;
const closeOnExec = 0x80000;
const levelSocket = 1;
const rights = 1;
const duplicateCloseOnExec = 1030;
/** Above every number that a child is given, so that a spawn does not put another descriptor in its place first. */
const aboveChildFds = 200;
/** MSG_DONTWAIT | MSG_CMSG_CLOEXEC */
const atOnceAndCloseOnExec = 0x40 | 0x4000_0000;
/** Of a control message: its header, and one descriptor behind it. */
const controlHeaderBytes = 16;
const controlBytes = 24;

/**
 * What the kernel writes to while a descriptor is received. The header names the others by address alone, which keeps nothing
 * alive: so they live as long as this module.
 */
const byte = new Uint8Array(1);
const control = new Uint8Array(controlBytes);
const vector = new BigUint64Array([BigInt(ptr(byte)), 1n]);

let libc: ReturnType<typeof openLibc> | null = null;

function openLibc() {
  return dlopen('libc.so.6', {
    socketpair: { args: [FFIType.i32, FFIType.i32, FFIType.i32, FFIType.ptr], returns: FFIType.i32 },
    fcntl: { args: [FFIType.i32, FFIType.i32, FFIType.i32], returns: FFIType.i32 },
    recvmsg: { args: [FFIType.i32, FFIType.ptr, FFIType.i32], returns: FFIType.i32 },
  }).symbols;
}

export class DeviceHandoff {
  #ours: number;
  #childs: number;

  constructor() {
    libc ??= openLibc();
    const ends = new Int32Array(2);
    if (libc.socketpair(familyUnix, sequencedPackets | closeOnExec, 0, ends) !== 0) {
      throw new Error('no sockets for a holder’s FUSE device');
    }
    this.#ours = ends[0]!;
    this.#childs = libc.fcntl(ends[1]!, duplicateCloseOnExec, aboveChildFds);
    closeSync(ends[1]!);
    if (this.#childs >= 0) return;
    closeSync(this.#ours);
    throw new Error('no descriptor for a holder’s FUSE device');
  }

  /** What the child gets as descriptor 8. */
  get childEnd(): number {
    return this.#childs;
  }

  /** Once the child has its end, so that its own end is an end of the pair. */
  closeChildEnd(): void {
    this.#childs = closed(this.#childs);
  }

  /** The device, which the caller closes; null when none was sent. It never waits, and ends the handoff. */
  take(): number | null {
    if (this.#ours < 0) return null;
    try {
      return receiveDescriptor(this.#ours);
    } finally {
      this.close();
    }
  }

  /** A device that was not taken goes with it. */
  close(): void {
    this.closeChildEnd();
    this.#ours = closed(this.#ours);
  }
}

function closed(fd: number): -1 {
  if (fd >= 0) closeSync(fd);
  return -1;
}

function receiveDescriptor(socket: number): number | null {
  control.fill(0);
  // `struct msghdr`: name and its length, vectors and their number, control and its length, flags.
  const header = new BigUint64Array([0n, 0n, BigInt(ptr(vector)), 1n, BigInt(ptr(control)), BigInt(controlBytes), 0n]);
  libc ??= openLibc();
  if (libc.recvmsg(socket, header, atOnceAndCloseOnExec) !== byte.length) return null;
  const view = new DataView(control.buffer);
  const isDescriptor =
    view.getBigUint64(0, true) === BigInt(controlHeaderBytes + 4) &&
    view.getInt32(8, true) === levelSocket &&
    view.getInt32(12, true) === rights;
  return isDescriptor ? view.getInt32(controlHeaderBytes, true) : null;
}
