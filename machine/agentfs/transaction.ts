/**
 * What one operation changes. It only notes it; when the operation has succeeded, its rows go into the open group and its
 * inodes and names into the store's memory. An operation that fails has changed nothing.
 */
import { type CurrentTree, nameKey } from './current-tree.ts';
import type { SqlRow, SqlValue } from './driver.ts';
import { FileError } from './errors.ts';
import { type Inode, type InodePatch, inodeInsertColumns, inodeInsertValues, isLater, laterThan } from './inode.ts';
import { copyRows, coverRows, type Statement, whiteoutRow } from './layer-rows.ts';
import type { Place } from './namespace.ts';
import type { LowerNode } from './overlay.ts';
import type { TreeNote } from './quota.ts';
import { isDirectory } from './schema.ts';
import type { Store } from './store.ts';

type Step =
  | { readonly kind: 'row'; readonly sql: string; readonly args: readonly SqlValue[] }
  | { readonly kind: 'insert'; readonly inode: Inode }
  | { readonly kind: 'patch'; readonly inode: Inode; readonly patch: InodePatch }
  | { readonly kind: 'remove'; readonly inode: Inode }
  | { readonly kind: 'name'; readonly parent: number; readonly name: string; readonly ino: number }
  | { readonly kind: 'rename'; readonly parent: number; readonly name: string; readonly ino: number }
  | { readonly kind: 'unname'; readonly parent: number; readonly name: string };

export class Transaction {
  readonly #store: Store;
  readonly #inodes = new Map<number, Inode | null>();
  readonly #names = new Map<string, number>();
  readonly #parents = new Map<number, number>();
  readonly #places = new Map<number, Place>();
  readonly #steps: Step[] = [];
  readonly #afterCommit: (() => void)[] = [];
  /** What the quotas must know. */
  readonly notes: TreeNote[] = [];
  readonly #gone = new Set<number>();
  readonly #copiedUp = new Set<number>();
  #changesBasePlaces = false;
  #hasSavepoint = false;

  constructor(store: Store) {
    this.#store = store;
  }

  /** SQL of others than files: it runs at once, before what else the operation changes, and is undone with it. */
  readonly driver = {
    run: async (sql: string, ...args: SqlValue[]): Promise<{ changes: number }> => {
      await this.#savepoint();
      return this.#store.driver.run(sql, ...args);
    },
    get: (sql: string, ...args: SqlValue[]): Promise<SqlRow | undefined> => this.#store.driver.get(sql, ...args),
    all: (sql: string, ...args: SqlValue[]): Promise<SqlRow[]> => this.#store.driver.all(sql, ...args),
  };

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

  insertInode(inode: Inode): void {
    this.#steps.push({ kind: 'insert', inode });
    this.#inodes.set(inode.ino, inode);
    this.notes.push({ kind: 'made', ino: inode.ino, bytes: inode.size });
  }

  async patchInode(inode: Inode, wanted: InodePatch): Promise<Inode> {
    await this.copyUp(inode.ino);
    const isLate = wanted.ctime === undefined || isLater(wanted.ctime, inode.ctime);
    const patch = isLate ? wanted : { ...wanted, ctime: laterThan(inode.ctime) };
    const patched = { ...inode, ...patch };
    this.#steps.push({ kind: 'patch', inode: patched, patch });
    this.#inodes.set(inode.ino, patched);
    return patched;
  }

