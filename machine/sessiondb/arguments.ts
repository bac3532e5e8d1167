/** Arguments of a statement and the lists in which its text names them. */
import type { FrameStatement, FrameValue } from './frames.ts';
import type { Token } from './tokens.ts';

/** Which argument of the statement: position from 0, or name without its prefix. */
export type Argument = number | string;

/** From one token up to another, which is not part of it. */
export type Item = [number, number];

/** The argument whose parameter is the token at `index`; null when it is none, or numbered, which Hermes never does. */
export function argumentAt(tokens: readonly Token[], index: number): Argument | null {
  const token = tokens[index];
  if (token?.type !== 'parameter') return null;
  if (token.value.length > 1) return token.value[0] === '?' ? null : token.value.slice(1);
  return tokens.slice(0, index).filter(({ type, value }) => type === 'parameter' && value === '?').length;
}

/** The comma-separated items of the parenthesis at `at`, as token ranges. */
export function list(tokens: readonly Token[], at: number): { items: Item[]; end: number } | null {
  const open = tokens[at];
  if (open?.value !== '(') return null;
  const items: Item[] = [];
  let start = at + 1;
  for (let index = at + 1; index < tokens.length; index++) {
    const { value, depth, type } = tokens[index]!;
    if (type !== 'mark') continue;
    if (value === ')' && depth === open.depth) return { items: [...items, [start, index]], end: index + 1 };
    if (value === ',' && depth === open.depth + 1) {
      items.push([start, index]);
      start = index + 1;
    }
  }
  return null;
}

/** The value of an argument; null where none was given. */
export function valueAt(args: FrameStatement[1], argument: Argument): FrameValue {
  if (args === undefined) return null;
  if (Array.isArray(args)) return typeof argument === 'number' ? (args[argument] ?? null) : null;
  return typeof argument === 'string' ? (args[argument] ?? null) : null;
}
