/** The kernel's requests about open directories. */
import { FileError } from '../agentfs/errors.ts';
import type { Inode } from '../agentfs/inode.ts';
import { isDirectory, modeFormat } from '../agentfs/schema.ts';
import type { ViewNode } from '../agentfs/views.ts';
import { emptyReply, type MountContext, type Operation } from './context.ts';
import type { ListedEntry, OpenDirectory } from './handles.ts';
import { entryBytes, type Request, replyFor, replyHeaderBytes, writeEntry, writeU64 } from './wire.ts';

export const opendir: Operation = (context, request, node) => {
  const inode = context.files.store.inode(node.ino);
  return inode instanceof Promise
    ? inode.then((one) => openedReply(context, request, node, one))
    : openedReply(context, request, node, inode);
};

function openedReply(context: MountContext, request: Request, node: ViewNode, inode: Inode | null): Uint8Array {
  if (!inode) throw new FileError('ESTALE', 'the directory is gone');
  if (!isDirectory(inode.mode)) throw new FileError('ENOTDIR', 'no directory');
  const { bytes, view } = replyFor(request.header.unique, 16);
  const handle = context.handles.add({ kind: 'directory', node, entries: [], more: null });
  writeU64(view, replyHeaderBytes, handle);
  return bytes;
}

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

/** `.` and `..`, which have no entry of their own: the kernel knows them. */
const dots = 2;

async function list(context: MountContext, request: Request, plus: boolean): Promise<Uint8Array> {
  const directory = context.handles.directory(request.u64(0));
  const offset = request.u64(8);
  const room = Math.min(request.u32(16), 1024 * 1024);
  if (offset === 0) context.handles.rewind(directory, entriesOf(context, directory.node));
  const { bytes, view } = replyFor(request.header.unique, room);
  const head = plus ? entryBytes : 0;
  let at = replyHeaderBytes;
  for (let index = offset; ; index++) {
    // No wait for what is there: a directory has thousands.
    const entry = directory.entries[index] ?? (await entryAt(context, directory, index));
    if (!entry) break;
    const length = (head + 24 + entry.name.length + 7) & ~7;
    if (at + length > bytes.length) break;
    if (plus && index >= dots) {
      const inode = context.files.store.cachedInode(entry.ino) ?? (await context.files.store.inode(entry.ino));
      // As it is now, not as it was when the list was made: the kernel will remember it.
      if (inode && inode.nlink > 0) writeEntry(view, at, context.entry(entry.zone, inode));
    }
    writeU64(view, at + head, entry.ino);
    writeU64(view, at + head + 8, index + 1);
    view.setUint32(at + head + 16, entry.name.length, true);
    view.setUint32(at + head + 20, (entry.mode & modeFormat) >>> 12, true);
    bytes.set(entry.name, at + head + 24);
    at += length;
  }
  view.setUint32(0, at, true);
  return bytes.subarray(0, at);
}

async function* entriesOf(context: MountContext, node: ViewNode): AsyncGenerator<ListedEntry[], void> {
  const self = await context.files.store.inode(node.ino);
  if (!self) throw new FileError('ENOENT', 'the directory is gone');
  yield ['.', '..'].map((name) => ({ name: Buffer.from(name), zone: node.zone, ino: self.ino, mode: self.mode }));
  for await (const page of context.view.pages(node)) {
    yield page.map(({ name, zone, inode }) => ({ name: Buffer.from(name), zone, ino: inode.ino, mode: inode.mode }));
  }
}

/** The entry with a number, read where it was not yet; undefined behind the last. */
async function entryAt(
  context: MountContext,
  directory: OpenDirectory,
  index: number,
): Promise<ListedEntry | undefined> {
  while (index >= directory.entries.length && directory.more) {
    const { more } = directory;
    const next = await more.next();
    // Another read of the same directory may have begun it anew meanwhile.
    if (directory.more !== more) continue;
    if (next.done) directory.more = null;
    else context.handles.listed(directory, next.value);
  }
  return directory.entries[index];
}
