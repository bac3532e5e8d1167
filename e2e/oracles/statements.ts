/** What Hermes and the gateway ask of SessionDB, and what else a client of Hrana may: pipelines to compare two servers by. */
import type { WireRequest, WireValue } from '../../machine/agentfs/hrana-wire.ts';

const text = (value: string): WireValue => ({ type: 'text', value });
const integer = (value: number | bigint): WireValue => ({ type: 'integer', value: String(value) });
const execute = (sql: string, ...args: WireValue[]): WireRequest => ({
  type: 'execute',
  stmt: { sql, args, want_rows: true },
});
const named = (sql: string, values: Record<string, WireValue>): WireRequest => ({
  type: 'execute',
  stmt: { sql, named_args: Object.entries(values).map(([name, value]) => ({ name, value })), want_rows: true },
});
const steps = (...sql: string[]) => sql.map((one) => ({ stmt: { sql: one, want_rows: true } }));
const batch = (...sql: string[]): WireRequest => ({ type: 'batch', batch: { steps: steps(...sql) } });

const prose = [
  'Die Straße nach Köln ist gesperrt',
  'customer JS-4821 failed KYC verification',
  'the quick brown fox jumps over the lazy dog',
  'naïve café résumé — “quotes” and 日本語のテキスト',
  'SELECT * FROM messages; -- not a statement',
  'path/to/file.ts:42 error TS2345',
  '',
  'emoji 🧪🧬 and a tab\tand a line\nbreak',
];

const values: WireValue[] = [
  { type: 'null' },
  integer(0),
  integer(2n ** 63n - 1n),
  integer(-(2n ** 63n)),
  { type: 'float', value: 0.1 },
  { type: 'float', value: 1e300 },
  { type: 'float', value: -2.5e-7 },
  text(''),
  text('häß😀'),
  { type: 'blob', base64: '' },
  { type: 'blob', base64: 'AP8BAg' },
];

const setUp: WireRequest[] = [
  execute(
    'CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL, content TEXT, tool_calls TEXT, timestamp REAL NOT NULL, active INTEGER NOT NULL DEFAULT 1)',
  ),
  execute('CREATE INDEX by_session ON messages (session_id, timestamp)'),
  execute(
    'CREATE TABLE sessions (id TEXT PRIMARY KEY, parent TEXT REFERENCES sessions (id), count INTEGER DEFAULT 0 CHECK (count >= 0))',
  ),
  execute("CREATE VIRTUAL TABLE words USING fts5 (content, content='messages', content_rowid='id')"),
  execute("CREATE VIRTUAL TABLE parts USING fts5 (content, tokenize='trigram')"),
  execute(
    'CREATE TRIGGER into_words AFTER INSERT ON messages BEGIN INSERT INTO words (rowid, content) VALUES (new.id, new.content); INSERT INTO parts (rowid, content) VALUES (new.id, new.content); UPDATE sessions SET count = count + 1 WHERE id = new.session_id; END',
  ),
  execute(
    "CREATE TRIGGER out_of_words AFTER DELETE ON messages BEGIN INSERT INTO words (words, rowid, content) VALUES ('delete', old.id, old.content); DELETE FROM parts WHERE rowid = old.id; END",
  ),
  execute("INSERT INTO sessions (id) VALUES ('one'), ('two')"),
  execute("INSERT INTO sessions (id, parent) VALUES ('child', 'one') RETURNING id, count"),
];

const searches = [
  'fox',
  'KYC OR "lazy dog"',
  'quick NEAR fox',
  'Straße',
  'Koln',
  'verif*',
  'content : customer',
  '"',
  'fox NOT dog',
  '日本語',
];
const substrings = ['4821', 'ver', 'raß', '日本語', 'TS23', 'no', 'ömething'];

