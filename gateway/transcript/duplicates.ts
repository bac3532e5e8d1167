/**
 * Duplicates from before idempotency stood at the write boundary (ADR-046 §6): a reply that a retry appended once more. Listed
 * when somebody asks, and taken out when somebody says which; never hidden on the way.
 */
import type { SqlArgument, SqlValue } from '../../machine/agentfs/hrana.ts';
import { rowText } from '../acp/row-profile.ts';
import type { Locator } from '../ids.ts';
import { Problem } from '../problem.ts';
import { humanPrefix } from './human-mark.ts';
import { decodeLocator, encodeLocator } from './locator.ts';
import { type SqlWriter, unlessUnknown, writing } from './row-writer.ts';
import { batched, etagOf, kept, lineage } from './sessiondb.ts';

export interface Duplicate {
  readonly locator: Locator;
  /** The row that it repeats: the one before it that stays. */
  readonly original: Locator;
  /** `same`: the same words. `conflict`: one message of a platform with two texts, which a human has to decide. */
  readonly kind: 'same' | 'conflict';
  readonly text: string;
  readonly etag: string;
  /** Of a conflict, the words of the original. */
  readonly originalText: string | null;
}

/** Listed at most; what was repaired makes room for the next. */
const maxListed = 500;

// The row before, whoever's: between two answers of the agent to one message there is nothing. What Hermes itself wrote
// twice in one transaction is a copy that compaction made, and two human replies were meant twice.
const doubled = (only: string): string => `${lineage},
  spoken AS (
    SELECT m.id, m.session_id, m.timestamp, m.role, m.content, m.tool_calls, m.platform_message_id,
      m.finish_reason, m.active, lag(m.id) OVER (PARTITION BY m.session_id, m.active ORDER BY m.id) AS before
    FROM messages m
    WHERE m.session_id IN (SELECT id FROM lineage) AND ${kept} AND NOT ${batched}
      AND NOT EXISTS (
        SELECT 1 FROM messages t
        WHERE t.session_id = m.session_id AND t.timestamp = m.timestamp AND t.role = m.role AND t.id < m.id
      )
  )
  SELECT d.id, d.session_id, d.timestamp, d.content, o.id, o.timestamp, o.content
  FROM spoken d JOIN spoken o ON o.session_id = d.session_id AND o.id = CASE
    WHEN d.platform_message_id IS NOT NULL AND d.platform_message_id = (
      SELECT p.platform_message_id FROM spoken p WHERE p.id = d.before
    ) THEN d.before
    WHEN d.content = (SELECT p.content FROM spoken p WHERE p.id = d.before) THEN d.before
  END
  WHERE d.role = 'assistant' AND o.role = 'assistant' AND d.tool_calls IS NULL AND o.tool_calls IS NULL
    AND coalesce(d.finish_reason, '') NOT LIKE '${humanPrefix}%' ${only}
  ORDER BY d.id LIMIT ${maxListed}`;

// Hermes' own way to take a row back: it stays, and neither model nor reader nor search sees it.
const takeBack = `
  UPDATE messages SET active = 0, compacted = 0
  WHERE id = ? AND session_id = ? AND timestamp = ? AND content IS ? AND (active = 1 OR compacted = 1) AND EXISTS (
    SELECT 1 FROM messages o WHERE o.id = ? AND o.content IS ? AND (o.active = 1 OR o.compacted = 1)
  )
  RETURNING id`;

/** What {@link takeBack} leaves: of one whose answer was lost this tells. */
const takenBack = `
  SELECT 1 FROM messages
  WHERE id = ? AND session_id = ? AND timestamp = ? AND content IS ? AND active = 0 AND compacted = 0`;

const countLive = `
  UPDATE sessions SET message_count = (SELECT count(*) FROM messages WHERE session_id = ?1 AND active = 1)
  WHERE id = ?1`;

const found = (row: readonly SqlValue[]): Duplicate => {
  const [id, of, timestamp, content, original, originalTimestamp, originalContent] = row;
  const session = String(of);
  const text = rowText(typeof content === 'string' ? content : null);
  const originalText = rowText(typeof originalContent === 'string' ? originalContent : null);
  const kind = text === originalText ? 'same' : 'conflict';
  return {
    locator: encodeLocator({ session, row: Number(id), timestamp: Number(timestamp) }),
    original: encodeLocator({ session, row: Number(original), timestamp: Number(originalTimestamp) }),
    kind,
    text,
    etag: etagOf(text),
    originalText: kind === 'same' ? null : originalText,
  };
};

/** The duplicates of a conversation, oldest first, at most 500. Throws `sessiondb-unavailable`. */
export async function listDuplicates(database: SqlWriter, session: string): Promise<readonly Duplicate[]> {
  const { rows } = await writing(() => database.execute(doubled(''), [session]));
  return rows.map(found);
}

/** Throws `not-found` when it is no duplicate, and `conflict` when its words are others than its original's. */
export async function findDuplicate(database: SqlWriter, session: string, locator: string): Promise<Duplicate> {
  const row = decodeLocator(locator)?.row ?? 0;
  const { rows } = await writing(() => database.execute(doubled('AND d.id = ?'), [session, row]));
  const [duplicate] = rows.map(found);
  if (duplicate === undefined || duplicate.locator !== locator) {
    throw new Problem('not-found', 'There is no such duplicate in the transcript of this conversation.');
  }
  if (duplicate.kind === 'conflict') {
    const { text, originalText } = duplicate;
    const members = { current: { locator: duplicate.original, text: originalText }, yours: { text } };
    throw new Problem('conflict', 'The two rows have different words: edit one of them first.', members);
  }
  return duplicate;
}

/** Takes a duplicate out of the transcript; its original stays. Throws `conflict` when one of them changed meanwhile. */
export async function takeOut(database: SqlWriter, { locator, original, text }: Duplicate): Promise<void> {
  const [row, first] = [decodeLocator(locator), decodeLocator(original)];
  if (row === null || first === null) throw new Error('a duplicate without a place');
  const args: SqlArgument[] = [row.row, row.session, { real: row.timestamp }, text, first.row, text];
  const take = () =>
    writing(() =>
      database.batch(
        [
          { sql: takeBack, args },
          { sql: countLive, args: [row.session] },
        ],
        { transaction: true },
      ),
    );
  const answered = await unlessUnknown(take);
  const [taken] = answered ?? (await take());
  if (taken?.rows.length === 1) return;
  const isTaken =
    answered === null && (await writing(() => database.execute(takenBack, args.slice(0, 4)))).rows.length === 1;
  if (!isTaken) throw new Problem('conflict', 'The rows have changed meanwhile. List them again.');
}
