/**
 * What one operation changes. Rows are written at once, inside the database's transaction; the store's caches learn of it
 * only when that is committed.
 */
import type { BoundedCache } from './bounded-cache.ts';
import { breathe } from './breathe.ts';
import { FileError } from './errors.ts';
import { dentryId } from './ids.ts';
import { type Inode, type InodePatch, patchAsSql } from './inode.ts';
import { copyRows, coverRows, type Statement, whiteoutRow } from './layer-rows.ts';
import type { LowerNode } from './overlay.ts';
import { isDirectory, isRegular, isSymlink } from './schema.ts';
import { nameKey, type Store } from './store.ts';

export class Transaction {
  readonly #store: Store;
  readonly #inodes = new Map<number, Inode | null>();
  readonly #names = new Map<string, number>();
  readonly #parents = new Map<number, number>();
  readonly #afterCommit: (() => void)[] = [];
  readonly #copiedUp = new Set<number>();
  #changesBasePlaces = false;

  constructor(store: Store) {
    this.#store = store;
  }

  get driver() {
    return this.#store.driver;
  }

  /** Whether the delta has now, or has no longer, something where the base has something too. */
  get changesBasePlaces(): boolean {
    return this.#changesBasePlaces;
  }

  async inode(ino: number): Promise<Inode | null> {
    const here = this.#inodes.get(ino);
    return here !== undefined ? here : this.#store.inodeHere(ino);
  }

  /** What a name is, or 0. */
  async name(parent: number, name: string): Promise<number> {
    return this.#names.get(nameKey(parent, name)) ?? this.#store.nameHere(parent, name);
  }

  /** The directory, or ENOTDIR, or ENOENT when it is gone. */
  async directory(ino: number): Promise<Inode> {
    const inode = await this.inode(ino);
    if (!inode || inode.nlink === 0) throw new FileError('ENOENT', `directory ${ino} is gone`);
    if (!isDirectory(inode.mode)) throw new FileError('ENOTDIR', `${ino} is no directory`);
    return inode;
  }

  async insertInode(inode: Inode): Promise<void> {
    await this.driver.run(
      'INSERT INTO fs_inode (ino, mode, nlink, uid, gid, size, rdev, atime, mtime, ctime, atime_nsec, mtime_nsec, ctime_nsec) ' +
        'VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
      inode.ino,
      inode.mode,
      inode.nlink,
      inode.uid,
      inode.gid,
      inode.size,
      inode.rdev,
      inode.atime.seconds,
      inode.mtime.seconds,
      inode.ctime.seconds,
      inode.atime.nanoseconds,
      inode.mtime.nanoseconds,
      inode.ctime.nanoseconds,
    );
    this.#inodes.set(inode.ino, inode);
  }

  /** Changes columns of one row. A file that is ahead of its row keeps its own size and times in memory. */
  async patchInode(inode: Inode, patch: InodePatch): Promise<Inode> {
    await this.copyUp(inode.ino);
    const { assignments, values } = patchAsSql(patch);
    await this.driver.run(`UPDATE fs_inode SET ${assignments} WHERE ino = ?`, ...values, inode.ino);
    const patched = { ...inode, ...patch };
    this.#inodes.set(inode.ino, patched);
    return patched;
  }

  /** Deletes a file's or directory's rows. */
  async removeInode(inode: Inode): Promise<void> {
    if (this.#lower(inode.ino)) {
      this.#inodes.set(inode.ino, null);
      return;
    }
    if (isRegular(inode.mode)) await this.removeData(inode, 0);
    if (isSymlink(inode.mode)) await this.driver.run('DELETE FROM fs_symlink WHERE ino = ?', inode.ino);
    await this.driver.run('DELETE FROM fs_inode WHERE ino = ?', inode.ino);
    this.#inodes.set(inode.ino, null);
  }

