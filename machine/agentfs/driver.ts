/**
 * The SQL that the store needs, over a local @tursodatabase/sync database. Nothing here knows files.
 */
import { open } from 'node:fs/promises';

export type SqlValue = string | number | bigint | Uint8Array | null;
export type SqlRow = Readonly<Record<string, SqlValue>>;

/** A statement that is kept prepared. */
export interface Prepared {
  run(...args: SqlValue[]): Promise<{ changes: number }>;
  get(...args: SqlValue[]): Promise<SqlRow | undefined>;
  all(...args: SqlValue[]): Promise<SqlRow[]>;
  close(): void;
}

/** What of @tursodatabase/sync is used for SQL. */
export interface LocalDatabase {
  prepare(sql: string): Promise<Prepared>;
  exec(sql: string): Promise<void>;
}

/** Keeps statements prepared and makes what was committed durable on demand. */
export class SqlDriver {
  readonly #database: LocalDatabase;
  /** The database's file; null for one in memory. */
  readonly path: string | null;
  readonly #walPath: string | null;
  readonly #prepared: Map<string, Promise<Prepared>>;
  #before: (() => Promise<void> | null) | null = null;

  /** `path` is the database file's; null for one in memory. */
  constructor(database: LocalDatabase, path: string | null, prepared = new Map<string, Promise<Prepared>>()) {
    this.#database = database;
    this.path = path;
    this.#walPath = path === null ? null : `${path}-wal`;
    this.#prepared = prepared;
  }

  /**
   * Lets `before` run before each statement of this driver, such as to write what memory still keeps back; answers with
   * another driver of the same database that does not wait for it.
   */
  intercept(before: () => Promise<void> | null): SqlDriver {
    this.#before = before;
    return new SqlDriver(this.#database, null, this.#prepared);
  }

  /**
   * Commits reach the page cache of the host at once and its disk at `sync()`: a killed process loses nothing, a power cut
   * loses what nobody called fsync for. That is what POSIX promises, and 20 times faster.
   */
  async start(): Promise<void> {
    await this.#database.exec('PRAGMA synchronous = NORMAL');
    // Otherwise every start leaves a directory in /tmp, and intermediate results of queries are written there.
    await this.#database.exec('PRAGMA temp_store = MEMORY');
  }

  async run(sql: string, ...args: SqlValue[]): Promise<{ changes: number }> {
    const wait = this.#before?.();
    if (wait) await wait;
    return (await this.#statement(sql)).run(...args);
  }

  async get(sql: string, ...args: SqlValue[]): Promise<SqlRow | undefined> {
    const wait = this.#before?.();
    if (wait) await wait;
    return (await this.#statement(sql)).get(...args);
  }

  async all(sql: string, ...args: SqlValue[]): Promise<SqlRow[]> {
    const wait = this.#before?.();
    if (wait) await wait;
    return (await this.#statement(sql)).all(...args);
  }

  /** Makes everything committed so far durable; `Store.sync` commits first. */
  async sync(): Promise<void> {
    if (this.#walPath === null) return;
    const file = await open(this.#walPath, 'r').catch((error: NodeJS.ErrnoException) => {
      // No log yet: nothing was ever committed.
      if (error.code === 'ENOENT') return null;
      throw error;
    });
    if (!file) return;
    try {
      await file.datasync();
    } finally {
      await file.close();
    }
  }

  /** Forgets prepared statements: a pull may have changed the schema under them. */
  async forget(): Promise<void> {
    const statements = [...this.#prepared.values()];
    this.#prepared.clear();
    for (const statement of statements) (await statement).close();
  }

  #statement(sql: string): Promise<Prepared> {
    let prepared = this.#prepared.get(sql);
    if (!prepared) {
      prepared = this.#database.prepare(sql);
      this.#prepared.set(sql, prepared);
      // A statement that cannot be prepared now may be later, when a pull brought its table.
      prepared.catch(() => this.#prepared.delete(sql));
    }
    return prepared;
  }
}

/**
 * How to bind bytes: an SQL expression with one `?` and its value. The engine's binding copies a buffer element by element
 * (37 ns a byte); as text it takes 1 ns a byte where the bytes are UTF-8, as hexadecimal 15.
 */
export function bytesAsSql(bytes: Uint8Array): { readonly expression: 'CAST(? AS BLOB)' | 'unhex(?)'; value: string } {
  try {
    return { expression: 'CAST(? AS BLOB)', value: utf8.decode(bytes) };
  } catch {
    // Not UTF-8: any bytes can go as hexadecimal.
    return {
      expression: 'unhex(?)',
      value: Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex'),
    };
  }
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
