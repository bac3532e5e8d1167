/** `git restore`, and `git checkout` of paths. */
import { type Command, type CommandContext, prefixOf, repositoryOf } from '../command.ts';
import { fatal, GitFailure, leave } from '../endings.ts';
import { type Options, parseOptions } from '../options.ts';
import { headOf } from '../repository/head.ts';
import type { IndexEntry } from '../repository/index-file.ts';
import { Pathspec } from '../repository/pathspec.ts';
import type { Repository } from '../repository/repository.ts';
import { abbreviate, peel, resolveRevision } from '../repository/revisions.ts';
import { removeFile, withStats, writeFile } from '../repository/unpack.ts';
import { bareEntry, WorkTree } from '../repository/work-tree.ts';
import { filesOf, type Leaf } from '../show/pairs.ts';

export const restore: Command = async (context, argv) => {
  const options = parseOptions(argv, {
    's|source': 'value',
    'S|staged': 'flag',
    'W|worktree': 'flag',
    'q|quiet': 'flag',
    ours: 'flag',
    theirs: 'flag',
    progress: 'flag',
    'no-progress': 'flag',
  });
  const repository = await repositoryOf(context);
  const words = [...options.words, ...(options.rest ?? [])];
  if (words.length === 0) throw fatal('you must specify path(s) to restore');
  const isStaged = options.has('staged');
  const isWorkTree = options.has('worktree') || !isStaged;
  const source = options.text('source') ?? (isStaged ? 'HEAD' : null);
  if (options.has('ours', 'theirs')) {
    if (isStaged || options.has('source')) leave('one side of a conflict in the index');
    return oneSide(context, repository, words, options.has('ours') ? 2 : 3, false, true);
  }
  const pathspec = Pathspec.parse(words, prefixOf(context, repository), repository.root);
  if (source === null) {
    await fromIndex(repository, pathspec, false);
    return 0;
  }
  const tree = await sourceTree(repository, source, isStaged);
  await fromTree(repository, tree, pathspec, { isStaged, isWorkTree, isOverlay: false });
  return 0;
};

async function sourceTree(repository: Repository, source: string, isStaged: boolean): Promise<string | null> {
  const hash = await resolveRevision(repository, source);
  if (hash === null) {
    if (source === 'HEAD' && isStaged && (await headOf(repository)).hash === null)
      throw fatal('could not resolve HEAD');
    throw fatal(`could not resolve ${source}`);
  }
  return (await peel(repository, hash, 'tree')) ?? leave('a source that is no tree');
}

/** `checkout [<tree>] [--] <path>…` */
export async function checkoutPaths(
  context: CommandContext,
  repository: Repository,
  options: Options,
  source: string | null,
  words: readonly string[],
  isCounted: boolean,
): Promise<number> {
  await repository.requireNoSubmodules();
  const isQuiet = options.has('quiet');
  if (options.has('ours', 'theirs')) {
    if (source !== null) leave('one side of a conflict from a tree');
    return oneSide(context, repository, words, options.has('ours') ? 2 : 3, isCounted && !isQuiet, false);
  }
  const pathspec = Pathspec.parse(words, prefixOf(context, repository), repository.root);
  let count: number;
  let from = 'the index';
  if (source === null) count = await fromIndex(repository, pathspec, options.has('force'));
  else {
    const hash = await resolveRevision(repository, source);
    const tree = hash === null ? null : await peel(repository, hash, 'tree');
    if (tree === null)
      throw hash === null ? fatal(`invalid reference: ${source}`) : fatal(`reference is not a tree: ${source}`);
    count = await fromTree(repository, tree, pathspec, { isStaged: true, isWorkTree: true, isOverlay: true });
    from = await abbreviate(repository, tree);
  }
  if (isCounted && !isQuiet) context.output.say(`Updated ${count} path${count === 1 ? '' : 's'} from ${from}\n`);
  return 0;
}

const unmatched = (word: string) =>
  new GitFailure(`error: pathspec '${word}' did not match any file(s) known to git\n`, 1);

