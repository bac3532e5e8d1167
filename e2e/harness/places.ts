/** Where a text is kept: looked for in every row of a database and in every file of a directory. */
import { Database } from 'bun:sqlite';
import { copyFileSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { connect, type DatabaseAddress } from '../../gateway/governance/connection.ts';

/** Whether a value holds the text, as UTF-8 whatever it is. */
const holds = (value: unknown, text: string): boolean =>
  (value instanceof Uint8Array ? Buffer.from(value) : Buffer.from(String(value))).includes(text);

/** Columns of a Postgres database that hold `text`, as `table.column`; every table of every schema that is not the server's own. */
export async function placesInPostgres(address: DatabaseAddress, text: string): Promise<readonly string[]> {
  const sql = await connect(address);
  try {
    const columns = await sql<{ schema: string; table: string; column: string }[]>`
      select c.table_schema as schema, c.table_name as table, c.column_name as column
      from information_schema.columns c
      join information_schema.tables t using (table_schema, table_name)
      where c.table_schema not in ('pg_catalog', 'information_schema') and t.table_type = 'BASE TABLE'`;
    const found: string[] = [];
    for (const { schema, table, column } of columns) {
      const [row] = await sql<{ found: boolean }[]>`
        select exists (select 1 from ${sql(`${schema}.${table}`)} where strpos(${sql(column)}::text, ${text}) > 0) as found`;
      if (row?.found) found.push(`${table}.${column}`);
    }
    return found.sort();
  } finally {
    await sql.end();
  }
}

/**
 * Columns of a SQLite database that hold `text`, as `table.column`; files of an AgentFS database also put together from
 * their chunks, as `file INO`. The database is copied first: its owner may be running.
 */
export function placesInSqlite(path: string, text: string): readonly string[] {
  const scratch = mkdtempSync(join(tmpdir(), 'eg-places-'));
  try {
    const copy = join(scratch, 'copy.db');
    for (const suffix of ['', '-wal']) if (existsSync(path + suffix)) copyFileSync(path + suffix, copy + suffix);
    using database = new Database(copy);
    const found: string[] = [];
    const tables = database.query<{ name: string }, []>(`SELECT name FROM sqlite_schema WHERE type = 'table'`).all();
    for (const { name } of tables) {
      const files = new Map<unknown, Uint8Array[]>();
      for (const row of database.query<Record<string, unknown>, []>(`SELECT * FROM "${name}"`).iterate()) {
        for (const [column, value] of Object.entries(row)) {
          if (holds(value, text)) found.push(`${name}.${column}`);
        }
        if (name === 'fs_data')
          files.set(row.ino, [...(files.get(row.ino) ?? []), Buffer.from(row.data as Uint8Array)]);
      }
      for (const [ino, chunks] of files) if (Buffer.concat(chunks).includes(text)) found.push(`file ${String(ino)}`);
    }
    return [...new Set(found)].sort();
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** Regular files below `directory` whose bytes hold `text`, relative to it. */
export function placesInFiles(directory: string, text: string): readonly string[] {
  return readdirSync(directory, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((path) => readFileSync(path).includes(text))
    .map((path) => relative(directory, path))
    .sort();
}

/** Table → its columns, of a SQLite database that may be in use. */
export function tablesOfSqlite(path: string): Readonly<Record<string, readonly string[]>> {
  using database = new Database(path, { readonly: true });
  const tables = database.query<{ name: string }, []>(
    `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name`,
  );
  const columns = database.query<{ name: string }, [string]>('SELECT name FROM pragma_table_info(?) ORDER BY cid');
  return Object.fromEntries(tables.all().map(({ name }) => [name, columns.all(name).map((column) => column.name)]));
}
