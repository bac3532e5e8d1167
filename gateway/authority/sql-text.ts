/**
 * What can be told from the text of SQL alone: where statements and parameters are, and what kind a statement is. SQLite
 * itself parses and judges the statement afterwards; nothing here decides whether SQL is valid.
 */

/** How a statement relates to transactions and to the write lock. */
export type StatementKind =
  | 'read'
  | 'insert'
  | 'change'
  | 'schema'
  | 'begin'
  | 'begin-immediate'
  | 'commit'
  | 'rollback'
  | 'savepoint'
  | 'pragma'
  | 'refused'
  | 'empty';

export type Parameter = {
  start: number;
  end: number /** From 1, as SQLite numbers it. */;
  index: number;
  name: string | null;
};

/** One statement of a text: its own text without the closing semicolon, and what was found in it. */
export type ScannedStatement = { sql: string; kind: StatementKind; parameters: Parameter[]; parameterCount: number };

type Token = { type: 'word' | 'parameter' | 'semicolon' | 'open' | 'close' | 'other'; start: number; end: number };

const isWordStart = (c: number): boolean => (c >= 97 && c <= 122) || (c >= 65 && c <= 90) || c === 95 || c >= 128;
const isDigit = (c: number): boolean => c >= 48 && c <= 57;
const isWordPart = (c: number): boolean => isWordStart(c) || isDigit(c) || c === 36;
const isSpace = (c: number): boolean => c === 32 || (c >= 9 && c <= 13);

/** Position behind a quoted run that starts at `start`; a doubled quote inside belongs to it. */
function afterQuoted(sql: string, start: number, quote: string): number {
  let at = start + 1;
  for (;;) {
    const found = sql.indexOf(quote, at);
    if (found < 0) return sql.length;
    if (quote === ']' || sql[found + 1] !== quote) return found + 1;
    at = found + 2;
  }
}

/** The next token at or after `from`, or null at the end. White space and comments are skipped. */
function nextToken(sql: string, from: number): Token | null {
  let at = from;
  for (;;) {
    if (at >= sql.length) return null;
    const c = sql.charCodeAt(at);
    // SQLite takes a byte order mark for white space, but only where a token may begin.
    if (isSpace(c) || c === 0xfeff) at++;
    else if (c === 45 && sql.charCodeAt(at + 1) === 45) {
      const line = sql.indexOf('\n', at);
      if (line < 0) return null;
      at = line + 1;
    } else if (c === 47 && sql.charCodeAt(at + 1) === 42) {
      const end = sql.indexOf('*/', at + 2);
      if (end < 0) return null;
      at = end + 2;
    } else break;
  }
  const start = at;
  const c = sql.charCodeAt(start);
  const other = (end: number): Token => ({ type: 'other', start, end });
  if (isWordStart(c)) {
    let end = start + 1;
    while (end < sql.length && isWordPart(sql.charCodeAt(end))) end++;
    return { type: 'word', start, end };
  }
  if (isDigit(c)) {
    let end = start + 1;
    while (end < sql.length && isWordPart(sql.charCodeAt(end))) end++;
    return other(end);
  }
  switch (sql[start]) {
    case ';':
      return { type: 'semicolon', start, end: start + 1 };
    case '(':
      return { type: 'open', start, end: start + 1 };
    case ')':
      return { type: 'close', start, end: start + 1 };
    case "'":
    case '"':
    case '`':
      return other(afterQuoted(sql, start, sql[start]!));
    case '[':
      return other(afterQuoted(sql, start, ']'));
    case '?': {
      let end = start + 1;
      while (end < sql.length && isDigit(sql.charCodeAt(end))) end++;
      return { type: 'parameter', start, end };
    }
    case ':':
    case '@':
    case '$': {
      let end = start + 1;
      while (end < sql.length && isWordPart(sql.charCodeAt(end))) end++;
      return end === start + 1 ? other(end) : { type: 'parameter', start, end };
    }
    default:
      return other(start + 1);
  }
}

const KINDS: Record<string, StatementKind> = {
  SELECT: 'read',
  VALUES: 'read',
  INSERT: 'insert',
  REPLACE: 'insert',
  UPDATE: 'change',
  DELETE: 'change',
  CREATE: 'schema',
  DROP: 'schema',
  ALTER: 'schema',
  REINDEX: 'schema',
  ANALYZE: 'schema',
  COMMIT: 'commit',
  END: 'commit',
  SAVEPOINT: 'savepoint',
  RELEASE: 'savepoint',
  PRAGMA: 'pragma',
  // They reach other files of this machine, or rewrite the whole database under the pages' revisions.
  ATTACH: 'refused',
  DETACH: 'refused',
  VACUUM: 'refused',
};

const BEHIND_WITH = new Set(['SELECT', 'VALUES', 'INSERT', 'REPLACE', 'UPDATE', 'DELETE']);

/** `fts3_tokenizer` takes a pointer from a bound value; the other loads code. Both are allowed in some builds of SQLite. */
const REFUSED_FUNCTIONS = new Set(['FTS3_TOKENIZER', 'LOAD_EXTENSION']);

