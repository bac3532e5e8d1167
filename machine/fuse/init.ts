/** The first message of a mount: what kernel and server can do. */
import type { Operation } from './context.ts';
import { initFlags, replyFor, replyHeaderBytes } from './wire.ts';

const protocolMajor = 7;
const ourMinor = 44;
/** Linux 5.4: older kernels lack half of what is asked for below. */
const oldestMinor = 31;
const maxWriteBytes = 1024 * 1024;

/** Not atomicTruncate: it empties a running program before the kernel refuses to open that for writing. */
const wanted =
  initFlags.asyncRead |
  initFlags.bigWrites |
  initFlags.autoInvalidateData |
  initFlags.readdirplus |
  initFlags.readdirplusAuto |
  initFlags.asyncDirectIo |
  initFlags.parallelDirectoryOperations |
  initFlags.maxPages |
  initFlags.extended;

export const init: Operation = (context, request) => {
  const major = request.u32(0);
  const minor = request.u32(4);
  if (major < protocolMajor || (major === protocolMajor && minor < oldestMinor)) {
    throw new Error(`the kernel speaks FUSE ${major}.${minor}; ${protocolMajor}.${oldestMinor} (Linux 5.4) is needed`);
  }
  const { bytes, view } = replyFor(request.header.unique, 64);
  const at = replyHeaderBytes;
  view.setUint32(at, protocolMajor, true);
  view.setUint32(at + 4, Math.min(minor, ourMinor), true);
  // A newer major comes back with ours.
  if (major > protocolMajor) return bytes;
  const flags = request.u32(12);
  const isExtended = (flags & initFlags.extended) !== 0 && request.body.length >= 20;
  const extended = isExtended ? request.u32(16) & initFlags.directIoAllowMmap : 0;
  context.kernel = { forgetsAtOnce: minor >= 44, mapsDirectIo: extended !== 0 };
  view.setUint32(at + 8, Math.min(request.u32(8), maxWriteBytes), true);
  view.setUint32(at + 12, (flags & wanted) >>> 0, true);
  view.setUint16(at + 16, 64, true);
  view.setUint16(at + 18, 48, true);
  view.setUint32(at + 20, maxWriteBytes, true);
  view.setUint32(at + 24, 1, true);
  view.setUint16(at + 28, maxWriteBytes / 4096, true);
  view.setUint32(at + 32, extended, true);
  return bytes;
};
