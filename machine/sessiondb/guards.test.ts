/** Guards in SQLite itself, on columns that could make unequal values look equal. */
import { Database } from 'bun:sqlite';
import { expect, test } from 'bun:test';
import type { WireStatement, WireValue } from '../agentfs/hrana-wire.ts';
import type { FrameValue } from './frames.ts';
import { changedOneRow, gaveId, sessionHas } from './guards.ts';

const database = new Database(':memory:', { safeIntegers: true });
database.run(
  'CREATE TABLE sessions (id TEXT PRIMARY KEY, plain, nocase TEXT COLLATE NOCASE, number NUMERIC, "odd "" name" TEXT)',
);
database.run('CREATE TABLE numbered (id INTEGER PRIMARY KEY AUTOINCREMENT, x)');

function holds(guard: WireStatement | null): boolean {
  const bound = (guard!.args ?? []).map((value: WireValue) =>
    value.type === 'integer' ? BigInt(value.value) : value.type === 'text' ? value.value : null,
  );
  try {
    database.prepare(guard!.sql!).all(...bound);
    return true;
  } catch (error) {
    expect((error as Error).message).toContain('overflow');
    return false;
  }
}

test.each<[string, FrameValue, string, boolean]>([
  ['plain', 1, '1', true],
  ['plain', 1, '1.0', false],
  ['plain', 1, "'1'", false],
  ['plain', 'a', "'a'", true],
  ['plain', 'a', "x'61'", false],
  ['plain', null, 'NULL', true],
  ['plain', null, '0', false],
  ['nocase', 'a', "'a'", true],
  ['nocase', 'a', "'A'", false],
  ['number', 5, "'5'", true],
  ['number', 5, '5.5', false],
  ['odd " name', 'ä€😀', "'ä€😀'", true],
])('%s is %p where %s stands: %p', (column, value, stored, same) => {
  database.run('DELETE FROM sessions');
  database.run(`INSERT INTO sessions (id, "${column.replaceAll('"', '""')}") VALUES ('s', ${stored})`);
  expect(holds(sessionHas('s', [column], [value]))).toBe(same);
  expect(holds(sessionHas('another', [column], [value]))).toBe(false);
});

test('values whose comparison might be loose are not guarded', () => {
  for (const value of [1.5, { f: 1 }, { i: '9007199254740993' }, { b: 'YQ==' }])
    expect(sessionHas('s', ['plain'], [value])).toBeNull();
});

test('rows changed and the id given', () => {
  database.run("INSERT INTO numbered (x) VALUES ('a')");
  expect(holds(gaveId(1n))).toBe(true);
  expect(holds(gaveId(2n))).toBe(false);
  expect(holds(changedOneRow)).toBe(true);
  database.run('UPDATE numbered SET x = 1 WHERE id = 99');
  expect(holds(changedOneRow)).toBe(false);
});
