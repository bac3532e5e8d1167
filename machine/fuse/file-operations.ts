/** The kernel's requests about open files. */
import { FileError } from '../agentfs/errors.ts';
import type { Inode } from '../agentfs/inode.ts';
import { isDirectory } from '../agentfs/schema.ts';
import { seek } from '../agentfs/seek.ts';
import { type ViewNode, zoneRules } from '../agentfs/views.ts';
import { decodeName, emptyReply, type MountContext, type Operation } from './context.ts';
import type { OpenFile } from './handles.ts';
import {
  entryBytes,
  type Request,
  replyFor,
  replyHeaderBytes,
  writeEntry,
  writeReplyHeader,
  writeU64,
} from './wire.ts';

const accessMode = 0o3;
const readAndWrite = 0o2;
const truncateFlag = 0o1000;
const appendFlag = 0o2000;
const exclusiveFlag = 0o200;

/** Whether an open asks for more than reading. */
export function opensToWrite(flags: number): boolean {
  return (flags & accessMode) !== 0 || (flags & truncateFlag) !== 0;
}

export const open: Operation = (context, request, node) => {
  const flags = request.u32(0);
  if (opensToWrite(flags) && zoneRules[node.zone].readOnly) throw new FileError('EROFS', 'opened to write');
  context.handles.requireRoom();
  const opening = context.files.names.open(node.ino);
  if (opening instanceof Promise || flags & truncateFlag) return openLater(context, request, node, opening);
  return openedReply(context, request, node);
};

async function openLater(
  context: MountContext,
  request: Request,
  node: ViewNode,
  opening: Inode | Promise<Inode>,
): Promise<Uint8Array> {
  await opening;
  try {
    if (request.u32(0) & truncateFlag) await context.files.data.truncate(node.ino, 0);
    return openedReply(context, request, node);
  } catch (error) {
    await context.files.names.close(node.ino);
    throw error;
  }
}

function openedReply(context: MountContext, request: Request, node: ViewNode): Uint8Array {
  const { bytes, view } = replyFor(request.header.unique, 16);
  writeOpened(context, view, replyHeaderBytes, node, request.u32(0));
  return bytes;
}

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

/** O_TMPFILE: a file without a name, which may get one while it is open. */
export const tmpfile: Operation = async (context, request, node) => {
  if (zoneRules[node.zone].readOnly) throw new FileError('EROFS', 'a file without a name');
  context.handles.requireRoom();
  const { owner } = context.maker(request);
  const inode = await context.files.names.openNameless(node.ino, request.u32(4), owner);
  const { bytes, view } = replyFor(request.header.unique, entryBytes + 16);
  writeEntry(view, replyHeaderBytes, context.entry(node.zone, inode));
  writeOpened(context, view, replyHeaderBytes + entryBytes, { zone: node.zone, ino: inode.ino }, request.u32(0));
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
  const data = context.files.data.read(node.ino, request.u64(8), request.u32(16), replyHeaderBytes);
  return data instanceof Promise ? data.then((bytes) => dataReply(request, bytes)) : dataReply(request, data);
};

function dataReply(request: Request, data: Uint8Array): Uint8Array {
  writeReplyHeader(new DataView(data.buffer, data.byteOffset, replyHeaderBytes), data.length, request.header.unique);
  return data;
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

export const release: Operation = (context, request) => {
  const handle = context.handles.remove(request.u64(0));
  if (handle?.kind !== 'file') throw new FileError('EBADF', 'released what is not open');
  return context.files.names.close(handle.node.ino)?.then(() => emptyReply(request)) ?? emptyReply(request);
};

const whences = new Map<number, 'data' | 'hole'>([
  [3, 'data'],
  [4, 'hole'],
]);

/**
 * SEEK_DATA and SEEK_HOLE. Pages that a mapping changed are the kernel's until it writes them, and it asks without doing so:
 * of a file that somebody may map for writing everything is data, or a copy that leaves out holes would lose them.
 */
export const lseek: Operation = async (context, request) => {
  const { node } = context.handles.file(request.u64(0));
  const offset = request.u64(8);
  const what = whences.get(request.u32(16));
  if (!what) throw new FileError('EINVAL', `whence ${request.u32(16)}`);
  const isKnown = zoneRules[node.zone].cached && !context.handles.mayMap(node.ino);
  const { bytes, view } = replyFor(request.header.unique, 8);
  writeU64(view, replyHeaderBytes, await seek(context.files, node.ino, offset, what, isKnown ? 'rows' : 'all data'));
  return bytes;
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
