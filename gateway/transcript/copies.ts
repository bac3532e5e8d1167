/** Which of compaction's live copies belong to which row: a pure decision over rows of the same words. */

/** An assistant row; all rows of one question have the same words and no tool calls. */
export interface EqualRow {
  readonly id: number;
  /** `messages.timestamp`. */
  readonly timestamp: number;
}

/**
 * The ids of the copies of `original` among `copies`. `originals` are all rows that compaction put away, `original` among
 * them. A child that had read a row from the database copies its time too; otherwise copies follow each other as their
 * originals did, and it is the newest that compaction keeps.
 */
export function copiesOf(
  original: EqualRow,
  originals: readonly EqualRow[],
  copies: readonly EqualRow[],
): readonly number[] {
  const ids: number[] = [];
  const timed = new Set(originals.map(({ timestamp }) => timestamp));
  for (const copy of copies) {
    if (copy.id > original.id && copy.timestamp === original.timestamp) ids.push(copy.id);
  }
  if (ids.length > 0) return ids;
  const newestFirst = (rows: readonly EqualRow[]) => rows.toSorted((a, b) => b.id - a.id);
  const unnamed = newestFirst(copies.filter(({ timestamp }) => !timed.has(timestamp)));
  const copy = unnamed[newestFirst(originals).findIndex(({ id }) => id === original.id)];
  return copy === undefined || copy.id <= original.id ? [] : [copy.id];
}
