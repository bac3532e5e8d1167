/** Brings index and working tree from one tree to another, keeping what was changed in between. */
import { fatal, leave } from '../endings.ts';
import { filesOf, type Leaf } from '../show/pairs.ts';
import { textOf } from '../text.ts';
import type { Status } from '../tree/status.ts';
import { type IndexEntry, statForIndex } from './index-file.ts';
import { modeGitlink } from './parse.ts';
import type { Repository } from './repository.ts';
import { bareEntry, trackedIn, WorkTree } from './work-tree.ts';

export interface Plan {
  /** The index as it will be; entries of `writes` have no stat yet. */
  readonly entries: readonly IndexEntry[];
  readonly writes: ReadonlyMap<string, Leaf>;
  readonly removals: ReadonlySet<string>;
  /** Files with changes that would be lost. */
  readonly changed: readonly string[];
  /** Untracked files that would be overwritten. */
  readonly untracked: readonly string[];
}

/** As `git checkout <branch>` goes from `from` to `to`. */
export async function planSwitch(repository: Repository, from: string | null, to: string | null): Promise<Plan> {
  const index = await repository.index();
  if (index.some(({ stage }) => stage > 0)) leave('a change of branch during a conflict');
  const [before, after] = [await filesOf(repository, from), await filesOf(repository, to)];
  const workTree = new WorkTree(repository);
  const ignores = await repository.ignores();
  const entries: IndexEntry[] = [];
  const [writes, removals] = [new Map<string, Leaf>(), new Set<string>()];
  const [changed, untracked]: [string[], string[]] = [[], []];
  const tracked = trackedIn(index);
  const current = new Map(index.map((entry) => [entry.path, entry]));
  for (const entry of index) {
    const { path } = entry;
    const [old, wanted] = [before.get(path), after.get(path)];
    if (same(old, wanted) || (wanted && same(entry, wanted))) {
      entries.push(entry);
      continue;
    }
    if (!old && !wanted) {
      entries.push(entry);
      continue;
    }
    const state = same(entry, old) ? await workTree.state(entry) : null;
    if (!state || state.state === 'changed') {
      changed.push(path);
      continue;
    }
    if (wanted) writes.set(path, wanted);
    else if (state.state === 'same') removals.add(path);
  }
  for (const [path, wanted] of after) {
    if (current.has(path)) continue;
    if (wanted.mode === modeGitlink) leave('submodules');
    const old = before.get(path);
    // Taken out of the index by somebody; it stays so.
    if (same(old, wanted)) continue;
    if (old) {
      changed.push(path);
      continue;
    }
    const status = await workTree.status(path);
    if (status?.kind === 'directory') {
      if (!tracked.directories.has(path)) leave('a directory in the way of a file');
    } else if (status && !(await ignores.ignores(path, false))) untracked.push(path);
    await requireNoFileAbove(workTree, path, tracked.files);
    writes.set(path, wanted);
  }
  for (const [path, { mode, hash }] of writes) entries.push(bareEntry(path, mode, hash));
  return { entries, writes, removals, changed, untracked };
}

/** An untracked file where a directory is to be. */
async function requireNoFileAbove(workTree: WorkTree, path: string, tracked: ReadonlySet<string>): Promise<void> {
  for (let slash = path.lastIndexOf('/'); slash > 0; slash = path.lastIndexOf('/', slash - 1)) {
    const above = path.slice(0, slash);
    const status = await workTree.status(above);
    if (!status) continue;
    if (status.kind === 'directory') return;
    if (!tracked.has(above)) leave('a file in the way of a directory');
  }
}

/** As `git reset --hard` makes both what a tree is, whatever they were. */
export async function planHard(repository: Repository, to: string | null): Promise<Plan> {
  const index = await repository.index();
  const after = await filesOf(repository, to);
  const workTree = new WorkTree(repository);
  const entries: IndexEntry[] = [];
  const [writes, removals] = [new Map<string, Leaf>(), new Set<string>()];
  const done = new Set<string>();
  for (const entry of index) {
    const { path } = entry;
    if (done.has(path)) continue;
    done.add(path);
    const wanted = after.get(path);
    if (!wanted) {
      const status = await workTree.status(path);
      if (status && status.kind !== 'directory') removals.add(path);
      continue;
    }
    if (entry.stage === 0 && same(entry, wanted)) {
      const state = await workTree.state(entry);
      if (state.state === 'same') {
        entries.push({ ...entry, stat: state.stat });
        continue;
      }
    }
    writes.set(path, wanted);
  }
  for (const [path, wanted] of after) {
    if (wanted.mode === modeGitlink) leave('submodules');
    if (!done.has(path)) writes.set(path, wanted);
  }
  for (const [path, { mode, hash }] of writes) entries.push(bareEntry(path, mode, hash));
  return { entries, writes, removals, changed: [], untracked: [] };
}

