/**
 * Loads a native addon from memory. Bun would write an embedded one to TMPDIR: that fails where TMPDIR is noexec or
 * read-only, is never deleted, and takes whatever file of the same size already lies there.
 */
import { dlopen, FFIType, ptr } from 'bun:ffi';
import { closeSync, writeSync } from 'node:fs';

const MFD_CLOEXEC = 1;

function memoryFile(name: string, bytes: Uint8Array): number {
  const libc = dlopen('libc.so.6', { memfd_create: { args: [FFIType.ptr, FFIType.u32], returns: FFIType.i32 } });
  const fd = libc.symbols.memfd_create(ptr(Buffer.from(`${name}\0`)), MFD_CLOEXEC);
  if (fd < 0) throw new Error(`no memory file for the addon ${name} (memfd_create failed)`);
  for (let written = 0; written < bytes.length; ) written += writeSync(fd, bytes, written);
  return fd;
}

/**
 * The exports of the addon whose file content is `bytes`. Needs a mounted /proc.
 * The descriptor stays open: the C library knows libraries by name, and a reused number would give back the older one.
 */
export function loadNative(name: string, bytes: Uint8Array): unknown {
  const fd = memoryFile(name, bytes);
  const loaded = { exports: {} };
  try {
    process.dlopen(loaded, `/proc/self/fd/${fd}`);
  } catch (error) {
    closeSync(fd);
    throw new Error(`the addon ${name} does not load from memory: ${String(error)}`);
  }
  return loaded.exports;
}
