/** What the authority or the relay refuses, in the words and classes of Python's sqlite3. */
import { HranaError } from '../agentfs/hrana.ts';
import type { FrameError } from './frames.ts';

/** The classes that CPython chooses by result code (`_pysqlite_seterror`); OperationalError for the others. */
const classes: readonly [RegExp, string][] = [
  [/^SQLITE_(CONSTRAINT|MISMATCH)/, 'IntegrityError'],
  [/^SQLITE_(CORRUPT|NOTADB|FORMAT|AUTH)/, 'DatabaseError'],
  [/^SQLITE_TOOBIG/, 'DataError'],
  [/^SQLITE_(MISUSE|RANGE)/, 'InterfaceError'],
  [/^SQLITE_(INTERNAL|NOTFOUND)/, 'InternalError'],
];
/** Servers put their own words before SQLite's. */
const prefix = /^(?:SQLite (?:input )?error: |SQL string could not be parsed: |SQLITE_\w+: )/;
const maxMessage = 1000;

/** Hermes decides by SQLite's message ("database is locked", "no such module: fts5"), so it must arrive as SQLite says it. */
export function sqliteError(code: string | null, message: string): FrameError {
  const name = code?.startsWith('SQLITE_') ? code : null;
  const plain = message.replace(prefix, '').slice(0, maxMessage);
  const locked = name?.startsWith('SQLITE_BUSY') && !plain.includes('locked') ? 'database is locked' : plain;
  const kind = classes.find(([pattern]) => name !== null && pattern.test(name))?.[1] ?? 'OperationalError';
  return { k: kind, m: locked, ...(name === null ? {} : { n: name }) };
}

/** For refusals of the relay itself. */
export const relayError = (message: string, kind = 'OperationalError'): FrameError => ({
  k: kind,
  m: `sessiondb: ${message}`,
});

/** What became of the open transaction; `unknown` when its COMMIT was under way. */
export type TransactionFate = 'none' | 'lost' | 'unknown';

const fates: Readonly<Record<TransactionFate, string>> = {
  none: '',
  lost: '; its transaction is rolled back',
  unknown: '; whether its transaction was committed is not known',
};

/** When the authority gave no answer to a whole request. Nothing of the address or token is in it. */
export function unanswered(error: unknown, fate: TransactionFate): FrameError {
  const lost = fates[fate];
  if (!(error instanceof HranaError)) return relayError(`an unexpected failure of the relay${lost}`);
  switch (error.kind) {
    case 'unreachable':
    case 'timeout':
    case 'aborted':
      return { k: 'OperationalError', m: `sessiondb unreachable (${error.kind})${lost}` };
    case 'unauthorized':
      return relayError(`the authority refused the machine's token${lost}`);
    case 'stream-expired':
      return relayError(`the connection was idle for too long${lost}`);
    case 'too-large':
      return relayError(`the request or its result is too large${lost}`, 'DataError');
    default:
      return relayError(`the authority answered something else than Hrana (${error.code})${lost}`);
  }
}
