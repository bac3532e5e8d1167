import { expect, test } from 'bun:test';
import { loadNative } from '../native.ts';
import { withoutDebugSections } from './elf.ts';
import { tursoAddon } from './native-addon.ts';

const original = new Uint8Array(await Bun.file(tursoAddon()).arrayBuffer());

test('a stripped addon is much smaller, loads from memory and works', () => {
  const stripped = withoutDebugSections(original);
  expect(stripped.length).toBeLessThan(original.length / 3);
  const addon = loadNative('stripped', stripped) as { Database: unknown };
  expect(typeof addon.Database).toBe('function');
});

test('refuses what is not a whole ELF file', () => {
  expect(() => withoutDebugSections(new Uint8Array(10))).toThrow('not an ELF file');
  expect(() => withoutDebugSections(new TextEncoder().encode('#!/bin/sh\n'.repeat(20)))).toThrow('not an ELF file');
  const thirtyTwoBit = original.slice(0, 4096);
  thirtyTwoBit[4] = 1;
  expect(() => withoutDebugSections(thirtyTwoBit)).toThrow('64-bit');
  expect(() => withoutDebugSections(original.slice(0, 4096))).toThrow('behind the end');
});

test('a file that is no library is refused by the loader with its name', () => {
  expect(() => loadNative('broken', new Uint8Array(100))).toThrow('broken');
});
