/** `git checkout` and `git switch`. */
import { type Command, type CommandContext, personOf, repositoryOf } from '../command.ts';
import { fatal, GitFailure, leave } from '../endings.ts';
import { type Options, parseOptions } from '../options.ts';
import { stagedPairs, unstagedPairs } from '../repository/changes.ts';
import { type Head, headOf, trackingText, unfinished } from '../repository/head.ts';
import { isAncestor } from '../repository/history.ts';
import { personText } from '../repository/parse.ts';
import type { Repository } from '../repository/repository.ts';
import { abbreviate, expandRef, isRefName, peel, previousBranch, resolveRevision } from '../repository/revisions.ts';
import { carryOut, planHard, planSwitch } from '../repository/unpack.ts';
import { WorkTree } from '../repository/work-tree.ts';
import { pathOf } from '../show/pairs.ts';
import { subjectOf } from '../show/pretty.ts';
import { binaryOf, quotedPath, textOf } from '../text.ts';
import { makeBranch } from './branch.ts';
import { checkoutPaths } from './restore.ts';

export const checkout: Command = async (context, argv) => {
  const options = parseOptions(argv, {
    b: 'value',
    B: 'value',
    'q|quiet': 'flag',
    'f|force': 'flag',
    'd|detach': 'flag',
    't|track': 'attached',
    'no-track': 'flag',
    orphan: 'value',
    ours: 'flag',
    theirs: 'flag',
    progress: 'flag',
    'no-progress': 'flag',
    'no-guess': 'flag',
  });
  if (options.has('track', 'ours', 'theirs') && options.has('detach')) leave('an option of checkout');
  const repository = await repositoryOf(context);
  await repository.requireOneWorkTree();
  const isNew = options.last('b', 'B');
  if (isNew || options.has('orphan')) {
    if (options.rest !== null && options.rest.length > 0) leave('a new branch and paths');
    const name = options.text('orphan') ?? options.text(isNew!)!;
    if (options.has('orphan')) return orphan(context, repository, name, options);
    return switchToNew(context, repository, options, name, options.words[0], isNew === 'B');
  }
  const [first, ...more] = options.words;
  if (options.rest !== null) {
    if (options.rest.length === 0 && first !== undefined && more.length === 0)
      return switchTo(context, repository, options, first, true);
    if (more.length > 0) leave('checkout of paths from several trees');
    return checkoutPaths(context, repository, options, first ?? null, options.rest, false);
  }
  if (first === undefined) {
    if (options.has('detach')) return switchTo(context, repository, options, 'HEAD', true);
    return leave('checkout of nothing');
  }
  const isRevision = first === '-' || (await resolveRevision(repository, first)) !== null;
  const isPath = (await context.tree.lstat(`${context.cwd}/${first}`)) !== null;
  if (isRevision && more.length === 0) {
    if (isPath && first !== '-') {
      throw fatal(
        `'${first}' could be both a local file and a tracking branch.\nPlease use -- (and optionally --no-guess) to disambiguate`,
      );
    }
    return switchTo(context, repository, options, first, false);
  }
  if (isRevision && !isPath) return checkoutPaths(context, repository, options, first, more, true);
  if (!isPath && more.length === 0 && !options.has('no-guess')) {
    const remote = await remoteBranch(repository, first);
    if (remote !== null) return switchToNew(context, repository, options, first, remote, false);
  }
  return checkoutPaths(context, repository, options, null, options.words, true);
};

