/**
 * Small files in the order in which their directories were listed. Whoever reads them one after the other, as grep, tar and
 * git do, gets the next ones with the same question to the database. These are hints alone: what is remembered by them is
 * forgotten as every other row is.
 */
import { BoundedCache } from './bounded-cache.ts';

/** Files whose place in their list is remembered. */
const filesRemembered = 20_000;
/** A reader that leaves out fewer files than this still reads in order. */
const mostSkipped = 16;
/** What one look ahead brings at most, so that nobody waits for it much longer than for one file. */
const mostFiles = 32;
const mostBytes = 64 * 1024;

interface Page {
  readonly inos: readonly number[];
  /** Where a reader in this order would go on; null before the first has come. */
  next: number | null;
}
interface Place {
  readonly page: Page;
  readonly at: number;
}

export class ListingOrder {
  readonly #places = new BoundedCache<number, Place>(filesRemembered);

  /** Small files of a directory, as a program sees them in its list. */
  listed(inos: readonly number[]): void {
    const page: Page = { inos, next: null };
    for (const [at, ino] of inos.entries()) this.#places.set(ino, { page, at });
  }

  /**
   * The files that will be read behind this one, which is about to be read from the database; none when nobody reads in
   * order. `bytesOf`: what a file has there; null when it is not to be read there.
   */
  following(ino: number, bytesOf: (ino: number) => number | null): readonly number[] {
    const place = this.#places.get(ino);
    if (!place) return [];
    const { page, at } = place;
    const isInOrder = page.next !== null && at >= page.next && at < page.next + mostSkipped;
    page.next = at + 1;
    if (!isInOrder) return [];
    const inos: number[] = [];
    for (let bytes = 0; page.next < page.inos.length && inos.length < mostFiles - 1; page.next += 1) {
      const next = page.inos[page.next]!;
      const more = bytesOf(next);
      if (more === null) continue;
      bytes += more;
      if (bytes > mostBytes) break;
      inos.push(next);
    }
    return inos;
  }
}
