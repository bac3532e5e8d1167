/** How this program starts itself again as one of its own children. */
import { join } from 'node:path';

/** The command to which a child's name and arguments are appended: the executable alone, or Bun and the entry's source. */
export function selfCommand(): readonly string[] {
  if (Bun.isStandaloneExecutable) return [process.execPath];
  return [process.execPath, join(import.meta.dir, '..', 'edge-gateway.ts')];
}
