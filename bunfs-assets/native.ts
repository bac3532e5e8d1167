/**
 * Loads a native addon from memory. Bun would write an embedded one to TMPDIR: that fails where TMPDIR is noexec or
 * read-only, is never deleted, and takes whatever file of the same size already lies there.
 */
import { closeSync } from 'node:fs';
import { sealedMemfd } from './memfd.ts';

/**
 * The exports of the addon whose file content is `bytes`. Needs a mounted /proc.
 * The descriptor stays open: the C library knows libraries by name, and a reused number would give back the older one.
 */
export function loadNative(name: string, bytes: Uint8Array): unknown {
  const fd = sealedMemfd(name, bytes);
  const loaded = { exports: {} };
  try {
    process.dlopen(loaded, `/proc/self/fd/${fd}`);
  } catch (error) {
    closeSync(fd);
    throw new Error(`the addon ${name} does not load from memory: ${String(error)}`);
  }
  return loaded.exports;
}
