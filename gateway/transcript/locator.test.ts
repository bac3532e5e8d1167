import { expect, test } from 'bun:test';
import { decodeCursor, decodeLocator, encodeCursor, encodeLocator, type RowAddress } from './locator.ts';

const address: RowAddress = {
  session: '6f1f2a9e-0e6f-4e0e-9d4c-1d2c3b4a5f60',
  row: 1234567,
  timestamp: 1786012345.1234567,
};

test('gives back exactly what was put in', () => {
  for (const one of [
    address,
    { ...address, row: 1, timestamp: Number.MIN_VALUE },
    { ...address, row: Number.MAX_SAFE_INTEGER },
    { ...address, session: '20260805_101112_a1b2c3' },
    { ...address, session: 'x' },
    { ...address, session: 's'.repeat(100) },
  ]) {
    const locator = encodeLocator(one);
    expect(locator).toMatch(/^[\w-]{24,160}$/);
    expect(decodeLocator(locator)).toEqual(one);
  }
});

test('tells rows apart that differ in one thing', () => {
  const locators = [
    address,
    { ...address, row: address.row + 1 },
    { ...address, timestamp: address.timestamp + 2e-6 },
    { ...address, session: `${address.session}x` },
  ].map(encodeLocator);
  expect(new Set(locators).size).toBe(4);
});

test('refuses addresses that no row has', () => {
  for (const wrong of [
    { ...address, row: 0 },
    { ...address, row: 1.5 },
    { ...address, row: 2 ** 53 },
    { ...address, timestamp: 0 },
    { ...address, timestamp: Number.NaN },
    { ...address, session: '' },
    { ...address, session: 'a b' },
    { ...address, session: 'é' },
    { ...address, session: 's'.repeat(101) },
  ]) {
    expect(() => encodeLocator(wrong)).toThrow(RangeError);
  }
});

test('parses nothing but its own form', () => {
  const good: string = encodeLocator(address);
  const flip = (index: number, byte: number): string => {
    const bytes = Buffer.from(good, 'base64url');
    bytes[index] = byte;
    return bytes.toString('base64url');
  };
  for (const wrong of [
    '',
    'a',
    `${good}=`,
    `${good}A`,
    `${good} `,
    ` ${good}`,
    good.slice(0, 20),
    `${good.slice(0, -1)}+`,
    flip(0, 2),
    flip(1, 255),
    flip(9, 255),
    flip(17, 0),
    flip(20, 0x20),
    'A'.repeat(5000),
    'ü',
  ]) {
    expect(decodeLocator(wrong)).toBeNull();
  }
});

test('cursors', () => {
  for (const row of [1, 42, Number.MAX_SAFE_INTEGER]) expect(decodeCursor(encodeCursor(row))).toBe(row);
  for (const wrong of [
    '',
    'x',
    '1:1',
    encodeCursor(0),
    encodeCursor(-1),
    `${encodeCursor(7)}A`,
    Buffer.from('2:7').toString('base64url'),
  ]) {
    expect(decodeCursor(wrong)).toBeNull();
  }
});