/** @param words the first words in capitals; @param afterWith the verb behind the common table expressions */
function kindOf(words: readonly string[], afterWith: string | null): StatementKind {
  const first = words[0];
  if (first === 'BEGIN') return words[1] === 'IMMEDIATE' || words[1] === 'EXCLUSIVE' ? 'begin-immediate' : 'begin';
  // ROLLBACK TO keeps the transaction open; SQLite's own flag tells afterwards.
  if (first === 'ROLLBACK') return 'rollback';
  if (first === 'WITH') return (afterWith && KINDS[afterWith]) || 'read';
  if (first === 'EXPLAIN') {
    const explained = kindOf(words.slice(words[1] === 'QUERY' ? 3 : 1), afterWith);
    // Some pragmas take effect while they are compiled, explained or not.
    return explained === 'pragma' || explained === 'refused' ? 'refused' : 'read';
  }
  return (first !== undefined && KINDS[first]) || 'refused';
}

/**
 * Where a semicolon ends a statement: not inside a trigger's body, which ends with `END` behind a semicolon (the rule of
 * sqlite3_complete()).
 */
class TriggerBody {
  #create: 'start' | 'create' | 'other' = 'start';
  #inBody = false;
  #afterSemicolon = false;
  #maybeEnd = false;

  word(word: string): void {
    if (this.#inBody) this.#maybeEnd = this.#afterSemicolon && word === 'END';
    else if (this.#create === 'start')
      this.#create = word === 'CREATE' ? 'create' : word === 'EXPLAIN' ? 'start' : 'other';
    else if (this.#create === 'create') {
      if (word === 'TRIGGER') this.#inBody = true;
      else if (word !== 'TEMP' && word !== 'TEMPORARY') this.#create = 'other';
    }
    this.#afterSemicolon = false;
  }

  other(): void {
    if (!this.#inBody && this.#create === 'start') this.#create = 'other';
    this.#afterSemicolon = false;
    this.#maybeEnd = false;
  }

  /** True when the semicolon at hand ends the statement. */
  semicolon(): boolean {
    if (this.#inBody && !this.#maybeEnd) {
      this.#afterSemicolon = true;
      return false;
    }
    return true;
  }
}

/** Scans the statement that starts at `from`. `next` is where the one after it starts. */
export function scanStatement(sql: string, from = 0): { statement: ScannedStatement; next: number } {
  const trigger = new TriggerBody();
  const parameters: Parameter[] = [];
  const byName = new Map<string, number>();
  const words: string[] = [];
  let afterWith: string | null = null;
  let refused = false;
  let parameterCount = 0;
  let depth = 0;
  let at = from;
  let end = sql.length;
  let start = -1;
  for (;;) {
    const token = nextToken(sql, at);
    if (!token) {
      at = sql.length;
      break;
    }
    at = token.end;
    if (token.type === 'semicolon') {
      if (trigger.semicolon()) {
        end = token.start;
        break;
      }
      continue;
    }
    if (start < 0) start = token.start;
    if (token.type === 'word') {
      const word = token.end - token.start > 16 ? '' : sql.slice(token.start, token.end).toUpperCase();
      trigger.word(word);
      if (words.length < 4) words.push(word);
      if (REFUSED_FUNCTIONS.has(word)) refused = true;
      if (afterWith === null && depth === 0 && words.includes('WITH') && BEHIND_WITH.has(word)) afterWith = word;
      continue;
    }
    trigger.other();
    if (token.type === 'other' && REFUSED_FUNCTIONS.has(sql.slice(token.start + 1, token.end - 1).toUpperCase()))
      refused = true;
    if (token.type === 'open') depth++;
    else if (token.type === 'close') depth--;
    else if (token.type === 'parameter') {
      const text = sql.slice(token.start, token.end);
      let index: number;
      if (text === '?') index = parameterCount + 1;
      else if (text[0] === '?') index = Number(text.slice(1));
      else index = byName.get(text) ?? parameterCount + 1;
      if (text[0] !== '?') byName.set(text, index);
      parameterCount = Math.max(parameterCount, index);
      parameters.push({ start: token.start, end: token.end, index, name: text === '?' ? null : text });
    }
  }
  const origin = start < 0 ? from : start;
  for (const parameter of parameters) {
    parameter.start -= origin;
    parameter.end -= origin;
  }
  const statement = {
    sql: start < 0 ? '' : sql.slice(origin, end).trimEnd(),
    kind: start < 0 ? ('empty' as const) : refused ? ('refused' as const) : kindOf(words, afterWith),
    parameters,
    parameterCount,
  };
  return { statement, next: at };
}

/** All statements of a text in order, empty ones left out. */
export function* splitStatements(sql: string): Generator<ScannedStatement> {
  let at = 0;
  while (at < sql.length) {
    const { statement, next } = scanStatement(sql, at);
    if (statement.kind !== 'empty') yield statement;
    at = next;
  }
}
