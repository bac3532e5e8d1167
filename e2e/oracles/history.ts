/** Random histories of two clients and the cloud between them, as data: what happens is decided before anything runs. */

export type Step =
  /** One local transaction of a client. */
  | { readonly kind: 'write'; readonly client: 0 | 1; readonly statements: readonly string[] }
  | { readonly kind: 'pull' | 'push'; readonly client: 0 | 1 }
  /** Somebody writes straight to the cloud, as the API does. */
  | { readonly kind: 'cloud'; readonly statement: string };

/** What both servers begin with: rows without and with a UNIQUE column, keys of two columns, and an index. */
export const schema = [
  'CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b INTEGER)',
  'CREATE INDEX t_by_b ON t (b)',
  'CREATE TABLE u (id INTEGER PRIMARY KEY, name TEXT NOT NULL, v INTEGER, UNIQUE (name))',
  'CREATE TABLE d (ino INTEGER NOT NULL, chunk INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (ino, chunk))',
] as const;
export const tables = ['t', 'u', 'd'] as const;

/** Numbers from a seed, the same on every machine (mulberry32). */
export function randomFrom(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

/** Few keys, so that the writers meet often. */
const keys = 6;

function statement(random: (below: number) => number): string {
  const id = 1 + random(keys);
  const value = random(1000);
  switch (random(11)) {
    case 0:
    case 1:
      return `INSERT INTO t VALUES (${id}, 'a${value}', ${value}) ON CONFLICT (id) DO UPDATE SET a = excluded.a, b = excluded.b`;
    case 2:
      return `UPDATE t SET a = 'changed ${value} ü' WHERE id = ${id}`;
    case 3:
      return `UPDATE t SET b = ${value} WHERE id = ${id}`;
    case 4:
      return `DELETE FROM t WHERE id = ${id}`;
    case 5:
      // One id for one name, as in AgentFS: else the client's own pull fails, on every server alike.
      return `INSERT OR IGNORE INTO u VALUES (${100 + id}, 'name ${id}', ${value})`;
    case 6:
      return `UPDATE u SET v = ${value} WHERE name = 'name ${id}'`;
    case 7:
      return `DELETE FROM u WHERE name = 'name ${id}'`;
    case 8:
      return `INSERT OR REPLACE INTO d VALUES (${id}, ${random(3)}, randomly(${value}))`;
    case 9:
      return `DELETE FROM d WHERE ino = ${id}`;
    default:
      return `UPDATE d SET data = x'${value.toString(16).padStart(4, '0')}' WHERE ino = ${id}`;
  }
}

/** Bytes that both runs of a history agree on, a few pages of them. */
const withBytes = (sql: string): string =>
  sql.replace(/randomly\((\d+)\)/, (_whole, seed: string) => {
    const next = randomFrom(Number(seed));
    return `x'${Buffer.from(Array.from({ length: 1 + next(9000) }, () => next(256))).toString('hex')}'`;
  });

/** The history of a seed: 8 to 30 steps. */
export function historyOf(seed: number): Step[] {
  const random = randomFrom(seed);
  const steps: Step[] = [];
  for (let left = 8 + random(23); left > 0; left--) {
    const client = random(2) as 0 | 1;
    const kind = random(10);
    if (kind < 5) {
      const statements = Array.from({ length: 1 + random(3) }, () => withBytes(statement(random)));
      steps.push({ kind: 'write', client, statements });
    } else if (kind < 7) steps.push({ kind: 'pull', client });
    else if (kind < 9) steps.push({ kind: 'push', client });
    else steps.push({ kind: 'cloud', statement: withBytes(statement(random)) });
  }
  return steps;
}
