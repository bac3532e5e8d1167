/**
 * Statements that fail unless something is as it was foretold. Hrana's conditions know only whether a step failed, so a
 * guard fails by itself: the absolute value of the smallest integer is an overflow in every SQLite.
 */
import type { WireStatement, WireValue } from '../agentfs/hrana-wire.ts';
import { type FrameValue, toWire } from './frames.ts';

const smallest: WireValue = { type: 'integer', value: '-9223372036854775808' };

const unless = (condition: string, args: readonly WireValue[]): WireStatement => ({
  sql: `SELECT CASE WHEN ${condition} THEN 1 ELSE abs(?) END`,
  args: [...args, smallest],
  want_rows: false,
});

/** The statement before it changed one row. */
export const changedOneRow: WireStatement = unless('changes() = 1', []);

/** The INSERT before it gave its row this id. */
export const gaveId = (id: bigint): WireStatement =>
  unless('last_insert_rowid() = ?', [{ type: 'integer', value: String(id) }]);

/** The row of this session has exactly these values; null when one is of a kind whose comparison could be loose. */
export function sessionHas(
  session: string,
  columns: readonly string[],
  values: readonly FrameValue[],
): WireStatement | null {
  const conditions: string[] = [];
  for (const [at, value] of values.entries()) {
    const type =
      value === null ? 'null' : typeof value === 'string' ? 'text' : Number.isInteger(value) ? 'integer' : null;
    if (type === null) return null;
    const column = `"${columns[at]!.replaceAll('"', '""')}"`;
    // The column's own affinity and collation might make unequal values compare as equal.
    conditions.push(`(${column} IS ? COLLATE BINARY AND typeof(${column}) = '${type}')`);
  }
  const where = ['id = ?', ...conditions].join(' AND ');
  return unless(`EXISTS (SELECT 1 FROM sessions WHERE ${where})`, [
    { type: 'text', value: session },
    ...values.map(toWire),
  ]);
}
