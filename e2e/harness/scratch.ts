/** Temporary directories with short names: unix sockets below them must fit in 107 bytes. */
import { mkdtempSync, rmSync } from 'node:fs';

export function scratchDirectory(name: string): string {
  return mkdtempSync(`/tmp/eg-${name}-`);
}

export function removeScratch(directory: string): void {
  if (!directory.startsWith('/tmp/eg-')) throw new Error(`refusing to remove ${directory}`);
  rmSync(directory, { recursive: true, force: true });
}
