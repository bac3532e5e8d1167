/** `git commit`. */
import { type Command, type CommandContext, personOf, prefixOf, repositoryOf } from '../command.ts';
import { fatal, GitFailure, leave } from '../endings.ts';
import { type Options, parseOptions } from '../options.ts';
import { formatDate, parseDate } from '../repository/dates.ts';
import { type Head, headOf, unfinished } from '../repository/head.ts';
import type { IndexEntry } from '../repository/index-file.ts';
import { sortedEntries } from '../repository/index-file.ts';
import { type Commit, modeTree, type Person, personText, type TreeEntry, treeBytes } from '../repository/parse.ts';
import { Pathspec } from '../repository/pathspec.ts';
import type { Repository } from '../repository/repository.ts';
import { abbreviate, needCommit } from '../repository/revisions.ts';
import { stagedEntry, WorkTree } from '../repository/work-tree.ts';
import { comparedTrees } from '../show/pairs.ts';
import { subjectOf } from '../show/pretty.ts';
import { withRenames } from '../show/renames.ts';
import { counted, shortstat, summary } from '../show/stat.ts';
import { binaryOf, binaryOfBytes, bytesOf, quotedPath } from '../text.ts';
import { replaceEntries, updated } from './add.ts';
import { factsOf } from './status.ts';
import { longStatus } from './status-text.ts';

export const commit: Command = async (context, argv) => {
  const options = parseOptions(argv, {
    'm|message': 'value',
    'F|file': 'value',
    'a|all': 'flag',
    'q|quiet': 'flag',
    amend: 'flag',
    'no-edit': 'flag',
    'allow-empty': 'flag',
    'allow-empty-message': 'flag',
    author: 'value',
    date: 'value',
    's|signoff': 'flag',
    'n|no-verify': 'flag',
    'no-gpg-sign': 'flag',
    'C|reuse-message': 'value',
    'reset-author': 'flag',
    cleanup: 'value',
    'no-status': 'flag',
    fixup: 'value',
  });
  const repository = await repositoryOf(context);
  const prefix = prefixOf(context, repository);
  await repository.requireNoSubmodules();
  await repository.requireUnlocked();
  const skipped = options.has('no-verify') ? [] : ['pre-commit', 'commit-msg'];
  await repository.requireNoHooks(...skipped, 'prepare-commit-msg', 'post-commit', 'post-rewrite', 'pre-merge-commit');
  const words = [...options.words, ...(options.rest ?? [])];
  const operations = await unfinished(repository);
  if (operations.has('rebase') || operations.has('am') || operations.has('revert'))
    leave('a commit during another operation');
  if (words.length > 0 && (options.has('all') || operations.size > 0)) leave('a commit of some paths');
  const isMerge = operations.has('merge');
  const isPick = operations.has('cherry-pick');
  const head = await headOf(repository);
  const old = await amended(repository, options, head, isMerge || isPick);
  if (options.has('all')) await stageAll(repository);
  if (words.length > 0) await stageOnly(repository, Pathspec.parse(words, prefix, repository.root), head);
  const index = await repository.index();
  if (index.some(({ stage }) => stage > 0)) throw unmergedFailure(context, index);
  const tree = await writeTree(repository, index);
  const parents = await parentsOf(repository, head, old, isMerge);
  const message = await messageOf(context, repository, options, old, isMerge || isPick);
  if (!isMerge && !options.has('allow-empty')) {
    const before = parents[0] === undefined ? null : (await repository.commit(parents[0])).tree;
    const isSame = before === null ? index.length === 0 : before === tree;
    if (isSame && old === null) return nothingToCommit(context, repository, prefix, isPick);
    if (isSame && old !== null && parents.length === 1) leave('an amended commit that would be empty');
  }
  const cleaned = await cleanedMessage(context, repository, options, message);
  if (cleaned.trim() === '' && !options.has('allow-empty-message')) {
    throw new GitFailure('Aborting commit due to empty commit message.\n', 1);
  }
  const author = await authorOf(context, repository, options, old, isPick);
  const committer = personOf(context, repository, 'committer');
  const hash = await writeCommit(repository, { tree, parents, author, committer, message: cleaned });
  await context.tree.flush();
  await advance(repository, head, hash, committer, reflogMessage(cleaned, head, old !== null, isMerge, isPick));
  for (const name of ['MERGE_HEAD', 'MERGE_MSG', 'MERGE_MODE', 'CHERRY_PICK_HEAD', 'SQUASH_MSG', 'AUTO_MERGE']) {
    await repository.removeFile(name);
  }
  if (!options.has('quiet')) {
    await announce(context, repository, { hash, head, author, committer, isAmended: old !== null, options });
  }
  return 0;
};

