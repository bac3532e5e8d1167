/**
 * The canonical transcript, read from the organization's SessionDB authority for each question and kept nowhere (ADR-046
 * §6, §9). The schema is Hermes' own (`hermes_state.py`, schema 22).
 */
import { HranaError, type SqlArgument, type SqlValue } from '../../machine/agentfs/hrana.ts';
import { rowKind, rowText } from '../acp/row-profile.ts';
import { Problem } from '../problem.ts';
import { humanPrefix, isHuman } from './human-mark.ts';
import { decodeCursor, decodeLocator, encodeCursor, encodeLocator, type RowAddress } from './locator.ts';
import type { ClosingRow, Transcript, TranscriptRow, TranscriptTurn } from './transcript.ts';

/** What is needed of a database, such as `HranaDatabase`. Rejects with HranaError. */
export interface SqlReader {
  execute(sql: string, args: readonly SqlArgument[]): Promise<{ readonly rows: readonly (readonly SqlValue[])[] }>;
}

/**
 * The sessions that a conversation went through: context compression can end one and go on in a child. Branches and
 * delegated sub-agents are children too, and not of the conversation.
 */
export const lineage = `
  WITH RECURSIVE lineage(id, depth) AS (
    SELECT id, 0 FROM sessions WHERE id = ?
    UNION
    SELECT child.id, depth + 1
    FROM lineage
    JOIN sessions parent ON parent.id = lineage.id AND parent.end_reason = 'compression'
    JOIN sessions child ON child.parent_session_id = parent.id
    WHERE depth < 100 AND coalesce(child.source, '') <> 'tool'
      AND json_extract(coalesce(child.model_config, '{}'), '$._branched_from') IS NULL
      AND json_extract(coalesce(child.model_config, '{}'), '$._delegate_from') IS NULL
  )`;

/** Rows that the user took back are neither live nor compacted. */
export const kept = '(m.active = 1 OR m.compacted = 1)';

// Compaction writes its rows in one transaction, microseconds apart; every other row is a transaction of its own. It
// repeats rows that it put away: those of the same session are marked, those of an earlier session of the lineage are not.
// A row that the compacting child had read from the database keeps its time, so what stands beside such a copy is told by
// that; an answer of the model has a finish reason, a summary has none.
const timedCopy = (row: string): string => `EXISTS (
  SELECT 1 FROM messages t
  WHERE t.session_id = ${row}.session_id AND t.timestamp = ${row}.timestamp AND t.role = ${row}.role AND t.id < ${row}.id)`;
export const batched = `EXISTS (
  SELECT 1 FROM messages b
  WHERE b.id IN (m.id - 1, m.id + 1) AND b.session_id = m.session_id
    AND ((abs(b.timestamp - m.timestamp) < 3e-6 AND b.timestamp <> m.timestamp) OR (m.finish_reason IS NULL AND ${timedCopy('b')})))`;

// The plus keeps SQLite from walking the whole session: the rows after the watermark are few.
const closingRow = `${lineage}
  SELECT m.id, m.session_id, m.timestamp, m.role, m.content, m.tool_calls IS NOT NULL, m.finish_reason,
    ${batched} OR ${timedCopy('m')}
  FROM messages m
  WHERE +m.session_id IN (SELECT id FROM lineage) AND m.id > ? AND m.active = 1
    AND coalesce(m.finish_reason, '') NOT LIKE '${humanPrefix}%'
  ORDER BY m.id DESC LIMIT 1`;

const heldSession = `
  SELECT 1 WHERE EXISTS (SELECT 1 FROM sessions WHERE id = ?) OR EXISTS (SELECT 1 FROM messages WHERE session_id = ?)`;

const locatedRows = `
  SELECT m.id, m.session_id, m.timestamp, m.content FROM messages m
  WHERE m.session_id = ? AND m.timestamp = ? AND ${kept}
  ORDER BY m.id = ? DESC LIMIT 2`;

/**
 * Rows of `page` with what their neighbours tell. A copy that compaction made has the words of its original, or, where the
 * compacting child had read them from the database, its time, or the mark of a human reply.
 */
