/** Git's patterns for paths, as regular expressions over binary strings. */

const classes: Readonly<Record<string, string>> = {
  alnum: 'A-Za-z0-9',
  alpha: 'A-Za-z',
  blank: ' \\t',
  cntrl: '\\x00-\\x1f\\x7f',
  digit: '0-9',
  graph: '\\x21-\\x7e',
  lower: 'a-z',
  print: '\\x20-\\x7e',
  punct: '!-\\/:-@\\[-`{-~',
  space: '\\s',
  upper: 'A-Z',
  xdigit: 'A-Fa-f0-9',
};

export interface WildOptions {
  /** `*` and `?` stop at a slash, and `**` does not. */
  readonly isPath: boolean;
  readonly ignoresCase?: boolean;
}

/** Null for a pattern that can match nothing. */
export function wildcard(pattern: string, { isPath, ignoresCase }: WildOptions): RegExp | null {
  let source = '';
  for (let at = 0; at < pattern.length; at++) {
    const character = pattern[at]!;
    if (character === '\\') {
      at += 1;
      if (at >= pattern.length) return null;
      source += escaped(pattern[at]!);
    } else if (character === '?') source += isPath ? '[^/]' : '[^]';
    else if (character === '*') {
      let stars = 1;
      while (pattern[at + stars] === '*') stars += 1;
      const before = at === 0 || pattern[at - 1] === '/';
      const after = pattern[at + stars];
      if (!isPath) source += '[^]*';
      else if (stars > 1 && before && after === '/') {
        source += '(?:[^]*/)?';
        stars += 1;
      } else if (stars > 1 && before && after === undefined) source += '[^]*';
      else source += '[^/]*';
      at += stars - 1;
    } else if (character === '[') {
      const found = bracket(pattern, at, isPath);
      if (!found) return null;
      source += found.source;
      at = found.end;
    } else source += escaped(character);
  }
  return new RegExp(`^${source}$`, ignoresCase ? 'i' : '');
}

/** Whether a pattern says no more than itself. */
export const isLiteral = (pattern: string): boolean => !/[*?[\\]/.test(pattern);

function bracket(pattern: string, start: number, isPath: boolean): { source: string; end: number } | null {
  let at = start + 1;
  const isNegated = pattern[at] === '!' || pattern[at] === '^';
  if (isNegated) at += 1;
  let inside = '';
  for (let first = true; ; first = false) {
    const character = pattern[at];
    if (character === undefined) return null;
    if (character === ']' && !first) break;
    const named = /^\[:([a-z]+):\]/.exec(pattern.slice(at));
    if (named) {
      const members = classes[named[1]!];
      if (members === undefined) return null;
      inside += members;
      at += named[0].length;
      continue;
    }
    if (character === '\\') at += 1;
    const from = pattern[at];
    if (from === undefined) return null;
    at += 1;
    if (pattern[at] === '-' && pattern[at + 1] !== ']' && pattern[at + 1] !== undefined) {
      at += pattern[at + 1] === '\\' ? 2 : 1;
      const to = pattern[at] ?? '';
      at += 1;
      if (to >= from) inside += `${inBrackets(from)}-${inBrackets(to)}`;
    } else inside += inBrackets(from);
  }
  const slash = isPath ? '(?!/)' : '';
  if (inside === '') return { source: isNegated ? `${slash}[^]` : '(?!)', end: at };
  return { source: `${slash}[${isNegated ? '^' : ''}${inside}]`, end: at };
}

const escaped = (character: string): string => character.replace(/[\\^$.*+?()[\]{}|/]/, '\\$&');
const inBrackets = (character: string): string => character.replace(/[\\\]^-]/, '\\$&');
