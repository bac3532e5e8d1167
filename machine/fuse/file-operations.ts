/** The kernel's requests about open files and directories. */
import { FileError } from '../agentfs/errors.ts';
import { isDirectory, modeFormat } from '../agentfs/schema.ts';
import { type ViewNode, zoneRules } from '../agentfs/views.ts';
import { decodeName, emptyReply, type MountContext, type Operation } from './context.ts';
import type { ListedEntry, OpenFile } from './handles.ts';
import { entryBytes, type Request, replyFor, replyHeaderBytes, writeEntry, writeU64 } from './wire.ts';

const accessMode = 0o3;
const readAndWrite = 0o2;
const truncateFlag = 0o1000;
const appendFlag = 0o2000;
const exclusiveFlag = 0o200;

/** Whether an open asks for more than reading. */
export function opensToWrite(flags: number): boolean {
  return (flags & accessMode) !== 0 || (flags & truncateFlag) !== 0;
}

export const open: Operation = async (context, request, node) => {
  const flags = request.u32(0);
  if (opensToWrite(flags) && zoneRules[node.zone].readOnly) throw new FileError('EROFS', 'opened to write');
  context.handles.requireRoom();
  await context.files.names.open(node.ino);
  try {
    if (flags & truncateFlag) await context.files.data.truncate(node.ino, 0);
    const { bytes, view } = replyFor(request.header.unique, 16);
    writeOpened(context, view, replyHeaderBytes, node, flags);
    return bytes;
  } catch (error) {
    await context.files.names.close(node.ino);
    throw error;
  }
};

export const create: Operation = async (context, request, node) => {
  const flags = request.u32(0);
  const { place, zone } = context.view.placeToChange(node, decodeName(request.text(16)));
  context.handles.requireRoom();
  const { names } = context.files;
  const options = { open: true, ...context.maker(request) };
  const inode = await names.create(place, request.u32(4), options).catch(async (error: unknown) => {
    // Somebody else made it since the kernel looked: then it is opened, unless that was to be excluded.
    const isThere = error instanceof FileError && error.errno === 'EEXIST' && (flags & exclusiveFlag) === 0;
    const existing = isThere ? await names.lookup(place.parent, place.name) : null;
    if (!existing || isDirectory(existing.mode)) throw error;
    const opened = await names.open(existing.ino);
    if ((flags & truncateFlag) === 0) return opened;
    return context.files.data.truncate(existing.ino, 0).catch(async (failure: unknown) => {
      await names.close(existing.ino);
      throw failure;
    });
  });
  const { bytes, view } = replyFor(request.header.unique, entryBytes + 16);
  writeEntry(view, replyHeaderBytes, context.entry(zone, inode));
  writeOpened(context, view, replyHeaderBytes + entryBytes, { zone, ino: inode.ino }, flags);
  return bytes;
};

function writeOpened(context: MountContext, view: DataView, at: number, node: ViewNode, flags: number): void {
  const rules = zoneRules[node.zone];
  const appends = (flags & appendFlag) !== 0 && rules.shared && !rules.cached;
  const { failures } = context.files.store;
  const mapsToWrite = (flags & accessMode) === readAndWrite;
  writeU64(view, at, context.handles.add({ kind: 'file', node, appends, mapsToWrite, failures }));
  view.setUint32(at + 8, context.openReplyFlags(node), true);
}

export const read: Operation = (context, request) => {
  const { node } = context.handles.file(request.u64(0));
  const data = context.files.data.read(node.ino, request.u64(8), request.u32(16));
  return data instanceof Promise ? data.then((bytes) => dataReply(request, bytes)) : dataReply(request, data);
};

function dataReply(request: Request, data: Uint8Array): Uint8Array {
  const { bytes } = replyFor(request.header.unique, data.length);
  bytes.set(data, replyHeaderBytes);
  return bytes;
}

export const write: Operation = async (context, request) => {
  const { node, appends } = context.handles.file(request.u64(0));
  const size = request.u32(16);
  const data = request.body.subarray(40, 40 + size);
  if (data.length !== size) throw new FileError('EINVAL', 'a write shorter than it says');
  const isOnlyWriter = zoneRules[node.zone].cached;
  await context.files.data.write(node.ino, appends ? 'end' : request.u64(8), data, { isOnlyWriter });
  const { bytes, view } = replyFor(request.header.unique, 8);
  view.setUint32(replyHeaderBytes, size, true);
  return bytes;
};

export const flush: Operation = (context, request) => {
  tellLoss(context, context.handles.file(request.u64(0)));
  return emptyReply(request);
};

