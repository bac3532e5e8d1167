/**
 * The shapes of Hermes' statements whose outcome can be known beforehand, told from their text. Only shapes that are certain
 * count; every other statement is `other` and goes to the authority before anybody is answered.
 */
import { type Argument, argumentAt, type Item, list } from './arguments.ts';
import { isWord, nameOf, type Token, tokenize } from './tokens.ts';

/** What one column of a session's row becomes. */
export type Assignment = {
  readonly column: string;
  readonly becomes:
    | { readonly kind: 'argument'; readonly argument: Argument }
    /** `COALESCE(?, column)`: the argument, unless it is NULL. */
    | { readonly kind: 'argument-or-itself'; readonly argument: Argument }
    /** `COALESCE(column, ?)`: the argument where the column is NULL. */
    | { readonly kind: 'itself-or-argument'; readonly argument: Argument }
    | { readonly kind: 'unknown' };
};

export type Shape =
  | { readonly kind: 'begin-immediate' }
  | { readonly kind: 'commit' }
  | { readonly kind: 'rollback' }
  /** `SELECT … FROM sessions WHERE id = ?`; no columns: all of them. */
  | { readonly kind: 'read-session'; readonly columns: readonly string[] | null; readonly session: Argument }
  /** `UPDATE sessions SET … WHERE id = ?`, or an INSERT of a session that updates the row where there is one. */
  | {
      readonly kind: 'write-session';
      readonly assignments: readonly Assignment[];
      readonly session: Argument;
      readonly inserts: boolean;
      /** What must not be NULL for an INSERT to come as far as the row that is there. */
      readonly required: readonly Argument[];
    }
  /** One more row of `messages`, which gives it its id. */
  | { readonly kind: 'add-message' }
  /** `sessions`: it may change rows of that table. */
  | { readonly kind: 'other'; readonly sessions: boolean };

const cache = new Map<string, Shape>();
const maxCached = 512;

/** The shape of one statement whose text the relay has judged already. Pure; the texts of Hermes are few, so shapes are kept. */
export function shapeOf(sql: string): Shape {
  const known = cache.get(sql);
  if (known) return known;
  const shape = look(sql);
  if (cache.size >= maxCached) cache.clear();
  if (sql.length < 16 * 1024) cache.set(sql, shape);
  return shape;
}

function look(sql: string): Shape {
  const tokens = tokenize(sql);
  while (tokens.at(-1)?.value === ';') tokens.pop();
  const first = tokens[0]?.type === 'word' ? tokens[0].value : '';
  const other: Shape = { kind: 'other', sessions: tokens.some((token) => nameOf(token) === 'sessions') };
  switch (first) {
    case 'BEGIN':
      return tokens.length === 2 && isWord(tokens[1], 'IMMEDIATE') ? { kind: 'begin-immediate' } : other;
    case 'COMMIT':
      return tokens.length === 1 ? { kind: 'commit' } : other;
    case 'ROLLBACK':
      return tokens.length === 1 ? { kind: 'rollback' } : other;
    case 'SELECT':
      return read(tokens) ?? { kind: 'other', sessions: false };
    case 'UPDATE':
      return update(tokens) ?? other;
    case 'INSERT':
      return insert(tokens) ?? other;
    default:
      return other;
  }
}

/** The argument of `WHERE id = ?` when that is all that is left from `at` on. */
function onlyId(tokens: readonly Token[], at: number): Argument | null {
  const whole = tokens.length === at + 4 && isWord(tokens[at], 'WHERE') && nameOf(tokens[at + 1]) === 'id';
  return whole && tokens[at + 2]?.value === '=' ? argumentAt(tokens, at + 3) : null;
}

function read(tokens: readonly Token[]): Shape | null {
  const from = tokens.findIndex((token) => isWord(token, 'FROM'));
  if (from < 0 || nameOf(tokens[from + 1]) !== 'sessions') return null;
  const session = onlyId(tokens, from + 2);
  if (session === null) return null;
  if (from === 2 && tokens[1]!.value === '*') return { kind: 'read-session', columns: null, session };
  const columns: string[] = [];
  for (let at = 1; at < from; at += 2) {
    // A keyword such as DISTINCT or CASE makes the commas stand elsewhere, or is no column of the row.
    const token = tokens[at]!;
    if (token.type !== 'word' || (at + 1 < from && tokens[at + 1]!.value !== ',')) return null;
    columns.push(token.value.toLowerCase());
  }
  return tokens[from - 1]?.value === ',' ? null : { kind: 'read-session', columns, session };
}

