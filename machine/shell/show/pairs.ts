/** What differs between two states of a tree: pairs of files, before anything is said of their contents. */
import { modeGitlink, modeTree } from '../repository/parse.ts';
import type { Repository } from '../repository/repository.ts';
import { compareBinary } from '../text.ts';

export interface Side {
  readonly path: string;
  readonly mode: number;
  /** Null for a file of the working tree whose contents are not named yet. */
  readonly hash: string | null;
  /** The contents are the working tree's, whatever the repository has by this name. */
  readonly inWorkTree?: true;
}

export interface Pair {
  readonly kind: 'A' | 'D' | 'M' | 'T' | 'R' | 'C' | 'U';
  readonly before: Side | null;
  readonly after: Side | null;
  /** Percent, of a rename. */
  readonly score?: number;
  /** Beside a conflict: the side that the working tree has. */
  readonly isUnmerged?: boolean;
}

export type Leaf = { readonly mode: number; readonly hash: string };

/** The path that a pair is listed by. */
export const pathOf = (pair: Pair): string => (pair.after ?? pair.before)!.path;

/** Whether a path is asked for. */
export type PathFilter = (path: string, isDirectory: boolean) => boolean;

export function pairOf(before: Side | null, after: Side | null): Pair {
  const kind = !before ? 'A' : !after ? 'D' : sameType(before.mode, after.mode) ? 'M' : 'T';
  return { kind, before, after };
}

export const sameType = (one: number, two: number): boolean => (one & 0o170000) === (two & 0o170000);

/** Pairs of two trees; null stands for an empty one. Submodules come as pairs of their own kind of mode. */
export async function comparedTrees(
  repository: Repository,
  before: string | null,
  after: string | null,
  isAsked: PathFilter = () => true,
  prefix = '',
): Promise<Pair[]> {
  if (before === after) return [];
  await repository.pace.rest();
  const [left, right] = [
    before === null ? [] : await repository.treeEntries(before),
    after === null ? [] : await repository.treeEntries(after),
  ];
  const names = new Map<string, { old?: Leaf; new?: Leaf }>();
  for (const { name, mode, hash } of left) names.set(name, { old: { mode, hash } });
  for (const { name, mode, hash } of right) names.set(name, { ...names.get(name), new: { mode, hash } });
  const pairs: Pair[] = [];
  for (const [name, entry] of names) {
    const path = prefix + name;
    if (entry.old && entry.new && entry.old.mode === entry.new.mode && entry.old.hash === entry.new.hash) continue;
    const [oldTree, newTree] = [entry.old?.mode === modeTree, entry.new?.mode === modeTree];
    if ((oldTree || newTree) && isAsked(path, true)) {
      const trees = [oldTree ? entry.old!.hash : null, newTree ? entry.new!.hash : null] as const;
      pairs.push(...(await comparedTrees(repository, trees[0], trees[1], isAsked, `${path}/`)));
    }
    if (!isAsked(path, false)) continue;
    const old = entry.old && !oldTree ? { path, ...entry.old } : null;
    const young = entry.new && !newTree ? { path, ...entry.new } : null;
    if (old || young) pairs.push(pairOf(old, young));
  }
  return pairs.sort((one, two) => compareBinary(pathOf(one), pathOf(two)));
}

/** All files of a tree by path, without its submodules' contents. */
export async function filesOf(repository: Repository, tree: string | null): Promise<Map<string, Leaf>> {
  const files = new Map<string, Leaf>();
  const walk = async (hash: string, prefix: string): Promise<void> => {
    await repository.pace.rest();
    for (const entry of await repository.treeEntries(hash)) {
      if (entry.mode === modeTree) await walk(entry.hash, `${prefix}${entry.name}/`);
      else files.set(prefix + entry.name, { mode: entry.mode, hash: entry.hash });
    }
  };
  if (tree !== null) await walk(tree, '');
  return files;
}

/** The contents of one side. */
export async function contentOf(repository: Repository, side: Side | null): Promise<Uint8Array> {
  if (side === null) return new Uint8Array(0);
  if (side.mode === modeGitlink) return Buffer.from(`Subproject commit ${side.hash}\n`);
  if (side.hash !== null && !side.inWorkTree) return (await repository.objects.read(side.hash, 'blob')).bytes;
  return workTreeContent(repository, side.path);
}

/** What a file or link of the working tree would be as a blob. */
export async function workTreeContent(repository: Repository, path: string): Promise<Uint8Array> {
  const full = `${repository.root}/${Buffer.from(path, 'latin1').toString('utf8')}`;
  const status = await repository.tree.lstat(full);
  if (status?.kind === 'symlink') return Buffer.from(await repository.tree.readlink(full));
  const bytes = await repository.tree.read(full);
  (await repository.attributes()).requireUnconverted(path, bytes);
  return bytes;
}
