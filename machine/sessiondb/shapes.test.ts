import { describe, expect, test } from 'bun:test';
import { SessionRow } from './session-row.ts';
import { type Shape, shapeOf } from './shapes.ts';

const other = (sessions: boolean): Shape => ({ kind: 'other', sessions });

describe('what is told from the text', () => {
  test.each<[string, Shape]>([
    ['BEGIN IMMEDIATE', { kind: 'begin-immediate' }],
    ['COMMIT', { kind: 'commit' }],
    ['ROLLBACK', { kind: 'rollback' }],
    ['SELECT * FROM sessions WHERE id = ?', { kind: 'read-session', columns: null, session: 0 }],
    ['SELECT model, b FROM sessions WHERE id = ?', { kind: 'read-session', columns: ['model', 'b'], session: 0 }],
    ['INSERT INTO messages (session_id, role) VALUES (?, ?)', { kind: 'add-message' }],
    [
      'UPDATE sessions SET a = ?, b = COALESCE(?, b), c = COALESCE(c, ?), d = d + ? WHERE id = ?',
      {
        kind: 'write-session',
        session: 4,
        inserts: false,
        required: [],
        assignments: [
          { column: 'a', becomes: { kind: 'argument', argument: 0 } },
          { column: 'b', becomes: { kind: 'argument-or-itself', argument: 1 } },
          { column: 'c', becomes: { kind: 'itself-or-argument', argument: 2 } },
          { column: 'd', becomes: { kind: 'unknown' } },
        ],
      },
    ],
    [
      `INSERT INTO sessions (id, source, model, started_at) VALUES (?, ?, ?, ?)
       ON CONFLICT(id) DO UPDATE SET model = COALESCE(sessions.model, excluded.model)`,
      {
        kind: 'write-session',
        session: 0,
        inserts: true,
        required: [1, 3],
        assignments: [{ column: 'model', becomes: { kind: 'itself-or-argument', argument: 2 } }],
      },
    ],
  ])('%s', (sql, shape) => {
    expect(shapeOf(sql)).toEqual(shape);
  });

  test.each<[string, boolean]>([
    ['BEGIN', false],
    ['ROLLBACK TO x', false],
    ['SELECT DISTINCT model FROM sessions WHERE id = ?', false],
    ['SELECT count(*) FROM sessions WHERE id = ?', false],
    ['SELECT model FROM sessions WHERE id = ? AND 1', false],
    ['SELECT model FROM sessions WHERE id = ? LIMIT 1', false],
    ['SELECT model FROM sessions, messages WHERE id = ?', false],
    ['SELECT model FROM sessions WHERE title = ?', false],
    ['SELECT model FROM sessions WHERE id = ?1', false],
    ['SELECT a.model FROM sessions WHERE id = ?', false],
    ['UPDATE sessions SET title = ? WHERE id = ? AND title IS NULL', true],
    ['UPDATE sessions SET title = ? WHERE id IN (?)', true],
    ['UPDATE sessions SET (a, b) = (?, ?) WHERE id = ?', true],
    ['UPDATE sessions SET title = ? WHERE id = ? RETURNING id', true],
    ['UPDATE messages SET active = 0 WHERE session_id = ?', false],
    ['DELETE FROM sessions WHERE id = ?', true],
    ['INSERT INTO messages (id, session_id) VALUES (?, ?)', false],
    ['INSERT INTO messages (session_id) VALUES (?) RETURNING id', false],
    ['INSERT INTO messages (session_id) VALUES (?) ON CONFLICT DO NOTHING', false],
    ['INSERT OR IGNORE INTO messages (session_id) VALUES (?)', false],
    ['INSERT INTO sessions (id, source, started_at) VALUES (?, ?, ?)', true],
    ['INSERT INTO sessions (id, source, started_at) VALUES (?, ?, ?) ON CONFLICT(id) DO NOTHING', true],
    ['INSERT INTO sessions (id, started_at) VALUES (?, ?) ON CONFLICT(id) DO UPDATE SET model = excluded.id', true],
    [
      'INSERT INTO sessions (id, source, started_at, title) VALUES (?, ?, ?, ?) ON CONFLICT(id) DO UPDATE SET a = excluded.source',
      true,
    ],
    [
      'INSERT INTO sessions (id, source, started_at) VALUES (?, ?, ?) ON CONFLICT(id) DO UPDATE SET a = excluded.source WHERE 0',
      true,
    ],
  ])('not %s', (sql, sessions) => {
    expect(shapeOf(sql)).toEqual(other(sessions));
  });
});

describe('what a row becomes', () => {
  const row = new SessionRow(['id', 'Model', 'n', 'empty'], ['s', 'm-1', 5, null]);
  const after = (set: string, ...args: (string | number | null)[]) => {
    const shape = shapeOf(`UPDATE sessions SET ${set} WHERE id = ?`);
    if (shape.kind !== 'write-session') throw new Error('another shape');
    return row.after(shape.assignments, args);
  };

  test.each<[string, (string | number | null)[]]>([
    ['model = ?', ['m-1']],
    ['model = COALESCE(?, model)', [null]],
    ['model = COALESCE(?, model)', ['m-1']],
    ['model = COALESCE(model, ?)', ['another']],
    ['model = COALESCE(sessions.model, ?), n = COALESCE(n, ?)', ['another', 6]],
    ['empty = COALESCE(empty, ?)', [null]],
    ['empty = ?', [null]],
  ])('the same after %s', (set, args) => {
    expect(after(set, ...args)).toBe(row);
  });

  test.each<[string, (string | number | null)[]]>([
    ['model = ?', ['m-2']],
    ['model = ?', [5]],
    ['n = ?', [5]],
    ['n = ?', ['5']],
    ['n = n + ?', [0]],
    ['empty = ?', ['']],
    ['empty = COALESCE(empty, ?)', ['x']],
    ['model = COALESCE(?, n)', [null]],
  ])('not known to be the same after %s', (set, args) => {
    const changed = after(set, ...args);
    expect(changed).not.toBe(row);
    expect(changed?.select(['id', 'model', 'n', 'empty'])).toBeNull();
    expect(changed?.select(['id'])?.d).toEqual([['s']]);
  });

  test('a column that is not there, and one that is not asked for by its name', () => {
    expect(after('other = ?', 1)).toBeNull();
    expect(row.select(['nothing'])).toBeNull();
    expect(row.select(['model'])).toMatchObject({ c: ['Model'], d: [['m-1']] });
    expect(after('model = ?', null)?.select(['model'])?.d).toEqual([[null]]);
  });
});
