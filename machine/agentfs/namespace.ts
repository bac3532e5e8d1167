/**
 * Names: what a directory holds, and every operation that changes it. Each is one transaction; each failure is a FileError
 * and changes nothing.
 */
import type { FileData } from './data.ts';
import { rowsOfSlice } from './drain.ts';
import { FileError } from './errors.ts';
import { directoryIno, randomIno, rootIno } from './ids.ts';
import { type Inode, type InodePatch, inodeColumns, now, type Owner } from './inode.ts';
import {
  isDirectory,
  isRegular,
  isSymlink,
  modeBlockDevice,
  modeCharacterDevice,
  modeDirectory,
  modeFifo,
  modeFormat,
  modeRegular,
  modeSocket,
  modeSymlink,
  setGroupBit,
} from './schema.ts';
import type { Store } from './store.ts';
import type { Transaction } from './transaction.ts';

export const maxNameBytes = 255;
const maxTargetBytes = 4096;
/** Entries of a directory that are read at once. */
const listPage = 1_000;

export interface DirectoryEntry {
  readonly name: string;
  readonly inode: Inode;
}

/** A name in a directory. */
export interface Place {
  readonly parent: number;
  readonly name: string;
}

/** Whom what is made belongs to where nobody says: views that show one owner for everything. */
const nobodySaid: Owner = { uid: 0, gid: 0 };

const kindsToMake = new Set([modeRegular, modeFifo, modeSocket, modeCharacterDevice, modeBlockDevice]);

export type RenameMode = 'replace' | 'no-replace' | 'exchange';

export class Namespace {
  readonly #store: Store;
  readonly #data: FileData;

  constructor(store: Store, data: FileData) {
    this.#store = store;
    this.#data = data;
  }

  /** What a name is; null when there is none. Answers at once from memory where it can. */
  lookup(parent: number, name: string): Inode | null | Promise<Inode | null> {
    const ino = this.#store.cachedName(parent, name);
    if (ino === 0) return null;
    const inode = ino === undefined ? undefined : this.#store.cachedInode(ino);
    if (inode) return inode;
    return this.#store.exclusive(() => this.#store.treeHere.entryHere(parent, name));
  }

  /** All entries of a directory, in the order of their names' bytes. */
  async list(ino: number): Promise<DirectoryEntry[]> {
    const entries: DirectoryEntry[] = [];
    for await (const page of this.pages(ino)) entries.push(...page);
    return entries.sort((a, b) => Buffer.compare(Buffer.from(a.name), Buffer.from(b.name)));
  }