async function amended(repository: Repository, options: Options, head: Head, isBusy: boolean): Promise<Commit | null> {
  if (!options.has('amend')) return null;
  if (head.hash === null) throw fatal('You have nothing to amend.');
  if (isBusy) leave('--amend during another operation');
  return repository.commit(head.hash);
}

async function stageAll(repository: Repository): Promise<void> {
  const workTree = new WorkTree(repository);
  const entries = new Map<string, IndexEntry | null>();
  for (const [path, status] of await updated(workTree, Pathspec.parse([], '', null))) {
    entries.set(path, status ? await stagedEntry(workTree, path, status) : null);
  }
  if (entries.size > 0) await replaceEntries(repository, entries);
}

/** `commit <path>`: these files as they are now, and nothing else that is staged. */
async function stageOnly(repository: Repository, pathspec: Pathspec, head: Head): Promise<void> {
  const index = await repository.index();
  const missing = pathspec.unmatched(index.map(({ path }) => path));
  if (missing !== null) {
    throw new GitFailure(`error: pathspec '${missing}' did not match any file(s) known to git\n`, 1);
  }
  const tree = head.hash === null ? null : (await repository.commit(head.hash)).tree;
  const { stagedPairs } = await import('../repository/changes.ts');
  const others = (await stagedPairs(repository, tree)).filter(
    (pair) => !pathspec.matches((pair.after ?? pair.before)!.path),
  );
  if (others.length > 0) leave('a commit of some of what is staged');
  const workTree = new WorkTree(repository);
  const entries = new Map<string, IndexEntry | null>();
  for (const [path, status] of await updated(workTree, pathspec)) {
    entries.set(path, status ? await stagedEntry(workTree, path, status) : null);
  }
  if (entries.size > 0) await replaceEntries(repository, entries);
}

function unmergedFailure({ output }: CommandContext, index: readonly IndexEntry[]): GitFailure {
  const paths = new Set(index.filter(({ stage }) => stage > 0).map(({ path }) => path));
  for (const path of paths) output.out(`U\t${quotedPath(path)}\n`);
  return new GitFailure(
    'error: Committing is not possible because you have unmerged files.\n' +
      "hint: Fix them up in the work tree, and then use 'git add/rm <file>'\n" +
      'hint: as appropriate to mark resolution and make a commit.\nfatal: Exiting because of an unresolved conflict.\n',
    128,
  );
}

/** The tree of an index without conflicts; those of directories, too. */
export async function writeTree(repository: Repository, index: readonly IndexEntry[]): Promise<string> {
  const entries = sortedEntries(index.filter(({ isIntended }) => !isIntended));
  let at = 0;
  const build = async (prefix: string): Promise<string> => {
    const found: TreeEntry[] = [];
    while (at < entries.length && entries[at]!.path.startsWith(prefix)) {
      const { path, mode, hash } = entries[at]!;
      const slash = path.indexOf('/', prefix.length);
      if (slash < 0) {
        found.push({ mode, name: path.slice(prefix.length), hash });
        at += 1;
      } else {
        const name = path.slice(prefix.length, slash);
        found.push({ mode: modeTree, name, hash: await build(path.slice(0, slash + 1)) });
      }
    }
    await repository.pace.rest();
    return repository.objects.write('tree', treeBytes(found));
  };
  return build('');
}

