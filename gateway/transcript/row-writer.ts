/**
 * Writing to the canonical transcript in SessionDB (ADR-046 §6): one conditional statement, or one transaction, of plain SQL
 * that any Hrana server runs. Hermes' own triggers keep the full-text index. The schema is Hermes' (`hermes_state.py`, 22).
 */
import { HranaError, type SqlStatement, type SqlValue } from '../../machine/agentfs/hrana.ts';
import type { Locator } from '../ids.ts';
import { Problem } from '../problem.ts';
import { copiesOf, type EqualRow } from './copies.ts';
import type { HumanMark } from './human-mark.ts';
import { encodeLocator, type RowAddress } from './locator.ts';
import { batched, etagOf, kept, type LocatedRow, lineage, locate, type SqlReader } from './sessiondb.ts';
import type { TranscriptTurn } from './transcript.ts';

/** What is needed of a database, such as `HranaDatabase`. Rejects with HranaError. */
export interface SqlWriter extends SqlReader {
  /** All or nothing. */
  batch(
    statements: readonly SqlStatement[],
    options: { readonly transaction: true },
  ): Promise<readonly { readonly rows: readonly (readonly SqlValue[])[] }[]>;
}

export interface RowWriter {
  /**
   * Replaces the words of one assistant row when they are still those of `basis`, an entity tag. Throws `not-found`,
   * `conflict`, or `precondition-failed` with both texts. `outcomeUnknown` tells of failures after which it may have happened.
   */
  edit(session: string, locator: string, basis: string, text: string): Promise<TranscriptTurn>;
  /** The reply that a key was used for before; null when there is none. `otherText`: it was used for other words. */
  replyOf(session: string, mark: HumanMark): Promise<{ readonly locator: Locator; readonly otherText: boolean } | null>;
  /** Appends an assistant row once, whoever asks how often. Throws `conflict` when the session is not there. */
  append(session: string, mark: HumanMark, text: string): Promise<void>;
}

/** Pauses in milliseconds before a write that met a lock is tried again. */
const busyPausesMs = [20, 60, 150, 400, 1_000];
/** How often an edit looks again when something else of the row changed meanwhile. */
const editAttempts = 5;

const sameWords = `${lineage}
  SELECT m.id, m.timestamp, m.active, ${batched} OR EXISTS (
      SELECT 1 FROM messages o
      WHERE o.session_id = m.session_id AND o.timestamp = m.timestamp AND o.role = m.role AND o.id < m.id
    )
  FROM messages m
  WHERE m.session_id IN (SELECT id FROM lineage) AND m.role = 'assistant' AND m.content = ? AND m.tool_calls IS NULL
    AND ${kept}
  ORDER BY m.id`;

// What Hermes would send in place of the words goes with them: its exact bytes, and a Responses API's own items.
const editRows = (copies: number): string => `
  UPDATE messages SET content = ?, api_content = NULL, codex_message_items = NULL
  WHERE id IN (?${', ?'.repeat(copies)}) AND content IS ? AND role = 'assistant' AND tool_calls IS NULL
    AND EXISTS (
      SELECT 1 FROM messages t
      WHERE t.id = ? AND t.session_id = ? AND t.timestamp = ? AND t.active = ? AND t.content IS ?
    )
  RETURNING id`;

const markedRow = `${lineage}
  SELECT m.id, m.session_id, m.timestamp, m.finish_reason FROM messages m
  WHERE m.session_id IN (SELECT id FROM lineage) AND m.finish_reason >= ? AND m.finish_reason < ?
  ORDER BY m.id LIMIT 1`;

const appendRow = `
  INSERT INTO messages (session_id, role, content, timestamp, finish_reason, observed, active, compacted)
  SELECT s.id, 'assistant', ?, ?, ?, 0, 1, 0 FROM sessions s
  WHERE s.id = ? AND NOT EXISTS (
    SELECT 1 FROM messages m WHERE m.session_id = s.id AND m.finish_reason >= ? AND m.finish_reason < ?
  )`;

// Hermes counts the rows that its model sees. The time is of this attempt alone: without a row of it nothing was added.
const countRow = `
  UPDATE sessions SET message_count = message_count + 1
  WHERE id = ? AND EXISTS (SELECT 1 FROM messages m WHERE m.session_id = ? AND m.timestamp = ? AND m.finish_reason = ?)`;

/** Behind every mark of one key. */
const endOf = (mark: HumanMark): string => `${mark.ofKey}~`;

