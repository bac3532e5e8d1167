/**
 * The statements with which the pinned Hermes (0.19.0) makes and mends its own tables at each start. They name no session
 * and change nothing where they have run before. `pinned-schema.test.ts` compares them with the installed Hermes.
 */
import { normalized } from './tokens.ts';

const statements = new Set([
  'CREATE INDEX IF NOT EXISTS idx_messages_platform_msg_id ON messages(session_id, platform_message_id) WHERE platform_message_id IS NOT NULL',
  'CREATE UNIQUE INDEX IF NOT EXISTS idx_sessions_title_unique ON sessions(title) WHERE title IS NOT NULL',
  'INSERT INTO schema_version (version) VALUES (?)',
  'UPDATE messages SET active = 1 WHERE active IS NULL',
  'DELETE FROM messages_fts',
  'DELETE FROM messages_fts_trigram',
  "INSERT INTO messages_fts(rowid, content) SELECT id, COALESCE(content, '') || ' ' || COALESCE(tool_name, '') || ' ' || COALESCE(tool_calls, '') FROM messages",
  "INSERT INTO messages_fts_trigram(rowid, content) SELECT id, COALESCE(content, '') || ' ' || COALESCE(tool_name, '') || ' ' || COALESCE(tool_calls, '') FROM messages",
  "INSERT INTO messages_fts(messages_fts) VALUES('optimize')",
  "INSERT INTO messages_fts_trigram(messages_fts_trigram) VALUES('optimize')",
  "INSERT INTO messages_fts(messages_fts) VALUES('rebuild')",
  "INSERT INTO messages_fts_trigram(messages_fts_trigram) VALUES('rebuild')",
]);

const fillsIndex = /^INSERT INTO (messages_fts\w*)\(rowid, content\) SELECT /;

/**
 * The text that goes to the authority. Two children that start at once on an empty database both empty and fill the search
 * index, each in single statements; when their steps interleave, a plain INSERT meets rows of the other and its child goes
 * on without SessionDB. Replacing a row of the index by itself is what both want.
 */
export function pinnedSchemaText(sql: string): string {
  const text = normalized(sql);
  return fillsIndex.test(text) ? text.replace('INSERT INTO', 'INSERT OR REPLACE INTO') : sql;
}

/** SHA-256 of the longer texts, white space apart. */
const digests = new Set([
  '470b3341c9f17977120da4788c1cdf7e', // SCHEMA_SQL
  'a128228967f7f273f30bc9ee0af6481c', // DEFERRED_INDEX_SQL
  'dc46c2fc2be10c3c38c8b24df0aa9dc6', // FTS_SQL
  '54fa996c2eaa928ad5020d893ddcf6f1', // FTS_TRIGRAM_SQL
  'f8fdc4ab3b84323630f50a0cdb01e49f', // async_delegations
]);

/** True for a statement or script of the pinned Hermes' schema. */
export function isPinnedSchema(sql: string): boolean {
  const text = normalized(sql);
  if (statements.has(text)) return true;
  return text.startsWith('CREATE ') && digests.has(schemaDigest(text));
}

/** The digest under which a text is listed. */
const schemaDigest = (sql: string): string =>
  new Bun.CryptoHasher('sha256').update(normalized(sql)).digest('hex').slice(0, 32);