/** Each inner list is one pipeline; its stream is closed after it. */
export const pipelines: readonly (readonly WireRequest[])[] = [
  setUp,
  ...prose.map((content, at) => [
    execute(
      'INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)',
      text(at % 2 ? 'one' : 'two'),
      text(at % 3 ? 'user' : 'assistant'),
      text(content),
      { type: 'float', value: 1_700_000_000.25 + at },
    ),
    execute('SELECT last_insert_rowid(), changes(), total_changes() > 0'),
  ]),
  ...values.map((value) => [execute('SELECT ?1, typeof(?1), quote(?1), ?1 IS NULL', value)]),
  ...values.map((value) => [named('SELECT :a, typeof(@b), $c', { ':a': value, '@b': value, $c: value })]),
  [named('SELECT :bare', { bare: text('a name without its sign') })],
  ...searches.flatMap((query) => [
    [
      execute(
        "SELECT rowid, snippet(words, 0, '>', '<', '…', 6), round(bm25(words), 6) FROM words WHERE words MATCH ? ORDER BY rank, rowid",
        text(query),
      ),
    ],
    [
      execute(
        "SELECT m.id, m.role FROM words w JOIN messages m ON m.id = w.rowid WHERE w.content MATCH ? AND m.session_id IN ('one', 'two') ORDER BY m.timestamp DESC LIMIT 3",
        text(query),
      ),
    ],
  ]),
  ...substrings.flatMap((part) => [
    [
      execute(
        "SELECT rowid, highlight(parts, 0, '[', ']') FROM parts WHERE parts MATCH ? ORDER BY rowid",
        text(`"${part}"`),
      ),
    ],
    [execute('SELECT rowid FROM parts WHERE content LIKE ? ORDER BY rowid', text(`%${part}%`))],
  ]),
  [
    execute('SELECT id, parent, count FROM sessions ORDER BY id'),
    execute('SELECT * FROM messages ORDER BY id LIMIT 2'),
  ],
  [
    execute("UPDATE messages SET content = content || '!' WHERE role = 'user'"),
    execute('DELETE FROM messages WHERE id = 3'),
  ],
  [
    execute("INSERT INTO words (words) VALUES ('integrity-check')"),
    execute("INSERT INTO parts (parts) VALUES ('optimize')"),
  ],
  [
    execute("INSERT INTO words (words) VALUES ('rebuild')"),
    execute("SELECT count(*) FROM words WHERE words MATCH 'fox'"),
  ],
  // What is refused, and what stays after that.
  [execute("INSERT INTO sessions (id) VALUES ('one')")],
  [execute("UPDATE sessions SET count = -1 WHERE id = 'two'")],
  [execute('INSERT INTO messages (session_id) VALUES (NULL)')],
  [execute('SELECT * FROM nothing')],
  [execute('SELEC 1')],
  [execute('')],
  [execute('SELECT 1; SELECT 2')],
  [execute('SELECT ?1, ?2', integer(1))],
  [execute('SELECT 1', integer(1))],
  [execute('SELECT no_such_function(1)')],
  [
    execute(
      'SELECT json_extract(\'{"a":[1,2.5,"x",null]}\', \'$.a[1]\'), json_group_array(id) FROM (SELECT id FROM sessions ORDER BY id)',
    ),
  ],
  [execute('SELECT value, atom FROM json_each(\'[1,"two",null,{"k":3}]\')')],
  [
    execute(
      "WITH RECURSIVE up (id) AS (SELECT 'child' UNION ALL SELECT s.parent FROM sessions s JOIN up ON s.id = up.id WHERE s.parent IS NOT NULL) SELECT id FROM up",
    ),
  ],
  [
    execute(
      "SELECT role, count(*), group_concat(id, ','), row_number() OVER (ORDER BY role) FROM messages GROUP BY role ORDER BY role",
    ),
  ],
  [
    execute(
      "INSERT INTO sessions (id, count) VALUES ('one', 5) ON CONFLICT (id) DO UPDATE SET count = excluded.count RETURNING id, count",
    ),
  ],
  [
    execute("INSERT OR IGNORE INTO sessions (id) VALUES ('one')"),
    execute("REPLACE INTO sessions (id, count) VALUES ('two', 9)"),
  ],
  [execute("SELECT 9007199254740993, 1.0, x'00ff', '', NULL, 3 / 2, 3 / 2.0, 7 % 0")],
  // Batches: conditions, transactions, what follows a failure.
  [
    batch('BEGIN', "INSERT INTO sessions (id) VALUES ('in batch')", 'COMMIT'),
    execute("SELECT count(*) FROM sessions WHERE id = 'in batch'"),
  ],
  [
    batch('BEGIN', "INSERT INTO sessions (id) VALUES ('rolled back')", 'ROLLBACK'),
    execute("SELECT count(*) FROM sessions WHERE id = 'rolled back'"),
  ],
  // A transaction over several requests of one stream.
  [
    execute('SAVEPOINT a'),
    execute("INSERT INTO sessions (id) VALUES ('saved')"),
    execute('ROLLBACK TO a'),
    execute('RELEASE a'),
    execute("SELECT count(*) FROM sessions WHERE id = 'saved'"),
  ],
  [
    {
      type: 'sequence',
      sql: "CREATE TABLE s (x); INSERT INTO s VALUES (1), (2); -- done\nINSERT INTO s VALUES ('a;b')",
    },
    execute('SELECT x FROM s'),
  ],
  [execute('PRAGMA table_info(sessions)'), execute('PRAGMA integrity_check')],
  [
    execute('DROP TABLE s'),
    execute("SELECT name, type FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name"),
  ],
];

