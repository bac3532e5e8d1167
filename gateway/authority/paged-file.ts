/** agentfs.db as pages: publishes commits as revisions, folds the write-ahead log, reads the pages of a snapshot. */
import { closeSync, existsSync, openSync, readSync, statSync } from 'node:fs';
import { SqlConnection } from './connection.ts';
import { limits } from './limits.ts';
import { type FileState, Revisions } from './revisions.ts';
import { PAGE_BYTES, WriteAheadLog } from './wal.ts';

/** For connections to a paged file: the log is folded by `PagedFile` alone, when revisions are safe. */
export const PAGED_FILE_PRAGMAS = [
  `PRAGMA page_size=${PAGE_BYTES}`,
  'PRAGMA journal_mode=WAL',
  'PRAGMA synchronous=FULL',
  'PRAGMA wal_autocheckpoint=0',
  'PRAGMA foreign_keys=OFF',
] as const;

/** Where a page's content stands: a position in the log, or in the main file. */
export type PageSource = { page: number; logPosition: number | null };

function fileState(file: string, log: WriteAheadLog, folded: boolean): FileState {
  const found = existsSync(file) ? statSync(file, { bigint: true }) : null;
  return { bytes: found?.size ?? 0n, changedAt: found?.mtimeNs ?? 0n, folded, wal: log.identity };
}

export class PagedFile {
  readonly revisions: Revisions;
  readonly #file: string;
  readonly #log: WriteAheadLog;
  readonly #connection: SqlConnection;
  /** Kept open for life: closing any descriptor of the file would drop SQLite's POSIX locks on it. */
  readonly #descriptor: number;
  /** Newest committed content of the pages that the log holds. */
  readonly #inLog = new Map<number, number>();
  /** Committed pages that no revision names yet; more than none only after `publish` failed. */
  readonly #unpublished = new Set<number>();
  #databasePages: number;
  #foldedCompletely = false;
  /** Length of the log in frames at which it is folded next. A snapshot may keep it from starting over. */
  #foldAt: number = limits.walFrames;

  /** @throws when another process serves the directory, or the files cannot be used */
  constructor(file: string) {
    this.#file = file;
    this.#log = new WriteAheadLog(`${file}-wal`);
    const found = this.#log.advance();
    // The lock of the revisions comes first, so that a second authority touches nothing.
    this.revisions = new Revisions(`${file}-revisions`, fileState(file, this.#log, false));
    this.#connection = new SqlConnection(file, PAGED_FILE_PRAGMAS);
    this.#connection.query('SELECT count(*) FROM sqlite_schema');
    const pageBytes = Number(this.#connection.query('PRAGMA page_size')[0]![0]);
    if (pageBytes !== PAGE_BYTES)
      throw new Error(`${file} has pages of ${pageBytes} bytes; the sync protocol needs ${PAGE_BYTES}`);
    this.#descriptor = openSync(file, 'r');
    this.#databasePages = Number(this.#connection.query('PRAGMA page_count')[0]![0]);
    // What a crash left in the log is published again: some of it may never have been.
    for (const [page, position] of found.pages) this.#inLog.set(page, position);
    if (found.pages.size) this.revisions.publish(found.pages.keys(), fileState(file, this.#log, false));
    this.#fold();
  }

  get databasePages(): number {
    return this.#databasePages;
  }

  /** Makes what was committed since the last call a revision. @throws when it cannot be recorded; call again */
  publish(): void {
    const { pages, databasePages, restarted } = this.#log.advance();
    if (restarted) {
      this.#inLog.clear();
      this.#foldAt = limits.walFrames;
    }
    for (const [page, position] of pages) {
      this.#inLog.set(page, position);
      this.#unpublished.add(page);
    }
    if (databasePages !== null) this.#databasePages = databasePages;
    if (this.#unpublished.size === 0) return;
    this.revisions.publish(this.#unpublished, fileState(this.#file, this.#log, false));
    this.#unpublished.clear();
    if (this.#log.identity!.frames >= this.#foldAt) this.#fold();
  }

  /** Where the content of the pages stands now. Valid until the next commit, or as long as a snapshot is held. */
  locate(pages: readonly number[]): PageSource[] {
    return pages.map((page) => ({ page, logPosition: this.#inLog.get(page) ?? null }));
  }

  readPage({ page, logPosition }: PageSource, target: Uint8Array, at: number): void {
    if (logPosition !== null) this.#log.readPage(logPosition, target, at);
    else if (readSync(this.#descriptor, target, at, PAGE_BYTES, (page - 1) * PAGE_BYTES) !== PAGE_BYTES)
      throw new Error(`page ${page} of the database is cut off`);
  }

  /** Keeps every page where it stands now, until the returned function is called: a read transaction. */
  holdSnapshot(): () => void {
    const reader = new SqlConnection(this.#file, PAGED_FILE_PRAGMAS);
    reader.run('BEGIN');
    reader.query('SELECT count(*) FROM sqlite_schema');
    let held = true;
    return () => {
      if (held) reader.close();
      held = false;
    };
  }

  /** Folds the log, records that, and closes. All other connections must be closed before. */
  close(): void {
    this.#fold();
    this.#connection.close();
    if (this.#foldedCompletely) this.revisions.record(fileState(this.#file, this.#log, true));
    this.revisions.close();
    this.#log.close();
    closeSync(this.#descriptor);
  }

  /** Copies the log into the main file as far as no snapshot needs it. */
  #fold(): void {
    this.revisions.flush();
    const [busy, inLog, folded] = this.#connection.query('PRAGMA wal_checkpoint(PASSIVE)')[0]!;
    this.#foldAt = (this.#log.identity?.frames ?? 0) + limits.walFrames;
    this.#foldedCompletely = Number(busy) === 0 && inLog === folded;
    if (!this.#foldedCompletely) return;
    this.#inLog.clear();
    this.revisions.record(fileState(this.#file, this.#log, true));
  }
}
