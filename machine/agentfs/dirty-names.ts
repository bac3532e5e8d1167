/**
 * Names that memory is ahead of: given since the rows of the open group were written. Their rows are written many at once,
 * and a name that was taken away again before that, such as a program's temporary file, costs no row at all.
 */
import { breathe } from './breathe.ts';
import type { SqlDriver, SqlValue } from './driver.ts';
import { dentryId } from './ids.ts';

interface DirtyName {
  readonly parent: number;
  readonly name: string;
  readonly ino: number;
}

/** Rows of one INSERT. */
const rowsOfInsert = 32;

export class DirtyNames {
  #names = new Map<string, DirtyName>();
  /** How many each directory has here. */
  #counts = new Map<number, number>();

  get size(): number {
    return this.#names.size;
  }

  /** What a name is; undefined where the database knows it. */
  get(key: string): number | undefined {
    return this.#names.get(key)?.ino;
  }

  /** Whether a directory has names that the database has not. */
  isIn(parent: number): boolean {
    return this.#counts.has(parent);
  }

  insert(key: string, name: DirtyName): void {
    this.#names.set(key, name);
    this.#counts.set(name.parent, (this.#counts.get(name.parent) ?? 0) + 1);
  }

  /** False when the database has the name: then its row must be changed there. */
  replace(key: string, ino: number): boolean {
    const before = this.#names.get(key);
    if (before) this.#names.set(key, { ...before, ino });
    return before !== undefined;
  }

  /** False when the database has the name: then its row must go from there. */
  remove(key: string): boolean {
    const before = this.#names.get(key);
    if (!before) return false;
    this.#names.delete(key);
    const count = (this.#counts.get(before.parent) ?? 1) - 1;
    if (count > 0) this.#counts.set(before.parent, count);
    else this.#counts.delete(before.parent);
    return true;
  }

  clear(): void {
    this.#names.clear();
    this.#counts.clear();
  }

  /** Writes the rows, within the open transaction. A failure loses the group. For whoever runs exclusively. */
  async writeOut(sql: SqlDriver): Promise<void> {
    const names = [...this.#names.values()];
    for (let at = 0, count = rowsOfInsert; at < names.length; at += count) {
      // In powers of two, so that few statements are kept prepared.
      while (count > names.length - at) count /= 2;
      const values = names
        .slice(at, at + count)
        .flatMap(({ parent, name, ino }): SqlValue[] => [dentryId(parent, name), name, parent, ino]);
      const rows = Array(count).fill('(?, ?, ?, ?)').join(', ');
      await sql.run(`INSERT INTO fs_dentry (id, name, parent_ino, ino) VALUES ${rows}`, ...values);
      await breathe();
    }
    // Only now: whoever looks meanwhile finds them here or in the store's memory.
    this.clear();
  }
}