  /** Deletes a file's rows of contents from chunk `first` on. */
  async removeData(inode: Inode, first: number): Promise<void> {
    const step = 64;
    const end = Math.ceil(inode.size / this.#store.chunkSize);
    for (let from = first; from + step < end; from += step) {
      const sql = 'DELETE FROM fs_data WHERE ino = ? AND chunk_index BETWEEN ? AND ?';
      await this.driver.run(sql, inode.ino, from, from + step - 1);
      await breathe();
    }
    await this.driver.run('DELETE FROM fs_data WHERE ino = ? AND chunk_index >= ?', inode.ino, first);
  }

  async insertName(parent: number, name: string, ino: number): Promise<void> {
    await this.copyUp(parent);
    const base = this.#store.overlay.baseAt(parent, name);
    if (base) await this.#layerRows(coverRows(base));
    await this.#insertDentry(parent, name, ino);
  }

  async #insertDentry(parent: number, name: string, ino: number): Promise<void> {
    await this.driver.run(
      'INSERT INTO fs_dentry (id, name, parent_ino, ino) VALUES (?, ?, ?, ?)',
      dentryId(parent, name),
      name,
      parent,
      ino,
    );
    this.#names.set(nameKey(parent, name), ino);
    this.#parents.set(ino, parent);
  }

  async removeName(parent: number, name: string): Promise<void> {
    await this.driver.run('DELETE FROM fs_dentry WHERE parent_ino = ? AND name = ?', parent, name);
    const base = this.#store.overlay.baseAt(parent, name);
    if (base) await this.#layerRows([whiteoutRow(base)]);
    this.#names.set(nameKey(parent, name), 0);
  }

  /** Points an existing name elsewhere. */
  async replaceName(parent: number, name: string, ino: number): Promise<void> {
    const lower = this.#store.overlay.lookup(parent, name);
    if (lower && this.#lower(lower.inode.ino)) return this.insertName(parent, name, ino);
    const base = this.#store.overlay.baseAt(parent, name);
    if (base) await this.#layerRows(coverRows(base));
    await this.driver.run('UPDATE fs_dentry SET ino = ? WHERE parent_ino = ? AND name = ?', ino, parent, name);
    this.#names.set(nameKey(parent, name), ino);
    this.#parents.set(ino, parent);
  }

  /** The directory that holds a directory, or 0. */
  async parent(ino: number): Promise<number> {
    return this.#parents.get(ino) ?? this.#store.parentHere(ino);
  }

  async isEmptyDirectory(ino: number): Promise<boolean> {
    if (this.#store.overlay.children(ino).size > 0) return false;
    return (await this.driver.get('SELECT 1 AS one FROM fs_dentry WHERE parent_ino = ? LIMIT 1', ino)) === undefined;
  }

  /** Gives the delta its own copy of what only the base has, with the directories above it; nothing for what is in the delta. */
  async copyUp(ino: number): Promise<void> {
    const node = this.#lower(ino);
    if (!node) return;
    const { entry, inode, parent } = node;
    this.#copiedUp.add(ino);
    await this.copyUp(parent);
    await this.insertInode(inode);
    await this.#layerRows(copyRows(node, this.#store.chunkSize));
    // A name that is being removed stays removed.
    if ((await this.name(parent, entry.name)) === ino) await this.#insertDentry(parent, entry.name, ino);
  }

  /** The same for a directory and everything in it: what is moved away takes its contents along. */
  async copyUpTree(ino: number): Promise<void> {
    await this.copyUp(ino);
    for (const { inode } of this.#store.overlay.children(ino).values()) await this.copyUpTree(inode.ino);
  }

  /** What only the base has, as long as this transaction has not copied it up. */
  #lower(ino: number): LowerNode | undefined {
    return this.#copiedUp.has(ino) ? undefined : this.#store.overlay.node(ino);
  }

  async #layerRows(rows: readonly Statement[]): Promise<void> {
    this.#changesBasePlaces = true;
    for (const { sql, args } of rows) await this.driver.run(sql, ...args);
  }

  afterCommit(change: () => void): void {
    this.#afterCommit.push(change);
  }

  /** Hands the committed changes to the caches. */
  applyTo(caches: {
    inodes: BoundedCache<number, Inode>;
    names: BoundedCache<string, number>;
    parents: BoundedCache<number, number>;
    ahead: Map<number, Inode>;
  }): void {
    for (const [ino, inode] of this.#inodes) {
      if (inode === null) {
        caches.ahead.delete(ino);
        caches.inodes.delete(ino);
      } else {
        if (caches.ahead.has(ino)) caches.ahead.set(ino, inode);
        caches.inodes.set(ino, inode);
      }
    }
    for (const [key, ino] of this.#names) caches.names.set(key, ino);
    for (const [ino, parent] of this.#parents) caches.parents.set(ino, parent);
    for (const change of this.#afterCommit) change();
  }
}
