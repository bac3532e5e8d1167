/**
 * The conversation's files as the engine sees them during one call: paths of the holder, symbolic links kept inside, and
 * changes held back until they are flushed. Until then the call can still be left to the native git, as if nothing were.
 */
import { FileError } from '../../agentfs/errors.ts';
import { type HolderView, rootNode, type ViewNode } from '../../agentfs/views.ts';
import { leave } from '../endings.ts';
import { type Draft, Drafts } from './drafts.ts';
import { flushDrafts } from './flush.ts';
import type { Listings } from './listings.ts';
import { type Listed, type Status, statusOf } from './status.ts';
import { isReachable, isReadOnly, reachable } from './zones.ts';

/** Bytes of one file that the engine reads; what is larger is the native git's. */
const largestRead = 128 * 1024 ** 2;
/** Symbolic links on the way to one file, as Linux has it. */
const maxLinks = 40;

export type Found =
  | { readonly at: 'view'; readonly node: ViewNode; readonly status: Status }
  | { readonly at: 'draft'; readonly draft: Draft; readonly status: Status };

export class Tree {
  readonly view: HolderView;
  readonly #listings: Listings;
  readonly #drafts = new Drafts();
  /** Directories that were found during this call, by canonical path. */
  #nodes = new Map<string, ViewNode | null>();
  readonly #beforeFlush: (() => Promise<void>)[] = [];
  #isWritten = false;

  constructor(view: HolderView, listings: Listings) {
    this.view = view;
    this.#listings = listings;
  }

  /** Whether something of this call has reached the files: then it must be ended here. */
  get isWritten(): boolean {
    return this.#isWritten;
  }

