/**
 * The public AgentFS schema, version 0.4, as agentfs-sdk 0.6.4 makes it: tables, indexes, configuration and root. The SDK
 * opens and reads what we write (a test does); we write with our own ids and whole chunks.
 */
import { rootIno } from './ids.ts';

const schemaVersion = '0.4';
/** Bytes of one row of `fs_data` in a database that we make; one that the SDK made has its own number in `fs_config`. */
export const defaultChunkSize = 65_536;

export const modeFormat = 0o170000;
export const modeRegular = 0o100000;
export const modeDirectory = 0o040000;
export const modeSymlink = 0o120000;
export const modeFifo = 0o010000;
export const modeSocket = 0o140000;
export const modeCharacterDevice = 0o020000;
export const modeBlockDevice = 0o060000;
/** The bit of a directory whose group is that of what is made in it. */
export const setGroupBit = 0o2000;

export const isDirectory = (mode: number): boolean => (mode & modeFormat) === modeDirectory;
export const isRegular = (mode: number): boolean => (mode & modeFormat) === modeRegular;
export const isFifo = (mode: number): boolean => (mode & modeFormat) === modeFifo;
export const isDevice = (mode: number): boolean =>
  (mode & modeFormat) === modeCharacterDevice || (mode & modeFormat) === modeBlockDevice;
export const isSymlink = (mode: number): boolean => (mode & modeFormat) === modeSymlink;

/** The delta's side of the overlay: what it deletes of the base, what it copied up from there, what the base is. */
export const overlayTables = [
  'CREATE TABLE IF NOT EXISTS fs_whiteout (path TEXT PRIMARY KEY, parent_path TEXT NOT NULL, created_at INTEGER NOT NULL)',
  'CREATE INDEX IF NOT EXISTS idx_fs_whiteout_parent ON fs_whiteout(parent_path)',
  'CREATE TABLE IF NOT EXISTS fs_origin (delta_ino INTEGER PRIMARY KEY, base_ino INTEGER NOT NULL)',
  // No `base_path`: other tools would look for that directory on their own host.
  'CREATE TABLE IF NOT EXISTS fs_overlay_config (key TEXT PRIMARY KEY, value TEXT NOT NULL)',
] as const;

const tables = [
  'CREATE TABLE IF NOT EXISTS fs_config (key TEXT PRIMARY KEY, value TEXT NOT NULL)',
  `CREATE TABLE IF NOT EXISTS fs_inode (
    ino INTEGER PRIMARY KEY AUTOINCREMENT,
    mode INTEGER NOT NULL,
    nlink INTEGER NOT NULL DEFAULT 0,
    uid INTEGER NOT NULL DEFAULT 0,
    gid INTEGER NOT NULL DEFAULT 0,
    size INTEGER NOT NULL DEFAULT 0,
    atime INTEGER NOT NULL,
    mtime INTEGER NOT NULL,
    ctime INTEGER NOT NULL,
    rdev INTEGER NOT NULL DEFAULT 0,
    atime_nsec INTEGER NOT NULL DEFAULT 0,
    mtime_nsec INTEGER NOT NULL DEFAULT 0,
    ctime_nsec INTEGER NOT NULL DEFAULT 0
  )`,
  `CREATE TABLE IF NOT EXISTS fs_dentry (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    parent_ino INTEGER NOT NULL,
    ino INTEGER NOT NULL,
    UNIQUE(parent_ino, name)
  )`,
  'CREATE INDEX IF NOT EXISTS idx_fs_dentry_parent ON fs_dentry(parent_ino, name)',
  `CREATE TABLE IF NOT EXISTS fs_data (
    ino INTEGER NOT NULL,
    chunk_index INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (ino, chunk_index)
  )`,
  'CREATE TABLE IF NOT EXISTS fs_symlink (ino INTEGER PRIMARY KEY, target TEXT NOT NULL)',
  `CREATE TABLE IF NOT EXISTS kv_store (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    created_at INTEGER DEFAULT (unixepoch()),
    updated_at INTEGER DEFAULT (unixepoch())
  )`,
  'CREATE INDEX IF NOT EXISTS idx_kv_store_created_at ON kv_store(created_at)',
  `CREATE TABLE IF NOT EXISTS tool_calls (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    parameters TEXT,
    result TEXT,
    error TEXT,
    status TEXT NOT NULL DEFAULT 'pending',
    started_at INTEGER NOT NULL,
    completed_at INTEGER,
    duration_ms INTEGER
  )`,
  'CREATE INDEX IF NOT EXISTS idx_tool_calls_name ON tool_calls(name)',
  'CREATE INDEX IF NOT EXISTS idx_tool_calls_started_at ON tool_calls(started_at)',
  // The overlay part of the specification. Rows are keyed by path or number, so that two replicas' rows merge.
  ...overlayTables,
] as const;

interface SchemaStatement {
  readonly sql: string;
  readonly args: readonly (string | number | bigint | Uint8Array | null)[];
}

/** Statements that make an empty file system; each does nothing where its work is done already. */
export function schemaStatements(nowSeconds: number): SchemaStatement[] {
  return [
    ...tables.map((sql) => ({ sql, args: [] })),
    {
      sql: `INSERT OR IGNORE INTO fs_config (key, value) VALUES ('chunk_size', ?), ('schema_version', ?)`,
      args: [String(defaultChunkSize), schemaVersion],
    },
    {
      sql: `INSERT OR IGNORE INTO fs_overlay_config (key, value) VALUES ('base', 'bunfs-assets')`,
      args: [],
    },
    {
      sql: `INSERT OR IGNORE INTO fs_inode (ino, mode, nlink, atime, mtime, ctime) VALUES (?, ?, 1, ?, ?, ?)`,
      args: [rootIno, modeDirectory | 0o755, nowSeconds, nowSeconds, nowSeconds],
    },
  ];
}
