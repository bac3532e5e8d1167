/** For tests: a SessionDB on a real authority, with the tables and triggers of the pinned Hermes, written as Hermes writes. */
import { rmSync } from 'node:fs';
import { HranaDatabase, type SqlArgument } from '../../machine/agentfs/hrana.ts';
import { addressOf, serveAuthority } from '../authority/authority.fixture.ts';
import type { Locator } from '../ids.ts';
import { encodeLocator } from './locator.ts';

const indexed =
  "coalesce(new.content, '') || ' ' || coalesce(new.tool_name, '') || ' ' || coalesce(new.tool_calls, '')";
const schema = [
  `CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, model_config TEXT, parent_session_id TEXT,
    started_at REAL NOT NULL, ended_at REAL, end_reason TEXT, message_count INTEGER DEFAULT 0)`,
  `CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL REFERENCES sessions(id),
    role TEXT NOT NULL, content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL,
    finish_reason TEXT, codex_message_items TEXT, platform_message_id TEXT, observed INTEGER DEFAULT 0,
    active INTEGER NOT NULL DEFAULT 1, compacted INTEGER NOT NULL DEFAULT 0, api_content TEXT)`,
  'CREATE INDEX idx_messages_session ON messages(session_id, timestamp)',
  'CREATE VIRTUAL TABLE messages_fts USING fts5(content)',
  `CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages BEGIN
    INSERT INTO messages_fts(rowid, content) VALUES (new.id, ${indexed}); END`,
  `CREATE TRIGGER messages_fts_update AFTER UPDATE ON messages BEGIN
    DELETE FROM messages_fts WHERE rowid = old.id;
    INSERT INTO messages_fts(rowid, content) VALUES (new.id, ${indexed}); END`,
];

export interface Row {
  readonly role: 'user' | 'assistant' | 'tool';
  readonly content: string;
  readonly toolCalls?: string;
  readonly timestamp?: number;
  readonly finish?: string | null;
}

export interface StoredRow {
  readonly id: number;
  readonly role: string;
  readonly content: string | null;
  readonly active: number;
  readonly compacted: number;
  readonly finish: string | null;
  readonly timestamp: number;
}

export class HermesSessionDb {
  readonly database: HranaDatabase;
  readonly #authority;
  #clock = 1_786_000_000;

  private constructor(authority: ReturnType<typeof serveAuthority>) {
    this.#authority = authority;
    this.database = new HranaDatabase(addressOf(authority.socket, 'sessiondb'));
  }

  static async start(): Promise<HermesSessionDb> {
    const made = new HermesSessionDb(serveAuthority());
    await made.database.batch(
      schema.map((sql) => ({ sql })),
      { transaction: true },
    );
    return made;
  }

  async session(id: string): Promise<string> {
    await this.#run("INSERT INTO sessions (id, source, started_at) VALUES (?, 'acp', 1.5)", [id]);
    return id;
  }

  /** One row in a transaction of its own. */
  async append(session: string, row: Row): Promise<Locator> {
    this.#clock += 1.25;
    const timestamp = row.timestamp ?? this.#clock;
    const finish = row.finish ?? (row.role === 'assistant' ? (row.toolCalls ? 'tool_calls' : 'stop') : null);
    const { rows } = await this.database.execute(
      `INSERT INTO messages (session_id, role, content, tool_calls, timestamp, finish_reason, api_content)
       VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id`,
      [session, row.role, row.content, row.toolCalls ?? null, { real: timestamp }, finish, `sent: ${row.content}`],
    );
    await this.#run('UPDATE sessions SET message_count = message_count + 1 WHERE id = ?', [session]);
    return encodeLocator({ session, row: Number(rows[0]?.[0]), timestamp });
  }

  /** Puts the live rows away and writes these in their place, as context compaction in place does. */
  async compact(session: string, rows: readonly Row[]): Promise<void> {
    this.#clock += 1.25;
    const insert = (row: Row, index: number) => ({
      sql: `INSERT INTO messages (session_id, role, content, tool_calls, timestamp, finish_reason) VALUES (?,?,?,?,?,?)`,
      args: [
        ...[session, row.role, row.content, row.toolCalls ?? null],
        ...[{ real: row.timestamp ?? this.#clock + index * 1e-6 }, row.finish ?? null],
      ],
    });
    const away = {
      sql: 'UPDATE messages SET active = 0, compacted = 1 WHERE session_id = ? AND active = 1',
      args: [session],
    };
    await this.database.batch([away, ...rows.map(insert)], { transaction: true });
  }

  async rows(session: string): Promise<StoredRow[]> {
    const { rows } = await this.database.execute(
      `SELECT id, role, content, active, compacted, finish_reason, timestamp FROM messages WHERE session_id = ? ORDER BY id`,
      [session],
    );
    return rows.map(([id, role, content, active, compacted, finish, timestamp]) => ({
      id: Number(id),
      role: String(role),
      content: content === null ? null : String(content),
      active: Number(active),
      compacted: Number(compacted),
      finish: finish === null ? null : String(finish),
      timestamp: Number(timestamp),
    }));
  }

  /** What Hermes would load as history. */
  async live(session: string): Promise<string[]> {
    return (await this.rows(session))
      .filter(({ active }) => active === 1)
      .map(({ role, content }) => `${role}: ${content}`);
  }

  /** Ids of the rows that the full-text index finds. */
  async search(word: string): Promise<number[]> {
    const { rows } = await this.database.execute('SELECT rowid FROM messages_fts WHERE messages_fts MATCH ?', [word]);
    return rows.map(([id]) => Number(id));
  }

  async messageCount(session: string): Promise<number> {
    const { rows } = await this.database.execute('SELECT message_count FROM sessions WHERE id = ?', [session]);
    return Number(rows[0]?.[0]);
  }

  async stop(): Promise<void> {
    await this.#authority.stop();
    rmSync(this.#authority.directory, { recursive: true, force: true });
  }

  async #run(sql: string, args: readonly SqlArgument[]): Promise<void> {
    await this.database.execute(sql, args);
  }
}
