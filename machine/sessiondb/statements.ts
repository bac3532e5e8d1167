/**
 * What a holder's Hermes may do in SessionDB, told from the text of a statement. Reading is free: recall goes across the
 * organization's conversations. A write must be one whose rows provably belong to sessions that the text names as
 * parameters, or one of the pinned Hermes' own schema statements (`pinned-schema.ts`). Anything else is refused.
 */

import { delegations } from './delegations.ts';
import type { FrameResult } from './frames.ts';
import { isPinnedSchema } from './pinned-schema.ts';
import { nameOf, type Token, tokenize } from './tokens.ts';
import { judgeChange, judgeInsert, type WritePlan } from './writes.ts';

export type Plan =
  /** `scoped`: it must be limited to the child's own delegations. */
  | { readonly kind: 'read'; readonly scoped: boolean }
  | { readonly kind: 'transaction' }
  | { readonly kind: 'schema' }
  /** Kept for every stream of this connection. */
  | { readonly kind: 'foreign-keys'; readonly on: boolean }
  /** The authority refuses it, and the answer is known: its journal and its files are not the child's matter. */
  | { readonly kind: 'local'; readonly result: FrameResult }
  | WritePlan;

const maxSqlLength = 1024 * 1024;
/** CPython's own words; it raises a ProgrammingError. */
export const severalStatements = 'You can only execute one statement at a time.';

const nothing: FrameResult = { n: 0, w: 0 };
const row = (c: string[], d: (string | number)[]): FrameResult => ({ c, d: [d], n: 0, w: 0 });
/** Tables that PRAGMA may describe to the child. */
const askablePragmas = new Set(['table_info', 'table_xinfo', 'foreign_key_list', 'index_list', 'index_info']);

const cache = new Map<string, Plan>();
const maxCached = 512;

/** What to do with one statement. Pure; the texts of Hermes are few, so plans are kept. */
export function planOf(sql: string): Plan {
  const known = cache.get(sql);
  if (known) return known;
  const plan = judge(sql);
  if (cache.size >= maxCached) cache.clear();
  if (sql.length < 16 * 1024) cache.set(sql, plan);
  return plan;
}

const refuse = (reason: string): Plan => ({ kind: 'refused', reason });

function judge(sql: string): Plan {
  if (sql.length > maxSqlLength) return refuse(`a statement of more than ${maxSqlLength} characters`);
  let tokens: Token[];
  try {
    tokens = tokenize(sql);
  } catch {
    return refuse('a statement with an unfinished quote');
  }
  while (tokens.at(-1)?.value === ';') tokens.pop();
  if (tokens.some((token) => token.value === ';' && token.type === 'mark') && !isPinnedSchema(sql))
    return { kind: 'refused', reason: severalStatements };
  const first = tokens[0]?.type === 'word' ? tokens[0].value : '';
  switch (first === 'WITH' ? verbBehindWith(tokens) : first) {
    case 'SELECT':
    case 'VALUES':
    case 'EXPLAIN':
      // Each child restores at its start the delegations that it finds unfinished.
      return { kind: 'read', scoped: tokens.some((token) => nameOf(token) === delegations) };
    case 'BEGIN':
    case 'COMMIT':
    case 'END':
    case 'ROLLBACK':
    case 'SAVEPOINT':
    case 'RELEASE':
      return { kind: 'transaction' };
    case 'PRAGMA':
      return pragma(tokens);
    case 'VACUUM':
      return { kind: 'local', result: nothing };
    case 'INSERT':
    case 'REPLACE':
      return first === 'WITH'
        ? refuse('WITH before a write')
        : isPinnedSchema(sql)
          ? { kind: 'schema' }
          : judgeInsert(tokens);
    case 'UPDATE':
    case 'DELETE':
      if (first === 'WITH') return refuse('WITH before a write');
      return isPinnedSchema(sql) ? { kind: 'schema' } : judgeChange(tokens);
    default:
      if (/^(?:CREATE VIRTUAL TABLE|DROP TABLE) temp\._hermes_fts5_probe\b/.test(sql))
        // The real table that follows fails with the same message where FTS5 is missing.
        return { kind: 'local', result: nothing };
      return isPinnedSchema(sql) ? { kind: 'schema' } : refuse(`${first || 'that'} is not among Hermes' statements`);
  }
}

const verbs = new Set(['SELECT', 'VALUES', 'INSERT', 'REPLACE', 'UPDATE', 'DELETE']);
const verbBehindWith = (tokens: readonly Token[]): string =>
  tokens.find((token) => token.type === 'word' && token.depth === 0 && verbs.has(token.value))?.value ?? '';

function pragma(tokens: readonly Token[]): Plan {
  const name = nameOf(tokens[1]);
  const mark = tokens[2]?.value;
  if (name === 'foreign_keys' && mark === '=')
    return { kind: 'foreign-keys', on: ['ON', '1', 'TRUE', 'YES'].includes(tokens[3]?.value ?? '') };
  if (name === 'journal_mode') return { kind: 'local', result: row(['journal_mode'], ['wal']) };
  if (name === 'wal_checkpoint') return { kind: 'local', result: row(['busy', 'log', 'checkpointed'], [0, 0, 0]) };
  if ((name === 'busy_timeout' || name === 'synchronous') && mark === '=') return { kind: 'local', result: nothing };
  if (name !== null && askablePragmas.has(name) && mark === '(') return { kind: 'read', scoped: false };
  return refuse(`PRAGMA ${name ?? '?'} cannot be used here`);
}
