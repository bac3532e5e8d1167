/** Which PRAGMA statements a client may run. The rest would change how the authority keeps its files, or block it. */
import { SqlFailure } from './failure.ts';

/** Answers a question and takes an argument, or none. */
const ASK = new Set([
  'table_info',
  'table_xinfo',
  'table_list',
  'index_list',
  'index_info',
  'index_xinfo',
  'foreign_key_list',
  'foreign_key_check',
  'integrity_check',
  'quick_check',
]);
/** Answers a question when no value is given. */
const READ = new Set([
  'application_id',
  'auto_vacuum',
  'busy_timeout',
  'cache_size',
  'collation_list',
  'compile_options',
  'data_version',
  'database_list',
  'defer_foreign_keys',
  'encoding',
  'foreign_keys',
  'freelist_count',
  'function_list',
  'journal_mode',
  'module_list',
  'page_count',
  'page_size',
  'pragma_list',
  'query_only',
  'recursive_triggers',
  'schema_version',
  'synchronous',
  'user_version',
  'wal_autocheckpoint',
]);
/** Kept in the database file, so they need the write lock. */
const WRITE = new Set(['application_id', 'user_version']);
/** A setting of this stream's own connection. */
const SET = new Set(['defer_foreign_keys', 'foreign_keys', 'query_only', 'recursive_triggers', 'case_sensitive_like']);

export type PragmaUse = { use: 'read' | 'write' } | { use: 'setting'; name: string };

/** @throws SqlFailure `SQL_NOT_ALLOWED` */
export function judgePragma(sql: string): PragmaUse {
  const match = /^PRAGMA\s+(?:(\w+)\s*\.\s*)?(\w+)\s*(=|\(|$)/i.exec(sql);
  const name = match?.[2]?.toLowerCase() ?? '';
  const schema = match?.[1]?.toLowerCase();
  const hasValue = match !== null && match[3] !== '';
  if (schema === undefined || schema === 'main' || schema === 'temp') {
    if (ASK.has(name) || (!hasValue && READ.has(name))) return { use: 'read' };
    if (hasValue && WRITE.has(name)) return { use: 'write' };
    if (hasValue && SET.has(name)) return { use: 'setting', name };
    // It may analyse, which is a write like another.
    if (name === 'optimize') return { use: 'write' };
  }
  throw new SqlFailure(
    'SQL_NOT_ALLOWED',
    `PRAGMA ${name || '?'} cannot be used ${hasValue ? 'with a value ' : ''}here`,
  );
}
