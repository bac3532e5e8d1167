/**
 * The embedded Postgres: PGlite behind its wire protocol on a unix socket, in a process of its own because it blocks its
 * event loop while it works. Survives SIGKILL (its WAL is replayed); it does not call fsync, so a power loss may cost
 * the last writes: `DATABASE_URL` names a real server where that matters.
 */
import { chmodSync, closeSync, existsSync, mkdirSync, openSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { PGlite, type PGliteOptions } from '@electric-sql/pglite';
import { PGLiteSocketServer } from '@electric-sql/pglite-socket';
import { dieWithParent, tryLock, waitForLock } from '../posix.ts';

/** The client's one connection, and room for its successor while the server still closes it. */
const maxConnections = 2;

/**
 * `edge-gateway postgres --data DIR --socket-directory DIR`: serves until standard input ends or SIGTERM. Prints
 * `{"ready":true}` when it can be used. Answers with the exit code.
 */
export async function runPostgres(argv: readonly string[]): Promise<number> {
  const { values } = parseArgs({
    args: [...argv],
    options: { data: { type: 'string' }, 'socket-directory': { type: 'string' } },
    strict: true,
  });
  const data = values.data;
  const socketDirectory = values['socket-directory'];
  if (data === undefined || socketDirectory === undefined) {
    console.error('usage: edge-gateway postgres --data DIR --socket-directory DIR');
    return 2;
  }
  dieWithParent();
  mkdirSync(data, { recursive: true, mode: 0o700 });
  const lock = lockAlone(join(data, 'lock'));
  // Only now: while this thread waits for the lock, SIGTERM must still end it.
  const stopped = Promise.race([inputEnd(), new Promise<void>((resolve) => process.once('SIGTERM', () => resolve()))]);
  const assets = await embeddedAssets();
  const cluster = join(data, 'cluster');
  if (!existsSync(join(cluster, 'PG_VERSION'))) await makeCluster(cluster, assets);
  const database = await PGlite.create({ ...assets.options, dataDir: cluster });
  exitOnTrap(database);
  const socket = join(socketDirectory, '.s.PGSQL.5432');
  // A killed predecessor's; the lock says that it is gone.
  rmSync(socket, { force: true });
  const server = new PGLiteSocketServer({ db: database, path: socket, maxConnections });
  await server.start();
  chmodSync(socket, 0o600);
  console.log(JSON.stringify({ ready: true }));

  await stopped;
  await server.stop();
  await database.close();
  closeSync(lock);
  return 0;
}

async function inputEnd(): Promise<void> {
  for await (const _ of Bun.stdin.stream()) {
    // Nothing is said here; only its end means something.
  }
}

/**
 * Two PGlite processes on one cluster would destroy it, and PGlite does not look. A killed predecessor may still be ending:
 * the kernel wakes us when it has. One that does not end is waited for until our parent, which waits for the ready line,
 * kills us and tells what was said here.
 */
function lockAlone(path: string): number {
  const fd = openSync(path, 'a', 0o600);
  if (tryLock(fd)) return fd;
  console.error(`another process still uses ${path}; end it if it does not end by itself`);
  if (!waitForLock(fd)) throw new Error(`${path} cannot be locked; put the data directory on a file system with flock`);
  return fd;
}

interface Assets {
  readonly options: PGliteOptions;
  /** A fresh cluster as tar.gz; null from source before the first build: PGlite makes one itself then (slow). */
  readonly seed: string | null;
}

async function embeddedAssets(): Promise<Assets> {
  if (!Bun.isStandaloneExecutable) {
    const built = join(import.meta.dir, '../../build/assets/postgres-seed.bin');
    return { options: {}, seed: existsSync(built) ? built : null };
  }
  const assets = await import('../../bunfs-assets/assets.ts');
  const compiled = async (path: string) => WebAssembly.compile(await Bun.file(path).arrayBuffer());
  const [pgliteWasmModule, initdbWasmModule] = await Promise.all([
    compiled(assets.pgliteWasm),
    compiled(assets.initdbWasm),
  ]);
  return {
    options: { pgliteWasmModule, initdbWasmModule, fsBundle: Bun.file(assets.pgliteData) as Blob },
    seed: assets.postgresSeed,
  };
}

/** Makes the cluster beside its place and renames it: a start that is killed here leaves nothing that looks whole. */
async function makeCluster(cluster: string, assets: Assets): Promise<void> {
  const unfinished = `${cluster}.unfinished`;
  rmSync(unfinished, { recursive: true, force: true });
  mkdirSync(unfinished, { mode: 0o700 });
  if (assets.seed === null) {
    const database = await PGlite.create({ ...assets.options, dataDir: unfinished });
    await database.close();
  } else {
    await new Bun.Archive(await Bun.file(assets.seed).bytes()).extract(unfinished);
  }
  renameSync(unfinished, cluster);
}

/** A WebAssembly trap leaves the database undefined and pglite-socket waiting for ever: end, and recover at the next start. */
function exitOnTrap(database: PGlite): void {
  const run = database.execProtocolRawStream.bind(database);
  database.execProtocolRawStream = async (...call) => {
    try {
      return await run(...call);
    } catch (error) {
      console.error(`the embedded Postgres trapped: ${error instanceof Error ? error.message : String(error)}`);
      process.exit(1);
    }
  };
}
