/** The kernel's requests about names and attributes. */
import { FileError } from '../agentfs/errors.ts';
import type { Inode, InodePatch, Stamp } from '../agentfs/inode.ts';
import { now } from '../agentfs/inode.ts';
import { maxNameBytes, type RenameMode } from '../agentfs/namespace.ts';
import { isDevice, isFifo } from '../agentfs/schema.ts';
import { type Found, type ViewNode, type Zone, zoneRules } from '../agentfs/views.ts';
import { decodeLookup, decodeName, emptyReply, holderUser, type MountContext, type Operation } from './context.ts';
import { entryBytes, type Request, replyFor, replyHeaderBytes, writeU64 } from './wire.ts';

export const lookup: Operation = (context, request, node) => {
  const found = context.view.lookup(node, decodeLookup(request.text(0)));
  return found instanceof Promise
    ? found.then((one) => lookedUp(context, request, node, one))
    : lookedUp(context, request, node, found);
};

function lookedUp(context: MountContext, request: Request, node: ViewNode, found: Found | null): Uint8Array {
  if (found) return context.entryReply(request, found.zone, found.inode);
  const seconds = context.absenceSeconds(node.zone);
  if (seconds === 0) throw new FileError('ENOENT', 'no such name');
  // Node 0: the kernel remembers that there is nothing.
  const { bytes, view } = replyFor(request.header.unique, entryBytes);
  writeU64(view, replyHeaderBytes + 16, seconds);
  return bytes;
}

export const getattr: Operation = (context, request, node) => {
  const inode = context.files.store.inode(node.ino);
  return inode instanceof Promise
    ? inode.then((one) => context.attributesReply(request, node.zone, stillThere(one)))
    : context.attributesReply(request, node.zone, inode);
};

const valid = {
  mode: 1 << 0,
  uid: 1 << 1,
  gid: 1 << 2,
  size: 1 << 3,
  atime: 1 << 4,
  mtime: 1 << 5,
  atimeNow: 1 << 7,
  mtimeNow: 1 << 8,
} as const;

export const setattr: Operation = async (context, request, node) => {
  if (zoneRules[node.zone].readOnly) throw new FileError('EROFS', 'attributes');
  const asked = request.u32(0);
  const owner = askedOwner(context, request, asked);
  let inode: Inode | null = null;
  if (asked & valid.size) inode = await context.files.data.truncate(node.ino, request.u64(16));
  const patch: { -readonly [Key in 'mode' | 'uid' | 'gid' | 'atime' | 'mtime']?: InodePatch[Key] } = owner;
  if (asked & valid.mode) patch.mode = request.u32(68);
  if (asked & valid.atime) patch.atime = asked & valid.atimeNow ? now() : stamp(request, 32, 56);
  if (asked & valid.mtime) patch.mtime = asked & valid.mtimeNow ? now() : stamp(request, 40, 60);
  if (Object.keys(patch).length > 0) inode = await context.files.names.setAttributes(node.ino, patch as InodePatch);
  inode ??= await context.files.store.inode(node.ino);
  return context.attributesReply(request, node.zone, stillThere(inode));
};

/** The owner that is asked for, where the view keeps owners; EPERM where it shows one for all and another is asked for. */
function askedOwner(context: MountContext, request: Request, asked: number): { uid?: number; gid?: number } {
  const wanted: { uid?: number; gid?: number } = {};
  if (asked & valid.uid) wanted.uid = request.u32(76);
  if (asked & valid.gid) wanted.gid = request.u32(80);
  if (context.view.ownership === 'kept') return wanted;
  if ((wanted.uid ?? holderUser.uid) !== holderUser.uid || (wanted.gid ?? holderUser.gid) !== holderUser.gid) {
    throw new FileError('EPERM', `every file belongs to ${holderUser.uid}`);
  }
  return {};
}

export const readlink: Operation = async (context, request, node) => {
  const target = Buffer.from(await readSymlink(context, node.ino));
  const { bytes } = replyFor(request.header.unique, target.length);
  bytes.set(target, replyHeaderBytes);
  return bytes;
};

/** One that was replaced since it was looked up: the kernel looks its path up again. */
async function readSymlink(context: MountContext, ino: number): Promise<string> {
  try {
    return await context.files.names.readSymlink(ino);
  } catch (error) {
    if (error instanceof FileError && error.errno === 'ENOENT') throw new FileError('ESTALE', 'the link is gone');
    throw error;
  }
}

export const symlink: Operation = async (context, request, node) => {
  const name = request.text(0);
  const { place, zone } = context.view.placeToChange(node, decodeName(name));
  const target = decodeName(request.text(name.length + 1));
  return context.entryReply(
    request,
    zone,
    await context.files.names.makeSymlink(place, target, context.maker(request).owner),
  );
};

