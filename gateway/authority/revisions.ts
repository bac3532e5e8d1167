/**
 * At which revision each page of the database last changed, kept in a small database of its own beside it.
 *
 * A revision is `<epoch>.<number>`. Every opening begins a new epoch with a random id, and an old epoch stays known with the
 * last number it reached here. So a client may continue from a revision of an old epoch only if this very file went through
 * it: after a restored backup the numbers may catch up, but the epochs do not, and the client is sent every page.
 */
import { Database, type Statement } from 'bun:sqlite';
import { randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import type { WalIdentity } from './wal.ts';

/** Epochs that stay known; a client that was away for longer is sent every page. */
const KEPT_EPOCHS = 256;

/** What must still be true of the files for the recorded revisions to belong to them. */
export type FileState = {
  /** Size and time of change of the main file. */
  bytes: bigint;
  changedAt: bigint;
  /** Everything in the log has been folded into the main file. */
  folded: boolean;
  wal: WalIdentity | null;
};

/**
 * Whether the files found at start continue those that were recorded: the log is the same and not shorter, or it was folded
 * completely and the main file is untouched since.
 */
function continues(recorded: FileState, found: FileState): boolean {
  if (recorded.wal && found.wal && recorded.wal.salt1 === found.wal.salt1 && recorded.wal.salt2 === found.wal.salt2)
    return found.wal.frames >= recorded.wal.frames;
  return recorded.folded && recorded.bytes === found.bytes && recorded.changedAt === found.changedAt;
}

type StateRow = [bigint, bigint, bigint, bigint | null, bigint | null, bigint | null];

export class Revisions {
  readonly #database: Database;
  readonly #epochs: Map<string, number>;
  readonly #epoch = randomBytes(8).toString('hex');
  readonly #setPage: Statement<unknown, [number, number]>;
  readonly #setEpoch: Statement<unknown, [number, string]>;
  readonly #setState: Statement<unknown, (bigint | number | null)[]>;
  readonly #changed: Statement<unknown, [number, number]>;
  #number: number;

  /**
   * Opens and locks the file for as long as the process lives, so that two authorities never serve one directory.
   * @param found the state of the database's files before anything was opened
   * @throws when another process has the file
   */
  constructor(file: string, found: FileState) {
    const database = openOrBeginAnew(file);
    this.#database = database;
    database.run(`CREATE TABLE IF NOT EXISTS page(page INTEGER PRIMARY KEY, revision INTEGER NOT NULL);
      CREATE INDEX IF NOT EXISTS page_by_revision ON page(revision);
      CREATE TABLE IF NOT EXISTS epoch(ordinal INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, last INTEGER NOT NULL);
      CREATE TABLE IF NOT EXISTS state(one INTEGER PRIMARY KEY CHECK (one = 1), bytes INTEGER NOT NULL, changed_at INTEGER NOT NULL,
        folded INTEGER NOT NULL, salt1 INTEGER, salt2 INTEGER, frames INTEGER);`);
    const row = database.query('SELECT bytes, changed_at, folded, salt1, salt2, frames FROM state').values()[0];
    const recorded = row ? stateOf(row as StateRow) : null;
    database.transaction(() => {
      if (!recorded || !continues(recorded, found))
        database.run('DELETE FROM page; DELETE FROM epoch; DELETE FROM state;');
      const last = database.query('SELECT coalesce(max(last), 0) FROM epoch').values()[0] as [bigint];
      database.query('INSERT INTO epoch(id, last) VALUES (?, ?)').run(this.#epoch, last[0]);
      database.query('DELETE FROM epoch WHERE ordinal <= (SELECT max(ordinal) FROM epoch) - ?').run(KEPT_EPOCHS);
    })();
    const epochs = database.query('SELECT id, last FROM epoch').values() as [string, bigint][];
    this.#epochs = new Map(epochs.map(([id, last]) => [id, Number(last)]));
    this.#number = this.#epochs.get(this.#epoch)!;
    this.#setPage = database.prepare(
      'INSERT INTO page(page, revision) VALUES (?, ?) ON CONFLICT(page) DO UPDATE SET revision = excluded.revision',
    );
    this.#setEpoch = database.prepare('UPDATE epoch SET last = ? WHERE id = ?');
    this.#setState = database.prepare(`INSERT INTO state(one, bytes, changed_at, folded, salt1, salt2, frames)
      VALUES (1, ?, ?, ?, ?, ?, ?) ON CONFLICT(one) DO UPDATE SET bytes = excluded.bytes, changed_at = excluded.changed_at,
      folded = excluded.folded, salt1 = excluded.salt1, salt2 = excluded.salt2, frames = excluded.frames`);
    this.#changed = database.prepare('SELECT page FROM page WHERE revision > ? AND page <= ? ORDER BY page');
  }

  /** The newest revision. */
  get current(): string {
    return `${this.#epoch}.${this.#number}`;
  }

  /** The number a client's revision stands for in this file's history, or null when it is unknown to it. */
  resolve(revision: string): number | null {
    const match = /^([0-9a-f]{16})\.(\d{1,15})$/.exec(revision);
    const last = match ? this.#epochs.get(match[1]!) : undefined;
    if (!match || last === undefined) return null;
    const number = Number(match[2]);
    return number <= last ? number : null;
  }

  /** Pages from 1 to `databasePages` that changed after `number`, in order. */
  changedSince(number: number, databasePages: number): number[] {
    if (number >= this.#number) return [];
    return (this.#changed.values(number, databasePages) as [bigint][]).map(([page]) => Number(page));
  }

  /** Makes the pages of a commit a new revision, together with the state of the files they were read from. */
  publish(pages: Iterable<number>, state: FileState): void {
    const number = this.#number + 1;
    this.#database.transaction(() => {
      for (const page of pages) this.#setPage.run(page, number);
      this.#setEpoch.run(number, this.#epoch);
      this.#record(state);
    })();
    this.#number = number;
    this.#epochs.set(this.#epoch, number);
  }

  /** Records the files' state after the log was folded. */
  record(state: FileState): void {
    this.#database.transaction(() => this.#record(state))();
  }

  /** Makes everything recorded so far durable. To be called before the log it was read from may vanish. */
  flush(): void {
    this.#database.run('PRAGMA wal_checkpoint(PASSIVE)');
  }

  close(): void {
    for (const statement of [this.#setPage, this.#setEpoch, this.#setState, this.#changed]) statement.finalize();
    this.#database.close();
  }

  #record({ bytes, changedAt, folded, wal }: FileState): void {
    this.#setState.run(bytes, changedAt, folded ? 1 : 0, wal?.salt1 ?? null, wal?.salt2 ?? null, wal?.frames ?? null);
  }
}

function open(file: string): Database {
  const database = new Database(file, { create: true, readwrite: true, safeIntegers: true });
  try {
    database.run('PRAGMA locking_mode=EXCLUSIVE');
    database.run('PRAGMA journal_mode=WAL');
    // A lost tail after a power failure costs a few clients a complete pull: `flush` makes it durable where it matters.
    database.run('PRAGMA synchronous=NORMAL');
    database.run('BEGIN IMMEDIATE');
    const [verdict] = database.query('PRAGMA quick_check(1)').values()[0] as [string];
    if (verdict !== 'ok') throw Object.assign(new Error(`${file} is damaged`), { code: 'SQLITE_CORRUPT' });
    database.run('COMMIT');
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

/** The revisions can be lost: all clients pull everything once. So a damaged file is no reason not to start. */
function openOrBeginAnew(file: string): Database {
  try {
    return open(file);
  } catch (error) {
    const code = (error as { code?: unknown } | null)?.code;
    if (code !== 'SQLITE_CORRUPT' && code !== 'SQLITE_NOTADB') throw error;
    for (const suffix of ['', '-wal', '-shm']) rmSync(file + suffix, { force: true });
    return open(file);
  }
}

function stateOf([bytes, changedAt, folded, salt1, salt2, frames]: StateRow): FileState {
  const wal =
    salt1 === null || salt2 === null || frames === null
      ? null
      : { salt1: Number(salt1), salt2: Number(salt2), frames: Number(frames) };
  return { bytes, changedAt, folded: folded === 1n, wal };
}
