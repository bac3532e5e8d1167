/**
 * A conversation's rows in SessionDB: its session and all that came of it, by compression, branches and delegated agents.
 * The schema is Hermes' own (`hermes_state.py`, schema 22); a test tells when a table more has sessions in it.
 */
import type { HranaDatabase } from '../../machine/agentfs/hrana.ts';
import type { SessionCounts } from './counts.ts';

export type SessionSql = Pick<HranaDatabase, 'execute' | 'batch'>;

/** Where a row names a session that it belongs to, in the order in which rows can go. */
export const sessionColumns = [
  ['messages', 'session_id'],
  ['session_model_usage', 'session_id'],
  ['compression_locks', 'session_id'],
  ['async_delegations', 'origin_session'],
  ['async_delegations', 'origin_ui_session_id'],
  ['async_delegations', 'parent_session_id'],
  ['sessions', 'id'],
] as const;

const indexes = ['messages_fts', 'messages_fts_trigram'] as const;

/** The session itself also when its row is gone: what names it is still found. */
const tree = `
  WITH RECURSIVE tree(id) AS (
    SELECT ?1
    UNION
    SELECT child.id FROM sessions child JOIN tree ON child.parent_session_id = tree.id
  )`;

export interface FoundSessions {
  readonly counts: SessionCounts;
  readonly sessions: readonly string[];
  /** The newest row: another one later means that something was written meanwhile. */
  readonly newestRow: number;
}

/** What there is of `session`; of none, and where Hermes has never run, nothing. */
export async function findSessions(sql: SessionSql, session: string | null): Promise<FoundSessions> {
  const tables = await tablesOf(sql);
  if (session === null || !tables.has('sessions')) return { counts: nothing, sessions: [], newestRow: 0 };
  const belongs = (column: string) => `${column} IN (SELECT id FROM tree)`;
  const count = (table: string, where: string) =>
    tables.has(table) ? `(SELECT count(*) FROM ${table} WHERE ${where})` : '0';
  const ownRows = `SELECT id FROM messages WHERE ${belongs('session_id')}`;
  const indexed = indexes.map((index) => count(index, `rowid IN (${ownRows})`)).join(' + ');
  const delegated = sessionColumns
    .filter(([table]) => table === 'async_delegations')
    .map(([, column]) => belongs(column))
    .join(' OR ');
  const { rows } = await sql.execute(
    `${tree}
     SELECT
       (SELECT json_group_array(id) FROM sessions WHERE ${belongs('id')}),
       ${count('messages', belongs('session_id'))},
       ${indexed},
       ${count('session_model_usage', belongs('session_id'))} + ${count('compression_locks', belongs('session_id'))},
       ${count('async_delegations', delegated)},
       (SELECT coalesce(max(id), 0) FROM messages WHERE ${belongs('session_id')})`,
    [session],
  );
  const [ids, found, inIndexes, usage, delegations, newest] = rows[0]!;
  const sessions = JSON.parse(String(ids)) as string[];
  return {
    counts: {
      sessions: sessions.length,
      rows: Number(found),
      indexed: Number(inIndexes),
      usage: Number(usage),
      delegations: Number(delegations),
    },
    sessions,
    newestRow: Number(newest),
  };
}

/** Erases all of it at once; triggers of Hermes' schema take the rows out of the full-text indexes. Harmless again. */
export async function eraseSessions(sql: SessionSql, session: string): Promise<void> {
  const tables = await tablesOf(sql);
  if (!tables.has('sessions')) return;
  const { sessions } = await findSessions(sql, session);
  const ids = JSON.stringify([...new Set([session, ...sessions])]);
  await sql.batch(
    sessionColumns
      .filter(([table]) => tables.has(table))
      .map(([table, column]) => ({
        sql: `DELETE FROM ${table} WHERE ${column} IN (SELECT value FROM json_each(?))`,
        args: [ids],
      })),
    { transaction: true },
  );
}

/** A row that is taken out of an index leaves its words in there until the index is written anew. */
export async function rewriteIndexes(sql: SessionSql): Promise<void> {
  const tables = await tablesOf(sql);
  for (const index of indexes) {
    if (tables.has(index)) await sql.execute(`INSERT INTO ${index}(${index}) VALUES ('optimize')`);
  }
}

/** Rows of the indexes of which there is no message any more, in the whole database. */
export async function indexedWithoutMessage(sql: SessionSql): Promise<number> {
  const tables = await tablesOf(sql);
  let found = 0;
  for (const index of indexes) {
    if (!tables.has(index)) continue;
    const { rows } = await sql.execute(
      `SELECT count(*) FROM ${index}_docsize WHERE id NOT IN (SELECT id FROM messages)`,
    );
    found += Number(rows[0]?.[0]);
  }
  return found;
}

const nothing: SessionCounts = { sessions: 0, rows: 0, indexed: 0, usage: 0, delegations: 0 };

async function tablesOf(sql: SessionSql): Promise<ReadonlySet<string>> {
  const { rows } = await sql.execute("SELECT name FROM sqlite_schema WHERE type = 'table'");
  return new Set(rows.map(([name]) => String(name)));
}