  /**
   * The entries of a directory, some at a time: what is made or removed meanwhile may come or not, everything else comes once.
   * What only the base has comes last. ENOENT when the directory is gone.
   */
  async *pages(ino: number): AsyncGenerator<DirectoryEntry[], void> {
    let endWhole: (() => void) | null = null;
    for (let after: string | null = ''; after !== null; ) {
      const from: string = after;
      const page = await this.#store.exclusive(async () => {
        endWhole ??= this.#store.treeHere.beginWhole(ino);
        const read = await this.#pageHere(ino, from);
        if (read.last === null) endWhole();
        return read;
      });
      yield page.entries;
      after = page.last;
    }
  }

  /** `last`: the name that the next page begins behind; null when there is none. */
  async #pageHere(ino: number, after: string): Promise<{ entries: DirectoryEntry[]; last: string | null }> {
    const directory = await this.#store.inodeHere(ino);
    if (!directory) throw new FileError('ENOENT', `directory ${ino} is gone`);
    if (!isDirectory(directory.mode)) throw new FileError('ENOTDIR', `${ino} is no directory`);
    await this.#store.treeHere.writeOutNamesHere(ino);
    const rows = await this.#store.sql.all(
      `SELECT d.name AS name, d.ino AS named, ${inodeColumns} FROM fs_dentry d LEFT JOIN fs_inode i ON i.ino = d.ino ` +
        'WHERE d.parent_ino = ? AND d.name > ? ORDER BY d.name LIMIT ?',
      ino,
      after,
      listPage,
    );
    const entries: DirectoryEntry[] = [];
    for (const row of rows) {
      const name = String(row.name);
      const inode = this.#store.treeHere.inodeOf(row);
      this.#store.treeHere.remember(ino, name, Number(row.named), inode);
      if (inode) entries.push({ name, inode });
    }
    this.#data.listed(entries.map(({ inode }) => inode));
    if (rows.length === listPage) return { entries, last: String(rows.at(-1)?.name) };
    for (const [name, { inode }] of this.#store.overlay.children(ino)) {
      entries.push({ name, inode: this.#store.cachedInode(inode.ino) ?? inode });
    }
    return { entries, last: null };
  }

  /** Makes a file (regular, FIFO, socket or device). `open` counts it as open in the same step. */
  create(place: Place, mode: number, options: { open?: boolean; owner?: Owner; rdev?: number } = {}): Promise<Inode> {
    if (!kindsToMake.has(mode & modeFormat)) {
      return Promise.reject(new FileError('EPERM', `mode ${mode.toString(8)} is no file's`));
    }
    return this.#make(place, async (transaction, parent) => {
      const inode = { ...freshInode(randomIno(), mode, 0, ownerIn(parent, options.owner)), rdev: options.rdev ?? 0 };
      await transaction.insertInode(inode);
      if (options.open) transaction.afterCommit(() => this.#store.opened(inode.ino));
      return inode;
    });
  }

  /** Makes a regular file without a name (O_TMPFILE), open: it is gone with its last close unless `link` named it. */
  openNameless(directory: number, mode: number, owner?: Owner): Promise<Inode> {
    return this.#store.transact(async (transaction) => {
      const parent = await transaction.directory(directory);
      const inode = { ...freshInode(randomIno(), mode, 0, ownerIn(parent, owner)), nlink: 0 };
      transaction.insertInode(inode);
      transaction.afterCommit(() => this.#store.opened(inode.ino));
      return inode;
    });
  }

  makeDirectory(place: Place, permissions: number, owner?: Owner): Promise<Inode> {
    return this.#make(place, async (transaction, parent) => {
      // The number of the place may be in use by a directory that was made here and moved away.
      const regular = directoryIno(place.parent, place.name);
      const ino = (await transaction.inode(regular)) === null ? regular : randomIno();
      const mode = modeDirectory | (permissions & 0o7777) | (parent.mode & setGroupBit);
      const inode = { ...freshInode(ino, mode, 0, ownerIn(parent, owner)), nlink: 2 };
      await transaction.insertInode(inode);
      // Mostly there is nothing below a new number, but what another replica puts there comes with a pull.
      if (await transaction.isEmptyDirectory(ino)) transaction.afterCommit(this.#store.treeHere.beginWhole(ino));
      return inode;
    });
  }

  makeSymlink(place: Place, target: string, owner?: Owner): Promise<Inode> {
    const bytes = Buffer.byteLength(target);
    if (bytes === 0) return Promise.reject(new FileError('ENOENT', 'a symbolic link needs a target'));
    if (bytes >= maxTargetBytes) return Promise.reject(new FileError('ENAMETOOLONG', 'target'));
    return this.#make(place, async (transaction, parent) => {
      const inode = freshInode(randomIno(), modeSymlink | 0o777, bytes, ownerIn(parent, owner));
      await transaction.insertInode(inode);
      transaction.insertSymlink(inode.ino, target);
      return inode;
    });
  }

  readSymlink(ino: number): Promise<string> {
    return this.#store.exclusive(async () => {
      const inode = await this.#store.inodeHere(ino);
      if (!inode) throw new FileError('ENOENT', `${ino} is gone`);
      if (!isSymlink(inode.mode)) throw new FileError('EINVAL', `${ino} is no symbolic link`);
      const row = await this.#store.sql.get('SELECT target FROM fs_symlink WHERE ino = ?', ino);
      if (!row) throw new FileError('EIO', `symbolic link ${ino} has no target`);
      return String(row.target);
    });
  }

  /** Gives a file another name. */
  link(ino: number, place: Place): Promise<Inode> {
    return this.#make(place, async (transaction) => {
      const inode = await transaction.inode(ino);
      // One without a name is there as long as it is open. (The kernel lets only one that never had a name get one.)
      if (!inode || (inode.nlink === 0 && !this.#store.isOpen(ino)))
        throw new FileError('ENOENT', `file ${ino} is gone`);
      if (isDirectory(inode.mode)) throw new FileError('EPERM', 'a directory has one name');
      return transaction.patchInode(inode, { nlink: inode.nlink + 1, ctime: now() });
    });
  }

  /** Removes a file's name. What is open stays readable until its last close. */
  unlink(place: Place): Promise<void> {
    return this.#store.transact(async (transaction) => {
      const parent = await transaction.directory(place.parent);
      const inode = await existing(transaction, place);
      if (isDirectory(inode.mode)) throw new FileError('EISDIR', place.name);
      await transaction.removeName(place.parent, place.name);
      await this.#dropName(transaction, inode);
      await touch(transaction, parent);
    });
  }

  removeDirectory(place: Place): Promise<void> {
    return this.#store.transact(async (transaction) => {
      const parent = await transaction.directory(place.parent);
      const inode = await existing(transaction, place);
      if (!isDirectory(inode.mode)) throw new FileError('ENOTDIR', place.name);
      if (!(await transaction.isEmptyDirectory(inode.ino))) throw new FileError('ENOTEMPTY', place.name);
      await transaction.removeName(place.parent, place.name);
      await this.#dropName(transaction, inode);
      await touch(transaction, parent, -1);
    });
  }

  rename(from: Place, to: Place, mode: RenameMode): Promise<void> {
    requireName(to.name);
    return this.#store.transact(async (transaction) => {
      const source = await transaction.directory(from.parent);
      const target = from.parent === to.parent ? source : await transaction.directory(to.parent);
      const moved = await existing(transaction, from);
      const replacedIno = await transaction.name(to.parent, to.name);
      const replaced = replacedIno === 0 ? null : await transaction.inode(replacedIno);
      if (mode === 'no-replace' && replacedIno !== 0) throw new FileError('EEXIST', to.name);
      if (mode === 'exchange' && !replaced) throw new FileError('ENOENT', to.name);
      if (replaced?.ino === moved.ino) return;
      if (from.parent !== to.parent) await requireNotInside(transaction, moved, to.parent);
      await transaction.copyUpTree(moved.ino);
      const stamp = now();
      if (mode === 'exchange' && replaced) {
        if (from.parent !== to.parent) await requireNotInside(transaction, replaced, from.parent);
        await transaction.copyUpTree(replaced.ino);
        await transaction.replaceName(from.parent, from.name, replaced.ino);
        await transaction.replaceName(to.parent, to.name, moved.ino);
        await transaction.patchInode(replaced, { ctime: stamp });
      } else {
        if (replaced) await requireReplaceable(transaction, moved, replaced, to.name);
        await transaction.removeName(from.parent, from.name);
        if (replacedIno !== 0) await transaction.replaceName(to.parent, to.name, moved.ino);
        else await transaction.insertName(to.parent, to.name, moved.ino);
        if (replaced) await this.#dropName(transaction, replaced);
      }
      await transaction.patchInode((await transaction.inode(moved.ino)) ?? moved, { ctime: stamp });
      const came = isDirectory(moved.mode) ? 1 : 0;
      const went = replaced && isDirectory(replaced.mode) ? 1 : 0;
      if (target === source) return touch(transaction, source, mode === 'exchange' ? 0 : -went);
      await touch(transaction, source, (mode === 'exchange' ? went : 0) - came);
      return touch(transaction, target, came - went);
    });
  }

  /** Changes permissions, owner and times; size is `FileData.truncate`. */
  setAttributes(ino: number, patch: Pick<InodePatch, 'mode' | 'uid' | 'gid' | 'atime' | 'mtime'>): Promise<Inode> {
    return this.#store.transact(async (transaction) => {
      const inode = await transaction.inode(ino);
      if (!inode) throw new FileError('ENOENT', `${ino} is gone`);
      const mode = patch.mode === undefined ? {} : { mode: (inode.mode & modeFormat) | (patch.mode & 0o7777) };
      return transaction.patchInode(inode, { ...patch, ...mode, ctime: now() });
    });
  }

  /** Makes regular files without names, each counted as open: they are filled, given names and closed. */
  createNameless(permissions: readonly number[]): Promise<Inode[]> {
    return this.#store.transact(async (transaction) =>
      permissions.map((one) => {
        const inode = { ...freshInode(randomIno(), modeRegular | (one & 0o7777), 0, nobodySaid), nlink: 0 };
        transaction.insertInode(inode);
        transaction.afterCommit(() => this.#store.opened(inode.ino));
        return inode;
      }),
    );
  }

  /** Gives nameless files their names, in place of whatever files have them. All or none; EISDIR over a directory. */
  giveNames(list: readonly { readonly ino: number; readonly place: Place }[]): Promise<void> {
    for (const { place } of list) requireName(place.name);
    return this.#store.transact(async (transaction) => {
      const parents = new Set<number>();
      for (const { ino, place } of list) {
        await transaction.directory(place.parent);
        parents.add(place.parent);
        const inode = await transaction.inode(ino);
        if (!inode) throw new FileError('ENOENT', `file ${ino} is gone`);
        const replacedIno = await transaction.name(place.parent, place.name);
        const replaced = replacedIno === 0 ? null : await transaction.inode(replacedIno);
        if (replaced && isDirectory(replaced.mode)) throw new FileError('EISDIR', place.name);
        await transaction.patchInode(inode, { nlink: inode.nlink + 1 });
        if (replacedIno === 0) await transaction.insertName(place.parent, place.name, ino);
        else await transaction.replaceName(place.parent, place.name, ino);
        if (replaced) await this.#dropName(transaction, replaced);
      }
      for (const parent of parents) await touch(transaction, await transaction.directory(parent));
    });
  }

  /** Counts an existing file as open. */
  open(ino: number): Inode | Promise<Inode> {
    const inode = this.#store.isIdle ? this.#store.cachedInode(ino) : undefined;
    if (inode && inode.nlink > 0) {
      this.#store.opened(ino);
      return inode;
    }
    // Alone: an unlink that is being committed would take it away.
    return this.#store.exclusive(async () => {
      const inode = await this.#store.inodeHere(ino);
      if (!inode || (inode.nlink === 0 && !this.#store.isOpen(ino))) {
        throw new FileError('ESTALE', `file ${ino} is gone`);
      }
      this.#store.opened(ino);
      return inode;
    });
  }

  /** Ends one `open`; the last one removes a file that has no name any more, which the promise waits for. */
  close(ino: number): Promise<void> | null {
    if (!this.#store.closed(ino)) return null;
    const cached = this.#store.cachedInode(ino);
    if (cached && cached.nlink > 0) return null;
    return this.#store.exclusive(async () => {
      const inode = await this.#store.inodeHere(ino);
      if (!inode || inode.nlink > 0 || this.#store.isOpen(ino)) return;
      await this.#store.transactHere(async (transaction) => this.#remove(transaction, inode));
    });
  }

  #make(place: Place, make: (transaction: Transaction, parent: Inode) => Promise<Inode>): Promise<Inode> {
    return this.#store.transact(async (transaction) => {
      requireName(place.name);
      const parent = await transaction.directory(place.parent);
      if ((await transaction.name(place.parent, place.name)) !== 0) throw new FileError('EEXIST', place.name);
      const inode = await make(transaction, parent);
      await transaction.insertName(place.parent, place.name, inode.ino);
      await touch(transaction, parent, isDirectory(inode.mode) ? 1 : 0);
      return inode;
    });
  }

  async #dropName(transaction: Transaction, inode: Inode): Promise<void> {
    if (isDirectory(inode.mode)) {
      await transaction.removeInode(inode);
      transaction.afterCommit(() => this.#store.directoryRemoved(inode.ino));
      return;
    }
    const nlink = Math.max(0, inode.nlink - 1);
    if (nlink > 0 || this.#store.isOpen(inode.ino)) {
      await transaction.patchInode(inode, { nlink, ctime: now() });
      return;
    }
    await this.#remove(transaction, inode);
  }

  async #remove(transaction: Transaction, inode: Inode): Promise<void> {
    transaction.afterCommit(() => this.#data.forget(inode.ino));
    transaction.gone(inode);
    const isLarge = isRegular(inode.mode) && inode.size > rowsOfSlice * this.#store.chunkSize;
    if (!isLarge || this.#store.isNew(inode.ino) || this.#store.overlay.node(inode.ino)) {
      transaction.removeInode(inode);
      return;
    }
    // Without a name it is gone for everybody; a machine that starts removes what is left of it (repair.ts).
    await transaction.patchInode(inode, { nlink: 0, ctime: now() });
    transaction.afterCommit(() => this.#data.removeLater(inode));
  }
}

