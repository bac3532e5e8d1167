/** Small commands: `reflog`, `update-ref`, `write-tree`, `commit-tree`, `var`, `version`, `check-ref-format`. */
import { type Command, personOf, repositoryOf } from '../command.ts';
import { fatal, GitFailure, leave } from '../endings.ts';
import { parseOptions } from '../options.ts';
import { headOf } from '../repository/head.ts';
import { personText } from '../repository/parse.ts';
import { noHash } from '../repository/refs.ts';
import { abbreviate, expandRef, isRefName, needCommit, peel, resolveRevision } from '../repository/revisions.ts';
import { binaryOf, binaryOfBytes } from '../text.ts';
import { writeCommit, writeTree } from './commit.ts';

export const reflog: Command = async (context, argv) => {
  const options = parseOptions(
    argv,
    { 'n|max-count': 'value', oneline: 'flag', 'no-decorate': 'flag' },
    { numbers: 'max-count' },
  );
  const repository = await repositoryOf(context);
  const words = options.words[0] === 'show' ? options.words.slice(1) : options.words;
  if (words.length > 1 || ['expire', 'delete', 'exists'].includes(words[0] ?? '')) leave(`reflog ${words[0]}`);
  const word = words[0] ?? 'HEAD';
  const ref = word === 'HEAD' ? 'HEAD' : await expandRef(repository, binaryOf(word));
  const head = await headOf(repository);
  if (ref === null || (ref === 'HEAD' && head.hash === null)) leave('reflog of what is not there');
  const lines = (await repository.refs.log(ref)).reverse();
  for (const [number, { to, message }] of lines.slice(0, options.number('max-count') ?? undefined).entries()) {
    if (to === noHash || (await repository.objects.find(to)) === null) leave('a log of what is gone');
    context.output.out(`${await abbreviate(repository, to)} ${binaryOf(word)}@{${number}}: ${message}\n`);
  }
  return 0;
};

export const updateRef: Command = async (context, argv) => {
  const options = parseOptions(argv, { d: 'flag', m: 'value', 'no-deref': 'flag', stdin: 'flag' });
  if (options.has('stdin', 'no-deref')) leave('an option of update-ref');
  const repository = await repositoryOf(context);
  const [name, value, old] = options.words;
  if (name === undefined) leave('update-ref of nothing');
  const ref = binaryOf(name);
  if (ref !== 'HEAD' && !ref.startsWith('refs/')) leave(`update-ref of ${name}`);
  const before = await repository.refs.hash(ref);
  const expected = options.has('d') ? value : old;
  if (expected !== undefined) {
    const wanted = await resolveRevision(repository, expected);
    if ((wanted ?? noHash) !== (before ?? noHash)) leave('update-ref of what has changed');
  }
  if (options.has('d')) {
    if (ref === 'HEAD') leave('update-ref -d HEAD');
    if (before !== null) await repository.refs.remove(ref);
    return 0;
  }
  const hash = value === undefined ? null : await resolveRevision(repository, value);
  if (hash === null) throw fatal(`${value}: not a valid SHA1`);
  const final = (await repository.refs.final(ref))?.name ?? ref;
  const head = await headOf(repository);
  const who = personText(personOf(context, repository, 'committer'));
  const message = binaryOf(options.text('m') ?? '');
  await repository.refs.write(final, hash, { who, message });
  if (head.ref === final) await repository.refs.appendLog('HEAD', { from: before ?? noHash, to: hash, who, message });
  return 0;
};

export const writeTreeCommand: Command = async (context, argv) => {
  if (argv.length > 0) leave('write-tree with options');
  const repository = await repositoryOf(context);
  const index = await repository.index();
  if (index.some(({ stage }) => stage > 0)) leave('write-tree during a conflict');
  context.output.out(`${await writeTree(repository, index)}\n`);
  return 0;
};

export const commitTree: Command = async (context, argv) => {
  const options = parseOptions(argv, { p: 'value', m: 'value', F: 'value' });
  const repository = await repositoryOf(context);
  const tree = options.words[0] === undefined ? null : await resolveRevision(repository, options.words[0]);
  if (tree === null || (await peel(repository, tree, 'tree')) === null)
    throw fatal(`not a valid object name ${options.words[0] ?? ''}`);
  if (options.has('F')) leave('commit-tree -F');
  const messages = options.values('m');
  const message =
    messages.length > 0
      ? messages.map((one) => binaryOf(one).replace(/\n*$/, '\n')).join('\n')
      : binaryOfBytes(await context.call.stdin());
  const parents: string[] = [];
  for (const parent of options.values('p')) parents.push(await needCommit(repository, parent));
  const [author, committer] = [personOf(context, repository, 'author'), personOf(context, repository, 'committer')];
  context.output.out(
    `${await writeCommit(repository, { tree: (await peel(repository, tree, 'tree'))!, parents, author, committer, message })}\n`,
  );
  return 0;
};

export const gitVar: Command = async (context, argv) => {
  const repository = await repositoryOf(context);
  const [name] = argv;
  if (name === 'GIT_AUTHOR_IDENT') context.output.out(`${personText(personOf(context, repository, 'author'))}\n`);
  else if (name === 'GIT_COMMITTER_IDENT')
    context.output.out(`${personText(personOf(context, repository, 'committer'))}\n`);
  else leave(`var ${name}`);
  return 0;
};

export const checkRefFormat: Command = async (context, argv) => {
  const options = parseOptions(argv, { branch: 'flag', 'allow-onelevel': 'flag' });
  const [name] = options.words;
  if (name === undefined || options.words.length > 1) leave('check-ref-format');
  if (options.has('branch')) {
    if (name.startsWith('@{')) leave('check-ref-format of a log');
    if (name.startsWith('-') || !isRefName(`refs/heads/${binaryOf(name)}`))
      throw new GitFailure(`fatal: '${name}' is not a valid branch name\n`);
    context.output.out(`${binaryOf(name)}\n`);
    return 0;
  }
  return isRefName(binaryOf(name)) && (name.includes('/') || options.has('allow-onelevel')) ? 0 : 1;
};

/** What is collected is the machine's concern: objects stay where they are, as with a repository that needs nothing. */
export const gc: Command = async (context, argv) => {
  parseOptions(argv, { auto: 'flag', 'q|quiet': 'flag', aggressive: 'flag', prune: 'attached', 'no-prune': 'flag' });
  await repositoryOf(context);
  return 0;
};

/** The version whose answers the engine gives. */
export const version: Command = async (context, argv) => {
  if (argv.length > 0) leave('version with options');
  context.output.out('git version 2.39.5\n');
  return 0;
};

export const worktree: Command = async (context, argv) => {
  const options = parseOptions(argv.slice(1), { porcelain: 'flag' });
  const repository = await repositoryOf(context);
  if (argv[0] !== 'list' || options.words.length > 0 || (await repository.hasFile('worktrees')))
    leave(`worktree ${argv[0]}`);
  const head = await headOf(repository);
  if (head.hash === null) leave('worktree list before the first commit');
  const root = binaryOf(repository.root);
  const branch = head.ref === null ? 'detached' : `branch ${head.ref}`;
  if (options.has('porcelain')) context.output.out(`worktree ${root}\nHEAD ${head.hash}\n${branch}\n\n`);
  else {
    const where = head.branch === null ? '(detached HEAD)' : `[${head.branch}]`;
    context.output.out(`${root}  ${await abbreviate(repository, head.hash)} ${where}\n`);
  }
  return 0;
};
