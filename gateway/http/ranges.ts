/** Conditions and ranges of a download (RFC 9110 §§13, 14). Pure. */

/** What is answered: nothing because it is known, the whole, a part, or that there is no such part. */
export type Selection =
  | { readonly kind: 'unmodified' }
  | { readonly kind: 'whole' }
  | { readonly kind: 'part'; readonly start: number; readonly end: number }
  | { readonly kind: 'unsatisfiable' };

/**
 * `etag` is strong, quotes included. A `Range` that is none, of another unit, or of several parts is left aside, as the RFC
 * allows: the answer is the whole.
 */
export function select(headers: Headers, etag: string, size: number): Selection {
  const known = headers.get('if-none-match');
  if (known !== null && matches(known, etag)) return { kind: 'unmodified' };
  const condition = headers.get('if-range');
  const range = headers.get('range');
  if (range === null || (condition !== null && condition.trim() !== etag)) return { kind: 'whole' };
  const found = /^bytes=[ \t]*(\d{0,16})-(\d{0,16})[ \t]*$/i.exec(range.trim());
  if (found === null) return { kind: 'whole' };
  const [, first = '', last = ''] = found;
  if (first === '' && last === '') return { kind: 'whole' };
  if (first === '') return part(Math.max(0, size - Number(last)), size, size);
  if (last !== '' && Number(last) < Number(first)) return { kind: 'whole' };
  return part(Number(first), last === '' ? size : Math.min(size, Number(last) + 1), size);
}

function part(start: number, end: number, size: number): Selection {
  return start < end && start < size ? { kind: 'part', start, end } : { kind: 'unsatisfiable' };
}

/** A weak tag is as good here: it names the same version. */
function matches(list: string, etag: string): boolean {
  return list.split(',').some((one) => one.trim() === '*' || one.trim().replace(/^W\//, '') === etag);
}