export const fsync: Operation = async (context, request) => {
  const handle = context.handles.file(request.u64(0));
  await context.files.store.sync();
  tellLoss(context, handle);
  return emptyReply(request);
};

/** Once to each handle that was open when a group of operations was lost: something that it wrote may be gone. */
function tellLoss({ files: { store } }: MountContext, handle: OpenFile): void {
  if (handle.failures === store.failures) return;
  handle.failures = store.failures;
  throw new FileError('EIO', 'what was written could not be committed');
}

export const release: Operation = async (context, request) => {
  const handle = context.handles.remove(request.u64(0));
  if (handle?.kind !== 'file') throw new FileError('EBADF', 'released what is not open');
  await context.files.names.close(handle.node.ino);
  return emptyReply(request);
};

const fallocateModes = { keepSize: 1, punchHole: 2, zeroRange: 16 } as const;

export const fallocate: Operation = async (context, request) => {
  const { node } = context.handles.file(request.u64(0));
  const offset = request.u64(8);
  const length = request.u64(16);
  const mode = request.u32(24);
  const { data, store } = context.files;
  const grows = (mode & fallocateModes.keepSize) === 0;
  const zeroes = mode & (fallocateModes.punchHole | fallocateModes.zeroRange);
  if (mode & ~(fallocateModes.keepSize | fallocateModes.punchHole | fallocateModes.zeroRange)) {
    throw new FileError('EOPNOTSUPP', `fallocate mode ${mode}`);
  }
  if (zeroes) await data.punch(node.ino, offset, length);
  const size = (await store.inode(node.ino))?.size ?? 0;
  if (offset + length > store.limits.largestFile) throw new FileError('EFBIG', 'fallocate');
  if (grows && offset + length > size) await data.truncate(node.ino, offset + length);
  return emptyReply(request);
};

export const opendir: Operation = async (context, request, node) => {
  const inode = await context.files.store.inode(node.ino);
  if (!inode) throw new FileError('ESTALE', 'the directory is gone');
  if (!isDirectory(inode.mode)) throw new FileError('ENOTDIR', 'no directory');
  const { bytes, view } = replyFor(request.header.unique, 16);
  writeU64(view, replyHeaderBytes, context.handles.add({ kind: 'directory', node, entries: null }));
  return bytes;
};

export const releasedir: Operation = (context, request) => {
  context.handles.remove(request.u64(0));
  return emptyReply(request);
};

export const fsyncdir: Operation = async (context, request) => {
  await context.files.store.sync();
  return emptyReply(request);
};

export const readdir: Operation = (context, request) => list(context, request, false);
export const readdirplus: Operation = (context, request) => list(context, request, true);

async function list(context: MountContext, request: Request, plus: boolean): Promise<Uint8Array> {
  const directory = context.handles.directory(request.u64(0));
  const offset = request.u64(8);
  const room = Math.min(request.u32(16), 1024 * 1024);
  if (!directory.entries || offset === 0) {
    const entries = await context.view.list(directory.node);
    const self = await context.files.store.inode(directory.node.ino);
    if (!self) throw new FileError('ENOENT', 'the directory is gone');
    const dots = ['.', '..'].map((name) => ({ name: Buffer.from(name), zone: directory.node.zone, inode: self }));
    const listed = entries.map(({ name, zone, inode }) => ({ name: Buffer.from(name), zone, inode }));
    context.handles.list(directory, [...dots, ...listed]);
  }
  const entries = directory.entries ?? [];
  const { bytes, view } = replyFor(request.header.unique, room);
  let at = replyHeaderBytes;
  for (let index = offset; index < entries.length; index++) {
    const entry = entries[index]!;
    const head = plus ? entryBytes : 0;
    const length = (head + 24 + entry.name.length + 7) & ~7;
    if (at + length > bytes.length) break;
    // Dots have no entry of their own: the kernel knows them.
    if (plus && index >= 2) await writeListed(context, view, at, entry);
    writeU64(view, at + head, entry.inode.ino);
    writeU64(view, at + head + 8, index + 1);
    view.setUint32(at + head + 16, entry.name.length, true);
    view.setUint32(at + head + 20, (entry.inode.mode & modeFormat) >>> 12, true);
    bytes.set(entry.name, at + head + 24);
    at += length;
  }
  view.setUint32(0, at, true);
  return bytes.subarray(0, at);
}

/** The attributes as they are now, not as they were when the list was made: the kernel will remember them. */
async function writeListed(context: MountContext, view: DataView, at: number, entry: ListedEntry): Promise<void> {
  const inode = await context.files.store.inode(entry.inode.ino);
  if (inode && inode.nlink > 0) writeEntry(view, at, context.entry(entry.zone, inode));
}