export const switchBranch: Command = async (context, argv) => {
  const options = parseOptions(argv, {
    'c|create': 'value',
    'C|force-create': 'value',
    'q|quiet': 'flag',
    'd|detach': 'flag',
    'f|force|discard-changes': 'flag',
    't|track': 'attached',
    'no-track': 'flag',
    orphan: 'value',
    'no-guess': 'flag',
  });
  if (options.rest !== null || options.has('track')) leave('an option of switch');
  const repository = await repositoryOf(context);
  await repository.requireOneWorkTree();
  const isNew = options.last('create', 'force-create');
  if (options.has('orphan')) return leave('switch --orphan');
  if (isNew)
    return switchToNew(context, repository, options, options.text(isNew)!, options.words[0], isNew === 'force-create');
  const [first, ...more] = options.words;
  if (more.length > 0) throw fatal(`only one reference expected`);
  if (first === undefined) {
    if (options.has('detach')) return switchTo(context, repository, options, 'HEAD', true);
    throw fatal('missing branch or commit argument');
  }
  if (options.has('detach')) return switchTo(context, repository, options, first, true);
  const branch = first === '-' ? await previousBranch(repository, 1) : first;
  if (branch === null || (await repository.refs.hash(`refs/heads/${binaryOf(branch)}`)) === null) {
    const head = await headOf(repository);
    if (head.hash === null && head.branch === branch) leave('a branch that is not born');
    const remote = await remoteBranch(repository, first);
    if (remote !== null) return switchToNew(context, repository, options, first, remote, false);
    const hash = await resolveRevision(repository, first);
    if (hash === null) throw fatal(`invalid reference: ${first}`);
    const ref = await expandRef(repository, binaryOf(first));
    const kind = ref?.startsWith('refs/tags/') ? 'tag' : ref?.startsWith('refs/remotes/') ? 'remote branch' : 'commit';
    throw fatal(`a branch is expected, got ${kind} '${first}'`);
  }
  return switchTo(context, repository, options, first, false);
};

/** `origin/x` where exactly one remote has a branch of this name. */
async function remoteBranch(repository: Repository, name: string): Promise<string | null> {
  const found: string[] = [];
  for (const remote of repository.config.subsections('remote')) {
    if ((await repository.refs.hash(`refs/remotes/${binaryOf(remote)}/${binaryOf(name)}`)) !== null) found.push(remote);
  }
  if (found.length > 1) leave(`${name}, which several remotes have`);
  return found[0] === undefined ? null : `${found[0]}/${name}`;
}

async function requireNothingUnfinished(repository: Repository, isSwitch: boolean): Promise<void> {
  await repository.requireNoHooks('post-checkout');
  await repository.requireNoSubmodules();
  const operations = await unfinished(repository);
  operations.delete('bisect');
  if (operations.size > 0 && isSwitch) leave('a change of branch during another operation');
}

/** Goes to a branch, or to a commit without one. */
async function switchTo(
  context: CommandContext,
  repository: Repository,
  options: Options,
  word: string,
  isRevisionOnly: boolean,
): Promise<number> {
  await requireNothingUnfinished(repository, true);
  const head = await headOf(repository);
  const wanted =
    word === '-'
      ? await previousBranch(repository, 1)
      : /^@\{-\d+\}$/.test(word)
        ? await previousBranch(repository, Number(word.slice(3, -1)))
        : word;
  if (wanted === null) throw new GitFailure(`error: pathspec '-' did not match any file(s) known to git\n`, 1);
  const name = binaryOf(wanted);
  const ref = `refs/heads/${name}`;
  const isBranch =
    !options.has('detach') && isRefName(ref) && (await repository.refs.hash(ref)) !== null && wanted !== 'HEAD';
  const hash = isBranch ? await repository.refs.hash(ref) : await resolveRevision(repository, wanted);
  const commit = hash === null ? null : await peel(repository, hash, 'commit');
  if (commit === null) {
    if (hash !== null) throw fatal(`reference is not a tree: ${word}`);
    if (isRevisionOnly) throw fatal(`invalid reference: ${word}`);
    throw new GitFailure(`error: pathspec '${word}' did not match any file(s) known to git\n`, 1);
  }
  if (isBranch && head.ref === ref) {
    await move(context, repository, options, head, commit);
    if (!options.has('quiet')) {
      context.output.out(await localChanges(repository, commit));
      context.output.err(`Already on '${name}'\n`);
      context.output.out(await trackingText(repository, name, true));
    }
    const who = personText(personOf(context, repository, 'committer'));
    await repository.refs.appendLog('HEAD', {
      from: commit,
      to: commit,
      who,
      message: `checkout: moving from ${name} to ${name}`,
    });
    return 0;
  }
  const leaving =
    head.ref === null && head.hash !== null && head.hash !== commit ? await leavingText(repository, head.hash) : '';
  await move(context, repository, options, head, commit);
  const isQuiet = options.has('quiet');
  if (!isQuiet) context.output.out(await localChanges(repository, commit));
  if (!isQuiet) context.output.err(leaving);
  await pointHead(
    context,
    repository,
    head,
    isBranch ? { ref } : { hash: commit },
    binaryOf(word === '-' ? wanted : wanted),
    commit,
  );
  if (isQuiet) return 0;
  const title = `${await abbreviate(repository, commit)} ${subjectOf((await repository.commit(commit)).message)}`;
  if (isBranch) {
    context.output.err(`Switched to branch '${name}'\n`);
    context.output.out(await trackingText(repository, name, true));
  } else {
    const adviced =
      repository.config.isTrue('advice.detachedhead') !== false && !options.has('detach') && head.ref !== null;
    if (adviced) context.output.err(detachedAdvice(name));
    context.output.err(`HEAD is now at ${title}\n`);
  }
  return 0;
}

