/** System calls that node has no functions for, with the errors that they give. */
import { dlopen, ptr, read } from 'bun:ffi';
import { openSync } from 'node:fs';

const libc = dlopen('libc.so.6', {
  renameat2: { args: ['i32', 'ptr', 'i32', 'ptr', 'u32'], returns: 'i32' },
  fallocate: { args: ['i32', 'i32', 'i64', 'i64'], returns: 'i32' },
  linkat: { args: ['i32', 'ptr', 'i32', 'ptr', 'i32'], returns: 'i32' },
  unlink: { args: ['ptr'], returns: 'i32' },
  __errno_location: { args: [], returns: 'ptr' },
});
const text = (value: string) => ptr(Buffer.from(`${value}\0`));
const here = -100;
const followLinks = 0x400;
const punchHole = 3;
const nameless = 0o20200000;
const renameFlags = { replace: 0, 'no-replace': 1, exchange: 2 } as const;

const errors = new Map([
  [1, 'EPERM'],
  [2, 'ENOENT'],
  [16, 'EBUSY'],
  [17, 'EEXIST'],
  [18, 'EXDEV'],
  [20, 'ENOTDIR'],
  [21, 'EISDIR'],
  [22, 'EINVAL'],
  [39, 'ENOTEMPTY'],
]);

class CallError extends Error {
  readonly code: string;

  constructor(call: string, errno: number) {
    const code = errors.get(errno) ?? `errno ${errno}`;
    super(`${call}: ${code}`);
    this.code = code;
  }
}

function check(call: string, result: number): void {
  if (result !== 0) throw new CallError(call, read.i32(libc.symbols.__errno_location()!, 0));
}

export const calls = {
  rename(from: string, to: string, mode: keyof typeof renameFlags): void {
    check('renameat2', libc.symbols.renameat2(here, text(from), here, text(to), renameFlags[mode]));
  },
  /** Bun's own makes EPERM of what the kernel says about a directory. */
  unlink(path: string): void {
    check('unlink', libc.symbols.unlink(text(path)));
  },
  punch(fd: number, offset: number, length: number): void {
    check('fallocate', libc.symbols.fallocate(fd, punchHole, offset, length));
  },
  openNameless(directory: string): number {
    return openSync(directory, nameless | 2, 0o644);
  },
  /** Names the file behind a descriptor. */
  nameDescriptor(fd: number, path: string): void {
    check('linkat', libc.symbols.linkat(here, text(`/proc/self/fd/${fd}`), here, text(path), followLinks));
  },
};

/** The errno of what fails, or `ok`. */
export function errnoOf(work: () => unknown): string {
  try {
    work();
    return 'ok';
  } catch (error) {
    if (error instanceof Error && 'errno' in error && typeof error.errno === 'string') return error.errno;
    if (error instanceof Error && 'code' in error) return String(error.code);
    throw error;
  }
}
