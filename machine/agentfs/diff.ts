/**
 * The delta against the base (ADR-046 §6): which paths an organization has added, changed or deleted, from AgentFS' own tables.
 * Works on the machine's replica and over Hrana on the cloud alike; reads names and attributes, never contents.
 */
import { type BaseEntry, type BaseTree, exposedBase } from './base.ts';
import type { SqlRow, SqlValue } from './driver.ts';
import type { HranaDatabase } from './hrana.ts';
import { rootIno } from './ids.ts';
import { type Inode, inodeColumns, inodeOfRow, type Stamp } from './inode.ts';
import { isDirectory, isRegular, isSymlink } from './schema.ts';

/** A place that the delta has otherwise than the base. */
export interface DeltaChange {
  /** Absolute, in the organization's tree: `/skills/…`, `/conversations/<id>/work/…`. */
  readonly path: string;
  /** A deleted directory stands for everything that the base has in it. */
  readonly change: 'added' | 'changed' | 'deleted';
  readonly kind: 'file' | 'directory' | 'symlink' | 'special';
  /** As the delta has it; null for what is deleted. */
  readonly now: { readonly mode: number; readonly size: number; readonly mtime: Stamp } | null;
}

/** What is compared: the organization's shared paths, or one conversation's files. Private files are never listed. */
export type DiffScope = { readonly kind: 'shared' } | { readonly kind: 'conversation'; readonly conversation: string };

export interface DiffPage {
  /** In the order of a walk: each directory before what it holds, names by their bytes. */
  readonly changes: readonly DeltaChange[];
  /** Pass it as `after` for the next page; null at the end. */
  readonly next: string | null;
}

/** A SQL connection: the machine's `SqlDriver`, or `hranaDiffSql` of the cloud. */
export interface DiffSql {
  all(sql: string, ...args: SqlValue[]): Promise<SqlRow[]>;
}

/** Entries of one directory that are read at once. */
const pageRows = 500;
/** More than any tree that tools can reach by a path of 4096 bytes. */
const maxDepth = 2_048;

/** At most `limit` changes (1 to 1000) behind the path `after`. Work is in proportion to what is returned and passed by. */
export async function deltaAgainstBase(
  sql: DiffSql,
  scope: DiffScope,
  options: { limit: number; after?: string | null; base?: BaseTree },
): Promise<DiffPage> {
  const walk = new Walk(sql, options.base ?? exposedBase, options.after ?? null);
  const changes: DeltaChange[] = [];
  for await (const change of walk.below(scopeRoots(scope))) {
    if (changes.length === options.limit) return { changes, next: changes.at(-1)!.path };
    changes.push(change);
  }
  return { changes, next: null };
}

/** The cloud database for `deltaAgainstBase`. */
export function hranaDiffSql(database: Pick<HranaDatabase, 'execute'>): DiffSql {
  return {
    all: async (sql, ...args) => {
      const { columns, rows } = await database.execute(sql, args);
      return rows.map((row) => Object.fromEntries(columns.map((column, at) => [column, row[at] ?? null])));
    },
  };
}

function scopeRoots(scope: DiffScope): string[] {
  if (scope.kind === 'shared') return ['/memory', '/skills'];
  const own = `/conversations/${scope.conversation}`;
  return [`${own}/artifacts`, `${own}/work`];
}

/** What the delta has at a name; null where only the base has something. */
type Found = { readonly name: string; readonly inode: Inode | null };

class Walk {
  readonly #sql: DiffSql;
  readonly #base: BaseTree;
  readonly #after: string | null;
  #whiteouts: ReadonlySet<string> | null = null;

  /** What comes behind the path `after`. */
  constructor(sql: DiffSql, base: BaseTree, after: string | null) {
    this.#sql = sql;
    this.#base = base;
    this.#after = after;
  }

  async *below(roots: readonly string[]): AsyncGenerator<DeltaChange> {
    for (const root of roots) {
      if (!this.#isBehind(root) && this.#from(root) === null) continue;
      const inode = await this.#find(root);
      if (!inode) yield* await this.#deletedBase(root);
      else if (isDirectory(inode.mode)) yield* this.#directory(root, inode.ino, 0);
    }
  }

  async *#directory(path: string, ino: number, depth: number): AsyncGenerator<DeltaChange> {
    if (depth > maxDepth) throw new Error(`the tree is deeper than ${maxDepth} directories`);
    for await (const { name, inode } of this.#entries(path, ino, this.#from(path) ?? '')) {
      const own = `${path}/${name}`;
      if (!inode) yield* await this.#deletedBase(own);
      else {
        const change = this.#isBehind(own) ? changeAt(own, inode, this.#base.entry(own)) : null;
        if (change) yield change;
        if (isDirectory(inode.mode)) yield* this.#directory(own, inode.ino, depth + 1);
      }
    }
  }