function freshInode(ino: number, mode: number, size: number, { uid, gid }: Owner): Inode {
  const stamp = now();
  return { ino, mode, nlink: 1, uid, gid, size, rdev: 0, atime: stamp, mtime: stamp, ctime: stamp };
}

/** Whom something made in `parent` by `maker` belongs to: its group is the directory's where that says so. */
function ownerIn(parent: Inode, maker: Owner = nobodySaid): Owner {
  return (parent.mode & setGroupBit) !== 0 ? { uid: maker.uid, gid: parent.gid } : maker;
}

async function existing(transaction: Transaction, place: Place): Promise<Inode> {
  const ino = await transaction.name(place.parent, place.name);
  const inode = ino === 0 ? null : await transaction.inode(ino);
  if (!inode) throw new FileError('ENOENT', place.name);
  return inode;
}

/** Marks a directory as changed; `more` directories are in it than before. */
async function touch(transaction: Transaction, directory: Inode, more = 0): Promise<void> {
  const stamp = now();
  const current = (await transaction.inode(directory.ino)) ?? directory;
  // 1 says that whoever made the directory does not count: it stays so.
  const counted = more !== 0 && current.nlink > 1 ? { nlink: Math.max(2, current.nlink + more) } : {};
  await transaction.patchInode(current, { mtime: stamp, ctime: stamp, ...counted });
}

