/** Cursors of lists in order of creation: opaque to clients, the ordinal of the last item seen. */
import * as v from 'valibot';
import { Problem } from '../problem.ts';

const cursorSchema = v.pipe(v.string(), v.regex(/^[0-9]{1,15}$/));

function cursorOf(ordinal: string): string {
  return Buffer.from(ordinal).toString('base64url');
}

/** Throws `invalid-request`. */
export function ordinalOf(cursor: string): number {
  const parsed = v.safeParse(cursorSchema, Buffer.from(cursor, 'base64url').toString('latin1'));
  if (!parsed.success || cursorOf(parsed.output) !== cursor) {
    throw new Problem('invalid-request', 'The cursor is not one that this gateway gave out; start without one');
  }
  return Number(parsed.output);
}

/** Of `limit` rows and one more: those of the page, and the cursor of the next one if there is one more. */
export function pageOf<Row extends { readonly ordinal: string }>(rows: readonly Row[], limit: number) {
  const shown = rows.slice(0, limit);
  const last = shown.at(-1);
  return { rows: shown, next: rows.length > limit && last !== undefined ? cursorOf(last.ordinal) : null };
}