function update(tokens: readonly Token[]): Shape | null {
  if (nameOf(tokens[1]) !== 'sessions' || !isWord(tokens[2], 'SET')) return null;
  const where = tokens.findIndex((token) => token.depth === 0 && isWord(token, 'WHERE'));
  const session = where < 0 ? null : onlyId(tokens, where);
  const items = split(tokens, 3, where);
  if (session === null || items === null) return null;
  const assignments = assignmentsIn(tokens, items, ([from, to]) => (to === from + 1 ? argumentAt(tokens, from) : null));
  return assignments && { kind: 'write-session', assignments, session, inserts: false, required: [] };
}

function insert(tokens: readonly Token[]): Shape | null {
  if (!isWord(tokens[1], 'INTO')) return null;
  const table = nameOf(tokens[2]);
  const columns = list(tokens, 3);
  const values = columns && isWord(tokens[columns.end], 'VALUES') ? list(tokens, columns.end + 1) : null;
  if (!columns || !values || columns.items.length !== values.items.length) return null;
  const names = columns.items.map(([start, end]) => (end === start + 1 ? nameOf(tokens[start]) : null));
  if (table === 'messages')
    return values.end === tokens.length && !names.includes('id') && !names.includes('rowid')
      ? { kind: 'add-message' }
      : null;
  if (table !== 'sessions') return null;
  const given = (column: string | null): Argument | null => {
    const item = column === null ? undefined : values.items[names.indexOf(column)];
    return item && item[1] === item[0] + 1 ? argumentAt(tokens, item[0]) : null;
  };
  const session = given('id');
  const required = ['source', 'started_at'].map(given);
  const rest = tokens.slice(values.end, values.end + 8).map(({ value }) => value.toUpperCase());
  // A title is unique as well: such an INSERT might fail for another row's.
  if (session === null || required.includes(null) || names.includes('title')) return null;
  if (rest.join(' ') !== 'ON CONFLICT ( ID ) DO UPDATE SET') return null;
  const items = split(tokens, values.end + 8, tokens.length);
  if (items === null) return null;
  // In an upsert the new values have the name `excluded`.
  const assignments = assignmentsIn(tokens, items, ([from, to]) =>
    to === from + 3 && isWord(tokens[from], 'EXCLUDED') && tokens[from + 1]!.value === '.'
      ? given(nameOf(tokens[from + 2]))
      : null,
  );
  return (
    assignments && {
      kind: 'write-session',
      assignments,
      session,
      inserts: true,
      required: required.filter((argument) => argument !== null),
    }
  );
}

/** The parts between the outer commas; null when a word at the top shows that the list ends before `end`. */
function split(tokens: readonly Token[], start: number, end: number): Item[] | null {
  const items: Item[] = [];
  let from = start;
  for (let at = start; at < end; at++) {
    const { depth, type, value } = tokens[at]!;
    if (depth !== 0) continue;
    if (type === 'word' && /^(WHERE|FROM|RETURNING|ORDER|LIMIT|ON)$/.test(value)) return null;
    if (value !== ',' || type !== 'mark') continue;
    items.push([from, at]);
    from = at + 1;
  }
  return [...items, [from, end]];
}

type ArgumentOf = (expression: Item) => Argument | null;

/** @param argumentOf an expression; null where it is no bare argument */
function assignmentsIn(tokens: readonly Token[], items: readonly Item[], argumentOf: ArgumentOf): Assignment[] | null {
  const assignments: Assignment[] = [];
  for (const [start, end] of items) {
    const column = nameOf(tokens[start]);
    if (column === null || tokens[start + 1]?.value !== '=') return null;
    assignments.push({ column, becomes: becomes(tokens, column, [start + 2, end], argumentOf) });
  }
  return assignments;
}

function becomes(
  tokens: readonly Token[],
  column: string,
  [start, end]: Item,
  argumentOf: ArgumentOf,
): Assignment['becomes'] {
  const whole = argumentOf([start, end]);
  if (whole !== null) return { kind: 'argument', argument: whole };
  const inner = isWord(tokens[start], 'COALESCE') ? list(tokens, start + 1) : null;
  const [one, other] = inner?.end === end && inner.items.length === 2 ? inner.items : [];
  if (!one || !other) return { kind: 'unknown' };
  const itself = ([from, to]: Item): boolean =>
    nameOf(tokens[to - 1]) === column &&
    (to === from + 1 || (to === from + 3 && nameOf(tokens[from]) === 'sessions' && tokens[from + 1]!.value === '.'));
  const [left, right] = [argumentOf(one), argumentOf(other)];
  if (left !== null && itself(other)) return { kind: 'argument-or-itself', argument: left };
  if (right !== null && itself(one)) return { kind: 'itself-or-argument', argument: right };
  return { kind: 'unknown' };
}
