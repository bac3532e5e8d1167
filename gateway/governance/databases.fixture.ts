/** The databases that the tests of this folder run on: the embedded one, and a real server where one is installed. */
import { chownSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { DatabaseAddress } from './connection.ts';
import { startEmbeddedPostgres } from './embedded.ts';

export interface TestDatabase {
  readonly address: DatabaseAddress;
  stop(): Promise<void>;
}

export async function embeddedDatabase(): Promise<TestDatabase> {
  const directory = mkdtempSync(join(tmpdir(), 'egw-pg-'));
  mkdirSync(join(directory, 'run'));
  const postgres = await startEmbeddedPostgres({
    dataDirectory: join(directory, 'postgres'),
    socketDirectory: join(directory, 'run'),
    readyMs: 60_000,
    onLog: (line) => console.error(line),
  });
  return {
    address: postgres.address,
    async stop() {
      await postgres.stop(5_000);
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

/** Directory of initdb and postgres as Debian installs them; null when there is none. */
export function installedPostgres(): string | null {
  const root = '/usr/lib/postgresql';
  try {
    const version = readdirSync(root).sort().at(-1);
    return version === undefined ? null : join(root, version, 'bin');
  } catch {
    // Not installed.
    return null;
  }
}

/** A throw-away server on a unix socket; run as the user `postgres` when this process is root, which Postgres refuses. */
export async function realDatabase(
  bin: string,
  options: { readonly settings?: readonly string[]; readonly onLog?: (text: string) => void } = {},
): Promise<TestDatabase> {
  const directory = mkdtempSync(join(tmpdir(), 'egw-realpg-'));
  const asUser = process.getuid?.() === 0 ? ['setpriv', '--reuid=postgres', '--regid=postgres', '--clear-groups'] : [];
  if (asUser.length > 0) {
    const { uid, gid } = await idsOf('postgres');
    chownSync(directory, uid, gid);
  }
  const data = join(directory, 'data');
  const made = Bun.spawnSync([...asUser, join(bin, 'initdb'), '-D', data, '-U', 'postgres', '-E', 'UTF8', '-N'], {
    cwd: directory,
  });
  if (made.exitCode !== 0) throw new Error(`initdb: ${made.stderr.toString()}`);
  const settings = ['listen_addresses=', ...(options.settings ?? [])].flatMap((setting) => ['-c', setting]);
  const server = Bun.spawn([...asUser, join(bin, 'postgres'), '-D', data, '-k', directory, ...settings], {
    cwd: directory,
    stdin: 'ignore',
    stdout: 'ignore',
    stderr: 'pipe',
  });
  const ready = Promise.withResolvers<void>();
  void (async () => {
    const decoder = new TextDecoder();
    for await (const bytes of server.stderr) {
      const text = decoder.decode(bytes, { stream: true });
      options.onLog?.(text);
      if (text.includes('ready to accept connections')) ready.resolve();
    }
    ready.reject(new Error('postgres ended before it was ready'));
  })();
  await ready.promise;
  return {
    address: { kind: 'url', url: `postgres://postgres@localhost/postgres?host=${encodeURIComponent(directory)}` },
    async stop() {
      // Fast shutdown: sessions that a failed test left open do not hold it up.
      server.kill('SIGINT');
      await server.exited;
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

async function idsOf(user: string): Promise<{ uid: number; gid: number }> {
  const line = (await Bun.file('/etc/passwd').text()).split('\n').find((entry) => entry.startsWith(`${user}:`));
  const fields = line?.split(':');
  if (fields === undefined) throw new Error(`there is no user ${user}`);
  return { uid: Number(fields[2]), gid: Number(fields[3]) };
}
