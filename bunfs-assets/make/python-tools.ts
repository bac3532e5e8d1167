/** A virtual environment of the build's own: pip to fill other environments with, and the Zig compiler. */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { run } from './command.ts';
import type { Python } from './prerequisites.ts';

/** Flags that every installation uses: pinned hashes, no dependency search, and no code of a package run by installing it. */
export const pinnedInstall = ['install', '--quiet', '--require-hashes', '--no-deps', '--only-binary', ':all:'] as const;

/** The interpreter of the environment at `directory`; it has pip, and Zig as `-m ziglang`. */
export function toolsPython(directory: string): string {
  return join(directory, 'bin/python');
}

export async function makePythonTools(directory: string, python: Python, zigLock: string, logs: string): Promise<void> {
  rmSync(directory, { recursive: true, force: true });
  await run(logs, 'python venv', [python.interpreter, '-m', 'venv', directory]);
  await run(logs, 'pip install zig', [toolsPython(directory), '-m', 'pip', ...pinnedInstall, '-r', zigLock]);
}
