/** The open Hrana streams of one database: their connections, batons and deadlines. */
import { randomBytes } from 'node:crypto';
import { SqlConnection } from './connection.ts';
import { RequestRefused } from './failure.ts';
import { limits } from './limits.ts';
import { WriteGate } from './write-gate.ts';

export type ServedDatabaseOptions = {
  file: string;
  /** Run on every new connection. */
  pragmas: readonly string[];
  /** A stream outlives its request also without an open transaction. */
  keepStreams: boolean;
  /** Called after every transaction that may have changed the file, before the next writer runs. */
  onCommit: () => void;
};

export type Stream = {
  readonly id: string;
  readonly connection: SqlConnection;
  readonly storedSql: Map<number, string>;
  /** Number of the next request; part of the baton, so that an old baton is refused. */
  sequence: number;
  busy: boolean;
  closed: boolean;
  deadline: ReturnType<typeof setTimeout> | null;
  /** `PRAGMA foreign_keys` was used: to be set back at the end. */
  foreignKeysSet: boolean;
  /** Settings or temporary tables make the connection unfit for another stream. */
  personal: boolean;
};

export class StreamTable {
  readonly gate = new WriteGate(limits.writeWait, limits.writeQueue);
  readonly options: ServedDatabaseOptions;
  readonly #streams = new Map<string, Stream>();
  readonly #spare: SqlConnection[] = [];
  /** Never the last one to close: SQLite would then fold and delete the log each time a stream ends. */
  readonly #keeper: SqlConnection;

  /** @throws when the database cannot be opened */
  constructor(options: ServedDatabaseOptions) {
    this.options = options;
    this.#keeper = new SqlConnection(options.file, options.pragmas);
    this.#keeper.query('SELECT count(*) FROM sqlite_schema');
  }

  get size(): number {
    return this.#streams.size;
  }

  /** @throws RequestRefused 503 with too many streams */
  open(): Stream {
    if (this.#streams.size >= limits.streams)
      throw new RequestRefused(503, 'TOO_MANY_STREAMS', `more than ${limits.streams} streams are open`);
    const connection = this.#spare.pop() ?? new SqlConnection(this.options.file, this.options.pragmas);
    const stream: Stream = {
      id: randomBytes(16).toString('hex'),
      connection,
      storedSql: new Map(),
      sequence: 0,
      busy: true,
      closed: false,
      deadline: null,
      foreignKeysSet: false,
      personal: false,
    };
    this.#streams.set(stream.id, stream);
    return stream;
  }

  /** The stream of a baton, marked busy. @throws RequestRefused 400 */
  resume(baton: string): Stream {
    const [id = '', sequence] = baton.split('.', 2);
    const stream = this.#streams.get(id);
    if (!stream) throw new RequestRefused(400, 'STREAM_EXPIRED', 'the stream has ended or expired');
    if (stream.busy || sequence !== String(stream.sequence))
      throw new RequestRefused(400, 'BATON_REUSED', 'the baton was used before; a stream runs one request at a time');
    if (stream.deadline) clearTimeout(stream.deadline);
    stream.deadline = null;
    stream.busy = true;
    return stream;
  }

  /** Ends a request of the stream. Returns the baton of the next, or null when the stream is over. */
  rest(stream: Stream): string | null {
    stream.busy = false;
    if (stream.closed) return null;
    const open = stream.connection.inTransaction;
    if (!open && !this.options.keepStreams && stream.storedSql.size === 0) {
      this.close(stream);
      return null;
    }
    stream.sequence++;
    stream.deadline = setTimeout(() => this.close(stream), open ? limits.openTransactionIdle : limits.streamIdle);
    stream.deadline.unref();
    return `${stream.id}.${stream.sequence}`;
  }

  /** To be called after each statement: ends the write lock with its transaction. */
  settle(stream: Stream): void {
    if (stream.connection.inTransaction) return;
    if (!this.gate.isOwnedBy(stream)) return;
    try {
      this.options.onCommit();
    } finally {
      this.gate.release(stream);
    }
  }

  /** Rolls back, releases the write lock and lets the connection be used again. */
  close(stream: Stream): void {
    if (stream.closed) return;
    stream.closed = true;
    if (stream.deadline) clearTimeout(stream.deadline);
    this.#streams.delete(stream.id);
    let reusable = !stream.personal && this.#spare.length < limits.spareConnections;
    try {
      stream.connection.rollback();
      // The one setting that every Hermes connection makes.
      if (reusable && stream.foreignKeysSet) stream.connection.run('PRAGMA foreign_keys=OFF');
    } catch {
      // A connection that cannot roll back is closed, which does.
      reusable = false;
    }
    if (!reusable) stream.connection.close();
    if (reusable) this.settle(stream);
    else this.gate.release(stream);
    if (reusable) this.#spare.push(stream.connection);
  }

  closeAll(): void {
    for (const stream of [...this.#streams.values()]) this.close(stream);
    for (const connection of this.#spare.splice(0)) connection.close();
    this.#keeper.close();
  }
}
