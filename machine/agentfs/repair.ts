/**
 * What changes that met each other may leave behind: a file without a name, a name of nothing, contents of nothing, a directory
 * that was removed while something was put into it, two directories moved into each other, wrong counts of links. Repaired once behind a pull
 * that may have brought that: nothing is lost that nobody removed. And what nobody finished or closed is removed at a
 * machine's start.
 *
 * Whoever finds it first repairs it; two who do so at once write the same rows, or what the next repair makes one again.
 */
import { breathe } from './breathe.ts';
import type { FileData } from './data.ts';
import { insertNames } from './dirty-names.ts';
import type { SqlRow, SqlValue } from './driver.ts';
import { directoryIno, rootIno } from './ids.ts';
import { inodeColumns, inodeOfRow, now } from './inode.ts';
import { coverRows } from './layer-rows.ts';
import type { Place } from './namespace.ts';
import { modeDirectory, modeFormat } from './schema.ts';
import type { Store } from './store.ts';

/** An upload takes less, and so does an open file of a machine that is gone. */
const abandonedAfterSeconds = 24 * 3600;
/** Where things go whose place is not known or taken, by their numbers. No conversation sees it. */
const lostAndFound = 'lost+found';
/** A loop of directories ends before; so does a way up that is none. */
const maxDepth = 10_000;

export interface Repairs {
  /** Files and directories that have a name again. */
  readonly found: number;
  /** Directories that are there again, because something is in them. */
  readonly remade: number;
  /** Names of what is gone, and second names of directories. */
  readonly unnamed: number;
  /** Counts of links that were wrong. */
  readonly recounted: number;
  /** Files that somebody removed and somebody else wrote: what was written is gone too. */
  readonly emptied: number;
}

const directory = `(i.mode & ${modeFormat}) = ${modeDirectory}`;

/** Each finds one thing that is not as it must be. */
const checks: readonly string[] = [
  'SELECT 1 AS one FROM fs_dentry d WHERE NOT EXISTS (SELECT 1 FROM fs_inode i WHERE i.ino = d.parent_ino) LIMIT 1',
  'SELECT 1 AS one FROM fs_dentry d WHERE NOT EXISTS (SELECT 1 FROM fs_inode i WHERE i.ino = d.ino) LIMIT 1',
  'SELECT 1 AS one FROM fs_inode i LEFT JOIN fs_dentry d ON d.ino = i.ino ' +
    `WHERE d.ino IS NULL AND i.nlink > 0 AND i.ino <> ${rootIno} LIMIT 1`,
  'SELECT 1 AS one FROM fs_inode i JOIN (SELECT ino, count(*) AS names FROM fs_dentry GROUP BY ino) n ON n.ino = i.ino ' +
    `WHERE (NOT (${directory}) AND i.nlink <> n.names) OR (${directory} AND n.names > 1) LIMIT 1`,
  'SELECT 1 AS one FROM fs_data d WHERE NOT EXISTS (SELECT 1 FROM fs_inode i WHERE i.ino = d.ino) LIMIT 1',
];

/** Whether there is nothing to repair. Looks bit by bit: nobody waits for the whole of it. */
export async function isWhole(store: Store): Promise<boolean> {
  for (const sql of checks) {
    if ((await store.exclusiveInBackground(() => store.driver.all(sql))).length > 0) return false;
    await breathe();
  }
  const sql = `SELECT d.parent_ino AS parent, i.ino AS ino, i.nlink AS nlink FROM fs_dentry d JOIN fs_inode i ON i.ino = d.ino WHERE ${directory}`;
  const rows = await store.exclusiveInBackground(() => store.driver.all(sql));
  const root = await store.inode(rootIno);
  return directoriesAreWhole(
    rows.map((row) => ({ parent: Number(row.parent), ino: Number(row.ino), nlink: Number(row.nlink) })),
    root?.nlink ?? 1,
  );
}