  /** What a path names, without following a link at its end; null when there is nothing. */
  async lstat(path: string): Promise<Status | null> {
    const canonical = await this.#parentResolved(path);
    return canonical === null ? null : ((await this.#find(canonical))?.status ?? null);
  }

  /** The same, following links. */
  async stat(path: string): Promise<Status | null> {
    const canonical = await this.resolve(path);
    return canonical === null ? null : ((await this.#find(canonical))?.status ?? null);
  }

  /** The path without links, `.` and `..`; null when a directory on the way is missing or a link leads out. */
  async resolve(path: string): Promise<string | null> {
    return this.#walk(path, true);
  }

  async readlink(path: string): Promise<string> {
    const found = await this.#need(await this.#parentResolved(path), path);
    if (found.status.kind !== 'symlink') throw new FileError('EINVAL', path);
    if (found.at === 'draft') return found.draft.kind === 'symlink' ? found.draft.target : '';
    return this.view.files.names.readSymlink(found.node.ino);
  }

  /** All of a file. */
  async read(path: string): Promise<Uint8Array> {
    const found = await this.#need(await this.resolve(path), path);
    if (found.status.kind === 'directory') throw new FileError('EISDIR', path);
    if (found.status.kind !== 'file') throw new FileError('EINVAL', path);
    if (found.at === 'draft' && found.draft.kind === 'file') return found.draft.bytes;
    if (found.status.size > largestRead) leave(`a file of ${found.status.size} bytes`);
    return this.readRange(found, 0, found.status.size);
  }

  /** Some of a file that was found before. */
  async readRange(found: Found, offset: number, length: number): Promise<Uint8Array> {
    if (found.at === 'draft') {
      return found.draft.kind === 'file' ? found.draft.bytes.subarray(offset, offset + length) : new Uint8Array(0);
    }
    return this.view.files.data.read(found.node.ino, offset, length);
  }

  async find(path: string): Promise<Found | null> {
    const canonical = await this.resolve(path);
    return canonical === null ? null : this.#find(canonical);
  }

  /** The entries of a directory, in no order. */
  async list(path: string): Promise<Listed[]> {
    const canonical = await this.resolve(path);
    const found = await this.#need(canonical, path);
    if (found.status.kind !== 'directory') throw new FileError('ENOTDIR', path);
    const listed: Listed[] = [];
    const drafts = this.#drafts.below(canonical!);
    if (found.at === 'view') {
      for (const { name, zone, inode } of await this.#listings.list(found.node)) {
        if (!isReachable(zone) || drafts?.has(name)) continue;
        listed.push({ name, status: statusOf(inode) });
      }
    }
    for (const [name, draft] of drafts ?? []) {
      if (draft.kind !== 'absent') listed.push({ name, status: this.#drafts.status(draft) });
    }
    return listed;
  }

  /** Makes a file with these bytes, instead of whatever file has the name. Its directory must be there. */
  async write(path: string, bytes: Uint8Array, permissions = 0o644): Promise<void> {
    const canonical = await this.#placeToChange(path);
    this.#drafts.set(canonical, { kind: 'file', bytes, permissions });
  }

  async symlink(path: string, target: string): Promise<void> {
    const canonical = await this.#placeToChange(path);
    this.#drafts.set(canonical, { kind: 'symlink', target });
  }

  /** Makes a directory and those above it that are missing. */
  async makeDirectory(path: string): Promise<void> {
    const canonical = await this.#walk(path, true, true);
    if (canonical === null) throw new FileError('ENOENT', path);
    const found = await this.#find(canonical);
    if (found?.status.kind === 'directory') return;
    if (found) throw new FileError('EEXIST', path);
    const slash = canonical.lastIndexOf('/');
    if (slash > 0) await this.makeDirectory(canonical.slice(0, slash));
    this.#drafts.set(await this.#placeToChange(canonical), {
      kind: 'directory',
      replaces: await this.#hasNode(canonical),
    });
  }

  /** Removes a file, link, or directory with all that is in it. */
  async remove(path: string): Promise<void> {
    const canonical = await this.#placeToChange(path);
    if (!(await this.#find(canonical))) throw new FileError('ENOENT', path);
    this.#drafts.remove(canonical, await this.#hasNode(canonical));
    this.#forgetNodes(canonical);
  }

  /** Moves a file, link or directory that is not itself a change of this call. At once: everything before is flushed. */
  async move(from: string, to: string): Promise<void> {
    const [source, target] = [await this.#placeToChange(from), await this.#placeToChange(to)];
    await this.flush();
    const places = [await this.place(source), await this.place(target)] as const;
    this.#isWritten = true;
    await this.view.files.names.rename(places[0], places[1], 'replace');
    this.#forgetNodes(source);
    this.#forgetNodes(target);
  }

  /** Changes the permissions of a file. */
  async chmod(path: string, permissions: number): Promise<void> {
    const canonical = await this.#parentResolved(path);
    const found = await this.#need(canonical, path);
    if (found.at === 'draft' && found.draft.kind === 'file') {
      this.#drafts.set(canonical!, { ...found.draft, permissions });
      return;
    }
    if (found.at !== 'view' || found.status.kind === 'symlink') return;
    if (isReadOnly(found.node)) throw new FileError('EROFS', path);
    this.#isWritten = true;
    await this.view.files.names.setAttributes(found.node.ino, { mode: permissions });
  }

  /** Called before what was held back is written: for those that hold back something themselves. */
  beforeFlush(store: () => Promise<void>): void {
    this.#beforeFlush.push(store);
  }

  /** Writes what was held back. After this the call cannot be left to the native git any more. */
  async flush(): Promise<void> {
    for (const store of this.#beforeFlush) await store();
    if (this.#drafts.isEmpty) return;
    this.#isWritten = true;
    await flushDrafts(this, this.#drafts);
    this.#drafts.clear();
    this.#nodes = new Map();
  }

  /** Where a canonical path's name stands in the database; its directory must be written already. */
  async place(canonical: string): Promise<{ parent: number; name: string }> {
    const slash = canonical.lastIndexOf('/');
    const node = await this.#node(canonical.slice(0, slash));
    if (!node) throw new FileError('ENOENT', canonical);
    return this.view.placeToChange(node, canonical.slice(slash + 1)).place;
  }

  /** Forgets where directories were: some were made or removed. */
  forget(): void {
    this.#nodes = new Map();
  }

  async #find(canonical: string): Promise<Found | null> {
    const draft = this.#drafts.get(canonical);
    if (draft === 'hidden' || draft?.kind === 'absent') return null;
    if (draft) return { at: 'draft', draft, status: this.#drafts.status(draft) };
    const found = await this.#lookup(canonical);
    return found ? { at: 'view', node: found.node, status: found.status } : null;
  }

  async #need(canonical: string | null, path: string): Promise<Found> {
    const found = canonical === null ? null : await this.#find(canonical);
    if (!found) throw new FileError('ENOENT', path);
    return found;
  }

  async #hasNode(canonical: string): Promise<boolean> {
    return (await this.#lookup(canonical)) !== null;
  }

  async #lookup(canonical: string): Promise<{ node: ViewNode; status: Status } | null> {
    if (canonical === '') return { node: rootNode, status: rootStatus };
    const slash = canonical.lastIndexOf('/');
    const parent = await this.#node(canonical.slice(0, slash));
    if (!parent) return null;
    const name = canonical.slice(slash + 1);
    if (parent.zone === 'root' && !reachable.includes(name)) return null;
    const found = await this.view.lookup(parent, name);
    if (!found || !isReachable(found.zone)) return null;
    return { node: { zone: found.zone, ino: found.inode.ino }, status: statusOf(found.inode) };
  }

  /** The directory of the view at a canonical path, whatever is meant to become of it. */
  async #node(canonical: string): Promise<ViewNode | null> {
    if (canonical === '') return rootNode;
    const known = this.#nodes.get(canonical);
    if (known !== undefined) return known;
    const found = await this.#lookup(canonical);
    const node = found?.status.kind === 'directory' ? found.node : null;
    if (node) this.#nodes.set(canonical, node);
    return node;
  }

  #forgetNodes(canonical: string): void {
    for (const path of [...this.#nodes.keys()]) {
      if (path === canonical || path.startsWith(`${canonical}/`)) this.#nodes.delete(path);
    }
  }

  async #parentResolved(path: string): Promise<string | null> {
    return this.#walk(path, false);
  }

  /** `mayMiss`: what is missing at the end is taken as it is written. */
  async #walk(path: string, followsLast: boolean, mayMiss = false): Promise<string | null> {
    let canonical = '';
    const open = path.split('/').reverse();
    for (let links = 0; open.length > 0; ) {
      const name = open.pop()!;
      if (name === '' || name === '.') continue;
      if (name === '..') {
        canonical = canonical.slice(0, Math.max(0, canonical.lastIndexOf('/')));
        continue;
      }
      const next = `${canonical}/${name}`;
      const isLast = open.every((one) => one === '');
      if (isLast && !followsLast) return next;
      if (this.#drafts.isEmpty && this.#nodes.get(next)) {
        canonical = next;
        continue;
      }
      const found = await this.#find(next);
      if (!found) {
        if (isLast || mayMiss) {
          canonical = next;
          continue;
        }
        return null;
      }
      if (found.status.kind === 'symlink') {
        if (++links > maxLinks) throw new FileError('ELOOP', path);
        const target = found.at === 'draft' ? await this.#draftTarget(found.draft) : await this.#target(found.node);
        if (target.startsWith('/')) canonical = '';
        open.push(...target.split('/').reverse());
        continue;
      }
      if (!isLast && found.status.kind !== 'directory') return null;
      if (found.at === 'view' && found.status.kind === 'directory') this.#nodes.set(next, found.node);
      canonical = next;
    }
    return canonical;
  }

  async #draftTarget(draft: Draft): Promise<string> {
    return draft.kind === 'symlink' ? draft.target : '';
  }

  #target(node: ViewNode): Promise<string> {
    return this.view.files.names.readSymlink(node.ino);
  }

  /** The canonical path of a name that may be made, replaced or removed. */
  async #placeToChange(path: string): Promise<string> {
    const canonical = await this.#parentResolved(path);
    if (canonical === null) throw new FileError('ENOENT', path);
    const slash = canonical.lastIndexOf('/');
    const parent = await this.#find(canonical.slice(0, slash));
    if (!parent) throw new FileError('ENOENT', path);
    if (parent.status.kind !== 'directory') throw new FileError('ENOTDIR', path);
    if (parent.at === 'view') this.view.placeToChange(parent.node, canonical.slice(slash + 1));
    return canonical;
  }
}

const never = { seconds: 0, nanoseconds: 0 };
const rootStatus: Status = { kind: 'directory', mode: 0o040555, size: 0, ino: 1, mtime: never, ctime: never };