async function switchToNew(
  context: CommandContext,
  repository: Repository,
  options: Options,
  name: string,
  start: string | undefined,
  isForced: boolean,
): Promise<number> {
  await requireNothingUnfinished(repository, start !== undefined);
  const head = await headOf(repository);
  const ref = `refs/heads/${binaryOf(name)}`;
  const isThere = (await repository.refs.hash(ref)) !== null;
  const isQuiet = options.has('quiet');
  if (head.hash === null && start === undefined) {
    await repository.refs.writeSymbolic('HEAD', ref);
    if (!isQuiet) context.output.say(`Switched to a new branch '${name}'\n`);
    return 0;
  }
  if (start !== undefined) {
    const hash = await resolveRevision(repository, start);
    if (hash === null || (await peel(repository, hash, 'commit')) === null) {
      throw fatal(`'${start}' is not a commit and a branch '${name}' cannot be created from it`);
    }
    const commit = (await peel(repository, hash, 'commit'))!;
    if (isThere && !isForced) throw fatal(`a branch named '${name}' already exists`);
    await move(context, repository, options, head, commit);
  }
  const target = start ?? 'HEAD';
  if (isForced && head.ref === ref) leave('a branch that is made again where it is');
  if (head.ref === null && head.hash !== null && start !== undefined) leave('a new branch from a detached HEAD');
  if (start !== undefined && !isQuiet)
    context.output.out(await localChanges(repository, (await resolveRevision(repository, start))!));
  const track = options.has('no-track') ? false : options.has('track') ? true : null;
  const commit = await makeBranch(context, repository, {
    name: binaryOf(name),
    start: target,
    isForced,
    track,
    isQuiet,
  });
  await pointHead(context, repository, head, { ref }, binaryOf(name), commit);
  if (!isQuiet && head.ref === ref && !isThere) context.output.say(`Already on '${name}'\n`);
  else if (!isQuiet) {
    const said = isThere
      ? 'Switched to and reset branch'
      : head.ref === ref
        ? 'Already on'
        : 'Switched to a new branch';
    context.output.say(`${said} '${name}'\n`);
    if (isThere && isForced) context.output.out(await trackingText(repository, binaryOf(name), true));
  }
  return 0;
}

async function orphan(
  context: CommandContext,
  repository: Repository,
  name: string,
  options: Options,
): Promise<number> {
  if (options.words.length > 0) leave('an orphan branch from somewhere');
  const ref = `refs/heads/${binaryOf(name)}`;
  if (!isRefName(ref)) throw fatal(`'${name}' is not a valid branch name`);
  if ((await repository.refs.hash(ref)) !== null) throw fatal(`a branch named '${name}' already exists`);
  const head = await headOf(repository);
  if (head.ref === null) leave('an orphan branch from a detached HEAD');
  await repository.refs.writeSymbolic('HEAD', ref);
  if (!options.has('quiet')) context.output.say(`Switched to a new branch '${name}'\n`);
  return 0;
}

