/**
 * Rows as objects, made here: the engine's own take 24 µs for 15 columns, each of which it sets by its name through the
 * runtime's interface; as arrays they take 2 µs.
 */
import type { SqlRow, SqlValue } from './driver.ts';

/** The part of the engine's statement that tells its rows. */
export interface NativeRows {
  /** From now on `row` answers with an array. */
  raw(isRaw: boolean): unknown;
  columns(): readonly { readonly name: string }[];
  row(): readonly SqlValue[];
}

/** Reads the row at which the statement stands. */
export function rowReader(statement: NativeRows): () => SqlRow {
  let names: readonly string[] | null = null;
  return () => {
    if (!names) {
      names = statement.columns().map(({ name }) => name);
      statement.raw(true);
    }
    const values = statement.row();
    const row: Record<string, SqlValue> = {};
    for (let at = 0; at < names.length; at++) row[names[at]!] = values[at] ?? null;
    return row;
  };
}
