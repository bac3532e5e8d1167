/** Memory files: how immutable inputs and embedded programs reach a child without a path on any disk (ADR-046 §7). */
import { dlopen, FFIType } from 'bun:ffi';
import { closeSync, writeSync } from 'node:fs';

const flagCloexec = 1;
const flagAllowSealing = 2;
const addSeals = 1033;
const duplicateCloexec = 1030;
/** F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE: nobody can ever change the bytes again. */
const allSeals = 0xf;
/** Above every fd number that a child is given, so that a spawn cannot overwrite it before it is executed. */
const aboveChildFds = 200;

let libc: ReturnType<typeof openLibc> | null = null;

function openLibc() {
  return dlopen('libc.so.6', {
    memfd_create: { args: [FFIType.cstring, FFIType.u32], returns: FFIType.i32 },
    fcntl: { args: [FFIType.i32, FFIType.i32, FFIType.i32], returns: FFIType.i32 },
  }).symbols;
}

/**
 * Makes a sealed memory file (close-on-exec) with these bytes and returns its fd, which the caller closes once a child
 * has it. `name` shows up in /proc only.
 */
export function sealedMemfd(name: string, bytes: Uint8Array): number {
  libc ??= openLibc();
  const fd = libc.memfd_create(Buffer.from(`${name}\0`), flagCloexec | flagAllowSealing);
  if (fd < 0) throw new Error(`memfd_create ${name} failed`);
  try {
    for (let at = 0; at < bytes.length; ) at += writeSync(fd, bytes, at, bytes.length - at, at);
    if (libc.fcntl(fd, addSeals, allSeals) < 0) throw new Error(`sealing ${name} failed`);
    return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** A sealed memory file that can be executed as the returned path by this process's children. */
export function executablePath(name: string, bytes: Uint8Array): string {
  const low = sealedMemfd(name, bytes);
  libc ??= openLibc();
  const fd = libc.fcntl(low, duplicateCloexec, aboveChildFds);
  closeSync(low);
  if (fd < 0) throw new Error(`no file descriptor for ${name}`);
  return `/proc/self/fd/${fd}`;
}