/** Whether each leads up to the root, and counts what it holds, if it counts. */
function directoriesAreWhole(
  directories: readonly { readonly parent: number; readonly ino: number; readonly nlink: number }[],
  rootLinks: number,
): boolean {
  const parents = new Map(directories.map(({ ino, parent }) => [ino, parent]));
  const held = new Map<number, number>();
  for (const { parent } of directories) held.set(parent, (held.get(parent) ?? 0) + 1);
  const counts = (ino: number, nlink: number) => nlink <= 1 || nlink === 2 + (held.get(ino) ?? 0);
  if (!counts(rootIno, rootLinks) || !directories.every(({ ino, nlink }) => counts(ino, nlink))) return false;
  const reachable = new Set<number>([rootIno]);
  for (const { ino } of directories) {
    const way = new Set<number>();
    let at: number | undefined = ino;
    for (; at !== undefined && !reachable.has(at); at = parents.get(at)) {
      if (way.has(at)) return false;
      way.add(at);
    }
    if (at === undefined) return false;
    for (const passed of way) reachable.add(passed);
  }
  return true;
}

/**
 * Makes the tree whole. For whoever runs exclusively, with nothing uncommitted and caches that know nothing: what it changes
 * is as if a pull had brought it.
 */
export async function repairHere(store: Store): Promise<Repairs> {
  const repair = new Repair(store);
  await repair.run();
  return repair.done;
}

class Repair {
  readonly done = { found: 0, remade: 0, unnamed: 0, recounted: 0, emptied: 0 };
  readonly #store: Store;
  /** Where each directory is. */
  readonly #places = new Map<number, Place>();
  readonly #directories = new Set<number>([rootIno]);

  constructor(store: Store) {
    this.#store = store;
  }

  async run(): Promise<void> {
    await this.#remakeDirectories();
    await this.#dropNamesOfNothing();
    await this.#placeDirectories();
    await this.#nameFiles();
    await this.#recount();
    await this.#dropContentsOfNothing();
    await this.#store.commitHere();
  }