async function requireReplaceable(
  transaction: Transaction,
  moved: Inode,
  replaced: Inode,
  name: string,
): Promise<void> {
  if (isDirectory(moved.mode) && !isDirectory(replaced.mode)) throw new FileError('ENOTDIR', name);
  if (!isDirectory(moved.mode) && isDirectory(replaced.mode)) throw new FileError('EISDIR', name);
  if (isDirectory(replaced.mode) && !(await transaction.isEmptyDirectory(replaced.ino))) {
    throw new FileError('ENOTEMPTY', name);
  }
}

/** A directory cannot become its own descendant. */
async function requireNotInside(transaction: Transaction, moved: Inode, parent: number): Promise<void> {
  if (!isDirectory(moved.mode)) return;
  for (let ino = parent, depth = 0; ino !== rootIno; depth++) {
    if (ino === moved.ino || depth > 1000) throw new FileError('EINVAL', 'a directory cannot be moved into itself');
    ino = await transaction.parent(ino);
    // Not below the root at all: then not below what is moved either.
    if (ino === 0) return;
  }
}

/** EINVAL for what is no name, ENAMETOOLONG for what is too long for one. */
export function requireName(name: string): void {
  if (name === '' || name === '.' || name === '..' || name.includes('/') || name.includes('\0')) {
    throw new FileError('EINVAL', `${JSON.stringify(name)} is no file name`);
  }
  if (Buffer.byteLength(name) > maxNameBytes) throw new FileError('ENAMETOOLONG', 'name');
}
