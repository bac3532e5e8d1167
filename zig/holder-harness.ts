/**
 * Starts holders for the tests as the machine starts them: sealed memfds on 4 to 7, a socket pair on 3. Linux only.
 */
import { dlopen, FFIType, ptr } from 'bun:ffi';
import { closeSync, readdirSync, readFileSync, writeSync } from 'node:fs';

const libc = dlopen('libc.so.6', {
  memfd_create: { args: [FFIType.cstring, FFIType.u32], returns: FFIType.i32 },
  fcntl: { args: [FFIType.i32, FFIType.i32, FFIType.i32], returns: FFIType.i32 },
}).symbols;

const MFD_CLOEXEC = 1;
const MFD_ALLOW_SEALING = 2;
const F_ADD_SEALS = 1033;
/** SEAL, SHRINK, GROW, WRITE. */
const allSeals = 0xf;

/** A memfd with `content`; `seals` may leave some out. The caller closes it. */
export function memfd(content: string, seals: number = allSeals): number {
  const fd = libc.memfd_create(ptr(Buffer.from('edge\0')), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) throw new Error('memfd_create failed');
  const bytes = Buffer.from(content);
  for (let done = 0; done < bytes.length; ) done += writeSync(fd, bytes, done);
  if (seals !== 0 && libc.fcntl(fd, F_ADD_SEALS, seals) !== 0) throw new Error('F_ADD_SEALS failed');
  return fd;
}

export interface HolderFiles {
  readonly manifest: string;
  readonly caBundle?: string;
  readonly environment?: Readonly<Record<string, string>>;
  readonly startScript?: string;
  /** Seals of the manifest's memfd; all of them when absent. */
  readonly manifestSeals?: number;
}

export interface Child {
  readonly pid: number;
  readonly exited: Promise<number>;
  readonly signalCode: () => string | null;
  readonly stdout: Promise<string>;
  readonly stderr: Promise<string>;
  readonly kill: (signal: NodeJS.Signals) => void;
  /** Descriptor of the machine channel's other end. */
  readonly channel: number;
  readonly closeInput: () => void;
}

/** Spawns `command` with the six descriptors of a holder. */
export function spawnHolder(command: readonly string[], files: HolderFiles): Child {
  const environment = Object.entries(files.environment ?? {}).map(([key, value]) => `${key}=${value}\0`);
  const fds = [
    memfd(files.manifest, files.manifestSeals),
    memfd(files.caBundle ?? 'certificates\n'),
    memfd(environment.join('')),
    memfd(files.startScript ?? 'print()\n'),
  ] as const;
  const child = Bun.spawn([...command], {
    env: { OUTER: 'must not be seen inside' },
    stdio: ['pipe', 'pipe', 'pipe', 'pipe', ...fds],
  });
  for (const fd of fds) closeSync(fd);
  const channel = child.stdio[3];
  if (typeof channel !== 'number') throw new Error('no machine channel');
  return {
    pid: child.pid,
    exited: child.exited,
    signalCode: () => (typeof child.signalCode === 'string' ? child.signalCode : null),
    stdout: new Response(child.stdout as ReadableStream<Uint8Array>).text(),
    stderr: new Response(child.stderr as ReadableStream<Uint8Array>).text(),
    kill: (signal) => child.kill(signal),
    channel,
    closeInput: () => void (child.stdin as { end(): unknown }).end(),
  };
}

function parentOf(pid: number): number | null {
  try {
    return Number(/^PPid:\t(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
  } catch {
    return null; // It ended while the list was read.
  }
}

/** Every living process below `pid`, zombies left out, with its name. */
export function descendants(pid: number): Map<number, string> {
  const parents = new Map<number, number>();
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const parent = parentOf(Number(name));
    if (parent !== null) parents.set(Number(name), parent);
  }
  const found = new Map<number, string>();
  for (const candidate of parents.keys()) {
    let at: number | undefined = candidate;
    while (at !== undefined && at !== pid) at = parents.get(at);
    if (at === pid && candidate !== pid && isAlive(candidate)) found.set(candidate, nameOf(candidate) ?? '');
  }
  return found;
}

export function nameOf(pid: number): string | null {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
  } catch {
    return null; // It has ended.
  }
}

/** Whether a process runs or may run again: a zombie does not. */
export function isAlive(pid: number): boolean {
  try {
    return !/^State:\tZ/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false; // It has ended.
  }
}
