/**
 * What a turn can undo of a human's change, without a fault of anybody: a child knows nothing of what changed behind its back
 * while it worked. When it compacts its context it writes the words that it knows as new live rows, and puts a human reply
 * away with the rest. So before the next child reads the session, changes made since are looked after once. Nothing is
 * written by a child at the end of a turn but its own new rows.
 */
import type { SqlArgument } from '../../machine/agentfs/hrana.ts';
import { rowText } from '../acp/row-profile.ts';
import type { Locator } from '../ids.ts';
import { humanPrefix } from './human-mark.ts';
import { decodeLocator, type RowAddress } from './locator.ts';
import { liveCopies, type SqlWriter, writing } from './row-writer.ts';
import { batched, etagOf, lineage } from './sessiondb.ts';

/** A change that no child has read yet, as far as the database can be behind it. */
export type Change =
  /** `was`: the entity tag of the words before. */
  | { readonly kind: 'edit'; readonly locator: Locator; readonly was: string }
  | { readonly kind: 'reply'; readonly locator: Locator };

// A tool's result between two others: a row in between would part the later ones from their calls when Hermes loads them.
const standing = `
  SELECT m.id, m.session_id, m.timestamp, m.content, m.active, m.compacted,
    (SELECT p.role FROM messages p WHERE p.session_id = m.session_id AND p.id < m.id AND p.active = 1
      ORDER BY p.id DESC LIMIT 1) = 'tool'
    AND (SELECT n.role FROM messages n WHERE n.session_id = m.session_id AND n.id > m.id AND n.active = 1
      ORDER BY n.id LIMIT 1) = 'tool'
  FROM messages m WHERE m.id IN (SELECT value FROM json_each(?))`;

const laterWords = `${lineage}
  SELECT m.content FROM messages m
  WHERE m.session_id IN (SELECT id FROM lineage) AND m.id > ? AND m.active = 1 AND m.role = 'assistant'
    AND m.tool_calls IS NULL AND (m.timestamp = ? OR ${batched})`;

const putBack = (copies: number): string => `
  UPDATE messages SET content = ?, api_content = NULL, codex_message_items = NULL
  WHERE id IN (?${', ?'.repeat(copies - 1)}) AND content = ? AND active = 1`;

const liveAgain = `
  INSERT INTO messages (session_id, role, content, timestamp, finish_reason, observed, active, compacted)
  SELECT o.session_id, o.role, o.content, o.timestamp, o.finish_reason, 0, 1, 0 FROM messages o
  WHERE o.id = ? AND o.compacted = 1 AND o.active = 0 AND o.finish_reason LIKE '${humanPrefix}%' AND NOT EXISTS (
    SELECT 1 FROM messages l
    WHERE l.session_id = o.session_id AND l.active = 1 AND l.finish_reason = o.finish_reason
  )`;

interface Standing {
  readonly content: string | null;
  readonly active: boolean;
  readonly compacted: boolean;
  readonly amidResults: boolean;
}

/**
 * Makes `changes` hold for whoever loads `session` next. To be called while no child of the session runs. One request when
 * there is nothing to do. Throws `sessiondb-unavailable`.
 */
export async function mend(database: SqlWriter, session: string, changes: readonly Change[]): Promise<void> {
  const places = changes.flatMap((change) => {
    const address = decodeLocator(change.locator);
    return address === null ? [] : [{ change, address }];
  });
  const ids = JSON.stringify([...new Set(places.map(({ address }) => address.row))]);
  const { rows } = await writing(() => database.execute(standing, [ids]));
  const found = new Map<number, Standing & { readonly of: string; readonly timestamp: number }>();
  for (const [id, of, timestamp, content, active, compacted, amidResults] of rows) {
    found.set(Number(id), {
      of: String(of),
      timestamp: Number(timestamp),
      content: typeof content === 'string' ? content : null,
      active: active === 1,
      compacted: compacted === 1,
      amidResults: amidResults === 1,
    });
  }
  for (const { change, address } of places) {
    const row = found.get(address.row);
    // An id that was rewritten since: whoever did that read the row, and wrote what stood in it.
    if (row === undefined || row.of !== address.session || row.timestamp !== address.timestamp) continue;
    if (change.kind === 'edit') await mendEdit(database, session, change.was, address, row);
    else await mendReply(database, address, row);
  }
}

/** Live words that compaction took from before the edit become those of the edit. */
async function mendEdit(
  database: SqlWriter,
  session: string,
  was: string,
  address: RowAddress,
  row: Standing,
): Promise<void> {
  if (row.active || !row.compacted || row.content === null) return;
  const args: SqlArgument[] = [session, address.row, { real: address.timestamp }];
  const { rows } = await writing(() => database.execute(laterWords, args));
  const words = rows.map(([content]) => content).find((one) => typeof one === 'string' && etagOf(rowText(one)) === was);
  if (typeof words !== 'string' || words === row.content) return;
  const copies = await liveCopies(database, session, address, words);
  if (copies.length === 0) return;
  const { content } = row;
  await writing(() => database.execute(putBack(copies.length), [content, ...copies, words]));
}

/** A reply that no live row stands for any more, or that parts a tool's result from its call, goes behind what there is. */
async function mendReply(database: SqlWriter, { row: id, session }: RowAddress, row: Standing): Promise<void> {
  if (row.active ? !row.amidResults : !row.compacted) return;
  const aside = { sql: 'UPDATE messages SET active = 0, compacted = 1 WHERE id = ? AND active = 1', args: [id] };
  const count = {
    sql: `UPDATE sessions SET message_count = (SELECT count(*) FROM messages WHERE session_id = ?1 AND active = 1)
      WHERE id = ?1`,
    args: [session],
  };
  await writing(() => database.batch([aside, { sql: liveAgain, args: [id] }, count], { transaction: true }));
}
