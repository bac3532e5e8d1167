/** `git reset`. */
import { type Command, type CommandContext, personOf, prefixOf, repositoryOf } from '../command.ts';
import { fatal, GitFailure, leave } from '../endings.ts';
import { parseOptions } from '../options.ts';
import { unstagedPairs } from '../repository/changes.ts';
import { type Head, headOf, unfinished } from '../repository/head.ts';
import type { IndexEntry } from '../repository/index-file.ts';
import { personText } from '../repository/parse.ts';
import { Pathspec } from '../repository/pathspec.ts';
import type { Repository } from '../repository/repository.ts';
import { abbreviate, peel, resolveRevision } from '../repository/revisions.ts';
import { carryOut, planHard } from '../repository/unpack.ts';
import { bareEntry, WorkTree } from '../repository/work-tree.ts';
import { filesOf, pathOf } from '../show/pairs.ts';
import { subjectOf } from '../show/pretty.ts';
import { binaryOf, quotedPath } from '../text.ts';
import { unknownArgument } from './arguments.ts';

export const reset: Command = async (context, argv) => {
  const options = parseOptions(argv, {
    soft: 'flag',
    mixed: 'flag',
    hard: 'flag',
    'q|quiet': 'flag',
    'no-refresh': 'flag',
  });
  const repository = await repositoryOf(context);
  await repository.requireNoSubmodules();
  const head = await headOf(repository);
  const { word, paths } = await split(context, repository, options.words, options.rest);
  const operations = await unfinished(repository);
  if (operations.has('rebase')) leave('reset during a rebase');
  const mode = options.last('soft', 'mixed', 'hard') ?? 'mixed';
  const hash = await resolveRevision(repository, word ?? 'HEAD');
  if (paths.length > 0) {
    if (mode !== 'mixed') throw fatal(`Cannot do ${mode} reset with paths.`);
    const tree = hash === null ? null : await peel(repository, hash, 'tree');
    const pathspec = Pathspec.parse(paths, prefixOf(context, repository), repository.root);
    await resetIndex(repository, tree, pathspec);
    if (!options.has('quiet')) context.output.out(await unstagedText(repository));
    return 0;
  }
  if (head.hash === null && word === null) {
    if (mode === 'soft') return leave('reset before the first commit');
    if (mode === 'hard') await carryOut(repository, await planHard(repository, null));
    else await repository.writeIndex([]);
    return 0;
  }
  const commit = hash === null ? null : await peel(repository, hash, 'commit');
  if (commit === null) throw fatal(`Could not parse object '${word ?? 'HEAD'}'.`);
  if (mode === 'soft' && (operations.has('merge') || (await repository.index()).some(({ stage }) => stage > 0))) {
    throw fatal('Cannot do a soft reset in the middle of a merge.');
  }
  const { tree } = await repository.commit(commit);
  if (mode === 'hard') await carryOut(repository, await planHard(repository, tree));
  else if (mode === 'mixed') await resetIndex(repository, tree, Pathspec.parse([], '', null));
  await moveHead(context, repository, head, commit, word ?? 'HEAD');
  if (mode !== 'soft') {
    for (const name of [
      'MERGE_HEAD',
      'MERGE_MSG',
      'MERGE_MODE',
      'CHERRY_PICK_HEAD',
      'REVERT_HEAD',
      'SQUASH_MSG',
      'AUTO_MERGE',
    ]) {
      await repository.removeFile(name);
    }
  }
  if (options.has('quiet')) return 0;
  if (mode === 'hard') {
    const { message } = await repository.commit(commit);
    context.output.out(`HEAD is now at ${await abbreviate(repository, commit)} ${subjectOf(message)}\n`);
  } else if (mode === 'mixed') context.output.out(await unstagedText(repository));
  return 0;
};

async function split(
  context: CommandContext,
  repository: Repository,
  words: readonly string[],
  rest: readonly string[] | null,
): Promise<{ word: string | null; paths: readonly string[] }> {
  if (rest !== null) {
    if (words.length > 1) leave('reset to several commits');
    if (words[0] !== undefined && (await resolveRevision(repository, words[0])) === null) {
      throw fatal(`bad revision '${words[0]}'`);
    }
    return { word: words[0] ?? null, paths: rest };
  }
  const [first, ...more] = words;
  if (first === undefined) return { word: null, paths: [] };
  const isPath = (await context.tree.lstat(`${context.cwd}/${first}`)) !== null;
  if ((await resolveRevision(repository, first)) !== null) {
    if (isPath)
      throw new GitFailure(
        `fatal: ambiguous argument '${first}': both revision and filename\nUse '--' to separate paths from revisions, like this:\n'git <command> [<revision>...] -- [<file>...]'\n`,
      );
    return { word: first, paths: more };
  }
  if (!isPath) throw unknownArgument(first);
  return { word: null, paths: words };
}

/** Makes entries of the index what a tree has; the working tree stays. */
async function resetIndex(repository: Repository, tree: string | null, pathspec: Pathspec): Promise<void> {
  const files = await filesOf(repository, tree);
  const entries: IndexEntry[] = [];
  const done = new Set<string>();
  const index = await repository.index();
  for (const entry of index) {
    if (!pathspec.matches(entry.path)) {
      entries.push(entry);
      continue;
    }
    const wanted = files.get(entry.path);
    if (done.has(entry.path) || !wanted) continue;
    done.add(entry.path);
    const isSame = entry.stage === 0 && wanted.hash === entry.hash && wanted.mode === entry.mode && !entry.isIntended;
    entries.push(isSame ? entry : bareEntry(entry.path, wanted.mode, wanted.hash));
  }
  for (const [path, { mode, hash }] of files) {
    if (!done.has(path) && pathspec.matches(path)) entries.push(bareEntry(path, mode, hash));
  }
  await repository.writeIndex(entries);
  const { refreshed } = await unstagedPairs(new WorkTree(repository));
  if (refreshed.size === 0) return;
  const stats = await repository.index();
  await repository.writeIndex(
    stats.map((entry) => {
      const found = entry.stage === 0 ? refreshed.get(entry.path) : undefined;
      return found ? { ...entry, stat: found.stat } : entry;
    }),
  );
}

async function unstagedText(repository: Repository): Promise<string> {
  const { pairs } = await unstagedPairs(new WorkTree(repository));
  if (pairs.length === 0) return '';
  return `Unstaged changes after reset:\n${pairs.map((pair) => `${pair.kind}\t${quotedPath(pathOf(pair))}\n`).join('')}`;
}

async function moveHead(
  context: CommandContext,
  repository: Repository,
  head: Head,
  commit: string,
  word: string,
): Promise<void> {
  const who = personText(personOf(context, repository, 'committer'));
  const message = `reset: moving to ${binaryOf(word)}`;
  if (head.hash !== null) {
    await repository.tree.write(`${repository.gitDirectory}/ORIG_HEAD`, Buffer.from(`${head.hash}\n`));
  }
  const line = { from: head.hash ?? '0'.repeat(40), to: commit, who, message };
  if (head.ref !== null) {
    if (head.hash !== commit) await repository.refs.write(head.ref, commit, { who, message });
    await repository.refs.appendLog('HEAD', line);
  } else await repository.refs.write('HEAD', commit, { who, message });
}
