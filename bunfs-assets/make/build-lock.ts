/** One build at a time in one checkout. The kernel lets go of the lock when the process ends, however it ends. */
import { dlopen, FFIType } from 'bun:ffi';
import { closeSync, mkdirSync, openSync } from 'node:fs';
import { dirname } from 'node:path';

const LOCK_EX = 2;
const LOCK_NB = 4;

/**
 * Waits until no other process holds `path`, then holds it.
 * @param onWait is called once when somebody else has it
 * @returns the release
 */
export function takeBuildLock(path: string, onWait: () => void): () => void {
  mkdirSync(dirname(path), { recursive: true });
  const libc = dlopen('libc.so.6', { flock: { args: [FFIType.i32, FFIType.i32], returns: FFIType.i32 } });
  const fd = openSync(path, 'w');
  if (libc.symbols.flock(fd, LOCK_EX | LOCK_NB) !== 0) {
    onWait();
    if (libc.symbols.flock(fd, LOCK_EX) !== 0) throw new Error(`cannot lock ${path}`);
  }
  return () => closeSync(fd);
}