export interface KnownDifference {
  readonly why: string;
  /** Where the two differ; in the other version they agree. */
  readonly versions: readonly ('v2' | 'v3')[];
  readonly requests: readonly WireRequest[];
}

/** Where ours is meant to differ from sqld. */
export const knownDifferences: readonly KnownDifference[] = [
  {
    why: 'the JSON of JavaScript has no negative zero',
    versions: ['v2', 'v3'],
    requests: [execute('SELECT -0.0')],
  },
  {
    why: 'sqld says null for infinity; ours writes a number that is read as infinity',
    versions: ['v2', 'v3'],
    requests: [execute('SELECT 1e999')],
  },
  {
    why: 'sqld refuses the whole batch for one statement that it cannot parse; the protocol has an error for each step',
    versions: ['v2', 'v3'],
    requests: [batch('SELECT 1', 'SELECT * FROM nothing', 'SELECT 3')],
  },
  {
    why: '`is_autocommit` came with version 3, and is harmless in version 2',
    versions: ['v2'],
    requests: [
      {
        type: 'batch',
        batch: {
          steps: [
            { stmt: { sql: 'BEGIN IMMEDIATE' } },
            { condition: { type: 'ok', step: 0 }, stmt: { sql: "INSERT INTO sessions (id) VALUES ('one')" } },
            { condition: { type: 'ok', step: 1 }, stmt: { sql: 'COMMIT' } },
            { condition: { type: 'not', cond: { type: 'ok', step: 2 } }, stmt: { sql: 'ROLLBACK' } },
            { condition: { type: 'is_autocommit' }, stmt: { sql: "SELECT 'free again'", want_rows: true } },
            {
              condition: {
                type: 'and',
                conds: [
                  { type: 'error', step: 1 },
                  {
                    type: 'or',
                    conds: [
                      { type: 'ok', step: 3 },
                      { type: 'ok', step: 2 },
                    ],
                  },
                ],
              },
              stmt: { sql: "SELECT 'all as it should be'", want_rows: true },
            },
          ],
        },
      },
    ],
  },
  {
    why: '`get_autocommit` came with version 3',
    versions: ['v2'],
    requests: [
      execute('BEGIN'),
      { type: 'get_autocommit' },
      execute("DELETE FROM sessions WHERE id = 'in batch'"),
      execute('ROLLBACK'),
      { type: 'get_autocommit' },
    ],
  },
  {
    why: 'sqld goes on after a statement of a sequence that failed, and says that all went well',
    versions: ['v2', 'v3'],
    requests: [
      {
        type: 'sequence',
        sql: 'CREATE TABLE s (x); INSERT INTO s VALUES (4); SELECT * FROM nothing; INSERT INTO s VALUES (5)',
      },
      execute('SELECT count(*) FROM s'),
    ],
  },
  {
    why: 'sqld calls BEGIN read-only',
    versions: ['v2', 'v3'],
    requests: [
      { type: 'describe', sql: 'SELECT id, count AS n, ? FROM sessions WHERE id = :name' },
      { type: 'describe', sql: 'BEGIN' },
      { type: 'describe', sql: 'EXPLAIN SELECT 1' },
    ],
  },
  {
    why: 'sqld ends the whole pipeline for an unknown sql_id, instead of that request',
    versions: ['v2', 'v3'],
    requests: [
      { type: 'store_sql', sql_id: 7, sql: 'SELECT count(*) FROM sessions' },
      { type: 'execute', stmt: { sql_id: 7, want_rows: true } },
      { type: 'close_sql', sql_id: 7 },
      { type: 'execute', stmt: { sql_id: 7 } },
    ],
  },
  {
    why: '`get_autocommit` came with version 3',
    versions: ['v2'],
    requests: [execute('BEGIN'), execute('SELECT * FROM nothing'), { type: 'get_autocommit' }, execute('COMMIT')],
  },
  {
    why: 'a later SQLite writes all digits of a float',
    versions: ['v2', 'v3'],
    requests: [execute('SELECT quote(-5e-324)')],
  },
];