async function parentsOf(repository: Repository, head: Head, old: Commit | null, isMerge: boolean): Promise<string[]> {
  if (old) return [...old.parents];
  const parents = head.hash === null ? [] : [head.hash];
  if (isMerge)
    parents.push(...((await repository.readFile('MERGE_HEAD')) ?? '').split('\n').filter((line) => line !== ''));
  return parents;
}

async function messageOf(
  context: CommandContext,
  repository: Repository,
  options: Options,
  old: Commit | null,
  isUnderway: boolean,
): Promise<string> {
  if (options.has('fixup')) {
    const target = await repository.commit(await needCommit(repository, options.text('fixup')!));
    if (options.has('message')) leave('--fixup with a message');
    return `fixup! ${subjectOf(target.message)}\n`;
  }
  const messages = options.values('message');
  if (messages.length > 0) return messages.map((message) => binaryOf(message).replace(/\n*$/, '\n')).join('\n');
  const file = options.text('file');
  if (file === '-') return binaryOfBytes(await context.call.stdin());
  if (file !== undefined) {
    const path = file.startsWith('/') ? file : `${context.cwd}/${file}`;
    if ((await context.tree.stat(path))?.kind !== 'file')
      throw fatal(`could not read log file '${file}': No such file or directory`);
    return binaryOfBytes(await context.tree.read(path));
  }
  const reused = options.text('reuse-message');
  if (reused !== undefined) return (await repository.commit(await needCommit(repository, reused))).message;
  const takesEditor = !options.has('no-edit') && !/^(true|:|cat)$/.test(editorOf(context, repository));
  if (takesEditor) leave('an editor for the message');
  if (old) return old.message;
  if (isUnderway) return (await repository.readFile('MERGE_MSG')) ?? '';
  return leave('a commit without a message');
}

function editorOf({ environment }: CommandContext, repository: Repository): string {
  return (
    environment.GIT_EDITOR ?? repository.config.get('core.editor') ?? environment.VISUAL ?? environment.EDITOR ?? 'vi'
  );
}

