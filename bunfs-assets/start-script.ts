/** What Python runs first in a holder: one file there (descriptor 7), several here. */
import { readFileSync } from 'node:fs';
import channel from './hermes/channel.py' with { type: 'file' };
import connection from './hermes/connection.py' with { type: 'file' };
import cursor from './hermes/cursor.py' with { type: 'file' };
import executions from './hermes/executions.py' with { type: 'file' };
import programs from './hermes/programs.py' with { type: 'file' };
import start from './hermes/start.py' with { type: 'file' };
import statements from './hermes/statements.py' with { type: 'file' };

/** Each behind those that it imports from. */
const parts = [channel, statements, cursor, connection, executions, programs, start];
/** An import of another part, on one line: joined, they share their names. */
const ownImport = /^from \.\w+ import [^\n(]+\n/gm;

/** The whole script as UTF-8. */
export function startScript(): Uint8Array {
  return Buffer.from(parts.map((path) => readFileSync(path, 'utf8').replaceAll(ownImport, '')).join('\n\n'));
}
