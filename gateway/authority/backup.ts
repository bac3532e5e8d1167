/**
 * A copy of the authority's databases while it goes on serving. A read transaction of SQLite keeps the log from starting over
 * and the main file from being overwritten with anything newer, so that main file and log, copied one after the other, are
 * together the state at that moment or a whole commit later. Rows keep their ids, which `VACUUM INTO` does not promise.
 */
import { Database } from 'bun:sqlite';
import { existsSync, renameSync, rmSync } from 'node:fs';
import { copyFile, mkdir, open } from 'node:fs/promises';
import { join } from 'node:path';

export const databaseFiles = ['agentfs.db', 'sessiondb.db'] as const;

/** How long the first read waits for a writer that is just folding the log. */
const busyMs = 10_000;

export interface BackedUp {
  readonly file: string;
  readonly bytes: number;
}

/**
 * Copies both databases of the authority in `from` into the directory `to`. Each copy is checked before it gets its name; one
 * that is there already is replaced only then. The two are copied one after the other: a turn that ends in between is in the
 * later one alone.
 * @throws Error when a database is missing, or the copy is not whole
 */
export async function backUp(from: string, to: string): Promise<BackedUp[]> {
  for (const name of databaseFiles) {
    if (!existsSync(join(from, name)))
      throw new Error(`${join(from, name)} is missing: is that an authority's directory?`);
  }
  await mkdir(to, { recursive: true, mode: 0o700 });
  const done: BackedUp[] = [];
  for (const name of databaseFiles) {
    const unfinished = join(to, `${name}.unfinished`);
    removeDatabase(unfinished);
    try {
      await copySnapshot(join(from, name), unfinished);
      check(unfinished);
      await makeDurable(unfinished);
      renameSync(unfinished, join(to, name));
      done.push({ file: join(to, name), bytes: Bun.file(join(to, name)).size });
    } finally {
      removeDatabase(unfinished);
    }
  }
  return done;
}

async function copySnapshot(file: string, to: string): Promise<void> {
  const reader = new Database(file, { readonly: true });
  try {
    reader.run(`PRAGMA busy_timeout = ${busyMs}`);
    reader.run('BEGIN');
    reader.query('SELECT count(*) FROM sqlite_schema').get();
    await copyFile(file, to);
    if (existsSync(`${file}-wal`)) await copyFile(`${file}-wal`, `${to}-wal`);
  } finally {
    reader.close();
  }
}

/** Folds the copy's log into it, and looks at every page. @throws Error when something is wrong with it */
function check(file: string): void {
  const copy = new Database(file, { readwrite: true });
  try {
    copy.run('PRAGMA wal_checkpoint(TRUNCATE)');
    const verdict = copy.query<{ integrity_check: string }, []>('PRAGMA integrity_check(1)').get()?.integrity_check;
    if (verdict !== 'ok') throw new Error(`the copy of ${file} is damaged: ${verdict}`);
  } finally {
    copy.close();
  }
}

async function makeDurable(file: string): Promise<void> {
  const handle = await open(file, 'r+');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function removeDatabase(file: string): void {
  for (const suffix of ['', '-wal', '-shm']) rmSync(`${file}${suffix}`, { force: true });
}