const placedRows = `
  SELECT m.id, m.session_id, m.timestamp, m.role, m.content, m.tool_calls, m.finish_reason, m.batched,
    EXISTS (
      SELECT 1 FROM messages o
      WHERE o.session_id IN (SELECT id FROM lineage) AND o.id < m.id AND (m.batched OR o.timestamp = m.timestamp)
        AND (o.compacted = 1 OR o.session_id <> m.session_id)
        AND o.role = m.role
        AND ((o.content IS m.content AND o.tool_calls IS m.tool_calls) OR o.timestamp = m.timestamp)
    ) OR (
      m.finish_reason LIKE '${humanPrefix}%' AND EXISTS (
        SELECT 1 FROM messages o
        WHERE o.session_id IN (SELECT id FROM lineage) AND o.id < m.id AND o.finish_reason = m.finish_reason
      )
    ),
    (
      SELECT p.role = 'tool' OR p.finish_reason IN ('length', 'incomplete') FROM messages p
      WHERE p.session_id = m.session_id AND p.id < m.id AND m.role = 'user' AND ${kept.replaceAll('m.', 'p.')}
      ORDER BY p.id DESC LIMIT 1
    ),
    m.active
  FROM page m`;

const pageRows = `${lineage},
  page AS (
    SELECT m.*, ${batched} AS batched FROM messages m
    WHERE m.session_id IN (SELECT id FROM lineage) AND m.id > ? AND m.role IN ('user', 'assistant') AND ${kept}
    ORDER BY m.id LIMIT ?
  )
  ${placedRows} ORDER BY m.id`;

const locatedTurn = `${lineage},
  page AS (
    SELECT m.*, ${batched} AS batched FROM messages m
    WHERE m.session_id = ? AND m.timestamp = ? AND m.session_id IN (SELECT id FROM lineage) AND ${kept}
    ORDER BY m.id = ? DESC LIMIT 2
  )
  ${placedRows} ORDER BY m.id = ? DESC`;

/** Asks `database`; a failure of the authority is a `sessiondb-unavailable` Problem. */
export async function ask(
  database: SqlReader,
  sql: string,
  args: readonly SqlArgument[],
): Promise<readonly (readonly SqlValue[])[]> {
  try {
    return (await database.execute(sql, args)).rows;
  } catch (error) {
    // Hermes makes the schema with its first session: until then there is nothing to read.
    if (error instanceof HranaError && error.kind === 'sql' && /no such table/.test(error.message)) return [];
    if (!(error instanceof HranaError)) throw error;
    const problem = new Problem('sessiondb-unavailable', 'The transcript cannot be read now. Try again later.');
    problem.cause = error;
    throw problem;
  }
}

/** A row that a locator names, as it stands in its place. */
export interface LocatedRow {
  readonly address: RowAddress;
  /** `content` as it is stored. */
  readonly content: string | null;
  readonly active: boolean;
  /** What a reader of the view sees of it; null when nothing. */
  shown(view: 'client' | 'canonical'): TranscriptTurn | null;
}

/**
 * Finds a conversation's row by its locator; null when it is gone or another's. Row ids can have been rewritten: then the
 * session and the time decide. Throws a `conflict` Problem when that is not one row.
 */
export async function locate(database: SqlReader, lineageOf: string, locator: string): Promise<LocatedRow | null> {
  const wanted = decodeLocator(locator);
  if (wanted === null) return null;
  const { session, timestamp, row } = wanted;
  const rows = await ask(database, locatedTurn, [lineageOf, session, { real: timestamp }, row, row]);
  const [first] = rows;
  if (first === undefined) return null;
  const id = Number(first[0]);
  if (rows.length > 1 && id !== row) throw ambiguous(locator);
  return {
    address: { session, timestamp, row: id },
    content: textOrNull(first[4]),
    active: first[10] === 1,
    shown: (view) => turn(first, view),
  };
}

const ambiguous = (locator: string): Problem =>
  new Problem('conflict', 'More than one row of the transcript answers to this locator.', { locator });

