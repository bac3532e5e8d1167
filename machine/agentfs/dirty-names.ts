/**
 * Names that memory is ahead of: given or taken away since the rows of the open group were written. Their rows come and go
 * many at once, and a name that was taken away again before that, such as a program's temporary file, costs no row at all.
 */
import { batches, times } from './batches.ts';
import { breathe } from './breathe.ts';
import type { SqlDriver, SqlValue } from './driver.ts';
import { freeIds } from './foreign-names.ts';
import { dentryId } from './ids.ts';
import type { Place } from './namespace.ts';
import { deleteNames } from './removed-rows.ts';

interface DirtyName extends Place {
  readonly ino: number;
}

interface Counts {
  given: number;
  removed: number;
}

export class DirtyNames {
  readonly #given = new Map<string, DirtyName>();
  /** The database still has them. One that was given again since is in both. */
  readonly #removed = new Map<string, Place>();
  /** How many each directory has here. */
  readonly #counts = new Map<number, Counts>();

  /** Rows that come or go. */
  get size(): number {
    return this.#given.size + this.#removed.size;
  }

  /** What a name is, 0 where it is none any more; undefined where the database knows it. */
  get(key: string): number | undefined {
    return this.#given.get(key)?.ino ?? (this.#removed.has(key) ? 0 : undefined);
  }

  /** Whether the rows of a directory are not those of its names. */
  isIn(parent: number): boolean {
    return this.#counts.has(parent);
  }

  /** Whether a directory has names that the database has not. */
  isGivenIn(parent: number): boolean {
    return (this.#counts.get(parent)?.given ?? 0) > 0;
  }

  /** How many rows of a directory are of names that were taken away. */
  removedIn(parent: number): number {
    return this.#counts.get(parent)?.removed ?? 0;
  }

  isRemoved(key: string): boolean {
    return this.#removed.has(key);
  }

  insert(key: string, name: DirtyName): void {
    this.#given.set(key, name);
    this.#count(name.parent, 'given', 1);
  }

  /** False when the database has the name: then its row must be changed there. */
  replace(key: string, ino: number): boolean {
    const before = this.#given.get(key);
    if (before) this.#given.set(key, { ...before, ino });
    return before !== undefined;
  }

  /** Whoever takes a name away has found it. */
  remove(key: string, place: Place): void {
    if (this.#given.delete(key)) this.#count(place.parent, 'given', -1);
    else if (!this.#removed.has(key)) {
      this.#removed.set(key, place);
      this.#count(place.parent, 'removed', 1);
    }
  }

  clear(): void {
    this.#given.clear();
    this.#removed.clear();
    this.#counts.clear();
  }

  /** Writes the rows, within the open transaction. A failure loses the group. For whoever runs exclusively. */
  async writeOut(sql: SqlDriver): Promise<void> {
    // Before the others: a name that was given again has the same id.
    await deleteNames(sql, [...this.#removed.values()]);
    for (const batch of batches([...this.#given.values()])) {
      await insertNames(sql, batch);
      await breathe();
    }
    // Only now: whoever looks meanwhile finds them here or in the store's memory.
    this.clear();
  }

  #count(parent: number, what: keyof Counts, more: 1 | -1): void {
    const counts = this.#counts.get(parent) ?? { given: 0, removed: 0 };
    counts[what] += more;
    if (counts.given + counts.removed > 0) this.#counts.set(parent, counts);
    else this.#counts.delete(parent);
  }
}

/** Writes rows of names under our ids, which are freed where other names have them. Within the open transaction. */
export async function insertNames(sql: SqlDriver, names: readonly DirtyName[]): Promise<void> {
  const ids = names.map(({ parent, name }) => dentryId(parent, name));
  const values = names.flatMap(({ parent, name, ino }, at): SqlValue[] => [ids[at]!, name, parent, ino]);
  const insert = () =>
    sql.run(`INSERT INTO fs_dentry (id, name, parent_ino, ino) VALUES ${times(names, '(?, ?, ?, ?)')}`, ...values);
  try {
    await insert();
  } catch (error) {
    // The statement has done nothing then.
    if (!/UNIQUE.*fs_dentry\.id/.test(String(error)) || !(await freeIds(sql, ids))) throw error;
    await insert();
  }
}
