import { expect, test } from 'bun:test';
import { scanStatement, splitStatements } from './sql-text.ts';

test.each([
  ['select 1', 'read'],
  ['  -- note\n/* more; */ SELECT 1', 'read'],
  ['VALUES (1)', 'read'],
  ['explain insert into t values (1)', 'read'],
  ['insert into t values (1)', 'insert'],
  ['REPLACE INTO t VALUES (1)', 'insert'],
  ['update t set a = 1', 'change'],
  ['with a as (select 1) select * from a', 'read'],
  ['with a as (select 1) delete from t', 'change'],
  ['with recursive a(x) as (select 1 union all select x from a) insert into t select * from a', 'insert'],
  ['begin', 'begin'],
  ['BEGIN DEFERRED TRANSACTION', 'begin'],
  ['begin immediate', 'begin-immediate'],
  ['Begin Exclusive', 'begin-immediate'],
  ['end', 'commit'],
  ['rollback to x', 'rollback'],
  ['savepoint x', 'savepoint'],
  ['create trigger a after insert on t begin select 1; end', 'schema'],
  ['pragma user_version', 'pragma'],
  ["attach 'x' as y", 'refused'],
  ["/**/vacuum into 'x'", 'refused'],
  ["\ufeffattach 'x' as y", 'refused'],
  ['explain pragma synchronous=off', 'refused'],
  ['explain query plan vacuum', 'refused'],
  ['explain query plan with a as (select 1) select * from a', 'read'],
  ['frobnicate', 'refused'],
  ["select fts3_tokenizer('simple', ?)", 'refused'],
  ['select "FTS3_tokenizer"(\'simple\', ?)', 'refused'],
  ["select [load_extension]('x')", 'refused'],
  ['', 'empty'],
  [' ; ', 'empty'],
  ['-- only a note', 'empty'],
])('%p is a %s', (sql, kind) => {
  expect(scanStatement(sql).statement.kind).toBe(kind as never);
});

test('statements are split at semicolons outside of strings, comments and trigger bodies', () => {
  const texts = [
    'insert into t values (\'a;b\', "c;d", [e;f], `g;h`)',
    'create trigger x after insert on t begin update t set a = case when 1 then 2 end; select 1; end',
    'CREATE TEMP TRIGGER y after delete on t begin select 2; END',
    'select 1 /* ; */',
    'create table begin_(a)',
    "select 'it''s;'",
  ];
  expect([...splitStatements(`${texts.join(';\n')};;-- done;`)].map(({ sql }) => sql)).toEqual(texts);
});

test('parameters are numbered as SQLite numbers them', () => {
  const { statement } = scanStatement("select ?, ?5, ?, :a, @b, $c, :a, '?', \"?\", -- ?\n a->>'$.x', x'00'");
  expect(statement.parameters.map(({ index, name }) => [index, name])).toEqual([
    [1, null],
    [5, '?5'],
    [6, null],
    [7, ':a'],
    [8, '@b'],
    [9, '$c'],
    [7, ':a'],
  ]);
  expect(statement.parameterCount).toBe(9);
});

test('positions of parameters are those in the statement itself', () => {
  const { statement } = scanStatement('  /* x */ select ?, :name;');
  expect(statement.parameters.map(({ start, end }) => statement.sql.slice(start, end))).toEqual(['?', ':name']);
});

test('what is never closed ends with the text', () => {
  for (const sql of [
    "select 'abc",
    'select "abc',
    'select [abc',
    'select /* abc',
    'select -- abc',
    'create trigger a begin',
  ])
    expect(scanStatement(sql).next).toBe(sql.length);
});