  /** Names from `from` on: those of the delta, and those of the base that the delta does not have. */
  async *#entries(path: string, ino: number, from: string): AsyncGenerator<Found> {
    let waiting = [...(this.#base.entry(path)?.children.keys() ?? [])]
      .filter((name) => compareNames(name, from) >= 0)
      .toSorted(compareNames);
    for await (const found of this.#delta(ino, from)) {
      const before = waiting.filter((name) => compareNames(name, found.name) < 0);
      for (const name of before) yield { name, inode: null };
      waiting = waiting.filter((name) => compareNames(name, found.name) > 0);
      yield found;
    }
    for (const name of waiting) yield { name, inode: null };
  }

  #isBehind(path: string): boolean {
    return this.#after === null || comparePaths(path, this.#after) > 0;
  }

  /** The name in a directory that `after` is or lies in; null when it is not in there. */
  #from(path: string): string | null {
    return this.#after?.startsWith(`${path}/`) ? this.#after.slice(path.length + 1).split('/')[0]! : null;
  }

  async *#delta(ino: number, from: string): AsyncGenerator<Found> {
    let operator = '>=';
    for (let name = from; ; operator = '>') {
      const rows = await this.#sql.all(
        `SELECT d.name AS name, ${inodeColumns} FROM fs_dentry d JOIN fs_inode i ON i.ino = d.ino ` +
          `WHERE d.parent_ino = ? AND d.name ${operator} ? ORDER BY d.name LIMIT ${pageRows}`,
        ino,
        name,
      );
      for (const row of rows) yield { name: String(row.name), inode: inodeOfRow(row) };
      if (rows.length < pageRows) return;
      name = String(rows.at(-1)!.name);
    }
  }

  async #find(path: string): Promise<Inode | null> {
    let inode: Inode | null = null;
    let parent = rootIno;
    for (const name of path.split('/').slice(1)) {
      const [row] = await this.#sql.all(
        `SELECT ${inodeColumns} FROM fs_dentry d JOIN fs_inode i ON i.ino = d.ino WHERE d.parent_ino = ? AND d.name = ?`,
        parent,
        name,
      );
      if (!row) return null;
      inode = inodeOfRow(row);
      parent = inode.ino;
    }
    return inode;
  }

  /** What is deleted of something that only the base has: itself, or names in it. */
  async #deletedBase(path: string): Promise<DeltaChange[]> {
    const entry = this.#base.entry(path);
    if (!entry) return [];
    if ((await this.#whitedOut()).has(path)) {
      return this.#isBehind(path) ? [{ path, change: 'deleted', kind: kindOf(entry.mode), now: null }] : [];
    }
    const children = [...entry.children.values()].toSorted((a, b) => compareNames(a.name, b.name));
    const deleted: DeltaChange[] = [];
    for (const child of children) deleted.push(...(await this.#deletedBase(child.path)));
    return deleted;
  }

  /** Paths of the base that have a whiteout. */
  async #whitedOut(): Promise<ReadonlySet<string>> {
    if (!this.#whiteouts) {
      const paths = this.#base.entries().map((entry) => entry.path);
      const found = new Set<string>();
      for (let at = 0; at < paths.length; at += pageRows) {
        const some = paths.slice(at, at + pageRows);
        const marks = some.map(() => '?').join(',');
        const rows = await this.#sql.all(`SELECT path FROM fs_whiteout WHERE path IN (${marks})`, ...some);
        for (const row of rows) found.add(String(row.path));
      }
      this.#whiteouts = found;
    }
    return this.#whiteouts;
  }
}

/** Null where delta and base agree: a directory that the delta has only for what is in it. */
function changeAt(path: string, inode: Inode, base: BaseEntry | undefined): DeltaChange | null {
  if (base && isDirectory(base.mode) && isDirectory(inode.mode)) return null;
  const { mode, size, mtime } = inode;
  return { path, change: base ? 'changed' : 'added', kind: kindOf(mode), now: { mode, size, mtime } };
}

function kindOf(mode: number): DeltaChange['kind'] {
  if (isRegular(mode)) return 'file';
  if (isDirectory(mode)) return 'directory';
  return isSymlink(mode) ? 'symlink' : 'special';
}

/** As SQLite orders text: by its bytes. */
const compareNames = (a: string, b: string): number => Buffer.compare(Buffer.from(a), Buffer.from(b));

/** By the names on the way, as a walk meets them. */
function comparePaths(a: string, b: string): number {
  const [left, right] = [a.split('/'), b.split('/')];
  for (let at = 0; at < Math.min(left.length, right.length); at++) {
    const order = compareNames(left[at]!, right[at]!);
    if (order !== 0) return order;
  }
  return left.length - right.length;
}