  /** What holds something is a directory, whoever has removed it. */
  async #remakeDirectories(): Promise<void> {
    const held = await this.#all(
      'SELECT DISTINCT d.parent_ino AS ino FROM fs_dentry d LEFT JOIN fs_inode i ON i.ino = d.parent_ino ' +
        'JOIN fs_inode c ON c.ino = d.ino WHERE i.ino IS NULL',
    );
    for (const { ino } of held) await this.#makeDirectory(Number(ino));
    this.done.remade += held.length;
  }

  async #dropNamesOfNothing(): Promise<void> {
    const rows = await this.#all(
      'SELECT d.parent_ino AS parent, d.name AS name FROM fs_dentry d LEFT JOIN fs_inode i ON i.ino = d.ino WHERE i.ino IS NULL',
    );
    for (const row of rows) await this.#unname(placeOf(row));
  }

  /** Every directory has one name, and a way up to the root. */
  async #placeDirectories(): Promise<void> {
    for (const { ino } of await this.#all('SELECT ino FROM fs_inode WHERE (mode & ?) = ?', modeFormat, modeDirectory))
      this.#directories.add(Number(ino));
    const names = await this.#all(
      'SELECT d.parent_ino AS parent, d.name AS name, d.ino AS ino FROM fs_dentry d JOIN fs_inode c ON c.ino = d.ino ' +
        'WHERE (c.mode & ?) = ? ORDER BY d.parent_ino, d.name',
      modeFormat,
      modeDirectory,
    );
    for (const row of names) {
      const ino = Number(row.ino);
      const place = placeOf(row);
      const other = this.#places.get(ino);
      if (!other) this.#places.set(ino, place);
      // The place where it was last seen to be is the one to which it was moved last.
      else if (isSame(this.#store.lastPlace(ino), place)) {
        this.#places.set(ino, place);
        await this.#unname(other);
      } else await this.#unname(place);
    }
    const reachable = new Set<number>([rootIno]);
    for (const ino of this.#directories) {
      for (let top = this.#climb(ino, reachable); top !== null; top = this.#climb(ino, reachable))
        await this.#place(top);
    }
  }

  /**
   * Goes up from a directory, and notes that it is reachable.
   * @returns null, or the directory on the way that must get a place
   */
  #climb(ino: number, reachable: Set<number>): number | null {
    const way = new Set<number>();
    let at = ino;
    while (!reachable.has(at)) {
      if (way.has(at) || way.size > maxDepth) return this.#bestOf(way, at, reachable);
      way.add(at);
      const place = this.#places.get(at);
      if (!place) return at;
      at = place.parent;
    }
    for (const passed of way) reachable.add(passed);
    return null;
  }

  /** Of a loop that begins with `start`: one that was elsewhere before, if that place can be reached. */
  #bestOf(way: Set<number>, start: number, reachable: Set<number>): number {
    const all = [...way];
    const loop = all.slice(all.indexOf(start));
    const isElsewhere = (ino: number): boolean => {
      const last = this.#store.lastPlace(ino);
      return last !== undefined && !isSame(last, this.#places.get(ino)) && this.#leadsUp(last.parent, reachable, loop);
    };
    return loop.find(isElsewhere) ?? Math.min(...loop);
  }

  #leadsUp(ino: number, reachable: Set<number>, loop: readonly number[]): boolean {
    let at = ino;
    for (let depth = 0; depth < maxDepth; depth++) {
      if (reachable.has(at)) return true;
      if (loop.includes(at)) return false;
      const place = this.#places.get(at);
      if (!place) return false;
      at = place.parent;
    }
    return false;
  }

  /** Gives a directory the place where it was last seen, or one by its number. */
  async #place(ino: number): Promise<void> {
    const before = this.#places.get(ino);
    if (before) await this.#unname(before, false);
    const last = this.#store.lastPlace(ino);
    const isThere = last !== undefined && this.#isBelowRoot(last.parent, ino) && (await this.#isFree(last));
    const place = isThere ? last : await this.#lostPlace(ino);
    await this.#name(place, ino);
    this.#places.set(ino, place);
    this.done.found += 1;
  }

  #isBelowRoot(ino: number, not: number): boolean {
    let at: number | undefined = ino;
    for (let depth = 0; at !== rootIno && depth < maxDepth; depth++) {
      if (at === undefined || at === not) return false;
      at = this.#places.get(at)?.parent;
    }
    return at === rootIno;
  }

  /** A file whose name was given to another, or went with its directory, is there again; nobody has removed it. */
  async #nameFiles(): Promise<void> {
    const rows = await this.#all(
      'SELECT i.ino AS ino FROM fs_inode i LEFT JOIN fs_dentry d ON d.ino = i.ino ' +
        'WHERE d.ino IS NULL AND i.nlink > 0 AND (i.mode & ?) <> ?',
      modeFormat,
      modeDirectory,
    );
    for (const row of rows) {
      const ino = Number(row.ino);
      const last = this.#store.lastPlace(ino);
      const isThere = last !== undefined && this.#isBelowRoot(last.parent, ino) && (await this.#isFree(last));
      await this.#name(isThere ? last : await this.#lostPlace(ino), ino);
      this.done.found += 1;
    }
  }

  async #recount(): Promise<void> {
    const files =
      'SELECT i.ino AS ino, n.names AS nlink FROM fs_inode i ' +
      'JOIN (SELECT ino, count(*) AS names FROM fs_dentry GROUP BY ino) n ON n.ino = i.ino ' +
      'WHERE i.nlink <> n.names AND (i.mode & ?) <> ?';
    // A directory that somebody made who does not count what it holds has 1.
    const directories =
      'SELECT i.ino AS ino, 2 + coalesce(n.held, 0) AS nlink FROM fs_inode i ' +
      'LEFT JOIN (SELECT d.parent_ino AS ino, count(*) AS held FROM fs_dentry d JOIN fs_inode c ON c.ino = d.ino ' +
      'WHERE (c.mode & ?) = ? GROUP BY d.parent_ino) n ON n.ino = i.ino ' +
      'WHERE i.nlink > 1 AND (i.mode & ?) = ? AND i.nlink <> 2 + coalesce(n.held, 0)';
    const wrong = [
      ...(await this.#all(files, modeFormat, modeDirectory)),
      ...(await this.#all(directories, modeFormat, modeDirectory, modeFormat, modeDirectory)),
    ];
    for (const { ino, nlink } of wrong) await this.#run('UPDATE fs_inode SET nlink = ? WHERE ino = ?', nlink!, ino!);
    this.done.recounted += wrong.length;
  }

  /** A removal takes the contents away that it knows of; whoever wrote more has put that behind it, where nobody finds it. */
  async #dropContentsOfNothing(): Promise<void> {
    const rows = await this.#all(
      'SELECT DISTINCT d.ino AS ino FROM fs_data d WHERE NOT EXISTS (SELECT 1 FROM fs_inode i WHERE i.ino = d.ino)',
    );
    for (const { ino } of rows) {
      await this.#run('DELETE FROM fs_data WHERE ino = ?', ino!);
      await breathe();
    }
    this.done.emptied += rows.length;
  }

  async #lostPlace(ino: number): Promise<Place> {
    const parent = directoryIno(rootIno, lostAndFound);
    if (await this.#isFree({ parent: rootIno, name: lostAndFound })) {
      await this.#makeDirectory(parent);
      await this.#name({ parent: rootIno, name: lostAndFound }, parent);
      this.#places.set(parent, { parent: rootIno, name: lostAndFound });
    }
    return { parent, name: ino.toString(36) };
  }

  async #isFree({ parent, name }: Place): Promise<boolean> {
    const rows = await this.#all('SELECT 1 AS one FROM fs_dentry WHERE parent_ino = ? AND name = ?', parent, name);
    return rows.length === 0;
  }

  async #makeDirectory(ino: number): Promise<void> {
    const { seconds, nanoseconds } = now();
    await this.#run(
      'INSERT INTO fs_inode (ino, mode, nlink, atime, mtime, ctime, atime_nsec, mtime_nsec, ctime_nsec) ' +
        'VALUES (?, ?, 2, ?, ?, ?, ?, ?, ?) ON CONFLICT(ino) DO NOTHING',
      ...[ino, modeDirectory | 0o755, seconds, seconds, seconds, nanoseconds, nanoseconds, nanoseconds],
    );
    this.#directories.add(ino);
  }

  async #name({ parent, name }: Place, ino: number): Promise<void> {
    const base = this.#store.overlay.baseAt(parent, name);
    if (base) for (const { sql, args } of coverRows(base)) await this.#run(sql, ...args);
    await this.#store.beginHere(1);
    await insertNames(this.#store.driver, [{ parent, name, ino }]);
  }

  async #unname({ parent, name }: Place, isCounted = true): Promise<void> {
    await this.#run('DELETE FROM fs_dentry WHERE parent_ino = ? AND name = ?', parent, name);
    if (isCounted) this.done.unnamed += 1;
  }

  async #run(sql: string, ...args: SqlValue[]): Promise<void> {
    await this.#store.beginHere(1);
    await this.#store.driver.run(sql, ...args);
  }

  #all(sql: string, ...args: SqlValue[]): Promise<SqlRow[]> {
    return this.#store.driver.all(sql, ...args);
  }
}

const placeOf = (row: SqlRow): Place => ({ parent: Number(row.parent), name: String(row.name) });
const isSame = (one: Place | undefined, other: Place | undefined): boolean =>
  one !== undefined && one.parent === other?.parent && one.name === other.name;

/** Removes uploads that never got their name, and files that were unlinked while open when a machine ended. */
export async function removeAbandoned(store: Store, data: FileData): Promise<number> {
  return store.exclusive(async () => {
    const rows = await store.driver.all(
      `SELECT ${inodeColumns} FROM fs_inode i WHERE i.nlink = 0 AND i.ctime < ?`,
      now().seconds - abandonedAfterSeconds,
    );
    for (const row of rows) {
      const inode = inodeOfRow(row);
      if (store.isOpen(inode.ino)) continue;
      await store.transactHere(async (transaction) => {
        await transaction.removeInode(inode);
        transaction.afterCommit(() => data.forget(inode.ino));
      });
    }
    return rows.length;
  });
}
