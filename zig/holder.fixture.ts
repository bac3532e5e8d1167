/**
 * Starts confined-exec for the tests as the machine does: sealed memfds on 4 to 7, a socket pair on 3. Linux only.
 */

import { dlopen, FFIType, ptr } from 'bun:ffi';
import { afterEach, beforeAll, expect, setDefaultTimeout } from 'bun:test';
import { closeSync, existsSync, readdirSync, readFileSync, statSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { buildConfinedExec } from './build.ts';
import { MachineStub } from './machine-stub.fixture.ts';

const libc = dlopen('libc.so.6', {
  memfd_create: { args: [FFIType.cstring, FFIType.u32], returns: FFIType.i32 },
  fcntl: { args: [FFIType.i32, FFIType.i32, FFIType.i32], returns: FFIType.i32 },
}).symbols;

const root = join(import.meta.dir, '..');

/** The binary that the build made, or a fresh one when the sources are newer than it. */
export async function confinedExec(): Promise<string> {
  const newestSource = Math.max(
    ...readdirSync(import.meta.dir)
      .filter((name) => name.endsWith('.zig'))
      .map((name) => statSync(join(import.meta.dir, name)).mtimeMs),
  );
  const built = join(root, 'build/assets/confined-exec.bin');
  const own = join(root, 'build/zig-test/confined-exec');
  for (const file of [own, built]) if (existsSync(file) && statSync(file).mtimeMs > newestSource) return file;
  const python = process.env.EDGE_ZIG_PYTHON ?? join(root, 'build/python/bin/python');
  await buildConfinedExec(own, { pythonWithZiglang: python });
  return own;
}

const MFD_CLOEXEC = 1;
const MFD_ALLOW_SEALING = 2;
const F_ADD_SEALS = 1033;
/** SEAL, SHRINK, GROW, WRITE. */
export const allSeals = 0xf;

/** A memfd with `content` and `seals`. The caller closes it. */
function memfd(content: string, seals: number): number {
  const fd = libc.memfd_create(ptr(Buffer.from('edge\0')), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) throw new Error('memfd_create failed');
  const bytes = Buffer.from(content);
  for (let done = 0; done < bytes.length; ) done += writeSync(fd, bytes, done);
  if (libc.fcntl(fd, F_ADD_SEALS, seals) !== 0) throw new Error('F_ADD_SEALS failed');
  return fd;
}

/** Host user that the tests' holders map to. */
export const hostUid = 101_777;

export interface ManifestOptions {
  readonly socket: string;
  readonly token: string;
  /** Run by bash as if it were Hermes. */
  readonly script: string;
  readonly extra?: readonly string[];
}

/** A manifest that runs a shell script in place of Hermes. */
export function scriptManifest(options: ManifestOptions): string {
  return [
    'edge-holder 1',
    `uid ${hostUid}`,
    `fuse-socket ${options.socket}`,
    `fuse-token ${options.token}`,
    'bind /usr',
    ...(options.extra ?? []),
    'exec /usr/bin/bash',
    'arg -c',
    `arg ${options.script}`,
    '',
  ].join('\n');
}

export interface HolderFiles {
  readonly manifest: string;
  readonly caBundle?: string;
  readonly environment?: Readonly<Record<string, string>>;
  readonly startScript?: string;
  /** Seals of the manifest's memfd; all of them when absent. */
  readonly manifestSeals?: number;
  /** Descriptor 8, where the manifest says `fuse-device 8`. */
  readonly device?: number;
}

export interface Child {
  readonly pid: number;
  readonly exited: Promise<number>;
  /** Name of the signal that ended it, or null. */
  readonly signal: () => string | null;
  /** The next line on standard output; null at its end. */
  readonly line: () => Promise<string | null>;
  /** What is left on standard output, to its end. */
  readonly rest: () => Promise<string>;
  readonly stderr: Promise<string>;
  readonly kill: (signal: NodeJS.Signals) => void;
  readonly write: (text: string) => void;
  readonly closeInput: () => void;
  /** The other end of the machine channel: a descriptor. */
  readonly channel: number;
}

/** Spawns `command` with the eight descriptors of a holder, or nine. */
export function spawnHolder(command: readonly string[], files: HolderFiles): Child {
  const environment = Object.entries(files.environment ?? {}).map(([key, value]) => `${key}=${value}\0`);
  const fds = [
    memfd(files.manifest, files.manifestSeals ?? allSeals),
    memfd(files.caBundle ?? 'certificates\n', allSeals),
    memfd(environment.join(''), allSeals),
    memfd(files.startScript ?? 'print()\n', allSeals),
  ] as const;
  const child = Bun.spawn([...command], {
    env: { OUTER: 'must not be seen inside', PATH: process.env.PATH },
    stdio: ['pipe', 'pipe', 'pipe', 'pipe', ...fds, ...(files.device === undefined ? [] : [files.device])],
  });
  for (const fd of fds) closeSync(fd);
  const channel = child.stdio[3];
  if (typeof channel !== 'number') throw new Error('no machine channel');
  return { ...watch(child as Bun.Subprocess<'pipe', 'pipe', 'pipe'>), channel };
}

/** Spawns `command` without anything special. */
export function spawnPlain(command: readonly string[]): Omit<Child, 'channel'> {
  return watch(Bun.spawn([...command], { stdio: ['pipe', 'pipe', 'pipe'] }));
}

function watch(child: Bun.Subprocess<'pipe', 'pipe', 'pipe'>): Omit<Child, 'channel'> {
  const reader = child.stdout.getReader();
  const decoder = new TextDecoder();
  let pending = '';
  const more = async (): Promise<boolean> => {
    const { done, value } = await reader.read();
    if (value !== undefined) pending += decoder.decode(value, { stream: true });
    return !done;
  };
  return {
    pid: child.pid,
    exited: child.exited,
    signal: () => (typeof child.signalCode === 'string' ? child.signalCode : null),
    line: async () => {
      while (!pending.includes('\n')) if (!(await more())) return null;
      const end = pending.indexOf('\n');
      const line = pending.slice(0, end);
      pending = pending.slice(end + 1);
      return line;
    },
    rest: async () => {
      while (await more());
      return pending;
    },
    stderr: new Response(child.stderr).text(),
    kill: (signal) => child.kill(signal),
    write: (text) => {
      child.stdin.write(text);
      child.stdin.flush();
    },
    closeInput: () => void child.stdin.end(),
  };
}

function statusOf(pid: number): string | null {
  try {
    return readFileSync(`/proc/${pid}/status`, 'utf8');
  } catch {
    return null; // It has ended.
  }
}

/** One field of `/proc/<pid>/status`. */
export function statusField(pid: number, field: string): string | null {
  return new RegExp(`^${field}:[ \\t]*(.*)$`, 'm').exec(statusOf(pid) ?? '')?.[1] ?? null;
}

/** Every living process below `pid`, zombies left out: pid → name. */
export function descendants(pid: number): Map<number, string> {
  const parents = new Map<number, number>();
  for (const name of readdirSync('/proc')) {
    const parent = /^\d+$/.test(name) ? statusField(Number(name), 'PPid') : null;
    if (parent !== null) parents.set(Number(name), Number(parent));
  }
  const found = new Map<number, string>();
  for (const candidate of parents.keys()) {
    let at: number | undefined = parents.get(candidate);
    while (at !== undefined && at !== pid) at = parents.get(at);
    if (at === pid && isAlive(candidate)) found.set(candidate, statusField(candidate, 'Name') ?? '');
  }
  return found;
}

/** Whether a process runs or may run again: a zombie does not. */
function isAlive(pid: number): boolean {
  const state = statusField(pid, 'State');
  return state !== null && !/^[ZX]/.test(state);
}

/** Returns when none of the processes lives any more; the test's own time limit is the bound. */
export async function allGone(pids: Iterable<number>): Promise<void> {
  for (const pid of pids) while (isAlive(pid)) await Bun.sleep(5);
}

/** The processes below `pid` once their names are these (sorted); the test's own time limit is the bound. */
export async function appeared(pid: number, names: readonly string[]): Promise<Map<number, string>> {
  while (true) {
    const below = descendants(pid);
    if ([...below.values()].sort().join() === names.join()) return below;
    await Bun.sleep(5);
  }
}

/** Descriptors that a process has open, in order. */
export function openDescriptors(pid: number): number[] {
  return readdirSync(`/proc/${pid}/fd`)
    .map(Number)
    .sort((a, b) => a - b);
}

/** The known token of the tests' machine. */
export const token = '0123456789abcdef'.repeat(4);

export interface HolderTests {
  readonly binary: () => string;
  readonly machine: (options?: { goes?: boolean; token?: string }) => Promise<MachineStub>;
  readonly spawn: (files: HolderFiles, command?: readonly string[]) => Child;
  /** A holder in which bash runs `script` in Hermes' place. */
  readonly hold: (
    script: string,
    files?: Partial<HolderFiles>,
    command?: readonly string[],
  ) => Promise<{ stub: MachineStub; child: Child }>;
  /** Runs `script` to its end and returns its output; it must not have failed. */
  readonly output: (script: string, files?: Partial<HolderFiles>, command?: readonly string[]) => Promise<string>;
}

/** What a test file about holders needs; everything that a test started ends with it. */
export function holderTests(): HolderTests {
  setDefaultTimeout(60_000);
  let binary = '';
  let stubs: MachineStub[] = [];
  let children: Child[] = [];
  beforeAll(async () => {
    binary = await confinedExec();
  }, 600_000);
  afterEach(async () => {
    for (const child of children) {
      child.kill('SIGKILL');
      await child.exited;
      closeSync(child.channel);
    }
    for (const stub of stubs) stub.close();
    children = [];
    stubs = [];
  });
  const tests: HolderTests = {
    binary: () => binary,
    machine: async (options = {}) => {
      const stub = await MachineStub.listen({ token, ...options });
      stubs.push(stub);
      return stub;
    },
    spawn: (files, command = [binary, 'holder']) => {
      const child = spawnHolder(command, files);
      children.push(child);
      return child;
    },
    hold: async (script, files = {}, command) => {
      const stub = await tests.machine();
      const child = tests.spawn(
        { manifest: scriptManifest({ socket: stub.socket, token, script }), ...files },
        command,
      );
      return { stub, child };
    },
    output: async (script, files = {}, command) => {
      const { child } = await tests.hold(script, files, command);
      const text = await child.rest();
      expect({ code: await child.exited, errors: await child.stderr }).toEqual({ code: 0, errors: '' });
      return text;
    },
  };
  return tests;
}

/** Numbers of system calls that no ordinary program makes. */
const callNumbers = {
  x64: { ptrace: 101, reboot: 169, bpf: 321, io_uring_setup: 425, unknown: 999 },
  arm64: { ptrace: 117, reboot: 142, bpf: 280, io_uring_setup: 425, unknown: 999 },
} as const;

/** A command that makes a system call with zeros and prints why it was refused. */
export function callCommand(name: keyof (typeof callNumbers)['x64']): string {
  const number = callNumbers[process.arch === 'arm64' ? 'arm64' : 'x64'][name];
  return `perl -e 'syscall(${number}, 0, 0, 0, 0) < 0 ? print "$!\\n" : print "done\\n"'`;
}
