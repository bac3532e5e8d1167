/** Hrana values to what bun:sqlite binds and reads, without losing a bit of an integer, a float or a blob. */
import type { WireNamedValue, WireValue } from '../../machine/agentfs/hrana-wire.ts';
import { SqlFailure } from './failure.ts';
import type { ScannedStatement } from './sql-text.ts';

export type SqliteValue = null | string | number | bigint | Uint8Array;

const MIN_INTEGER = -(2n ** 63n);
const MAX_INTEGER = 2n ** 63n - 1n;
/** Numbers of at most this many digits bind as INTEGER from a JavaScript number (bun takes 52 bits). */
const NUMBER_DIGITS = 15;

const invalid = (message: string): SqlFailure => new SqlFailure('ARGS_INVALID', message);

function decodeBlob(base64: string): Uint8Array {
  const bytes = Buffer.from(base64, 'base64');
  let length = base64.length;
  while (length > 0 && base64[length - 1] === '=') length--;
  // Buffer skips what is not base64, so a wrong length is the sign of such characters.
  if (bytes.length !== Math.floor((length * 3) / 4)) throw invalid('a blob is not base64');
  return bytes;
}

/** @throws SqlFailure `ARGS_INVALID` */
function decodeValue(value: WireValue): SqliteValue {
  switch (value?.type) {
    case 'null':
      return null;
    case 'text':
      if (typeof value.value === 'string') return value.value;
      break;
    case 'float':
      if (typeof value.value === 'number') return value.value;
      break;
    case 'integer': {
      if (typeof value.value !== 'string' || !/^-?\d{1,19}$/.test(value.value)) break;
      if (value.value.length <= NUMBER_DIGITS) return Number(value.value) + 0;
      const integer = BigInt(value.value);
      if (integer < MIN_INTEGER || integer > MAX_INTEGER) break;
      return integer;
    }
    case 'blob':
      if (typeof value.base64 === 'string') return decodeBlob(value.base64);
      break;
  }
  throw invalid('an argument is not a Hrana value');
}

/** JSON has no infinity, but a number too large for a double is read as one. */
const infinity = (value: number): number =>
  (JSON as unknown as { rawJSON(text: string): number }).rawJSON(value > 0 ? '1e999' : '-1e999');

export function encodeValue(value: SqliteValue): WireValue {
  if (value === null) return { type: 'null' };
  switch (typeof value) {
    case 'bigint':
      return { type: 'integer', value: value.toString() };
    case 'number':
      return { type: 'float', value: Number.isFinite(value) ? value : infinity(value) };
    case 'string':
      return { type: 'text', value };
    default:
      return {
        type: 'blob',
        base64: Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('base64'),
      };
  }
}

/** About how many bytes a value takes in the answer. */
export function encodedSize(value: WireValue): number {
  if (value.type === 'text') return value.value.length + 32;
  if (value.type === 'blob') return value.base64.length + 32;
  return 40;
}

export type Bound = {
  values: SqliteValue[] /** Parameter numbers whose value is a float that bun would bind as INTEGER. */;
  floats: Set<number> | null;
};

/**
 * The values of a statement's parameters in SQLite's order, from positional and named arguments.
 * @throws SqlFailure `ARGS_INVALID` when one is missing or left over
 */
export function bindArguments(
  statement: ScannedStatement,
  positional: readonly WireValue[],
  named: readonly WireNamedValue[],
): Bound {
  const count = statement.parameterCount;
  if (positional.length > count)
    throw invalid(`the statement has ${count} parameters but ${positional.length} arguments`);
  let floats: Set<number> | null = null;
  const values: SqliteValue[] = new Array(count).fill(null);
  const given = new Uint8Array(count);
  const put = (index: number, value: WireValue): void => {
    const decoded = decodeValue(value);
    values[index - 1] = decoded;
    given[index - 1] = 1;
    if (value.type === 'float' && Number.isInteger(decoded)) {
      floats ??= new Set();
      floats.add(index);
    }
  };
  for (const [index, value] of positional.entries()) put(index + 1, value);
  for (const { name, value } of named) {
    const plain = name.replace(/^[:@$]/, '');
    const found = statement.parameters.find((p) => p.name === name || (p.name !== null && p.name.slice(1) === plain));
    if (!found) throw invalid(`the statement has no parameter ${name}`);
    put(found.index, value);
  }
  for (const parameter of statement.parameters)
    if (!given[parameter.index - 1]) throw invalid(`parameter ${parameter.name ?? parameter.index} has no argument`);
  return { values, floats };
}

/**
 * The statement's text with the named parameters bound as REAL. bun:sqlite binds 1.0 as INTEGER 1. The unary plus takes
 * away the affinity that a CAST would bring into comparisons, so the expression behaves as a plain parameter does.
 */
export function castFloats(statement: ScannedStatement, floats: ReadonlySet<number>): string {
  let sql = '';
  let from = 0;
  for (const { start, end, index } of statement.parameters) {
    if (!floats.has(index)) continue;
    sql += `${statement.sql.slice(from, start)}(+CAST(${statement.sql.slice(start, end)} AS REAL))`;
    from = end;
  }
  return sql + statement.sql.slice(from);
}
