/**
 * Proofs about writes: which arguments of an INSERT, UPDATE or DELETE hold the ids of all sessions whose rows it touches.
 * Only shapes that are certain count; a statement of another shape is refused, not guessed at.
 */
import { type Argument, argumentAt, list } from './arguments.ts';
import { delegations } from './delegations.ts';
import { isWord, nameOf, parentColumn, type Token } from './tokens.ts';

export type WritePlan =
  | {
      readonly kind: 'write';
      /** True when the statement may bring a session into being. */
      readonly creates: boolean;
      /** Arguments that hold the ids of all sessions whose rows it touches. */
      readonly sessions: readonly Argument[];
      /** Arguments that become a session's parent. */
      readonly parents: readonly Argument[];
      readonly insert: boolean;
    }
  /** A write in the table of delegations, to be limited to the child's own. */
  | { readonly kind: 'delegation'; readonly parents: readonly Argument[]; readonly insert: boolean }
  | { readonly kind: 'refused'; readonly reason: string };

/** The column that says whose a row is. */
const keyColumns: Readonly<Record<string, string>> = {
  sessions: 'id',
  messages: 'session_id',
  session_model_usage: 'session_id',
  compression_locks: 'session_id',
};

const refuse = (reason: string): WritePlan => ({ kind: 'refused', reason });

/** Judges an INSERT or REPLACE. */
export function judgeInsert(tokens: readonly Token[]): WritePlan {
  let at = 1;
  let replaces = tokens[0]!.value === 'REPLACE';
  if (isWord(tokens[at], 'OR')) {
    if (isWord(tokens[at + 1], 'REPLACE')) replaces = true;
    at += 2;
  }
  if (!isWord(tokens[at], 'INTO')) return refuse('an INSERT without INTO');
  const table = nameOf(tokens[at + 1]) ?? '';
  const key = table === delegations ? 'delegation_id' : keyColumns[table];
  if (key === undefined) return refuse(`a write to ${table || 'an unknown table'}`);
  const columns = list(tokens, at + 2);
  if (!columns) return refuse(`an INSERT into ${table} without columns`);
  if (!isWord(tokens[columns.end], 'VALUES')) return refuse(`an INSERT into ${table} without VALUES`);
  const values = list(tokens, columns.end + 1);
  if (!values || values.items.length !== columns.items.length || tokens[values.end]?.value === ',')
    return refuse(`an INSERT into ${table} that is not one row`);
  const names = columns.items.map(([start]) => nameOf(tokens[start]));
  const valueFor = (column: string): Argument | null | undefined => {
    const [start, end] = values.items[names.indexOf(column)] ?? [0, 0];
    if (end === start) return undefined;
    return end === start + 1 ? argumentAt(tokens, start) : null;
  };
  const parent = valueFor(parentColumn);
  if (parent === null) return refuse(`an INSERT into ${table} whose parent is not an argument`);
  const parents = parent === undefined ? [] : [parent];
  if (table === delegations) return { kind: 'delegation', parents, insert: true };
  // REPLACE removes whatever row stands in the way, by any unique column.
  if (replaces) return refuse(`a REPLACE in ${table}`);
  const session = valueFor(key);
  if (session === null || session === undefined) return refuse(`an INSERT into ${table} without a session as argument`);
  const wrong = upsertProblem(tokens, values.end, key);
  if (wrong) return refuse(`${wrong} in ${table}`);
  return { kind: 'write', creates: table === 'sessions', sessions: [session], parents, insert: true };
}

/** What is wrong with the part behind VALUES; null when it touches only the row of the same session. */
function upsertProblem(tokens: readonly Token[], from: number, key: string): string | null {
  for (let at = from; at < tokens.length; at++) {
    if (!isWord(tokens[at], 'CONFLICT')) continue;
    const target = list(tokens, at + 1);
    const update = tokens.findIndex((token, index) => index > at && isWord(token, 'UPDATE'));
    if (update < 0) return null;
    if (!target?.items.some(([start]) => nameOf(tokens[start]) === key)) return 'an upsert for another column';
    return assigned(tokens, update, key) === 'bad' ? 'an upsert that moves rows' : null;
  }
  return null;
}

/**
 * What SET does with the columns that say whose a row is: `bad` when it may change them, otherwise the argument that
 * becomes the parent, or null.
 */