const same = (one: Leaf | undefined, two: Leaf | undefined): boolean =>
  one?.hash === two?.hash && one?.mode === two?.mode;

/** Writes a plan: files, then the index that knows them. */
export async function carryOut(repository: Repository, plan: Plan): Promise<void> {
  await repository.requireUnlocked();
  for (const path of plan.removals) await removeFile(repository, path);
  for (const [path, leaf] of plan.writes) await writeFile(repository, path, leaf);
  await repository.tree.flush();
  await repository.writeIndex(await withStats(repository, plan.entries, plan.writes));
}

/** Entries of the paths that were just written, with what their files are like. */
export async function withStats(
  repository: Repository,
  entries: readonly IndexEntry[],
  written: ReadonlyMap<string, unknown>,
): Promise<IndexEntry[]> {
  if (written.size === 0) return [...entries];
  const workTree = new WorkTree(repository);
  const result: IndexEntry[] = [];
  for (const entry of entries) {
    const status = entry.stage === 0 && written.has(entry.path) ? await workTree.status(entry.path) : null;
    result.push(status ? { ...entry, stat: statForIndex(status as Status) } : entry);
  }
  return result;
}

/** Makes a file of the working tree what a blob is. */
export async function writeFile(repository: Repository, path: string, { mode, hash }: Leaf): Promise<void> {
  const attributes = await repository.attributes();
  attributes.requireUnconverted(path, null);
  if (/(^|\/)\.gitattributes$/.test(path)) await requireKnownAttributes(repository, hash);
  requireSafe(path);
  const { tree } = repository;
  const full = `${repository.root}/${textOf(path)}`;
  await makeDirectories(repository, path);
  if ((await tree.lstat(full))?.kind === 'directory') await tree.remove(full);
  const { bytes } = await repository.objects.read(hash, 'blob');
  if (mode === 0o120000) {
    if ((await tree.lstat(full)) !== null) await tree.remove(full);
    await tree.symlink(full, Buffer.from(bytes).toString('utf8'));
  } else await tree.write(full, bytes, mode === 0o100755 ? 0o755 : 0o644);
  await repository.pace.rest();
}

/** Attributes that come with a checkout count for the rest of it: those that convert are the native git's. */
async function requireKnownAttributes(repository: Repository, hash: string): Promise<void> {
  const text = Buffer.from((await repository.objects.read(hash, 'blob')).bytes).toString('latin1');
  if (/filter=|eol=crlf|working-tree-encoding|(^|\s)ident(\s|$)/m.test(text)) leave('attributes that convert files');
}

async function makeDirectories(repository: Repository, path: string): Promise<void> {
  for (let slash = path.indexOf('/'); slash > 0; slash = path.indexOf('/', slash + 1)) {
    const full = `${repository.root}/${textOf(path.slice(0, slash))}`;
    const status = await repository.tree.lstat(full);
    if (status?.kind === 'directory') continue;
    if (status) await repository.tree.remove(full);
    await repository.tree.makeDirectory(full);
  }
}

/** Removes a file of the working tree, and the directories that are empty then. */
export async function removeFile(repository: Repository, path: string): Promise<void> {
  const { tree } = repository;
  const full = `${repository.root}/${textOf(path)}`;
  const status = await tree.lstat(full);
  if (!status || status.kind === 'directory') return;
  await tree.remove(full);
  for (let slash = path.lastIndexOf('/'); slash > 0; slash = path.lastIndexOf('/', slash - 1)) {
    const directory = `${repository.root}/${textOf(path.slice(0, slash))}`;
    // The directory that the caller is in stays.
    if (`${repository.cwd}/`.startsWith(`${directory}/`)) return;
    if ((await tree.list(directory)).length > 0) return;
    await tree.remove(directory);
  }
}

/** Names that no checkout may write. */
function requireSafe(path: string): void {
  const isUnsafe = path
    .split('/')
    .some((part) => part === '' || part === '.' || part === '..' || /^\.git$/i.test(part));
  if (isUnsafe) throw fatal(`invalid path '${path}'`);
}
