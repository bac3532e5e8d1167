/** Cursors of the audit: opaque to clients, a place in one order. */
import * as v from 'valibot';
import { Problem } from '../problem.ts';

/** A place in time: whole seconds and nanoseconds, and what tells things of one time apart. */
export interface TimePlace {
  readonly seconds: number;
  readonly nanoseconds: number;
  readonly tie: string;
}

const number = v.pipe(v.number(), v.safeInteger(), v.minValue(-1));
const timePlace = v.strictTuple([number, number, v.string()]);

export function encodeTime({ seconds, nanoseconds, tie }: TimePlace): string {
  return encode([seconds, nanoseconds, tie]);
}

/** Throws `invalid-request`. */
export function decodeTime(cursor: string | null): TimePlace {
  if (cursor === null) return { seconds: -1, nanoseconds: -1, tie: '' };
  const [seconds, nanoseconds, tie] = decode(cursor, timePlace);
  return { seconds, nanoseconds, tie };
}

export const encodePath = (path: string): string => encode(path);

/** Throws `invalid-request`. */
export function decodePath(cursor: string | null): string | null {
  return cursor === null ? null : decode(cursor, v.string());
}

const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');

function decode<S extends v.GenericSchema>(cursor: string, schema: S): v.InferOutput<S> {
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(cursor, 'base64url').toString('utf8'));
  } catch {
    value = undefined;
  }
  const result = v.safeParse(schema, value);
  if (!result.success) throw new Problem('invalid-request', 'The cursor is not one that this route gave.');
  return result.output;
}