async function move(
  context: CommandContext,
  repository: Repository,
  options: Options,
  head: Head,
  commit: string,
): Promise<void> {
  const to = (await repository.commit(commit)).tree;
  const from = head.hash === null ? null : (await repository.commit(head.hash)).tree;
  if (options.has('force', 'discard-changes')) {
    await carryOut(repository, await planHard(repository, to));
    return;
  }
  if (from === to) return;
  const plan = await planSwitch(repository, from, to);
  if (plan.changed.length > 0 || plan.untracked.length > 0) throw refusal(plan.changed, plan.untracked);
  await carryOut(repository, plan);
  await context.pace.rest();
}

function refusal(changed: readonly string[], untracked: readonly string[]): GitFailure {
  const paths = (list: readonly string[]) =>
    [...list]
      .sort()
      .map((path) => `\t${textOf(quotedPath(path, false))}\n`)
      .join('');
  let text = '';
  if (changed.length > 0) {
    text += `error: Your local changes to the following files would be overwritten by checkout:\n${paths(changed)}Please commit your changes or stash them before you switch branches.\n`;
  }
  if (untracked.length > 0) {
    text += `error: The following untracked working tree files would be overwritten by checkout:\n${paths(untracked)}Please move or remove them before you switch branches.\n`;
  }
  return new GitFailure(`${text}Aborting\n`, 1);
}

async function pointHead(
  context: CommandContext,
  repository: Repository,
  head: Head,
  to: { readonly ref: string } | { readonly hash: string },
  word: string,
  commit: string,
): Promise<void> {
  const who = personText(personOf(context, repository, 'committer'));
  const from = head.branch ?? head.hash ?? '';
  const path = `${repository.gitDirectory}/HEAD`;
  await repository.refs.requireUnlocked('HEAD');
  await repository.tree.write(path, Buffer.from('ref' in to ? `ref: ${to.ref}\n` : `${to.hash}\n`, 'latin1'));
  const line = {
    from: head.hash ?? '0'.repeat(40),
    to: commit,
    who,
    message: `checkout: moving from ${from} to ${word}`,
  };
  await repository.refs.appendLog('HEAD', line);
}

/** What is said of a commit that HEAD leaves. One that nothing else leads to is told of at length. */
async function leavingText(repository: Repository, hash: string): Promise<string> {
  for (const ref of await repository.refs.list()) {
    const commit = await peel(repository, ref.hash, 'commit');
    if (commit !== null && (await isAncestor(repository, hash, commit))) {
      const { message } = await repository.commit(hash);
      return `Previous HEAD position was ${await abbreviate(repository, hash)} ${subjectOf(message)}\n`;
    }
  }
  return leave('commits that are left behind');
}

/** Files that are other than in a commit, as a checkout lists them. */
async function localChanges(repository: Repository, commit: string): Promise<string> {
  const resolved = await peel(repository, commit, 'tree');
  const { pairs } = await unstagedPairs(new WorkTree(repository));
  const staged = await stagedPairs(repository, resolved);
  const lines = new Map<string, string>();
  for (const pair of staged) lines.set(pathOf(pair), pair.kind);
  for (const pair of pairs) {
    const path = pathOf(pair);
    const before = lines.get(path);
    lines.set(path, before === 'A' && pair.kind === 'M' ? 'A' : pair.kind);
  }
  const sorted = [...lines].sort(([one], [two]) => (one < two ? -1 : 1));
  return sorted.map(([path, kind]) => `${kind}\t${quotedPath(path)}\n`).join('');
}

function detachedAdvice(name: string): string {
  return `Note: switching to '${name}'.

You are in 'detached HEAD' state. You can look around, make experimental
changes and commit them, and you can discard any commits you make in this
state without impacting any branches by switching back to a branch.

If you want to create a new branch to retain commits you create, you may
do so (now or later) by using -c with the switch command. Example:

  git switch -c <new-branch-name>

Or undo this operation with:

  git switch -

Turn off this advice by setting config variable advice.detachedHead to false

`;
}
