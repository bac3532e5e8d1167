/** The libc calls that Bun has no name for. */
import { dlopen, FFIType } from 'bun:ffi';

const lockExclusive = 2;
const lockNonBlocking = 4;
const setParentDeathSignal = 1;
const sigKill = 9;

function libc() {
  return dlopen('libc.so.6', {
    flock: { args: [FFIType.i32, FFIType.i32], returns: FFIType.i32 },
    prctl: { args: [FFIType.i32, FFIType.u64, FFIType.u64, FFIType.u64, FFIType.u64], returns: FFIType.i32 },
  }).symbols;
}

/**
 * Takes the exclusive lock of an open file, without waiting; false when another process has it. The kernel drops it with
 * the last descriptor, so it cannot outlive its process.
 */
export function tryLock(fd: number): boolean {
  return libc().flock(fd, lockExclusive | lockNonBlocking) === 0;
}

/**
 * Takes the same lock and blocks this whole thread until it is free: for a process that has nothing else to do until then,
 * and whose parent kills it when that takes too long. False when the file cannot be locked at all.
 */
export function waitForLock(fd: number): boolean {
  return libc().flock(fd, lockExclusive) === 0;
}

/**
 * Has the kernel kill this process when its parent dies, even while it is busy. The parent may be gone already: the
 * caller must also watch something that ends with it, such as its standard input.
 */
export function dieWithParent(): void {
  if (libc().prctl(setParentDeathSignal, sigKill, 0, 0, 0) !== 0) throw new Error('prctl(PR_SET_PDEATHSIG) failed');
}