export function createRowWriter(database: SqlWriter): RowWriter {
  const clock = createRowClock();

  return {
    async edit(session, locator, basis, text) {
      let isUnknown = false;
      for (let attempt = 0; attempt < editAttempts; attempt += 1) {
        const row = await locate(database, session, locator);
        const now = row?.shown('canonical') ?? null;
        // Of an edit only the answer was lost.
        if (isUnknown && now?.text === text) return now;
        const turn = editable(row, basis, text);
        if (row === null || turn.text === text) return turn;
        const { address, content, active } = row;
        const copies = active || content === null ? [] : await liveCopies(database, session, address, content);
        const args = [
          ...[text, address.row, ...copies, content],
          ...[address.row, address.session, { real: address.timestamp }, active, content],
        ];
        const rows = await unlessUnknown(async () => {
          const edited = await writing(() => database.execute(editRows(copies.length), args));
          return edited.rows;
        });
        isUnknown ||= rows === null;
        if (rows?.some(([id]) => id === address.row)) return { ...turn, text, etag: etagOf(text) };
      }
      throw new Problem('conflict', 'The row keeps changing at this moment. Read it and try again.');
    },

    async replyOf(session, mark) {
      const { rows } = await writing(() => database.execute(markedRow, [session, mark.ofKey, endOf(mark)]));
      const [row] = rows;
      if (row === undefined) return null;
      const [id, at, timestamp, found] = row;
      const locator = encodeLocator({ session: String(at), row: Number(id), timestamp: Number(timestamp) });
      return { locator, otherText: found !== mark.whole };
    },

    async append(session, mark, text) {
      const add = () => {
        const timestamp = { real: clock() };
        return writing(() =>
          database.batch(
            [
              { sql: appendRow, args: [text, timestamp, mark.whole, session, mark.ofKey, endOf(mark)] },
              { sql: countRow, args: [session, session, timestamp, mark.whole] },
            ],
            { transaction: true },
          ),
        );
      };
      // The mark lets it be there once: when only the answer was lost nothing is added now, and nothing is counted.
      if ((await unlessUnknown(add)) === null) await add();
    },
  };
}

/**
 * The live copies, with these words, that compaction made of a row that it put away. The row itself may have other words by
 * now.
 */
export async function liveCopies(
  database: SqlReader,
  session: string,
  { row, timestamp }: RowAddress,
  words: string,
): Promise<readonly number[]> {
  const { rows } = await writing(() => database.execute(sameWords, [session, words]));
  const equal = (wanted: (row: readonly SqlValue[]) => boolean): EqualRow[] =>
    rows.filter(wanted).map(([id, at]) => ({ id: Number(id), timestamp: Number(at) }));
  const original = { id: row, timestamp };
  const others = equal(([id, , active, isCopy]) => active === 0 && isCopy === 0 && id !== row);
  return copiesOf(
    original,
    [...others, original],
    equal(([, , active]) => active === 1),
  );
}

/** The turn that may become `text`. Throws `not-found`, `conflict`, and `precondition-failed` when it is not as `basis`. */
export function editable(row: LocatedRow | null, basis: string, text: string): TranscriptTurn {
  const turn = row?.shown('canonical') ?? null;
  if (turn === null) throw noSuchRow();
  if (turn.role !== 'assistant') {
    throw new Problem('conflict', 'Only replies can be edited: what a client said stays as it was said.');
  }
  if ((turn.toolCalls ?? []).length > 0) {
    throw new Problem(
      'conflict',
      'Only replies can be edited: this row is a step on the way to one, with its tool calls.',
    );
  }
  if (turn.etag !== basis) throw lost(turn, text);
  return turn;
}

export const noSuchRow = (): Problem =>
  new Problem('not-found', 'There is no such row in the transcript of this conversation.');

function lost({ locator, text, etag }: TranscriptTurn, attempted: string): Problem {
  const detail = 'The row is not what the edit was based on any more. Read `current`, and edit that.';
  return new Problem('precondition-failed', detail, { current: { locator, text, etag }, yours: { text: attempted } });
}

/** True when the authority did not answer: the write may have happened. */
export function outcomeUnknown(error: unknown): boolean {
  return error instanceof Problem && error.cause instanceof HranaError && error.cause.kind !== 'sql';
}

/** Null when it is not known whether `work` was done. */
export async function unlessUnknown<T>(work: () => Promise<T>): Promise<T | null> {
  try {
    return await work();
  } catch (error) {
    if (!outcomeUnknown(error)) throw error;
    return null;
  }
}

/** Runs a write, again when it met a lock. Failures of the authority are `sessiondb-unavailable` Problems. */
export async function writing<T>(work: () => Promise<T>): Promise<T> {
  for (const pauseMs of [...busyPausesMs, null]) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof HranaError)) throw error;
      const isBusy = error.kind === 'sql' && /^SQLITE_(?:BUSY|LOCKED)/.test(error.code);
      if (isBusy && pauseMs !== null) {
        await Bun.sleep(pauseMs);
        continue;
      }
      const problem = new Problem('sessiondb-unavailable', 'The transcript cannot be written now. Try again later.');
      problem.cause = error;
      throw problem;
    }
  }
  throw new Error('unreachable');
}

/**
 * Times for new rows, in seconds since the epoch, each more than ten microseconds after the one before: closer together are
 * only rows of one transaction, as compaction writes them.
 */
function createRowClock(): () => number {
  let last = 0;
  return () => {
    last = Math.max((Date.now() + Math.random()) / 1_000, last + 2e-5);
    return last;
  };
}
