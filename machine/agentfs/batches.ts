/** Rows of one statement; many at once cost a fraction of what they cost one by one. */
export const rowsOfStatement = 32;

/** A list in slices of at most `most`, whose lengths are powers of two: so few statements are kept prepared. */
export function* batches<Item>(list: readonly Item[], most = rowsOfStatement): Generator<readonly Item[], void> {
  for (let at = 0, count = most; at < list.length; at += count) {
    while (count > list.length - at) count /= 2;
    yield list.slice(at, at + count);
  }
}

/** As many of `what`, with commas between them, as there are rows. */
export function times(rows: { readonly length: number }, what: string): string {
  return Array(rows.length).fill(what).join(', ');
}
