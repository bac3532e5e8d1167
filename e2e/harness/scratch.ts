/** Temporary directories with short names: unix sockets below them must fit in 107 bytes. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const prefix = join(tmpdir(), 'eg-');

export function scratchDirectory(name: string): string {
  return mkdtempSync(`${prefix}${name}-`);
}

export function removeScratch(directory: string): void {
  if (!directory.startsWith(prefix)) throw new Error(`refusing to remove ${directory}`);
  rmSync(directory, { recursive: true, force: true });
}
