/** The data directory: everything durable of one organization, used by one process at a time. */
import {
  closeSync,
  ftruncateSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statfsSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as v from 'valibot';
import { tryLock } from '../posix.ts';

export interface DataDirectory {
  /** Absolute, symbolic links resolved. */
  readonly path: string;
  /** The embedded Postgres. */
  readonly postgres: string;
  /** The embedded cloud authority. */
  readonly authority: string;
  /** The machine's replica of AgentFS. */
  readonly machine: string;
  /** Sockets of this run, mode 0700 and short enough for a unix socket address; new at each start. */
  readonly run: string;
  /** Removes the run directory and gives the directory free. */
  release(): void;
}

/** The directory cannot be used; the message says why and what to do. */
export class DataDirectoryUnusable extends Error {
  override readonly name = 'DataDirectoryUnusable';
}

const identityFile = 'edge-gateway.json';
const lockFile = 'lock';
const runPointer = 'run-directory';
const format = 1;
/** Bytes. SQLite opens no path longer than 512, and its files lie below. */
const maxPath = 440;
/** Bytes. A unix socket address has room for 107, and the longest name in it takes less than 27. */
const maxRunPath = 80;
/** A new embedded database takes 40 MiB. */
const minFreeBytes = 64 * 1024 ** 2;
const temporaryPrefix = 'egw-';
const identitySchema = v.looseObject({ program: v.literal('edge-gateway'), format: v.number() });

/** Makes the directory when it is missing, and locks it until {@link DataDirectory.release} or the end of this process. */
export function openDataDirectory(given: string): DataDirectory {
  let fd: number | null = null;
  try {
    mkdirSync(given, { recursive: true, mode: 0o700 });
    const path = realpathSync(given);
    if (Buffer.byteLength(path) > maxPath) throw Object.assign(new Error(), { code: 'ENAMETOOLONG', path });
    if (!statSync(path).isDirectory()) throw new DataDirectoryUnusable(`${given} is not a directory; name another one`);
    identify(path);
    fd = lock(path);
    checkSpace(path);
    const [postgres, authority, machine] = ['postgres', 'authority', 'machine'].map((name) => join(path, name));
    for (const directory of [postgres, authority, machine]) mkdirSync(directory!, { recursive: true, mode: 0o700 });
    const run = makeRunDirectory(path);
    const held = fd;
    return {
      path,
      postgres: postgres!,
      authority: authority!,
      machine: machine!,
      run,
      release() {
        rmSync(run, { recursive: true, force: true });
        rmSync(join(path, runPointer), { force: true });
        closeSync(held);
      },
    };
  } catch (error) {
    if (fd !== null) closeSync(fd);
    throw error instanceof DataDirectoryUnusable ? error : unusable(given, error);
  }
}

/** A database that cannot write says so late and badly. */
function checkSpace(path: string): void {
  const { bavail, bsize } = statfsSync(path);
  const free = bavail * bsize;
  if (free >= minFreeBytes) return;
  const mebibytes = (bytes: number) => Math.floor(bytes / 1024 ** 2);
  throw new DataDirectoryUnusable(
    `${path} is on a disk with ${mebibytes(free)} MiB free; make room for at least ${mebibytes(minFreeBytes)} MiB`,
  );
}

/** Refuses a directory that holds something else, and marks an empty one as ours. */
function identify(path: string): void {
  let text: string;
  try {
    text = readFileSync(join(path, identityFile), 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    const unfinished = `${identityFile}.${process.pid}`;
    const foreign = readdirSync(path).find((name) => name !== lockFile && !name.startsWith(identityFile));
    if (foreign !== undefined) {
      throw new DataDirectoryUnusable(
        `${path} is not a data directory of edge-gateway and is not empty (it has ${foreign}); name an empty one with EDGE_DATA_DIR`,
      );
    }
    writeFileSync(join(path, unfinished), `${JSON.stringify({ program: 'edge-gateway', format })}\n`, { mode: 0o600 });
    renameSync(join(path, unfinished), join(path, identityFile));
    return;
  }
  const identity = v.safeParse(v.pipe(v.string(), v.parseJson(), identitySchema), text);
  if (!identity.success) {
    throw new DataDirectoryUnusable(`${join(path, identityFile)} is not this program's; name another directory`);
  }
  if (identity.output.format > format) {
    throw new DataDirectoryUnusable(
      `${path} has format ${identity.output.format}, this program knows up to ${format}; start the newer program`,
    );
  }
}

/** The lock is the kernel's and ends with this process, however it ends; the number in the file is only for people. */
function lock(path: string): number {
  const file = join(path, lockFile);
  const fd = openSync(file, 'a+', 0o600);
  if (!tryLock(fd)) {
    closeSync(fd);
    const holder = readFileSync(file, 'utf8').trim();
    throw new DataDirectoryUnusable(
      `${path} is in use by process ${/^[0-9]+$/.test(holder) ? holder : '(unknown)'}; stop it or name another directory`,
    );
  }
  ftruncateSync(fd);
  writeSync(fd, `${process.pid}\n`);
  return fd;
}

/** What stands in the launch manifest of a holder must be one word there (zig/manifest.zig). */
const oneWord = /^[^\s\p{Cc}]+$/u;

/** Below the data directory where its path is short enough and one word, otherwise in the system's temporary directory. */
function makeRunDirectory(path: string): string {
  const pointer = join(path, runPointer);
  removeStale(pointer);
  const near = join(path, 'run');
  rmSync(near, { recursive: true, force: true });
  if (Buffer.byteLength(near) <= maxRunPath && oneWord.test(near)) {
    mkdirSync(near, { mode: 0o700 });
    return near;
  }
  const far = mkdtempSync(join(tmpdir(), temporaryPrefix));
  writeFileSync(pointer, far, { mode: 0o600 });
  if (Buffer.byteLength(far) > maxRunPath || !oneWord.test(far)) {
    rmSync(far, { recursive: true });
    throw new DataDirectoryUnusable(
      `${tmpdir()} is too long for unix sockets or has white space in it; set TMPDIR to a shorter path without`,
    );
  }
  return far;
}

/** What a killed predecessor left in the temporary directory: only a directory of our own name and owner is removed. */
function removeStale(pointer: string): void {
  let stale: string;
  try {
    stale = readFileSync(pointer, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
    throw error;
  }
  const found = lstatSync(stale, { throwIfNoEntry: false });
  if (found?.isDirectory() && found.uid === process.getuid?.() && /\/egw-[A-Za-z0-9]{6}$/.test(stale)) {
    rmSync(stale, { recursive: true, force: true });
  }
  rmSync(pointer, { force: true });
}

function unusable(given: string, error: unknown): DataDirectoryUnusable {
  const { code, path, message } = error as NodeJS.ErrnoException;
  const why: Record<string, string> = {
    EACCES: 'may not be written by this user; change its owner or name another directory with EDGE_DATA_DIR',
    EPERM: 'may not be written by this user; change its owner or name another directory with EDGE_DATA_DIR',
    EROFS: 'is on a read-only file system; name another directory with EDGE_DATA_DIR',
    ENOSPC: 'is on a full disk; make room',
    EEXIST: 'is not a directory; name another one',
    ENOTDIR: 'lies below something that is not a directory; name another one',
    ELOOP: 'is a symbolic link to itself; name another one',
    ENAMETOOLONG: 'is too long a name; name another one',
  };
  return new DataDirectoryUnusable(`${path ?? given} ${why[code ?? ''] ?? `cannot be used: ${message}`}`, {
    cause: error,
  });
}
