/** What protects a memory file of another process, as the kernel tells it. */
import { dlopen, FFIType } from 'bun:ffi';
import { closeSync, constants, openSync, writeSync } from 'node:fs';

const getSeals = 1034;
const names = ['SEAL', 'SHRINK', 'GROW', 'WRITE'] as const;

const { fcntl } = dlopen('libc.so.6', {
  fcntl: { args: [FFIType.i32, FFIType.i32, FFIType.i32], returns: FFIType.i32 },
}).symbols;

/** The seals of a descriptor of a process, by their names. Needs the right to look into it. */
export function sealsOf(pid: number, descriptor: number): string[] {
  const fd = openSync(`/proc/${pid}/fd/${descriptor}`, constants.O_RDONLY);
  try {
    const seals = fcntl(fd, getSeals, 0);
    if (seals < 0) throw new Error(`descriptor ${descriptor} of ${pid} is no memory file`);
    return names.filter((_, bit) => (seals & (1 << bit)) !== 0);
  } finally {
    closeSync(fd);
  }
}

/** The name of the error with which the kernel refuses a write to it, even of root; null when it was written. */
export function refusalOfWrite(pid: number, descriptor: number): string | null {
  const fd = openSync(`/proc/${pid}/fd/${descriptor}`, constants.O_RDWR);
  try {
    writeSync(fd, Buffer.from('x'), 0, 1, 0);
    return null;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? 'unknown';
  } finally {
    closeSync(fd);
  }
}
