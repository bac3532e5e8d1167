/** JavaScript values to those of Hrana and back, without losing a bit, and results as callers use them. */
import { HranaError, malformed } from './hrana-error.ts';
import type { WireResponse, WireResult, WireStatementResult, WireValue } from './hrana-wire.ts';

/** A value of SQLite. An integer comes back as a number when a number holds it exactly, otherwise as a bigint. */
export type SqlValue = null | string | number | bigint | Uint8Array;
/** An argument. A number without a fraction is an INTEGER; `{real: 1}` is the REAL 1.0. */
export type SqlArgument = SqlValue | boolean | { readonly real: number };

export type ResultSet = {
  columns: string[];
  rows: SqlValue[][];
  affectedRowCount: number;
  lastInsertRowid: number | bigint | null;
};

/** An argument as Hrana carries it, exactly. */
export function toWire(value: SqlArgument): WireValue {
  if (value === null) return { type: 'null' };
  switch (typeof value) {
    case 'string':
      return { type: 'text', value };
    case 'boolean':
      return { type: 'integer', value: value ? '1' : '0' };
    case 'bigint':
      return { type: 'integer', value: value.toString() };
    case 'number':
      if (Number.isSafeInteger(value)) return { type: 'integer', value: (value + 0).toString() };
      return real(value);
    default:
      if (value instanceof Uint8Array)
        return {
          type: 'blob',
          base64: Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('base64'),
        };
      return real(value.real);
  }
}

function real(value: number): WireValue {
  // SQLite has no NaN and stores NULL for it. JSON has no infinity, but a number too large for a double is read as one.
  if (Number.isNaN(value)) return { type: 'null' };
  return { type: 'float', value: Number.isFinite(value) ? value : rawJson(value > 0 ? '1e999' : '-1e999') };
}

const rawJson = (text: string): number => (JSON as unknown as { rawJSON(text: string): number }).rawJSON(text);

/** @throws HranaError `protocol` */
export function fromWire(value: WireValue): SqlValue {
  switch (value?.type) {
    case 'null':
      return null;
    case 'text':
      if (typeof value.value === 'string') return value.value;
      break;
    case 'float':
      if (typeof value.value === 'number') return value.value;
      break;
    case 'integer':
      if (typeof value.value === 'string' && /^-?\d{1,19}$/.test(value.value)) return integer(value.value);
      break;
    case 'blob':
      if (typeof value.base64 === 'string') return new Uint8Array(Buffer.from(value.base64, 'base64'));
      break;
  }
  throw malformed('a value is not one of Hrana');
}

function integer(digits: string): number | bigint {
  const number = Number(digits);
  return Number.isSafeInteger(number) ? number : BigInt(digits);
}

/** A statement's result. @throws HranaError `protocol` */
export function resultSet(result: WireStatementResult): ResultSet {
  if (!Array.isArray(result?.cols) || !Array.isArray(result.rows)) throw malformed('a result has no columns or rows');
  const rowid = result.last_insert_rowid ?? null;
  return {
    columns: result.cols.map((column) => String(column?.name ?? '')),
    rows: result.rows.map((row) => row.map(fromWire)),
    affectedRowCount: Number(result.affected_row_count ?? 0),
    lastInsertRowid: rowid === null ? null : integer(String(rowid)),
  };
}

/** The response of a request that must have gone well. @throws HranaError */
export function expectResponse<T extends WireResponse['type']>(
  result: WireResult | undefined,
  type: T,
): Extract<WireResponse, { type: T }> {
  if (result?.type === 'error') {
    const { code, message } = result.error ?? {};
    throw new HranaError(
      'sql',
      typeof code === 'string' ? code : 'SQLITE_ERROR',
      String(message ?? 'the statement failed'),
    );
  }
  if (result?.type !== 'ok' || result.response?.type !== type) throw malformed('the answer does not match the request');
  return result.response as Extract<WireResponse, { type: T }>;
}