  /** A file's or directory's rows go with the group. A large file's contents have gone in slices before. */
  removeInode(inode: Inode): void {
    if (inode.nlink > 0) this.gone(inode);
    if (!this.#lower(inode.ino)) this.#steps.push({ kind: 'remove', inode });
    this.#inodes.set(inode.ino, null);
  }

  /** It counts no longer, whenever its rows go. */
  gone({ ino, size }: Inode): void {
    if (this.#gone.has(ino) || this.#lower(ino)) return;
    this.#gone.add(ino);
    this.notes.push({ kind: 'gone', ino, bytes: size });
  }

  insertSymlink(ino: number, target: string): void {
    this.row('INSERT INTO fs_symlink (ino, target) VALUES (?, ?)', ino, target);
  }

  async insertName(parent: number, name: string, ino: number): Promise<void> {
    await this.copyUp(parent);
    const base = this.#store.overlay.baseAt(parent, name);
    if (base) this.#layerRows(coverRows(base));
    this.#insertDentry(parent, name, ino);
  }

  #insertDentry(parent: number, name: string, ino: number): void {
    this.#steps.push({ kind: 'name', parent, name, ino });
    this.#names.set(nameKey(parent, name), ino);
    this.#parents.set(ino, parent);
    this.#places.set(ino, { parent, name });
    this.notes.push({ kind: 'named', parent, ino });
  }

  removeName(parent: number, name: string): void {
    this.#noteName(parent, name);
    this.#steps.push({ kind: 'unname', parent, name });
    const base = this.#store.overlay.baseAt(parent, name);
    if (base) this.#layerRows([whiteoutRow(base)]);
    this.#names.set(nameKey(parent, name), 0);
  }

  /** Points an existing name elsewhere. */
  async replaceName(parent: number, name: string, ino: number): Promise<void> {
    const lower = this.#store.overlay.lookup(parent, name);
    if (lower && this.#lower(lower.inode.ino)) return this.insertName(parent, name, ino);
    const base = this.#store.overlay.baseAt(parent, name);
    if (base) this.#layerRows(coverRows(base));
    this.#noteName(parent, name);
    this.notes.push({ kind: 'named', parent, ino });
    this.#steps.push({ kind: 'rename', parent, name, ino });
    this.#names.set(nameKey(parent, name), ino);
    this.#parents.set(ino, parent);
    this.#places.set(ino, { parent, name });
  }

  /** Whose it is that has this name and may lose its last one. Whoever takes a name away has looked it up. */
  #noteName(parent: number, name: string): void {
    const ino = this.#names.get(nameKey(parent, name)) ?? this.#store.cachedName(parent, name) ?? 0;
    if (ino !== 0) this.notes.push({ kind: 'named', parent, ino, isThere: true });
  }

  /** The directory that holds a directory, or 0. */
  async parent(ino: number): Promise<number> {
    return this.#parents.get(ino) ?? this.#store.parentHere(ino);
  }

  async isEmptyDirectory(ino: number): Promise<boolean> {
    return this.#store.overlay.children(ino).size === 0 && !(await this.#store.treeHere.hasNamesHere(ino));
  }

  /** Gives the delta its own copy of what only the base has, with the directories above it; nothing for what is in the delta. */
  async copyUp(ino: number): Promise<void> {
    const node = this.#lower(ino);
    if (!node) return;
    const { entry, inode, parent } = node;
    this.#copiedUp.add(ino);
    await this.copyUp(parent);
    // A row at once: what is new in memory alone has no contents in the database.
    const marks = inodeInsertColumns.map(() => '?').join(', ');
    this.row(`INSERT INTO fs_inode (${inodeInsertColumns.join(', ')}) VALUES (${marks})`, ...inodeInsertValues(inode));
    this.#inodes.set(ino, inode);
    this.notes.push({ kind: 'made', ino, bytes: inode.size });
    this.#layerRows(copyRows(node, this.#store.chunkSize));
    // A name that is being removed stays removed.
    if ((await this.name(parent, entry.name)) === ino) this.#insertDentry(parent, entry.name, ino);
  }

  /** The same for a directory and everything in it: what is moved away takes its contents along. */
  async copyUpTree(ino: number): Promise<void> {
    await this.copyUp(ino);
    for (const { inode } of this.#store.overlay.children(ino).values()) await this.copyUpTree(inode.ino);
  }

  /** One statement, when the operation has succeeded. */
  row(sql: string, ...args: SqlValue[]): void {
    this.#steps.push({ kind: 'row', sql, args });
  }

  /** Called when the operation has succeeded. */
  afterCommit(change: () => void): void {
    this.#afterCommit.push(change);
  }

  /** The inodes that it changed; null stands for one that is gone. */
  changed(): Iterable<readonly [number, Inode | null]> {
    return this.#inodes;
  }

  /** Makes it so. A failure leaves the group unusable. */
  async apply(tree: CurrentTree): Promise<void> {
    for (const step of this.#steps) await this.#take(step, tree);
    if (this.#hasSavepoint) await this.#store.sql.run('RELEASE operation');
    for (const [ino, inode] of this.#inodes) {
      if (inode === null) tree.inodes.delete(ino);
      else tree.inodes.set(ino, inode);
    }
    for (const [key, ino] of this.#names) tree.names.set(key, ino);
    for (const [ino, parent] of this.#parents) tree.parents.set(ino, parent);
    for (const [ino, place] of this.#places) tree.places.set(ino, place);
    for (const change of this.#afterCommit) change();
  }

  /** Takes back what `driver` did. */
  async undo(): Promise<void> {
    if (!this.#hasSavepoint) return;
    await this.#store.sql.run('ROLLBACK TO operation');
    await this.#store.sql.run('RELEASE operation');
  }

  async #take(step: Step, { dirty, dirtyNames }: CurrentTree): Promise<void> {
    switch (step.kind) {
      case 'row':
        return this.#run(step.sql, ...step.args);
      case 'name':
        dirtyNames.insert(nameKey(step.parent, step.name), step);
        return;
      case 'rename':
        if (dirtyNames.replace(nameKey(step.parent, step.name), step.ino)) return;
        return this.#run(
          'UPDATE fs_dentry SET ino = ? WHERE parent_ino = ? AND name = ?',
          step.ino,
          step.parent,
          step.name,
        );
      case 'unname':
        dirtyNames.remove(nameKey(step.parent, step.name), step);
        return;
      case 'insert':
        dirty.insert(step.inode);
        return;
      case 'patch':
        dirty.patch(step.inode, step.patch);
        return;
      case 'remove':
        dirty.remove(step.inode);
    }
  }

  async #run(sql: string, ...args: SqlValue[]): Promise<void> {
    await this.#store.beginHere(1);
    await this.#store.sql.run(sql, ...args);
  }

  /** What only the base has, as long as this transaction has not copied it up. */
  #lower(ino: number): LowerNode | undefined {
    return this.#copiedUp.has(ino) ? undefined : this.#store.overlay.node(ino);
  }

  #layerRows(rows: readonly Statement[]): void {
    this.#changesBasePlaces = true;
    for (const { sql, args } of rows) this.row(sql, ...args);
  }

  async #savepoint(): Promise<void> {
    if (this.#hasSavepoint) return;
    // What others did before stays when this is undone.
    await this.#store.writeOutHere();
    await this.#store.beginHere(1);
    await this.#store.sql.run('SAVEPOINT operation');
    this.#hasSavepoint = true;
  }
}
