/** Limits statements about background delegations to those of a child's own sessions. */
import { isWord, nameOf, parentColumn, tokenize } from './tokens.ts';

export const delegations = 'async_delegations';

const quoted = (text: string): string => `'${text.replaceAll("'", "''")}'`;

/**
 * The same statement, limited to delegations of these sessions. Background delegations carry process ids, which mean
 * nothing outside their holder: without this a starting child would declare those of other conversations lost.
 */
export function scopeDelegations(sql: string, sessions: Iterable<string>): string {
  const own = `${parentColumn} IN (${[...sessions].map(quoted).join(', ')})`;
  const tokens = tokenize(sql);
  const isChange = isWord(tokens[0], 'UPDATE') || isWord(tokens[0], 'DELETE');
  let out = '';
  let copied = 0;
  tokens.forEach((token, index) => {
    const isTarget = isChange && index === (isWord(tokens[0], 'UPDATE') ? 1 : 2);
    if (nameOf(token) !== delegations || isTarget) return;
    if (!isWord(tokens[index - 1], 'FROM') && !isWord(tokens[index - 1], 'JOIN')) return;
    out += `${sql.slice(copied, token.start)}(SELECT * FROM ${delegations} WHERE ${own})`;
    copied = token.end;
  });
  out += sql.slice(copied);
  if (!isChange) return out;
  const where = tokenize(out).find((token) => token.depth === 0 && isWord(token, 'WHERE'))!;
  return `${out.slice(0, where.end)} (${out.slice(where.end)}) AND ${own}`;
}