export const mknod: Operation = async (context, request, node) => {
  const { place, zone } = context.view.placeToChange(node, decodeName(request.text(16)));
  const mode = request.u32(0);
  if (!context.view.specialFiles && (isDevice(mode) || isFifo(mode))) throw new FileError('EPERM', 'FIFOs and devices');
  const options = { ...context.maker(request), rdev: request.u32(4) };
  return context.entryReply(request, zone, await context.files.names.create(place, mode, options));
};

export const mkdir: Operation = async (context, request, node) => {
  const { place, zone } = context.view.placeToChange(node, decodeName(request.text(8)));
  const made = context.files.names.makeDirectory(place, request.u32(0), context.maker(request).owner);
  return context.entryReply(request, zone, await made);
};

export const unlink: Operation = async (context, request, node) => {
  await context.files.names.unlink(context.view.placeToChange(node, decodeName(request.text(0))).place);
  return emptyReply(request);
};

export const rmdir: Operation = async (context, request, node) => {
  await context.files.names.removeDirectory(context.view.placeToChange(node, decodeName(request.text(0))).place);
  return emptyReply(request);
};

export const link: Operation = async (context, request, node) => {
  const { place, zone } = context.view.placeToChange(node, decodeName(request.text(8)));
  const linked = context.node({ low: request.u32(0), high: request.u32(4) });
  if (!linked || family(linked.zone) !== family(zone)) throw new FileError('EXDEV', 'a link across parts of the view');
  return context.entryReply(request, zone, await context.files.names.link(linked.ino, place));
};

const renameFlags = { noReplace: 1, exchange: 2 } as const;

export const rename: Operation = (context, request, node) => renameBy(context, request, node, 8, 'replace');

export const rename2: Operation = (context, request, node) => {
  const flags = request.u32(8);
  const modes = new Map<number, RenameMode>([
    [0, 'replace'],
    [renameFlags.noReplace, 'no-replace'],
    [renameFlags.exchange, 'exchange'],
  ]);
  const mode = modes.get(flags);
  if (!mode) throw new FileError('EINVAL', `rename flags ${flags}`);
  return renameBy(context, request, node, 16, mode);
};

async function renameBy(context: MountContext, request: Request, node: ViewNode, at: number, mode: RenameMode) {
  const target = context.node({ low: request.u32(0), high: request.u32(4) });
  if (!target) throw new FileError('ESTALE', 'rename to nowhere');
  const oldName = request.text(at);
  const from = context.view.placeToChange(node, decodeName(oldName));
  const to = context.view.placeToChange(target, decodeName(request.text(at + oldName.length + 1)));
  if (family(from.zone) !== family(to.zone)) throw new FileError('EXDEV', 'a rename across parts of the view');
  await context.files.names.rename(from.place, to.place, mode);
  return emptyReply(request);
}

/** Zones within which a file may move: the home is one directory to Hermes, whatever it is composed of. */
function family(zone: Zone): string {
  return zone === 'secret' || zone === 'home' ? 'private' : zone;
}

export const access: Operation = async (context, request, node) => {
  stillThere(await context.files.store.inode(node.ino));
  return emptyReply(request);
};

const blockBytes = 4096;

/** As `df` shows it: the quota of the conversation, or of the organization where that leaves less. */
export const statfs: Operation = async (context, request) => {
  const { quotas } = context.files.store;
  const account = context.view.accountOf('workspace') ?? 0;
  const { limit, used, available } = await quotas.allowance(account);
  const { bytes, view } = replyFor(request.header.unique, 80);
  const at = replyHeaderBytes;
  const blocks = (size: number) => Math.max(0, Math.floor(size / blockBytes));
  writeU64(view, at, blocks(limit.bytes));
  writeU64(view, at + 8, blocks(limit.bytes - used.bytes));
  writeU64(view, at + 16, blocks(available.bytes));
  writeU64(view, at + 24, limit.inodes);
  writeU64(view, at + 32, available.inodes);
  view.setUint32(at + 40, blockBytes, true);
  view.setUint32(at + 44, maxNameBytes, true);
  view.setUint32(at + 48, blockBytes, true);
  return bytes;
};

function stillThere(inode: Inode | null): Inode {
  // ESTALE makes the kernel look the path up again.
  if (!inode) throw new FileError('ESTALE', 'the file is gone');
  return inode;
}

function stamp(request: Request, seconds: number, nanoseconds: number): Stamp {
  return { seconds: request.i64(seconds), nanoseconds: request.u32(nanoseconds) };
}
