/**
 * The structures of the FUSE kernel protocol (linux/fuse.h, 7.31 and later), little endian: what the kernel sends and what
 * it is answered. Only layout; no decision.
 */
import type { Inode, Owner } from '../agentfs/inode.ts';

export const opcodes = {
  lookup: 1,
  forget: 2,
  getattr: 3,
  setattr: 4,
  readlink: 5,
  symlink: 6,
  mknod: 8,
  mkdir: 9,
  unlink: 10,
  rmdir: 11,
  rename: 12,
  link: 13,
  open: 14,
  read: 15,
  write: 16,
  statfs: 17,
  release: 18,
  fsync: 20,
  setxattr: 21,
  getxattr: 22,
  listxattr: 23,
  removexattr: 24,
  flush: 25,
  init: 26,
  opendir: 27,
  readdir: 28,
  releasedir: 29,
  fsyncdir: 30,
  access: 34,
  create: 35,
  interrupt: 36,
  destroy: 38,
  notifyReply: 41,
  batchForget: 42,
  fallocate: 43,
  readdirplus: 44,
  rename2: 45,
  lseek: 46,
  syncfs: 50,
  tmpfile: 51,
  /** Not the kernel's: the holder's relay says that the device can be read, and watches it no longer (zig/fuse.zig). */
  readable: 0x6564_6772,
} as const;

export const headerBytes = 40;
export const replyHeaderBytes = 16;

/** Flags of INIT that this server may ask for. */
export const initFlags = {
  asyncRead: 1 << 0,
  atomicTruncate: 1 << 3,
  bigWrites: 1 << 5,
  autoInvalidateData: 1 << 12,
  readdirplus: 1 << 13,
  readdirplusAuto: 1 << 14,
  asyncDirectIo: 1 << 15,
  parallelDirectoryOperations: 1 << 18,
  maxPages: 1 << 22,
  cacheSymlinks: 1 << 23,
  extended: 1 << 30,
  /** In the second word. */
  directIoAllowMmap: 1 << 4,
} as const;

/** `noFlush` (7.35): close(2) asks for nothing; dirty pages of mappings are written back all the same. */
export const openFlags = { directIo: 1 << 0, keepCache: 1 << 1, noFlush: 1 << 5 } as const;
export const notifyCodes = {
  invalidateInode: 2,
  incrementEpoch: 8,
  /** Not the kernel's: the holder's relay sends its number back when every notification before it is done (zig/fuse.zig). */
  barrier: 0x6564_6765,
  /** Nor is this: the relay is to watch the device again. */
  watch: 0x6564_6777,
} as const;

/** The length that the message at `at` says of itself. */
export function lengthOf(bytes: Uint8Array, at: number): number {
  return u32Of(bytes, at);
}

export function opcodeOf(request: Uint8Array): number {
  return u32Of(request, 4);
}

function u32Of(bytes: Uint8Array, at: number): number {
  return (bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24)) >>> 0;
}

/**
 * Whether the kernel may wait for a lock or a page before it has taken a message; as in zig/fuse.zig. No answer waits, and
 * neither do two notifications: a new epoch, and the invalidation of an inode's attributes alone (a negative offset).
 */
export function mayWait(message: Uint8Array): boolean {
  const isAnswer = u32Of(message, 8) !== 0 || u32Of(message, 12) !== 0;
  const code = u32Of(message, 4);
  if (isAnswer || code === notifyCodes.incrementEpoch) return false;
  if (code !== notifyCodes.invalidateInode || message.length < replyHeaderBytes + 16) return true;
  return (message[replyHeaderBytes + 15]! & 0x80) === 0;
}

export interface RequestHeader {
  readonly length: number;
  readonly opcode: number;
  /** The kernel counts them up from 0: far below 2^53. */
  readonly unique: number;
  /** Zone number and inode number of the node; see `nodes.ts`. */
  readonly node: { readonly high: number; readonly low: number };
  /** Who asks, as file systems see it (fsuid and fsgid). */
  readonly uid: number;
  readonly gid: number;
  readonly pid: number;
}

/** One whole message: its header and the bytes after it. */
export class Request {
  readonly header: RequestHeader;
  readonly body: Uint8Array;
  readonly #view: DataView;

