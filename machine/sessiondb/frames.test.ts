import { describe, expect, test } from 'bun:test';
import { BrokenFrame, encodeAnswer, FrameReader, type FrameValue, fromWire, maxFrameBytes, toWire } from './frames.ts';

function frame(id: number, body: string | Uint8Array): Uint8Array {
  const bytes = Buffer.from(body);
  const header = Buffer.alloc(8);
  header.writeUInt32BE(bytes.length + 4, 0);
  header.writeUInt32BE(id, 4);
  return Buffer.concat([header, bytes]);
}

describe('reading', () => {
  const first = frame(1, '{"c":1,"q":[["SELECT ?",["naïve"]]]}');
  const second = frame(0xffffffff, '{"x":[1,2]}');
  const expected = [
    { id: 1, request: { c: 1, q: [['SELECT ?', ['naïve']]] } },
    { id: 0xffffffff, request: { x: [1, 2] } },
  ];

  test('frames cut anywhere', () => {
    const all = Buffer.concat([first, second]);
    for (let size = 1; size <= all.length; size++) {
      const reader = new FrameReader();
      const seen = [];
      for (let at = 0; at < all.length; at += size) seen.push(...reader.push(all.subarray(at, at + size)));
      expect(seen as unknown[]).toEqual(expected);
    }
  });

  test.each<[string, Uint8Array]>([
    ['too large', Buffer.from([0xff, 0xff, 0xff, 0xff])],
    ['too large by one byte', frame(1, new Uint8Array(0)).with(3, 1).with(0, 1).subarray(0, 4)],
    ['shorter than its id', Buffer.from([0, 0, 0, 3, 0, 0, 0, 1])],
    ['not JSON', frame(1, '{')],
    ['not UTF-8', frame(1, Buffer.from([0x22, 0xff, 0x22]))],
    ['an unknown form', frame(1, '{"c":1,"q":[["SELECT 1",[],3]]}')],
    ['an unknown key', frame(1, '{"c":1,"q":[["SELECT 1"]],"token":"x"}')],
    ['no statements', frame(1, '{"c":1,"q":[]}')],
    ['a value of an unknown form', frame(1, '{"c":1,"q":[["SELECT ?",[{"i":"1e3"}]]]}')],
  ])('%s is broken', (_, bytes) => {
    expect(() => [...new FrameReader().push(bytes)]).toThrow(BrokenFrame);
  });
});

test('values keep their SQLite type both ways', () => {
  const values: [FrameValue, ReturnType<typeof toWire>][] = [
    [null, { type: 'null' }],
    ['', { type: 'text', value: '' }],
    [7, { type: 'integer', value: '7' }],
    [{ i: '9223372036854775807' }, { type: 'integer', value: '9223372036854775807' }],
    [1.5, { type: 'float', value: 1.5 }],
    [{ f: 2 }, { type: 'float', value: 2 }],
    [{ b: 'AP8=' }, { type: 'blob', base64: 'AP8=' }],
  ];
  for (const [value, wire] of values) {
    expect(toWire(value)).toEqual(wire);
    expect(fromWire(wire)).toEqual(value);
  }
});

test('an answer that does not fit becomes an error that says so', () => {
  const bytes = Buffer.from(encodeAnswer(9, { a: 0, r: [{ n: 0, w: 0, d: [['x'.repeat(maxFrameBytes)]] }] }));
  expect(bytes.length).toBe(bytes.readUInt32BE(0) + 4);
  expect(JSON.parse(bytes.subarray(8).toString())).toMatchObject({ a: 0, r: [], e: { k: 'DataError' } });
});
