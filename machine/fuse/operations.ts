/** Which function answers which message. */
import type { Operation } from './context.ts';
import * as directories from './directory-operations.ts';
import * as files from './file-operations.ts';
import { init } from './init.ts';
import * as names from './name-operations.ts';
import { errorReply, opcodes } from './wire.ts';

/**
 * What is missing here is ENOSYS, which the kernel remembers: extended attributes are EOPNOTSUPP from then on, without a
 * message; copy_file_range copies through its page cache; locks and flock are the kernel's own, which is right as long as one
 * mount serves a conversation.
 */
export const operations: ReadonlyMap<number, Operation> = new Map<number, Operation>([
  [opcodes.init, init],
  [opcodes.lookup, names.lookup],
  [opcodes.getattr, names.getattr],
  [opcodes.setattr, names.setattr],
  [opcodes.readlink, names.readlink],
  [opcodes.symlink, names.symlink],
  [opcodes.mknod, names.mknod],
  [opcodes.mkdir, names.mkdir],
  [opcodes.unlink, names.unlink],
  [opcodes.rmdir, names.rmdir],
  [opcodes.rename, names.rename],
  [opcodes.rename2, names.rename2],
  [opcodes.link, names.link],
  [opcodes.access, names.access],
  [opcodes.statfs, names.statfs],
  [opcodes.open, files.open],
  [opcodes.create, files.create],
  [opcodes.read, files.read],
  [opcodes.write, files.write],
  [opcodes.flush, files.flush],
  [opcodes.fsync, files.fsync],
  [opcodes.release, files.release],
  [opcodes.fallocate, files.fallocate],
  [opcodes.lseek, files.lseek],
  [opcodes.tmpfile, files.tmpfile],
  [opcodes.opendir, directories.opendir],
  [opcodes.readdir, directories.readdir],
  [opcodes.readdirplus, directories.readdirplus],
  [opcodes.releasedir, directories.releasedir],
  [opcodes.fsyncdir, directories.fsyncdir],
  [opcodes.syncfs, directories.fsyncdir],
  [opcodes.destroy, (_context, request) => errorReply(request.header.unique, 0)],
  // No node is remembered, and every operation is short: there is nothing to forget and nothing to interrupt.
  [opcodes.forget, () => null],
  [opcodes.batchForget, () => null],
  [opcodes.interrupt, () => null],
  [opcodes.notifyReply, () => null],
]);
/** Neither reads nor changes a shared part. */
export const touchesNothing = new Set<number>([
  opcodes.forget,
  opcodes.batchForget,
  opcodes.interrupt,
  opcodes.notifyReply,
  opcodes.release,
  opcodes.releasedir,
  opcodes.statfs,
  opcodes.destroy,
  opcodes.init,
]);
