import { expect, test } from 'bun:test';
import { decodeMessage, encodeMessage, ProtobufError, varintLength, writeVarint } from './protobuf.ts';

test('numbers and bytes come back as they were written', () => {
  const bytes = encodeMessage([
    [1, 300],
    [2, new Uint8Array([0, 255])],
    [15, 2 ** 40 + 1],
    [16, new Uint8Array(0)],
  ]);
  expect(bytes.subarray(0, 3)).toEqual(new Uint8Array([0x08, 0xac, 0x02]));
  const fields = decodeMessage(bytes);
  expect(fields.get(1)).toBe(300);
  expect(fields.get(2)).toEqual(new Uint8Array([0, 255]));
  expect(fields.get(15)).toBe(2 ** 40 + 1);
  expect(fields.get(16)).toEqual(new Uint8Array(0));
});

test('a varint is as long as said', () => {
  for (const value of [0, 1, 127, 128, 16_383, 16_384, 2 ** 31, 2 ** 52 - 1]) {
    const target = new Uint8Array(10);
    expect(writeVarint(target, 0, value)).toBe(varintLength(value));
  }
});

test.each([
  ['cut-off varint', [0x08, 0x80]],
  ['cut-off bytes', [0x12, 0x05, 0x01]],
  ['endless varint', [0x08, ...new Array(12).fill(0xff)]],
  ['length beyond the message', [0x12, 0xff, 0xff, 0xff, 0xff, 0x0f]],
  ['field 0', [0x00, 0x01]],
  ['fixed64', [0x09, 1, 2, 3, 4, 5, 6, 7, 8]],
  ['group', [0x0b]],
])('%s is refused', (_name, bytes) => {
  expect(() => decodeMessage(Uint8Array.from(bytes))).toThrow(ProtobufError);
});

test('random bytes never do more than be refused', () => {
  let seed = 1;
  for (let round = 0; round < 2_000; round++) {
    const bytes = Uint8Array.from({ length: round % 40 }, () => {
      seed = (seed * 48_271) % 2_147_483_647;
      return seed & 255;
    });
    try {
      decodeMessage(bytes);
    } catch (error) {
      expect(error).toBeInstanceOf(ProtobufError);
    }
  }
});
