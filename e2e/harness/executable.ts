/** The built executable and the runtime beside it, as the tests find them. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { currentRuntime } from '../../bunfs-assets/runtime.ts';

export const repository = join(import.meta.dir, '../..');
export const executable = join(repository, 'dist/edge-gateway');

/** @throws Error when there is no build */
export function builtExecutable(): string {
  if (!existsSync(executable)) throw new Error('There is no dist/edge-gateway: run `bun run build` first.');
  return executable;
}

export function builtRuntime(): string {
  return currentRuntime();
}

/** The variables that a program under test starts with: nothing of the tester's own settings gets through. */
export function plainEnvironment(extra: Readonly<Record<string, string>> = {}): Record<string, string> {
  const { PATH = '/usr/local/bin:/usr/bin:/bin', HOME = '/tmp' } = process.env;
  return { PATH, HOME, LANG: 'C.UTF-8', ...extra };
}
