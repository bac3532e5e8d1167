import { expect, test } from 'bun:test';
import { RoaringBitmap, RoaringError } from './roaring.ts';

type Container =
  | { key: number; array: number[] }
  | { key: number; runs: [start: number, more: number][] }
  | { key: number; bits: (low: number) => boolean };

/** Serializes by the specification, independently of the reader. */
function serialize(containers: Container[], withRuns: boolean): Uint8Array {
  const bodies = containers.map((container) => {
    if ('array' in container) {
      const body = new DataView(new ArrayBuffer(container.array.length * 2));
      container.array.forEach((low, i) => {
        body.setUint16(i * 2, low, true);
      });
      return { cardinality: container.array.length, body };
    }
    if ('runs' in container) {
      const body = new DataView(new ArrayBuffer(2 + container.runs.length * 4));
      body.setUint16(0, container.runs.length, true);
      container.runs.forEach(([start, more], i) => {
        body.setUint16(2 + i * 4, start, true);
        body.setUint16(4 + i * 4, more, true);
      });
      return { cardinality: container.runs.reduce((sum, [, more]) => sum + more + 1, 0), body };
    }
    const body = new DataView(new ArrayBuffer(8192));
    let cardinality = 0;
    for (let low = 0; low < 65_536; low++)
      if (container.bits(low)) {
        cardinality++;
        body.setUint8(low >> 3, body.getUint8(low >> 3) | (1 << (low & 7)));
      }
    return { cardinality, body };
  });
  const out: number[] = [];
  const u16 = (n: number) => out.push(n & 255, n >> 8);
  const u32 = (n: number) => out.push(n & 255, (n >>> 8) & 255, (n >>> 16) & 255, n >>> 24);
  if (withRuns) {
    u32(12_347 | ((containers.length - 1) << 16));
    const flags = new Uint8Array(Math.ceil(containers.length / 8));
    containers.forEach((container, i) => {
      if ('runs' in container) flags[i >> 3]! |= 1 << (i & 7);
    });
    out.push(...flags);
  } else {
    u32(12_346);
    u32(containers.length);
  }
  containers.forEach((container, i) => {
    u16(container.key);
    u16(bodies[i]!.cardinality - 1);
  });
  if (!withRuns || containers.length >= 4) for (const _ of containers) u32(0);
  const head = Uint8Array.from(out);
  const all = new Uint8Array(head.length + bodies.reduce((sum, { body }) => sum + body.byteLength, 0));
  all.set(head);
  let at = head.length;
  for (const { body } of bodies) {
    all.set(new Uint8Array(body.buffer), at);
    at += body.byteLength;
  }
  return all;
}

const even = (low: number) => low % 2 === 0;

test.each([
  [
    'arrays',
    [
      { key: 0, array: [0, 5, 65_535] },
      { key: 3, array: [7] },
    ],
    false,
  ],
  ['a bitmap', [{ key: 1, bits: even }], false],
  [
    'runs',
    [
      {
        key: 0,
        runs: [
          [10, 4],
          [100, 0],
          [65_000, 535],
        ],
      },
      { key: 2, array: [1] },
    ],
    true,
  ],
  [
    'five of all kinds, with offsets',
    [
      { key: 0, array: [1] },
      { key: 1, runs: [[0, 65_535]] },
      { key: 2, bits: even },
      { key: 4, array: [9] },
      { key: 5, array: [8] },
    ],
    true,
  ],
] as [string, Container[], boolean][])('membership in %s', (_name, containers, withRuns) => {
  const bitmap = new RoaringBitmap(serialize(containers, withRuns));
  for (let key = 0; key < 7; key++) {
    const container = containers.find((one) => one.key === key);
    for (let low = 0; low < 65_536; low += low < 200 || low > 64_990 ? 1 : 97) {
      let expected = false;
      if (container && 'array' in container) expected = container.array.includes(low);
      else if (container && 'runs' in container)
        expected = container.runs.some(([start, more]) => low >= start && low <= start + more);
      else if (container) expected = container.bits(low);
      if (bitmap.has(key * 65_536 + low) !== expected) throw new Error(`${key}:${low} should be ${expected}`);
    }
  }
});

test('an empty bitmap holds nothing', () => {
  expect(new RoaringBitmap(serialize([], false)).has(0)).toBe(false);
});

test.each([
  ['nothing', []],
  ['another cookie', [1, 2, 3, 4, 0, 0, 0, 0]],
  ['containers that are not there', [0x3a, 0x30, 0, 0, 9, 0, 0, 0]],
  ['a huge count', [0x3a, 0x30, 0, 0, 0xff, 0xff, 0xff, 0xff]],
  ['an array that is cut off', [0x3a, 0x30, 0, 0, 1, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 1, 0]],
])('%s is refused', (_name, bytes) => {
  expect(() => new RoaringBitmap(Uint8Array.from(bytes))).toThrow(RoaringError);
});
