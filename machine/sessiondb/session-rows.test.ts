import { beforeEach, expect, test } from 'bun:test';
import { SessionRow } from './session-row.ts';
import { SessionRows } from './session-rows.ts';

const row = (n: number) => new SessionRow(['n'], [n]);
let rows: SessionRows;
beforeEach(() => {
  rows = new SessionRows();
  rows.end(rows.begin('s'), row(1));
});

test('a row is known from the end of the write that read it until the next begins', () => {
  expect(rows.get('s')).toEqual(row(1));
  const writing = rows.begin('s');
  expect(rows.get('s')).toBeNull();
  rows.end(writing, null);
  expect(rows.get('s')).toBeNull();
  rows.end(rows.begin('s'), row(2));
  expect(rows.get('s')).toEqual(row(2));
});

test('of two writes that overlap nobody knows which was the last', () => {
  const first = rows.begin('s');
  const second = rows.begin('s');
  rows.end(second, row(2));
  expect(rows.get('s')).toBeNull();
  rows.end(first, row(1));
  expect(rows.get('s')).toBeNull();
  const around = rows.begin('s');
  rows.end(rows.begin('s'), row(3));
  rows.end(around, row(4));
  expect(rows.get('s')).toBeNull();
  rows.end(rows.begin('s'), row(5));
  expect(rows.get('s')).toEqual(row(5));
});

test('a write to rows nobody knows which leaves none known', () => {
  rows.end(rows.begin(null), null);
  expect(rows.get('s')).toBeNull();
});

test('a write that was not answered may arrive at any time: nothing is known any more', () => {
  rows.end(rows.begin('t'), row(7));
  rows.begin('s');
  rows.lose();
  expect(rows.get('t')).toBeNull();
  rows.end(rows.begin('s'), row(2));
  expect(rows.get('s')).toBeNull();
});