  constructor(message: Uint8Array) {
    const view = new DataView(message.buffer, message.byteOffset, message.byteLength);
    this.header = {
      length: view.getUint32(0, true),
      opcode: view.getUint32(4, true),
      unique: view.getUint32(12, true) * 2 ** 32 + view.getUint32(8, true),
      node: { low: view.getUint32(16, true), high: view.getUint32(20, true) },
      uid: view.getUint32(24, true),
      gid: view.getUint32(28, true),
      pid: view.getUint32(32, true),
    };
    this.body = message.subarray(headerBytes);
    this.#view = view;
  }

  u32(at: number): number {
    return this.#view.getUint32(headerBytes + at, true);
  }

  i32(at: number): number {
    return this.#view.getInt32(headerBytes + at, true);
  }

  /** A signed 64-bit number, such as seconds before 1970. */
  i64(at: number): number {
    return Number(this.#view.getBigInt64(headerBytes + at, true));
  }

  /** A 64-bit number; one beyond 2^53 becomes inexact, which every caller refuses as too large. */
  u64(at: number): number {
    return this.u32(at + 4) * 2 ** 32 + this.u32(at);
  }

  /** The bytes up to the next NUL. */
  text(at: number): Uint8Array {
    const end = this.body.indexOf(0, at);
    return this.body.subarray(at, end < 0 ? this.body.length : end);
  }
}

/** A successful answer's header, with room for `payload` bytes after it. */
export function replyFor(unique: number, payload: number): { bytes: Uint8Array; view: DataView } {
  // The buffer first: asking an array for its buffer is what costs most of a small reply.
  const buffer = new ArrayBuffer(replyHeaderBytes + payload);
  const [bytes, view] = [new Uint8Array(buffer), new DataView(buffer)];
  writeReplyHeader(view, bytes.length, unique);
  return { bytes, view };
}

/** The header of an answer of so many bytes in all, at the beginning of its room. */
export function writeReplyHeader(view: DataView, length: number, unique: number): void {
  view.setUint32(0, length, true);
  writeU64(view, 8, unique);
}

/** A failed answer: `errno` is positive. */
export function errorReply(unique: number, errno: number): Uint8Array {
  const { bytes, view } = replyFor(unique, 0);
  view.setInt32(4, -errno, true);
  return bytes;
}

/** A message that answers no request. */
export function notification(code: number, payload: number): { bytes: Uint8Array; view: DataView } {
  const { bytes, view } = replyFor(0, payload);
  view.setInt32(4, code, true);
  return { bytes, view };
}

const attributeBytes = 88;
export const entryBytes = 40 + attributeBytes;

export function writeU64(view: DataView, at: number, value: number): void {
  view.setUint32(at, value >>> 0, true);
  view.setUint32(at + 4, Math.floor(value / 2 ** 32), true);
}

/** `struct fuse_attr` */
export function writeAttributes(view: DataView, at: number, inode: Inode, owner: Owner): void {
  writeU64(view, at, inode.ino);
  writeU64(view, at + 8, inode.size);
  writeU64(view, at + 16, Math.ceil(inode.size / 512));
  writeU64(view, at + 24, inode.atime.seconds);
  writeU64(view, at + 32, inode.mtime.seconds);
  writeU64(view, at + 40, inode.ctime.seconds);
  view.setUint32(at + 48, inode.atime.nanoseconds, true);
  view.setUint32(at + 52, inode.mtime.nanoseconds, true);
  view.setUint32(at + 56, inode.ctime.nanoseconds, true);
  view.setUint32(at + 60, inode.mode, true);
  view.setUint32(at + 64, inode.nlink, true);
  view.setUint32(at + 68, owner.uid, true);
  view.setUint32(at + 72, owner.gid, true);
  view.setUint32(at + 76, inode.rdev, true);
  view.setUint32(at + 80, 4096, true);
}

export interface EntryAnswer {
  readonly node: { readonly high: number; readonly low: number };
  readonly generation: number;
  /** Seconds that the kernel may remember name and attributes. */
  readonly seconds: number;
  readonly inode: Inode;
  readonly owner: Owner;
}

/** `struct fuse_entry_out` */
export function writeEntry(view: DataView, at: number, entry: EntryAnswer): void {
  view.setUint32(at, entry.node.low, true);
  view.setUint32(at + 4, entry.node.high, true);
  writeU64(view, at + 8, entry.generation);
  writeU64(view, at + 16, entry.seconds);
  writeU64(view, at + 24, entry.seconds);
  writeAttributes(view, at + 40, entry.inode, entry.owner);
}
