/** Which function answers which message. */
import type { Operation } from './context.ts';
import * as files from './file-operations.ts';
import { init } from './init.ts';
import * as names from './name-operations.ts';
import { errorReply, opcodes } from './wire.ts';

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
  [opcodes.opendir, files.opendir],
  [opcodes.readdir, files.readdir],
  [opcodes.readdirplus, files.readdirplus],
  [opcodes.releasedir, files.releasedir],
  [opcodes.fsyncdir, files.fsyncdir],
  [opcodes.syncfs, files.fsyncdir],
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
