/** The index against a commit, and the working tree against the index: what `status` and `diff` speak of. */

import { leave } from '../endings.ts';
import { filesOf, type Leaf, type Pair, type PathFilter, pairOf, type Side } from '../show/pairs.ts';
import { compareBinary } from '../text.ts';
import type { IndexEntry } from './index-file.ts';
import { modeGitlink } from './parse.ts';
import type { Repository } from './repository.ts';
import type { FileState, WorkTree } from './work-tree.ts';

/** Entries by path: the one without conflict, or the three of a conflict. */
export function byPath(entries: readonly IndexEntry[]): Map<string, IndexEntry[]> {
  const paths = new Map<string, IndexEntry[]>();
  for (const entry of entries) {
    const there = paths.get(entry.path);
    if (there) there.push(entry);
    else paths.set(entry.path, [entry]);
  }
  return paths;
}

/** From a tree (null: from nothing) to the index. A conflict is one pair of kind U. */
export async function stagedPairs(
  repository: Repository,
  tree: string | null,
  isAsked: PathFilter = () => true,
): Promise<Pair[]> {
  const pairs: Pair[] = [];
  const before = await cachedFiles(repository, tree);
  const seen = new Set<string>();
  for (const entry of await repository.index()) {
    if (entry.isIntended) continue;
    const old = before.get(entry.path);
    if (entry.stage === 0 && old?.hash === entry.hash && old.mode === entry.mode) {
      seen.add(entry.path);
      continue;
    }
    if (seen.has(entry.path)) continue;
    seen.add(entry.path);
    if (!isAsked(entry.path, false)) continue;
    const { path, mode, hash } = entry;
    if (entry.stage > 0) pairs.push({ kind: 'U', before: null, after: { path, mode, hash } });
    else pairs.push(pairOf(old ? { path, ...old } : null, { path, mode, hash }));
  }
  for (const [path, old] of before) {
    if (!seen.has(path) && isAsked(path, false)) pairs.push(pairOf({ path, ...old }, null));
  }
  return pairs.sort((one, two) => compareBinary((one.after ?? one.before)!.path, (two.after ?? two.before)!.path));
}

let lastFiles: { readonly key: string; readonly files: ReadonlyMap<string, Leaf> } | null = null;

/** A tree's files; the last one's are kept, because the same commit is asked for again and again. */
async function cachedFiles(repository: Repository, tree: string | null): Promise<ReadonlyMap<string, Leaf>> {
  const key = `${repository.gitDirectory} ${tree}`;
  if (lastFiles?.key !== key) lastFiles = { key, files: await filesOf(repository, tree) };
  return lastFiles.files;
}

export interface Unstaged {
  readonly pairs: Pair[];
  /** Entries whose files are as they were, but were looked at again. */
  readonly refreshed: Map<string, FileState & { readonly state: 'same' }>;
}

/** From the index to the working tree. */
export async function unstagedPairs(workTree: WorkTree, isAsked: PathFilter = () => true): Promise<Unstaged> {
  const pairs: Pair[] = [];
  const refreshed: Unstaged['refreshed'] = new Map();
  let lastConflict = '';
  for (const entry of await workTree.repository.index()) {
    const { path, mode, hash } = entry;
    if (!isAsked(path, false)) continue;
    if (mode === modeGitlink) leave('submodules');
    if (entry.stage > 0) {
      if (lastConflict !== path) pairs.push({ kind: 'U', before: { path, mode, hash }, after: null });
      lastConflict = path;
      continue;
    }
    const state = await workTree.state(entry);
    if (state.state === 'same') {
      if (state.isRefreshed) refreshed.set(path, state);
    } else if (state.state === 'removed') {
      pairs.push({ kind: 'D', before: { path, mode, hash }, after: null });
    } else {
      const after: Side = { path, mode: state.mode, hash: state.hash, inWorkTree: true };
      pairs.push(pairOf(entry.isIntended ? null : { path, mode, hash }, after));
    }
  }
  return { pairs, refreshed };
}

/** From a tree to the working tree, by the index. */
export async function treeToWorkTree(
  workTree: WorkTree,
  tree: string | null,
  isAsked: PathFilter = () => true,
): Promise<Pair[]> {
  const { repository } = workTree;
  const before = await filesOf(repository, tree);
  const pairs: Pair[] = [];
  const seen = new Set<string>();
  for (const entry of await repository.index()) {
    const { path, mode, hash } = entry;
    if (seen.has(path) || !isAsked(path, false)) {
      seen.add(path);
      continue;
    }
    if (mode === modeGitlink) leave('submodules');
    if (entry.stage > 0) leave('a comparison during a conflict');
    seen.add(path);
    const old = before.get(path);
    const state = await workTree.state(entry);
    if (state.state === 'removed') {
      if (old) pairs.push(pairOf({ path, ...old }, null));
      continue;
    }
    const now: Side =
      state.state === 'same' ? { path, mode, hash } : { path, mode: state.mode, hash: state.hash, inWorkTree: true };
    if (old && old.mode === now.mode && old.hash === now.hash) continue;
    pairs.push(pairOf(old ? { path, ...old } : null, now));
  }
  for (const [path, old] of before) {
    if (!seen.has(path) && isAsked(path, false)) pairs.push(pairOf({ path, ...old }, null));
  }
  return pairs.sort((one, two) => compareBinary((one.after ?? one.before)!.path, (two.after ?? two.before)!.path));
}

/** The index with what was looked at again as it is now; null where nothing was. */
export function refreshedIndex(entries: readonly IndexEntry[], refreshed: Unstaged['refreshed']): IndexEntry[] | null {
  if (refreshed.size === 0) return null;
  return entries.map((entry) => {
    const found = entry.stage === 0 ? refreshed.get(entry.path) : undefined;
    return found ? { ...entry, stat: found.stat } : entry;
  });
}
