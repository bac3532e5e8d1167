/**
 * Locators: opaque to clients, they name one row of SessionDB by its session, row id and timestamp (ADR-046 §6). Hermes can
 * rewrite row ids but keeps timestamps, so both are needed to find a row again.
 */
import type { Locator } from '../ids.ts';

/** What a locator says. */
export interface RowAddress {
  readonly session: string;
  /** `messages.id`. */
  readonly row: number;
  /** `messages.timestamp`: seconds since the epoch, the exact double that Hermes wrote. */
  readonly timestamp: number;
}

const version = 1;
const headBytes = 1 + 8 + 8;
const maxSessionLength = 100;
const sessionPattern = /^[\w.:-]+$/;

/** Version byte, row id, timestamp and session, as base64url. Throws a RangeError for an address that no row can have. */
export function encodeLocator(address: RowAddress): Locator {
  if (!isValid(address)) throw new RangeError('this is no address of a SessionDB row');
  const bytes = Buffer.alloc(headBytes + address.session.length);
  bytes.writeUInt8(version, 0);
  bytes.writeBigUInt64BE(BigInt(address.row), 1);
  bytes.writeDoubleBE(address.timestamp, 9);
  bytes.write(address.session, headBytes, 'latin1');
  return bytes.toString('base64url') as Locator;
}

/** The address in a locator, or null when the text is not one in exactly the form that {@link encodeLocator} gives. */
export function decodeLocator(text: string): RowAddress | null {
  if (text.length > Math.ceil(((headBytes + maxSessionLength) * 4) / 3)) return null;
  const bytes = Buffer.from(text, 'base64url');
  if (bytes.length <= headBytes || bytes.toString('base64url') !== text || bytes.readUInt8(0) !== version) return null;
  const address = {
    row: Number(bytes.readBigUInt64BE(1)),
    timestamp: bytes.readDoubleBE(9),
    session: bytes.toString('latin1', headBytes),
  };
  return isValid(address) ? address : null;
}

function isValid({ session, row, timestamp }: RowAddress): boolean {
  return (
    Number.isSafeInteger(row) &&
    row > 0 &&
    Number.isFinite(timestamp) &&
    timestamp > 0 &&
    session.length <= maxSessionLength &&
    sessionPattern.test(session)
  );
}

/** A page's cursor: the last row id that was looked at. */
export function encodeCursor(row: number): string {
  return Buffer.from(`${version}:${row}`).toString('base64url');
}

/** Null when the text is no cursor. */
export function decodeCursor(text: string): number | null {
  if (text.length > 40) return null;
  const digits = /^1:([1-9]\d{0,15})$/.exec(Buffer.from(text, 'base64url').toString('latin1'))?.[1];
  if (digits === undefined) return null;
  const row = Number(digits);
  return Number.isSafeInteger(row) && encodeCursor(row) === text ? row : null;
}