/** Reads the transcript over `database`. Every call is one request; failures of the authority are Problems. */
export function createTranscript(database: SqlReader): Transcript {
  const query = (sql: string, args: readonly SqlArgument[]) => ask(database, sql, args);

  return {
    async watermark() {
      const rows = await query('SELECT max(id) FROM messages', []);
      return Number(rows[0]?.[0] ?? 0);
    },

    async holdsSession(session) {
      return (await query(heldSession, [session, session])).length > 0;
    },

    async replyAfter(session, watermark): Promise<ClosingRow | null> {
      const row = (await query(closingRow, [session, watermark]))[0];
      // A row that compaction wrote last is a copy of an earlier one.
      if (row === undefined || row[3] !== 'assistant' || row[7] === 1) return null;
      return {
        ...located(row[0], row[1], row[2], row[4]),
        hasToolCalls: row[5] === 1,
        finishReason: textOrNull(row[6]),
      };
    },

    async resolve(locator) {
      const address = decodeLocator(locator);
      if (address === null) return null;
      const rows = await query(locatedRows, [address.session, { real: address.timestamp }, address.row]);
      const [first] = rows;
      if (first === undefined) return null;
      if (rows.length > 1 && first[0] !== address.row) throw ambiguous(locator);
      return located(first[0], first[1], first[2], first[3]);
    },

    async turn(conversation, locator, view) {
      if (conversation.session === null) return null;
      return (await locate(database, conversation.session, locator))?.shown(view) ?? null;
    },

    async read(conversation, view, after, limit) {
      const from = after === null ? 0 : decodeCursor(after);
      if (from === null) throw new Problem('invalid-request', 'The cursor is not one that this route gave.');
      if (conversation.session === null) return { turns: [], next: null };
      // One more than asked for tells whether there is another page.
      const rows = await query(pageRows, [conversation.session, from, limit + 1]);
      const page = rows.slice(0, limit);
      const last = page.at(-1);
      return {
        turns: page.flatMap((row) => turn(row, view) ?? []),
        next: rows.length > limit && last !== undefined ? encodeCursor(Number(last[0])) : null,
      };
    },
  };
}

/** One row of a page as a reader of `view` sees it; null when it does not. */
function turn(row: readonly SqlValue[], view: 'client' | 'canonical'): TranscriptTurn | null {
  const [id, session, timestamp, role, content, toolCalls, finishReason, inBatch, repeats, followsUnfinished] = row;
  if (role !== 'user' && role !== 'assistant') return null;
  const kind = rowKind({
    role,
    text: rowText(textOrNull(content)),
    hasToolCalls: toolCalls !== null,
    finishReason: textOrNull(finishReason),
    // Compaction's copies of a human reply repeat it; the reply itself is one, however near in time its neighbours are.
    batched: inBatch === 1 && !isHuman(textOrNull(finishReason)),
    repeats: repeats === 1,
    followsUnfinished: followsUnfinished === 1,
  });
  if (kind === 'machinery' || (kind === 'step' && view === 'client')) return null;
  const { locator, text } = located(id, session, timestamp, content);
  const seen = { locator, role, text, at: new Date(Number(timestamp) * 1000), etag: etagOf(text) } as const;
  return view === 'client' ? seen : { ...seen, toolCalls: calls(textOrNull(toolCalls)) };
}

/** Strong entity tag of a row's text, quotes included: the first 128 bits of its SHA-256. */
export function etagOf(text: string): string {
  return `"${new Bun.CryptoHasher('sha256').update(text).digest('hex').slice(0, 32)}"`;
}

function calls(json: string | null): readonly unknown[] {
  if (json === null) return [];
  const parsed: unknown = JSON.parse(json);
  return Array.isArray(parsed) ? parsed : [parsed];
}

function located(
  id: SqlValue | undefined,
  session: SqlValue | undefined,
  timestamp: SqlValue | undefined,
  content: SqlValue | undefined,
): TranscriptRow {
  return {
    locator: encodeLocator({ session: String(session), row: Number(id), timestamp: Number(timestamp) }),
    text: rowText(textOrNull(content)),
  };
}

const textOrNull = (value: SqlValue | undefined): string | null => (typeof value === 'string' ? value : null);
