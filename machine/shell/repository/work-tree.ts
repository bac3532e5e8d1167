/** The working tree as it is: what of the index has changed in it, and what the index does not know. */
import { binaryOf, compareBinary, textOf } from '../text.ts';
import type { Status } from '../tree/status.ts';
import { type IndexEntry, type IndexStat, noStat, sameStat, statForIndex } from './index-file.ts';
import { hashOf } from './objects.ts';
import type { Pathspec } from './pathspec.ts';
import type { Repository } from './repository.ts';

export type FileState =
  | { readonly state: 'same'; readonly stat: IndexStat; readonly isRefreshed: boolean }
  | { readonly state: 'removed' }
  /** `hash` is null where it was not computed: the sizes differ. */
  | { readonly state: 'changed'; readonly mode: number; readonly status: Status; readonly hash: string | null };

const nothing: ReadonlyMap<string, Status> = new Map();

export class WorkTree {
  readonly repository: Repository;
  readonly #root: string;
  readonly #directories = new Map<string, ReadonlyMap<string, Status>>();

  constructor(repository: Repository) {
    this.repository = repository;
    this.#root = repository.root;
  }

  /** What is in a directory, by binary name; nothing where it is none, or reached through a link. */
  async directory(path: string): Promise<ReadonlyMap<string, Status>> {
    const known = this.#directories.get(path);
    if (known) return known;
    const isThere = path === '' || (await this.status(path))?.kind === 'directory';
    let entries: ReadonlyMap<string, Status> = nothing;
    if (isThere) {
      const listed = await this.repository.tree.list(path === '' ? this.#root : `${this.#root}/${textOf(path)}`);
      entries = new Map(listed.map(({ name, status }) => [binaryOf(name), status]));
      await this.repository.pace.rest();
    }
    this.#directories.set(path, entries);
    return entries;
  }

  async status(path: string): Promise<Status | null> {
    const slash = path.lastIndexOf('/');
    const directory = slash < 0 ? '' : path.slice(0, slash);
    const entries = this.#directories.get(directory) ?? (await this.directory(directory));
    return entries.get(path.slice(slash + 1)) ?? null;
  }

  /** How a file of the index is in the working tree. */
  async state(entry: IndexEntry): Promise<FileState> {
    const slash = entry.path.lastIndexOf('/');
    const directory = slash < 0 ? '' : entry.path.slice(0, slash);
    const entries = this.#directories.get(directory) ?? (await this.directory(directory));
    const status = entries.get(entry.path.slice(slash + 1));
    if (!status || status.kind === 'directory' || status.kind === 'other') return { state: 'removed' };
    const mode = modeOf(status);
    if (mode === entry.mode && sameStat(entry.stat, status) && !entry.isIntended) {
      return { state: 'same', stat: entry.stat, isRefreshed: false };
    }
    await this.repository.pace.rest();
    const hash = await this.hash(entry.path, status);
    if (mode === entry.mode && hash === entry.hash && !entry.isIntended) {
      return { state: 'same', stat: statForIndex(status), isRefreshed: true };
    }
    return { state: 'changed', mode, status, hash };
  }

  /** The name that a file's contents would have as a blob. */
  async hash(path: string, status: Status): Promise<string> {
    return hashOf('blob', await this.content(path, status));
  }

  async content(path: string, status: Status): Promise<Uint8Array> {
    const full = `${this.#root}/${textOf(path)}`;
    if (status.kind === 'symlink') return Buffer.from(await this.repository.tree.readlink(full));
    const bytes = await this.repository.tree.read(full);
    const attributes = await this.repository.attributes();
    if (!attributes.areNone) attributes.requireUnconverted(path, bytes);
    return bytes;
  }
}

/** `100644`, `100755` or `120000`. */
export function modeOf(status: Status): number {
  if (status.kind === 'symlink') return 0o120000;
  return (status.mode & 0o100) !== 0 ? 0o100755 : 0o100644;
}

export interface Untracked {
  /** Binary; a directory's ends in a slash. */
  readonly path: string;
  readonly isIgnored: boolean;
}

export interface UntrackedOptions {
  /** `normal` names a directory that holds nothing known by its own name. */
  readonly mode: 'normal' | 'all';
  /** Whether to tell of ignored ones, too. */
  readonly ignored: 'no' | 'traditional';
  readonly pathspec?: Pathspec;
  /** Without rules: everything that the index does not know. */
  readonly withoutRules?: boolean;
  /** Tells of directories even where they are empty. */
  readonly emptyDirectories?: boolean;
}

const known = new WeakMap<readonly IndexEntry[], { files: Set<string>; directories: Set<string> }>();

/** Paths of an index, and the directories that they lie in. */
export function trackedIn(entries: readonly IndexEntry[]): { files: Set<string>; directories: Set<string> } {
  const before = known.get(entries);
  if (before) return before;
  const [files, directories] = [new Set<string>(), new Set<string>()];
  for (const { path } of entries) {
    files.add(path);
    for (let slash = path.lastIndexOf('/'); slash > 0; slash = path.lastIndexOf('/', slash - 1)) {
      const directory = path.slice(0, slash);
      if (directories.has(directory)) break;
      directories.add(directory);
    }
  }
  known.set(entries, { files, directories });
  return { files, directories };
}

/** What the index does not know, sorted. */
export async function untracked(workTree: WorkTree, options: UntrackedOptions): Promise<Untracked[]> {
  const { repository } = workTree;
  const tracked = trackedIn(await repository.index());
  const ignores = options.withoutRules ? null : await repository.ignores();
  const found: Untracked[] = [];

  /** Whether a directory that the index does not know holds anything to tell of. */
  const holds = async (directory: string): Promise<{ plain: boolean; ignored: boolean }> => {
    const result = { plain: false, ignored: false };
    for (const [name, status] of await workTree.directory(directory)) {
      const path = `${directory}/${name}`;
      const isDirectory = status.kind === 'directory';
      if (await ignores?.ignores(path, isDirectory)) {
        result.ignored = true;
        continue;
      }
      if (!isDirectory) result.plain = true;
      else if (await isRepository(workTree, path)) result.plain = true;
      else {
        const below = await holds(path);
        result.plain ||= below.plain;
        result.ignored ||= below.ignored;
      }
      if (result.plain) return result;
    }
    return result;
  };

  const walk = async (directory: string, isKnown: boolean): Promise<void> => {
    const prefix = directory === '' ? '' : `${directory}/`;
    for (const [name, status] of await workTree.directory(directory)) {
      if (name === '.git') continue;
      const path = prefix + name;
      if (status.kind === 'other') continue;
      if (status.kind !== 'directory') {
        if (tracked.files.has(path) || options.pathspec?.matches(path) === false) continue;
        const isIgnored = (await ignores?.ignores(path, false)) ?? false;
        if (!isIgnored || options.ignored !== 'no') found.push({ path, isIgnored });
        continue;
      }
      if (tracked.directories.has(path)) {
        await walk(path, true);
        continue;
      }
      if (tracked.files.has(path)) continue;
      if (options.pathspec && !options.pathspec.mayMatchBelow(path)) continue;
      await unknownDirectory(path, isKnown);
    }
  };

  const unknownDirectory = async (path: string, _isKnown: boolean): Promise<void> => {
    const isIgnored = (await ignores?.ignores(path, true)) ?? false;
    const isWhole = options.pathspec?.matches(path) !== false;
    if (isIgnored) {
      if (options.ignored === 'no') return;
      if (options.mode === 'normal' || isWhole) {
        const isThere = (await workTree.directory(path)).size > 0;
        if (isThere && isWhole) found.push({ path: `${path}/`, isIgnored: true });
      }
      return;
    }
    if (await isRepository(workTree, path)) {
      if (isWhole) found.push({ path: `${path}/`, isIgnored: false });
      return;
    }
    if (options.mode === 'all' || !isWhole) {
      await walk(path, false);
      return;
    }
    const { plain, ignored } = await holds(path);
    if (plain || (options.emptyDirectories && !ignored)) found.push({ path: `${path}/`, isIgnored: false });
    if (ignored && options.ignored !== 'no') await ignoredBelow(path);
  };

  const ignoredBelow = async (directory: string): Promise<void> => {
    for (const [name, status] of await workTree.directory(directory)) {
      const path = `${directory}/${name}`;
      const isDirectory = status.kind === 'directory';
      if (await ignores?.ignores(path, isDirectory)) {
        found.push({ path: isDirectory ? `${path}/` : path, isIgnored: true });
      } else if (isDirectory) await ignoredBelow(path);
    }
  };

  await walk('', true);
  return found.sort((one, two) => compareBinary(one.path, two.path));
}

async function isRepository(workTree: WorkTree, path: string): Promise<boolean> {
  const inside = await workTree.directory(path);
  if (!inside.has('.git')) return false;
  return (await workTree.directory(`${path}/.git`)).has('HEAD') || inside.get('.git')?.kind === 'file';
}

/** An entry for what a file is now, its blob kept in the repository. */
export async function stagedEntry(workTree: WorkTree, path: string, status: Status): Promise<IndexEntry> {
  const { repository } = workTree;
  const hash = await repository.objects.write('blob', await workTree.content(path, status));
  return { path, mode: modeOf(status), hash, stage: 0, isIntended: false, stat: statForIndex(status) };
}

/** An entry without a file to compare it with. */
export function bareEntry(path: string, mode: number, hash: string, stage = 0): IndexEntry {
  return { path, mode, hash, stage, isIntended: false, stat: noStat };
}
