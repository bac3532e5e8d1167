/**
 * For tests: a real mount of a view, in a mount namespace of this process' main thread and its children. Needs root and
 * /dev/fuse. The test process itself must never look at the mount: it serves it.
 */
import { dlopen, ptr } from 'bun:ffi';
import { test } from 'bun:test';
import { accessSync, closeSync, constants, mkdtempSync, openSync, read, rmdirSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { HolderView } from '../agentfs/views.ts';
import type { HolderStream } from '../holders/holder-socket.ts';
import type { Gate } from './gate.ts';
import { FuseSession, type TouchBoundary } from './session.ts';

const libc = dlopen('libc.so.6', {
  mount: { args: ['ptr', 'ptr', 'ptr', 'u64', 'ptr'], returns: 'i32' },
  umount2: { args: ['ptr', 'i32'], returns: 'i32' },
  unshare: { args: ['i32'], returns: 'i32' },
});
const text = (value: string) => ptr(Buffer.from(`${value}\0`));
const newMountNamespace = 0x20000;
const recursivePrivate = 0x4000n | 0x40000n;
const noSuidNoDev = 6n;
const detach = 2;

/** Root may mount, where there is something to mount with. */
export const canMount = process.getuid?.() === 0 && isAccessible('/dev/fuse');
/** A test that needs a mount; skipped, and said so, where there can be none. */
export const mountTest = canMount ? test : test.skip;

function isAccessible(path: string): boolean {
  try {
    accessSync(path, constants.R_OK | constants.W_OK);
    return true;
  } catch {
    // Missing, or not ours to open.
    return false;
  }
}

let isUnshared = false;

export interface TestMount {
  readonly path: string;
  readonly session: FuseSession;
  /** Messages that the kernel sent, by opcode. */
  readonly requests: Map<number, number>;
  unmount(): Promise<void>;
}

const untouched: TouchBoundary = { touch: () => null, onStale: () => () => undefined };

export function mountView(view: HolderView, gate: Gate, boundary: TouchBoundary = untouched): TestMount {
  if (!isUnshared) {
    if (libc.symbols.unshare(newMountNamespace) !== 0) throw new Error('unshare failed');
    libc.symbols.mount(text('none'), text('/'), null, recursivePrivate, null);
    isUnshared = true;
  }
  const path = mkdtempSync(join(tmpdir(), 'fuse-test-'));
  const fd = openSync('/dev/fuse', 'r+');
  const options = `fd=${fd},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions`;
  if (libc.symbols.mount(text('agentfs'), text(path), text('fuse'), noSuidNoDev, text(options)) !== 0) {
    throw new Error('mount failed');
  }
  const stream = new DeviceStream(fd);
  const session = new FuseSession({ view, gate, boundary, stream });
  return {
    path,
    session,
    requests: stream.requests,
    unmount: async () => {
      libc.symbols.umount2(text(path), detach);
      await session.ended;
      rmdirSync(path);
    },
  };
}

/** The relay of a holder, without the holder: /dev/fuse itself. */
class DeviceStream implements HolderStream {
  readonly requests = new Map<number, number>();
  readonly #fd: number;
  #paused = false;
  #held: Uint8Array[] = [];
  #data: (bytes: Uint8Array) => void = () => undefined;
  #close: () => void = () => undefined;

  constructor(fd: number) {
    this.#fd = fd;
    queueMicrotask(() => this.#read());
  }

  async write(bytes: Uint8Array): Promise<void> {
    try {
      writeSync(this.#fd, bytes);
    } catch (error) {
      // The request was given up, or the node was forgotten: as the holder's relay, go on.
      if (!/ENOENT|ENODEV|EPERM|EBADF/.test(String(error))) console.error('relay:', error);
    }
  }

  onData(listener: (bytes: Uint8Array) => void): void {
    this.#data = listener;
  }

  onClose(listener: () => void): void {
    this.#close = listener;
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
    for (const bytes of this.#held.splice(0)) this.#data(bytes);
  }

  close(): void {}

  #read(): void {
    const buffer = Buffer.allocUnsafe(1024 * 1024 + 4096);
    read(this.#fd, buffer, 0, buffer.length, null, (error, length) => {
      if (error) {
        if (error.code === 'ENODEV' || error.code === 'EBADF') {
          closeSync(this.#fd);
          this.#close();
          return;
        }
      } else {
        const opcode = buffer.readUInt32LE(4);
        this.requests.set(opcode, (this.requests.get(opcode) ?? 0) + 1);
        const bytes = buffer.subarray(0, length);
        if (this.#paused) this.#held.push(bytes);
        else this.#data(bytes);
      }
      this.#read();
    });
  }
}

/** Runs a program as the holder's user; its output and exit code. */
export async function run(
  cwd: string,
  command: string[],
  options: { input?: string } = {},
): Promise<{ code: number; output: string }> {
  const child = Bun.spawn(['setpriv', '--reuid', '1000', '--regid', '1000', '--clear-groups', '--', ...command], {
    stdin: options.input === undefined ? 'ignore' : Buffer.from(options.input),
    stdout: 'pipe',
    stderr: 'pipe',
    env: { PATH: '/usr/local/bin:/usr/bin:/bin', HOME: '/tmp', LC_ALL: 'C.UTF-8', PWD: cwd, DIRECTORY: cwd },
    cwd: '/',
  });
  const [out, err] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()]);
  return { code: await child.exited, output: out + err };
}

/** A shell script in a directory of the mount. `set -e` is on. */
export function shell(cwd: string, script: string): Promise<{ code: number; output: string }> {
  return run(cwd, ['bash', '-ec', `cd "$DIRECTORY"\n${script}`]);
}
