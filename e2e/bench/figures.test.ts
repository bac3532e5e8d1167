import { expect, test } from 'bun:test';
import { figuresOf, percentile } from './figures.ts';

test('percentiles are samples, by nearest rank', () => {
  const samples = Array.from({ length: 100 }, (_, index) => 100 - index);
  expect(percentile(samples, 50)).toBe(50);
  expect(percentile(samples, 99)).toBe(99);
  expect(percentile([7], 99)).toBe(7);
  expect(figuresOf([3, 1, 2])).toEqual({ count: 3, min: 1, p50: 2, p99: 3, max: 3 });
  expect(() => percentile([], 50)).toThrow('no samples');
});
