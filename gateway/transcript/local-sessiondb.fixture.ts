/** A SessionDB in a local SQLite file or in memory, as the transcript reads it: for tests. */
import { Database } from 'bun:sqlite';
import { HranaError, type SqlArgument } from '../../machine/agentfs/hrana.ts';
import type { SqlReader } from './sessiondb.ts';

const bindable = (value: SqlArgument): string | number | bigint | null | boolean | Uint8Array =>
  typeof value === 'object' && value !== null && 'real' in value ? value.real : value;

/** Reads `database` the way HranaDatabase reads a remote one. */
export function readerOf(database: Database): SqlReader {
  return {
    async execute(sql, args) {
      try {
        const statement = database.prepare(sql);
        const rows = statement.values(...args.map(bindable)) as (string | number | null)[][];
        statement.finalize();
        return { rows };
      } catch (error) {
        throw new HranaError('sql', 'SQLITE_ERROR', (error as Error).message);
      }
    },
  };
}

/** The columns of Hermes' schema that matter here. */
const schema = `
  CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, model_config TEXT, parent_session_id TEXT,
    started_at REAL NOT NULL, ended_at REAL, end_reason TEXT);
  CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL, content TEXT,
    tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL, finish_reason TEXT,
    platform_message_id TEXT, observed INTEGER DEFAULT 0, active INTEGER NOT NULL DEFAULT 1,
    compacted INTEGER NOT NULL DEFAULT 0);
  CREATE INDEX idx_messages_session ON messages(session_id, timestamp);`;

/** A new file with Hermes' tables. */
export function createSchema(path: string): Database {
  const database = new Database(path);
  database.exec('PRAGMA journal_mode = WAL; PRAGMA busy_timeout = 5000;');
  database.exec(schema);
  return database;
}

export interface FixtureRow {
  readonly session?: string;
  readonly role: 'user' | 'assistant' | 'tool';
  readonly content: string | null;
  readonly toolCalls?: string;
  readonly finish?: string | null;
  readonly timestamp?: number;
}

/** An empty SessionDB with one session, `s`, and calls that write to it as Hermes does. */
export class FixtureSessionDb {
  readonly database = new Database(':memory:');
  readonly reader = readerOf(this.database);
  #clock = 1_786_000_000;

  constructor() {
    this.database.exec(schema);
    this.session('s');
  }

  session(id: string, more: { parent?: string; config?: string; source?: string } = {}): void {
    this.database
      .prepare('INSERT INTO sessions (id, source, model_config, parent_session_id, started_at) VALUES (?,?,?,?,?)')
      .run(id, more.source ?? 'acp', more.config ?? null, more.parent ?? null, this.#clock);
  }

  /** Appends a row in a transaction of its own and gives its id. */
  append(row: FixtureRow): number {
    this.#clock += 1.25;
    return this.#insert(row, row.timestamp ?? this.#clock);
  }

  /** Compacts in place as Hermes 0.19 does: puts the live rows away and writes these in one transaction. */
  compact(rows: readonly FixtureRow[]): number[] {
    this.database.exec("UPDATE messages SET active = 0, compacted = 1 WHERE session_id = 's' AND active = 1");
    return this.batch(rows);
  }

  batch(rows: readonly FixtureRow[]): number[] {
    this.#clock += 1.25;
    return rows.map((row, index) => this.#insert(row, row.timestamp ?? this.#clock + index * 1e-6));
  }

  #insert(row: FixtureRow, timestamp: number): number {
    const finish =
      row.finish === undefined && row.role === 'assistant' ? (row.toolCalls ? 'tool_calls' : 'stop') : row.finish;
    const result = this.database
      .prepare(
        'INSERT INTO messages (session_id, role, content, tool_calls, timestamp, finish_reason) VALUES (?,?,?,?,?,?)',
      )
      .run(row.session ?? 's', row.role, row.content, row.toolCalls ?? null, timestamp, finish ?? null);
    return Number(result.lastInsertRowid);
  }
}
