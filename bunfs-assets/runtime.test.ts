import { expect, test } from 'bun:test';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { readRuntime, runtimeFile } from './runtime.ts';

function withDirectory(check: (directory: string) => void): void {
  const directory = mkdtempSync(join(tmpdir(), 'runtime-'));
  try {
    check(directory);
  } finally {
    rmSync(directory, { recursive: true });
  }
}

test('reads what the build wrote', () => {
  withDirectory((directory) => {
    const written = { python: process.execPath, basePrefix: '/usr', version: '3.11.2' };
    writeFileSync(join(directory, runtimeFile), JSON.stringify(written));
    expect(readRuntime(directory)).toEqual(written);
  });
});

test('an unfinished, damaged or orphaned runtime says what to do', () => {
  withDirectory((directory) => {
    expect(() => readRuntime(directory)).toThrow('run the build');
    writeFileSync(join(directory, runtimeFile), '{"python": 3}');
    expect(() => readRuntime(directory)).toThrow('damaged');
    const gone = { python: join(directory, 'gone'), basePrefix: '/usr', version: '3.11.2' };
    writeFileSync(join(directory, runtimeFile), JSON.stringify(gone));
    expect(() => readRuntime(directory)).toThrow('which is gone');
  });
});

test('an interpreter out of reach, and a base directory that holders cannot be told, say what to do', () => {
  withDirectory((directory) => {
    const python = join(directory, 'python');
    writeFileSync(python, '', { mode: 0o600 });
    writeFileSync(join(directory, runtimeFile), JSON.stringify({ python, basePrefix: '/usr', version: '3.11.2' }));
    expect(() => readRuntime(directory)).toThrow('may not execute');
    const spaced = { python: process.execPath, basePrefix: '/opt/my python', version: '3.11.2' };
    writeFileSync(join(directory, runtimeFile), JSON.stringify(spaced));
    expect(() => readRuntime(directory)).toThrow('without white space');
  });
});
