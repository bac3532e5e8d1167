import { expect, test } from 'bun:test';
import { select } from './ranges.ts';

const etag = '"abc"';
const of = (headers: Record<string, string>, size = 1_000) => select(new Headers(headers), etag, size);
const part = (start: number, end: number) => ({ kind: 'part', start, end }) as const;
const whole = { kind: 'whole' } as const;
const none = { kind: 'unsatisfiable' } as const;

test.each([
  ['bytes=0-0', part(0, 1)],
  ['bytes=0-', part(0, 1_000)],
  ['bytes=999-', part(999, 1_000)],
  ['bytes=500-5000', part(500, 1_000)],
  ['bytes=-1', part(999, 1_000)],
  ['bytes=-5000', part(0, 1_000)],
  ['BYTES=1-2', part(1, 3)],
  ['bytes=1000-', none],
  ['bytes=1000-1001', none],
  ['bytes=-0', none],
  ['bytes=9999999999999999-', none],
  ['bytes=2-1', whole],
  ['bytes=-', whole],
  ['bytes=', whole],
  ['bytes=a-b', whole],
  ['bytes=0-1,5-6', whole],
  ['lines=0-1', whole],
  ['bytes=0x1-2', whole],
  ['bytes=99999999999999999-', whole],
  ['bytes=-1-2', whole],
])('%s', (range, expected) => {
  expect(of({ range })).toEqual(expected);
});

test('of an empty file no part can be had', () => {
  expect(of({ range: 'bytes=0-' }, 0)).toEqual(none);
  expect(of({ range: 'bytes=-5' }, 0)).toEqual(none);
  expect(of({}, 0)).toEqual(whole);
});

test('conditions', () => {
  expect(of({ 'if-none-match': etag })).toEqual({ kind: 'unmodified' });
  expect(of({ 'if-none-match': '"x", W/"abc"' })).toEqual({ kind: 'unmodified' });
  expect(of({ 'if-none-match': '*' })).toEqual({ kind: 'unmodified' });
  expect(of({ 'if-none-match': '"x"', range: 'bytes=1-' })).toEqual(part(1, 1_000));
  expect(of({ 'if-range': etag, range: 'bytes=1-' })).toEqual(part(1, 1_000));
  expect(of({ 'if-range': 'W/"abc"', range: 'bytes=1-' })).toEqual(whole);
  expect(of({ 'if-range': 'Mon, 30 Nov 2026 00:00:00 GMT', range: 'bytes=1-' })).toEqual(whole);
});