async function fromIndex(repository: Repository, pathspec: Pathspec, isForced: boolean): Promise<number> {
  const index = await repository.index();
  const missing = pathspec.unmatched(index.map(({ path }) => path));
  if (missing !== null) throw unmatched(missing);
  const chosen = index.filter(({ path }) => pathspec.matches(path));
  const conflict = chosen.filter(({ stage }) => stage > 0);
  if (conflict.length > 0) {
    if (isForced) leave('a forced checkout of a conflict');
    const paths = [...new Set(conflict.map(({ path }) => path))];
    throw new GitFailure(paths.map((path) => `error: path '${path}' is unmerged\n`).join(''), 1);
  }
  const workTree = new WorkTree(repository);
  const written = new Map<string, Leaf>();
  for (const entry of chosen) {
    const state = await workTree.state(entry);
    if (state.state !== 'same') written.set(entry.path, entry);
  }
  if (written.size > 0) await repository.requireUnlocked();
  for (const [path, leaf] of written) await writeFile(repository, path, leaf);
  if (written.size > 0) {
    await repository.tree.flush();
    await repository.writeIndex(await withStats(repository, index, written));
  }
  return written.size;
}

interface Where {
  readonly isStaged: boolean;
  readonly isWorkTree: boolean;
  /** What the tree does not have stays. */
  readonly isOverlay: boolean;
}

async function fromTree(
  repository: Repository,
  tree: string | null,
  pathspec: Pathspec,
  where: Where,
): Promise<number> {
  const index = await repository.index();
  const files = await filesOf(repository, tree);
  const missing = pathspec.unmatched([...files.keys(), ...(where.isOverlay ? [] : index.map(({ path }) => path))]);
  if (missing !== null) throw unmatched(missing);
  const workTree = new WorkTree(repository);
  const [written, removed] = [new Map<string, Leaf>(), new Set<string>()];
  const entries: IndexEntry[] = [];
  const done = new Set<string>();
  for (const entry of index) {
    const { path } = entry;
    const wanted = files.get(path);
    if (!pathspec.matches(path) || (!wanted && where.isOverlay)) {
      entries.push(entry);
      continue;
    }
    if (done.has(path)) continue;
    done.add(path);
    if (!wanted) {
      if (where.isWorkTree) removed.add(path);
      if (!where.isStaged) entries.push(entry);
      continue;
    }
    const isSame = entry.stage === 0 && entry.hash === wanted.hash && entry.mode === wanted.mode;
    if (where.isWorkTree && !(isSame && (await workTree.state(entry)).state === 'same')) written.set(path, wanted);
    if (!where.isStaged || isSame) entries.push(entry);
    else entries.push(bareEntry(path, wanted.mode, wanted.hash));
  }
  for (const [path, wanted] of files) {
    if (done.has(path) || !pathspec.matches(path)) continue;
    if (where.isWorkTree) written.set(path, wanted);
    if (where.isStaged) entries.push(bareEntry(path, wanted.mode, wanted.hash));
  }
  await repository.requireUnlocked();
  for (const path of removed) await removeFile(repository, path);
  for (const [path, leaf] of written) await writeFile(repository, path, leaf);
  await repository.tree.flush();
  const known = where.isStaged ? written : new Map<string, Leaf>();
  await repository.writeIndex(await withStats(repository, entries, known));
  return written.size;
}

/** Ours or theirs of a conflict, into the working tree. */
async function oneSide(
  context: CommandContext,
  repository: Repository,
  words: readonly string[],
  stage: number,
  isCounted: boolean,
  isRestore: boolean,
): Promise<number> {
  const pathspec = Pathspec.parse(words, prefixOf(context, repository), repository.root);
  const index = await repository.index();
  const missing = pathspec.unmatched(index.map(({ path }) => path));
  if (missing !== null) throw unmatched(missing);
  const chosen = index.filter(({ path }) => pathspec.matches(path));
  if (chosen.some((entry) => entry.stage === 0)) leave('one side of what is no conflict');
  const paths = new Set(chosen.map(({ path }) => path));
  for (const path of paths) {
    const side = chosen.find((entry) => entry.path === path && entry.stage === stage);
    if (!side)
      throw new GitFailure(`error: path '${path}' does not have ${stage === 2 ? 'our' : 'their'} version\n`, 1);
    await writeFile(repository, path, side);
  }
  if (isCounted && !isRestore)
    context.output.say(`Updated ${paths.size} path${paths.size === 1 ? '' : 's'} from the index\n`);
  return 0;
}
