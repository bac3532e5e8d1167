/** `git diff`. */
import { type Command, prefixOf, repositoryOf } from '../command.ts';
import { fatal, leave } from '../endings.ts';
import { type Options, parseOptions } from '../options.ts';
import { byPath, stagedPairs, treeToWorkTree, unstagedPairs } from '../repository/changes.ts';
import { headOf } from '../repository/head.ts';
import { mergeBases } from '../repository/history.ts';
import { Pathspec } from '../repository/pathspec.ts';
import type { Repository } from '../repository/repository.ts';
import { needCommit, peel, resolveRevision } from '../repository/revisions.ts';
import { WorkTree } from '../repository/work-tree.ts';
import { arranged, diffOptions, diffText } from '../show/diff-output.ts';
import { comparedTrees, type Pair, type PathFilter } from '../show/pairs.ts';
import { compared } from '../show/patch.ts';
import { quotedPath } from '../text.ts';
import { splitRevisions } from './arguments.ts';

export const diff: Command = async (context, argv) => {
  const options = parseOptions(argv, { ...diffOptions, 'cached|staged': 'flag', 'merge-base': 'flag' });
  if (options.has('merge-base')) leave('--merge-base');
  const repository = await repositoryOf(context);
  const prefix = repository.workTree === null ? '' : prefixOf(context, repository);
  const { revisions, paths } = await splitRevisions(repository, context, options);
  const pathspec = Pathspec.parse(paths, prefix, repository.workTree);
  const isAsked = pathspec.filter();
  if (isConflictList(options) && revisions.length === 0) {
    const paths = [
      ...byPath((await repository.index()).filter(({ path, stage }) => stage > 0 && isAsked(path, false))).keys(),
    ];
    const mark = options.has('name-status') ? 'U\t' : '';
    for (const path of paths) context.output.out(options.has('z') ? `${path}\0` : `${mark}${quotedPath(path)}\n`);
    return 0;
  }
  const found = await pairsOf(repository, revisions, options.has('staged'), isAsked);
  const pairs = await arranged(repository, await withoutPhantoms(repository, found), options);
  if (!options.has('quiet')) context.output.out(await diffText(repository, pairs, options, true));
  return options.has('exit-code', 'quiet') && pairs.length > 0 ? 1 : 0;
};

/** `--name-only --diff-filter=U`: which files are in conflict. */
function isConflictList(options: Options): boolean {
  const known = ['name-only', 'name-status', 'diff-filter', 'z', 'no-color'];
  if (options.text('diff-filter') !== 'U' || !options.names().every((name) => known.includes(name))) return false;
  return options.has('name-only') || (options.has('name-status') && !options.has('z'));
}

async function pairsOf(
  repository: Repository,
  revisions: readonly string[],
  isCached: boolean,
  isAsked: PathFilter,
): Promise<Pair[]> {
  if (isCached) {
    if (revisions.length > 1) leave('--cached with two revisions');
    const head = await headOf(repository);
    if (revisions.length === 0 && head.hash === null) return stagedPairs(repository, null, isAsked);
    const tree = await treeNamed(repository, revisions[0] ?? 'HEAD');
    const pairs = await stagedPairs(repository, tree, isAsked);
    if (pairs.some(({ kind }) => kind === 'U')) leave('a comparison during a conflict');
    return pairs;
  }
  if (revisions.length === 0) {
    await repository.requireNoSubmodules();
    const { pairs } = await unstagedPairs(new WorkTree(repository), isAsked);
    if (pairs.some(({ kind }) => kind === 'U')) leave('a comparison during a conflict');
    return pairs;
  }
  const trees = await treesNamed(repository, revisions);
  if (trees.length === 2) return comparedTrees(repository, trees[0]!, trees[1]!, isAsked);
  if (trees.length > 2) leave('a combined comparison');
  await repository.requireNoSubmodules();
  return treeToWorkTree(new WorkTree(repository), trees[0]!, isAsked);
}

/** Pairs of the working tree whose contents turn out to be the same. */
async function withoutPhantoms(repository: Repository, pairs: readonly Pair[]): Promise<Pair[]> {
  const real: Pair[] = [];
  for (const pair of pairs) {
    if (pair.kind === 'M' && pair.before!.mode === pair.after!.mode && pair.after!.hash === null) {
      const { before, after } = await compared(repository, pair);
      if (Buffer.from(before).equals(Buffer.from(after))) continue;
    }
    real.push(pair);
  }
  return real;
}

async function treeNamed(repository: Repository, revision: string): Promise<string> {
  const hash = await resolveRevision(repository, revision);
  const tree = hash === null ? null : await peel(repository, hash, 'tree');
  return tree ?? Promise.reject(fatal(`bad revision '${revision}'`));
}

/** `a b`, `a..b` and `a...b` as the trees that they compare. */
export async function treesNamed(repository: Repository, revisions: readonly string[]): Promise<string[]> {
  const trees: string[] = [];
  for (const revision of revisions) {
    const range = /^(.*?)(\.\.\.?)(.*)$/s.exec(revision);
    if (!range) {
      if (revision.startsWith('^')) leave('a revision that is left out');
      const hash = await resolveRevision(repository, revision);
      if (hash !== null && (await repository.objects.find(hash))?.kind === 'blob') leave('a comparison of blobs');
      trees.push(await treeNamed(repository, revision));
      continue;
    }
    const [from, to] = [range[1] || 'HEAD', range[3] || 'HEAD'];
    if (range[2] === '..') {
      trees.push(await treeNamed(repository, from), await treeNamed(repository, to));
      continue;
    }
    const [one, two] = [await needCommit(repository, from), await needCommit(repository, to)];
    const bases = await mergeBases(repository, one, two);
    if (bases.length === 0) throw fatal(`${revision}: no merge base`);
    if (bases.length > 1) leave('several merge bases');
    trees.push((await repository.commit(bases[0]!)).tree, (await repository.commit(two)).tree);
  }
  return trees;
}