/** Without empty lines at its ends or two of them together; comments go only where an editor could have left them. */
async function cleanedMessage(
  context: CommandContext,
  repository: Repository,
  options: Options,
  message: string,
): Promise<string> {
  const mode = options.text('cleanup') ?? 'default';
  if (mode !== 'default' && mode !== 'whitespace') leave(`--cleanup=${mode}`);
  const isGiven = options.has('message', 'file', 'no-edit', 'reuse-message', 'fixup');
  const text = isGiven ? message : message.replace(/^#.*\n?/gm, '');
  const lines = text.split('\n').map((line) => line.trimEnd());
  const kept = lines.filter((line, at) => line !== '' || (at > 0 && lines[at - 1] !== ''));
  while (kept[0] === '') kept.shift();
  while (kept.at(-1) === '') kept.pop();
  let cleaned = kept.length === 0 ? '' : `${kept.join('\n')}\n`;
  if (options.has('signoff')) {
    const { name, email } = personOf(context, repository, 'committer');
    const line = `Signed-off-by: ${name} <${email}>\n`;
    if (/\n[A-Za-z-]+: .*\n$/.test(cleaned) && !cleaned.endsWith(line)) leave('--signoff after other trailers');
    if (!cleaned.endsWith(line)) cleaned += `\n${line}`;
  }
  return cleaned;
}

async function authorOf(
  context: CommandContext,
  repository: Repository,
  options: Options,
  old: Commit | null,
  isPick: boolean,
): Promise<Person> {
  let author = personOf(context, repository, 'author');
  const reused = options.text('reuse-message');
  if (isPick) {
    const picked = ((await repository.readFile('CHERRY_PICK_HEAD')) ?? '').trim();
    author = (await repository.commit(picked)).author;
  } else if (reused !== undefined) author = (await repository.commit(await needCommit(repository, reused))).author;
  else if (old && !options.has('reset-author')) author = old.author;
  const given = options.text('author');
  if (given !== undefined) {
    const match = /^(.*?) *<([^>]*)>$/.exec(given);
    if (!match) leave(`--author=${given}`);
    author = { ...author, name: binaryOf(match[1]!), email: binaryOf(match[2]!) };
  }
  const date = options.text('date');
  return date === undefined ? author : { ...author, ...parseDate(date, context.environment) };
}

export interface NewCommit {
  readonly tree: string;
  readonly parents: readonly string[];
  readonly author: Person;
  readonly committer: Person;
  readonly message: string;
}

export function writeCommit(repository: Repository, made: NewCommit): Promise<string> {
  const parents = made.parents.map((parent) => `parent ${parent}\n`).join('');
  const text =
    `tree ${made.tree}\n${parents}author ${personText(made.author)}\ncommitter ${personText(made.committer)}\n` +
    `\n${made.message}`;
  return repository.objects.write('commit', bytesOf(text));
}

/** Moves HEAD, or the branch that it is on. */
export async function advance(
  repository: Repository,
  head: Head,
  hash: string,
  committer: Person,
  message: string,
): Promise<void> {
  const who = personText(committer);
  const from = head.hash ?? '0'.repeat(40);
  if (head.ref !== null) {
    await repository.refs.write(head.ref, hash, { who, message });
    await repository.refs.appendLog('HEAD', { from, to: hash, who, message });
  } else await repository.refs.write('HEAD', hash, { who, message });
}

function reflogMessage(message: string, head: Head, isAmended: boolean, isMerge: boolean, isPick: boolean): string {
  const kind = isAmended
    ? ' (amend)'
    : isMerge
      ? ' (merge)'
      : head.hash === null
        ? ' (initial)'
        : isPick
          ? ' (cherry-pick)'
          : '';
  return `commit${kind}: ${subjectOf(message)}`;
}

async function nothingToCommit(
  context: CommandContext,
  repository: Repository,
  prefix: string,
  isPick: boolean,
): Promise<number> {
  if (isPick) leave('an empty cherry-pick');
  const facts = await factsOf(repository, prefix, parseOptions([], {}), []);
  context.output.out(await longStatus(facts, await unfinished(repository)));
  return 1;
}

interface Announced {
  readonly hash: string;
  readonly head: Head;
  readonly author: Person;
  readonly committer: Person;
  readonly isAmended: boolean;
  readonly options: Options;
}

/** `[main 1234567] subject`, who and when where that is not plain, and what changed. */
async function announce(context: CommandContext, repository: Repository, made: Announced): Promise<void> {
  const { hash, head, author, committer, isAmended, options } = made;
  const written = await repository.commit(hash);
  const root = written.parents.length === 0 ? ' (root-commit)' : '';
  const where = head.branch ?? 'detached HEAD';
  context.output.out(`[${where}${root} ${await abbreviate(repository, hash)}] ${subjectOf(written.message)}\n`);
  if (author.name !== committer.name || author.email !== committer.email) {
    context.output.out(` Author: ${author.name} <${author.email}>\n`);
  }
  const isOther = options.has('date') || isAmended || options.has('reuse-message');
  const isDated = isOther && (author.seconds !== committer.seconds || author.zone !== committer.zone);
  if (isDated || options.has('date')) context.output.out(` Date: ${formatDate(author, 'default')}\n`);
  if (written.parents.length > 1) return;
  const parent = written.parents[0];
  const before = parent === undefined ? null : (await repository.commit(parent)).tree;
  const pairs = await withRenames(repository, await comparedTrees(repository, before, written.tree));
  if (pairs.length === 0) return;
  context.output.out(shortstat(await counted(repository, pairs)) + summary(pairs));
}
