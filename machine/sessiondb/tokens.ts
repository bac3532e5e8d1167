/** The tokens of one SQL text, enough to prove what a statement of a known shape touches. */

export type Token = {
  readonly type: 'word' | 'name' | 'text' | 'parameter' | 'number' | 'mark';
  /** A word in upper case; a quoted name without its quotes; anything else as it stands. */
  readonly value: string;
  readonly start: number;
  readonly end: number;
  /** Parentheses around it. The parentheses themselves count as outside. */
  readonly depth: number;
};

const pattern =
  /\s+|--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)|(?<word>[A-Za-z_\u0080-\uffff][\w$\u0080-\uffff]*)|'(?<text>(?:[^']|'')*)'|"(?<name>(?:[^"]|"")*)"|`(?<tick>(?:[^`]|``)*)`|\[(?<square>[^\]]*)\]|(?<parameter>\?\d*|[:@$][\w$]+)|(?<number>\.?\d[\w.]*)|(?<mark>[<>!=|]{1,2}|[\s\S])/gy;

/** @throws SyntaxError for an unfinished quote, which SQLite would refuse too */
export function tokenize(sql: string): Token[] {
  const tokens: Token[] = [];
  let depth = 0;
  pattern.lastIndex = 0;
  for (let match = pattern.exec(sql); match !== null; match = pattern.exec(sql)) {
    const groups = match.groups!;
    const at = { start: match.index, end: match.index + match[0].length };
    const name = groups.name?.replaceAll('""', '"') ?? groups.tick?.replaceAll('``', '`') ?? groups.square;
    if (groups.word !== undefined) tokens.push({ type: 'word', value: groups.word.toUpperCase(), ...at, depth });
    else if (groups.text !== undefined)
      tokens.push({ type: 'text', value: groups.text.replaceAll("''", "'"), ...at, depth });
    else if (name !== undefined) tokens.push({ type: 'name', value: name, ...at, depth });
    else if (groups.parameter !== undefined) tokens.push({ type: 'parameter', value: groups.parameter, ...at, depth });
    else if (groups.number !== undefined) tokens.push({ type: 'number', value: groups.number, ...at, depth });
    else if (groups.mark !== undefined) {
      if (`'"\`[`.includes(groups.mark)) throw new SyntaxError('an unfinished quote');
      if (groups.mark === ')') depth--;
      tokens.push({ type: 'mark', value: groups.mark, ...at, depth });
      if (groups.mark === '(') depth++;
    }
  }
  return tokens;
}

/** The name that a word or a quoted name stands for, in lower case as SQLite compares it; null for other tokens. */
export const nameOf = (token: Token | undefined): string | null =>
  token?.type === 'word' || token?.type === 'name' ? token.value.toLowerCase() : null;

/** One spelling for texts that differ in white space only. */
export const normalized = (sql: string): string => sql.replace(/\s+/g, ' ').trim().replace(/;$/, '');

export const isWord = (token: Token | undefined, value: string): boolean =>
  token?.type === 'word' && token.value === value;

/** The column of `sessions` and `async_delegations` that names the session above. */
export const parentColumn = 'parent_session_id';