function assigned(tokens: readonly Token[], from: number, key: string): Argument | 'bad' | null {
  const set = tokens.findIndex((token, index) => index > from && isWord(token, 'SET') && token.depth === 0);
  if (set < 0) return 'bad';
  let parent: Argument | null = null;
  for (let at = set + 1; at < tokens.length; at++) {
    const token = tokens[at]!;
    if (token.depth === 0 && isWord(token, 'WHERE')) break;
    if (token.depth !== 0 || tokens[at + 1]?.value !== '=') continue;
    const starts = at === set + 1 || tokens[at - 1]?.value === ',';
    if (!starts) continue;
    const column = nameOf(token);
    // A list of columns, `SET (a, b) = …`, has no name here.
    if (column === null || column === key) return 'bad';
    if (column !== parentColumn) continue;
    let end = at + 2;
    while (
      end < tokens.length &&
      !(tokens[end]!.depth === 0 && (tokens[end]!.value === ',' || isWord(tokens[end], 'WHERE')))
    )
      end++;
    const given = tokens.slice(at + 2, end);
    if (given.length === 1 && given[0]!.type === 'parameter') parent = argumentAt(tokens, at + 2) ?? 'bad';
    else if (given.some(({ type, value }) => type === 'parameter' || type === 'text' || value === 'SELECT'))
      return 'bad';
  }
  return tokens[set + 1]?.value === '(' ? 'bad' : parent;
}

const endsWhere = new Set(['ORDER', 'LIMIT', 'RETURNING']);

/** Judges an UPDATE or DELETE. */
export function judgeChange(tokens: readonly Token[]): WritePlan {
  const update = tokens[0]!.value === 'UPDATE';
  if (!update && !isWord(tokens[1], 'FROM')) return refuse('a DELETE without FROM');
  const at = update ? 1 : 2;
  const table = nameOf(tokens[at]) ?? '';
  if (update && !isWord(tokens[at + 1], 'SET')) return refuse(`an UPDATE of ${table} in an unknown form`);
  const where = tokens.findIndex((token) => token.depth === 0 && isWord(token, 'WHERE'));
  if (!update && where !== at + 1) return refuse(`a DELETE from ${table} in an unknown form`);
  if (where < 0) return refuse(`a write to all rows of ${table}`);
  if (update && tokens.some((token, index) => index < where && token.depth === 0 && isWord(token, 'FROM')))
    return refuse(`an UPDATE of ${table} in an unknown form`);
  if (table === delegations)
    return update && assigned(tokens, 0, parentColumn) === 'bad'
      ? refuse(`an UPDATE that moves rows of ${table}`)
      : { kind: 'delegation', parents: [], insert: false };
  const key = keyColumns[table];
  if (key === undefined) return refuse(`a write to ${table || 'an unknown table'}`);
  const parent = update ? assigned(tokens, 0, key) : null;
  if (parent === 'bad') return refuse(`an UPDATE that moves rows of ${table}`);
  const keys = table === 'sessions' && update ? [key, parentColumn] : [key];
  const sessions = keys.map((column) => keyArguments(tokens, where, column)).find((found) => found !== null);
  if (!sessions) return refuse(`a write to ${table} that does not name its sessions`);
  return { kind: 'write', creates: false, sessions, parents: parent === null ? [] : [parent], insert: false };
}

/** The arguments that the WHERE at `where` demands of `column`; null when a row of another session might match. */
function keyArguments(tokens: readonly Token[], where: number, column: string): Argument[] | null {
  let end = tokens.findIndex(
    (token, index) => index > where && token.depth === 0 && token.type === 'word' && endsWhere.has(token.value),
  );
  if (end < 0) end = tokens.length;
  const clause = tokens.slice(where + 1, end);
  // With only ANDs at the top, one conjunct holds for every row.
  if (
    clause.some(
      ({ type, value, depth }) => depth === 0 && type === 'word' && /^(OR|BETWEEN|CASE|NOT|COLLATE)$/.test(value),
    )
  )
    return null;
  for (let at = where + 1; at < end; at++) {
    const before = tokens[at - 1]!;
    if (tokens[at]!.depth !== 0 || nameOf(tokens[at]) !== column) continue;
    if (at > where + 1 && !isWord(before, 'AND')) continue;
    if (tokens[at + 1]?.value === '=') {
      const found = argumentAt(tokens, at + 2);
      if (found !== null && (at + 3 === end || isWord(tokens[at + 3], 'AND'))) return [found];
    }
    if (isWord(tokens[at + 1], 'IN')) {
      const items = list(tokens, at + 2);
      const found = items?.items.map(([from, to]) => (to === from + 1 ? argumentAt(tokens, from) : null));
      if (found?.every((argument) => argument !== null) && (items!.end === end || isWord(tokens[items!.end], 'AND')))
        return found;
    }
  }
  return null;
}
