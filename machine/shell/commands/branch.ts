/** `git branch`. */
import { type Command, type CommandContext, personOf, repositoryOf } from '../command.ts';
import { fatal, GitFailure, leave } from '../endings.ts';
import { type Options, parseOptions } from '../options.ts';
import { withoutSection, withSectionRenamed, withValue } from '../repository/config.ts';
import { detachedText, headOf, trackingOf, unfinished } from '../repository/head.ts';
import { isAncestor } from '../repository/history.ts';
import { personText } from '../repository/parse.ts';
import type { Ref } from '../repository/refs.ts';
import type { Repository } from '../repository/repository.ts';
import { abbreviate, expandRef, isRefName, peel, resolveRevision } from '../repository/revisions.ts';
import { wildcard } from '../repository/wildmatch.ts';
import { subjectOf } from '../show/pretty.ts';
import { binaryOf, bytesOf } from '../text.ts';
import { chosenRefs, formattedRef, sortedRefs, trackText } from './for-each-ref.ts';

export const branch: Command = async (context, argv) => {
  const options = parseOptions(argv, {
    'd|delete': 'flag',
    D: 'flag',
    'm|move': 'flag',
    M: 'flag',
    'r|remotes': 'flag',
    'a|all': 'flag',
    'l|list': 'flag',
    'v|verbose': 'flag',
    'q|quiet': 'flag',
    'f|force': 'flag',
    'show-current': 'flag',
    'u|set-upstream-to': 'value',
    'unset-upstream': 'flag',
    'no-track': 'flag',
    't|track': 'attached',
    contains: 'last',
    merged: 'last',
    'no-merged': 'last',
    'points-at': 'value',
    sort: 'value',
    format: 'value',
    'no-color': 'flag',
    'no-column': 'flag',
  });
  const repository = await repositoryOf(context);
  await repository.requireOneWorkTree();
  const head = await headOf(repository);
  if (options.has('show-current')) {
    if (head.branch !== null) context.output.out(`${head.branch}\n`);
    return 0;
  }
  if (options.has('delete', 'D')) return remove(context, repository, options);
  if (options.has('move', 'M')) return rename(context, repository, options);
  if (options.has('set-upstream-to')) return setUpstream(context, repository, options);
  if (options.has('unset-upstream')) return unsetUpstream(repository, options);
  const lists = options.has(
    'list',
    'all',
    'remotes',
    'contains',
    'merged',
    'no-merged',
    'points-at',
    'verbose',
    'format',
    'sort',
  );
  if (options.words.length === 0 || lists) return list(context, repository, options);
  return create(context, repository, options);
};

async function create(context: CommandContext, repository: Repository, options: Options): Promise<number> {
  const head = await headOf(repository);
  const [name, start = head.branch ?? 'HEAD', ...more] = options.words;
  if (more.length > 0) leave('branch with more words');
  await makeBranch(context, repository, {
    name: binaryOf(name!),
    start,
    isForced: options.has('force'),
    track: options.has('no-track') ? false : options.has('track') ? true : null,
    isQuiet: options.has('quiet'),
  });
  return 0;
}

export interface NewBranch {
  readonly name: string;
  readonly start: string;
  readonly isForced: boolean;
  /** Null: as the configuration says, which is remote branches. */
  readonly track: boolean | null;
  readonly isQuiet: boolean;
}

/** Makes or moves a branch; answers with its commit. */
export async function makeBranch(context: CommandContext, repository: Repository, made: NewBranch): Promise<string> {
  const ref = `refs/heads/${made.name}`;
  if (!isRefName(ref) || made.name.startsWith('-') || made.name === 'HEAD') {
    throw fatal(`'${made.name}' is not a valid branch name`);
  }
  const before = await repository.refs.hash(ref);
  if (before !== null && !made.isForced) throw fatal(`a branch named '${made.name}' already exists`);
  const head = await headOf(repository);
  const hash = await resolveRevision(repository, made.start);
  const commit = hash === null ? null : await peel(repository, hash, 'commit');
  if (commit === null) throw fatal(`not a valid object name: '${made.start}'`);
  if (before !== null && head.ref === ref) {
    throw fatal(`cannot force update the branch '${made.name}' checked out at '${repository.root}'`);
  }
  const from = await expandRef(repository, binaryOf(made.start));
  const committer = personText(personOf(context, repository, 'committer'));
  const message = before === null ? `branch: Created from ${made.start}` : `branch: Reset to ${made.start}`;
  await repository.refs.write(ref, commit, { who: committer, message });
  const follows =
    made.track ?? (from?.startsWith('refs/remotes/') && repository.config.get('branch.autosetupmerge') !== 'false');
  if (follows && from) await follow(context, repository, made.name, from, made.isQuiet);
  return commit;
}

async function follow(context: CommandContext, repository: Repository, name: string, from: string, isQuiet: boolean) {
  if (repository.config.has('branch.autosetuprebase')) leave('branch.autoSetupRebase');
  const { remote, merge } = sourceOf(repository, from);
  const path = `${repository.gitDirectory}/config`;
  let text = Buffer.from(await repository.tree.read(path)).toString('latin1');
  text = withValue(text, `branch.${name}.remote`, remote, 'set');
  text = withValue(text, `branch.${name}.merge`, merge, 'set');
  await repository.tree.write(path, bytesOf(text));
  if (!isQuiet)
    context.output.out(`branch '${name}' set up to track '${from.replace(/^refs\/(remotes|heads)\//, '')}'.\n`);
}

/** The remote, and its own name for what is known here as a remote branch. */
function sourceOf(repository: Repository, ref: string): { remote: string; merge: string } {
  if (ref.startsWith('refs/heads/')) return { remote: '.', merge: ref };
  for (const remote of repository.config.subsections('remote')) {
    for (const spec of repository.config.all(`remote.${remote}.fetch`)) {
      const match = /^\+?([^:]*)\*:(.*)\*$/.exec(spec ?? '');
      if (match && ref.startsWith(match[2]!)) return { remote, merge: match[1]! + ref.slice(match[2]!.length) };
    }
  }
  return leave(`the remote of ${ref}`);
}

async function remove(context: CommandContext, repository: Repository, options: Options): Promise<number> {
  const isRemote = options.has('remotes');
  const isForced = options.has('D') || options.has('force');
  const head = await headOf(repository);
  let failed = false;
  for (const word of options.words) {
    const name = binaryOf(word);
    const ref = `${isRemote ? 'refs/remotes/' : 'refs/heads/'}${name}`;
    const hash = await repository.refs.hash(ref);
    if (hash === null) {
      context.output.say(`error: ${isRemote ? 'remote-tracking ' : ''}branch '${word}' not found.\n`);
      failed = true;
      continue;
    }
    if (ref === head.ref) {
      context.output.say(`error: Cannot delete branch '${word}' checked out at '${repository.root}'\n`);
      failed = true;
      continue;
    }
    if (!isForced && !isRemote && !(await isMerged(context, repository, name, hash))) {
      context.output.say(
        `error: The branch '${word}' is not fully merged.\nIf you are sure you want to delete it, run 'git branch -D ${word}'.\n`,
      );
      failed = true;
      continue;
    }
    await repository.refs.remove(ref);
    await changeConfig(repository, (text) => withoutSection(text, `branch.${word}`) ?? text);
    if (!options.has('quiet')) {
      const kind = isRemote ? 'remote-tracking branch' : 'branch';
      context.output.out(`Deleted ${kind} ${name} (was ${await abbreviate(repository, hash)}).\n`);
    }
  }
  return failed ? 1 : 0;
}

async function isMerged(context: CommandContext, repository: Repository, name: string, hash: string): Promise<boolean> {
  const tracking = await trackingOf(repository, name);
  const upstream = tracking ? await repository.refs.hash(tracking.upstream) : null;
  const head = (await headOf(repository)).hash;
  const target = upstream ?? head;
  if (target === null) return false;
  const merged = await isAncestor(repository, hash, target);
  if (upstream !== null && head !== null && merged !== (await isAncestor(repository, hash, head))) {
    leave('a branch that is merged to one place alone');
  }
  await context.pace.rest();
  return merged;
}

export async function changeConfig(repository: Repository, change: (text: string) => string): Promise<void> {
  const path = `${repository.gitDirectory}/config`;
  const before = Buffer.from(await repository.tree.read(path)).toString('latin1');
  const after = change(before);
  if (after !== before) await repository.tree.write(path, bytesOf(after));
}

async function rename(context: CommandContext, repository: Repository, options: Options): Promise<number> {
  const head = await headOf(repository);
  const [first, second] = options.words.map(binaryOf);
  if (first === undefined || options.words.length > 2) leave('branch -m with other words');
  const from = second === undefined ? head.branch : first;
  const to = second ?? first;
  if (from === null) throw fatal('cannot rename the current branch while not on any.');
  const [oldRef, newRef] = [`refs/heads/${from}`, `refs/heads/${to}`];
  if (!isRefName(newRef)) throw fatal(`'${to}' is not a valid branch name`);
  if (head.hash === null && head.branch === from) {
    await repository.refs.writeSymbolic('HEAD', newRef);
    return 0;
  }
  const hash = await repository.refs.hash(oldRef);
  if (hash === null) throw fatal(`no branch named '${from}'`);
  if (from === to) leave('a branch renamed to itself');
  if ((await repository.refs.hash(newRef)) !== null) {
    if (!options.has('M', 'force')) throw fatal(`a branch named '${to}' already exists`);
    leave('a branch renamed over another');
  }
  const log = await repository.readFile(`logs/${oldRef}`);
  await repository.refs.remove(oldRef);
  const who = personText(personOf(context, repository, 'committer'));
  const message = `Branch: renamed ${oldRef} to ${newRef}`;
  await repository.refs.write(newRef, hash, null);
  if (log !== null) {
    const path = `${repository.gitDirectory}/logs/${newRef}`;
    await repository.tree.makeDirectory(path.slice(0, path.lastIndexOf('/')));
    await repository.tree.write(path, bytesOf(`${log}${hash} ${hash} ${who}\t${message}\n`));
  }
  if (head.ref === oldRef) {
    await repository.refs.writeSymbolic('HEAD', newRef);
    await repository.refs.appendLog('HEAD', { from: hash, to: '0'.repeat(40), who, message });
    await repository.refs.appendLog('HEAD', { from: '0'.repeat(40), to: hash, who, message });
  }
  await changeConfig(repository, (text) => withSectionRenamed(text, `branch.${from}`, `branch.${to}`));
  return 0;
}

async function setUpstream(context: CommandContext, repository: Repository, options: Options): Promise<number> {
  const word = options.text('set-upstream-to')!;
  const head = await headOf(repository);
  const name = options.words[0] === undefined ? head.branch : binaryOf(options.words[0]);
  if (name === null) throw fatal(`could not set upstream of HEAD to ${word} when it does not point to any branch.`);
  if ((await repository.refs.hash(`refs/heads/${name}`)) === null) throw fatal(`branch '${name}' does not exist`);
  const ref = await expandRef(repository, binaryOf(word));
  if (ref === null) throw new GitFailure(`fatal: the requested upstream branch '${word}' does not exist\n`);
  await follow(context, repository, name, ref, options.has('quiet'));
  return 0;
}

async function unsetUpstream(repository: Repository, options: Options): Promise<number> {
  const head = await headOf(repository);
  const name = options.words[0] === undefined ? head.branch : binaryOf(options.words[0]);
  if (name === null) leave('no branch');
  if (!repository.config.has(`branch.${name}.merge`)) throw fatal(`Branch '${name}' has no upstream information`);
  await changeConfig(repository, (text) => withoutSection(text, `branch.${name}`) ?? text);
  return 0;
}

async function list(context: CommandContext, repository: Repository, options: Options): Promise<number> {
  const head = await headOf(repository);
  const verbosity = options.names().filter((name) => name === 'verbose').length;
  const operations = await unfinished(repository);
  if (operations.has('rebase') || operations.has('bisect')) leave('a list of branches during another operation');
  let refs: Ref[] = [];
  if (!options.has('remotes')) refs.push(...(await repository.refs.list('refs/heads/')));
  if (options.has('remotes', 'all')) refs.push(...(await repository.refs.list('refs/remotes/')));
  const patterns = options.words.map((word) => wildcard(binaryOf(word), { isPath: true }));
  const short = ({ name }: Ref) => name.replace(/^refs\/(heads|remotes)\//, '');
  if (patterns.length > 0) refs = refs.filter((ref) => patterns.some((pattern) => pattern?.test(short(ref))));
  const choose = (name: string) => (options.has(name) ? (options.value(name) ?? 'HEAD') : undefined);
  refs = await chosenRefs(repository, refs, {
    pointsAt: options.text('points-at'),
    contains: choose('contains'),
    merged: choose('merged'),
    notMerged: choose('no-merged'),
  });
  if (options.has('contains', 'merged', 'no-merged') && head.ref === null) leave('a list of branches without a branch');
  const sorted = options.has('sort') ? await sortedRefs(repository, refs, options.values('sort')) : refs;
  const format = options.text('format');
  if (format !== undefined) {
    if (head.ref === null) leave('a list of branches without a branch');
    for (const ref of sorted) context.output.out(`${await formattedRef(repository, ref, format)}\n`);
    return 0;
  }
  const rows = sorted.map((ref) => ({
    ref,
    mark: ref.name === head.ref ? '* ' : '  ',
    name: options.has('all') && ref.name.startsWith('refs/remotes/') ? ref.name.slice(5) : short(ref),
  }));
  if (head.ref === null && head.hash !== null && !options.has('remotes') && patterns.length === 0) {
    const text = `(${(await detachedText(repository, head.hash)).replace('Not currently on any branch.', 'no branch')})`;
    rows.unshift({ ref: { name: 'HEAD', hash: head.hash }, mark: '* ', name: text });
  }
  const width = Math.max(0, ...rows.map(({ name }) => Buffer.from(name, 'latin1').toString().length));
  for (const { ref, mark, name } of rows) {
    const raw = await repository.refs.raw(ref.name);
    const target =
      raw && 'target' in raw && ref.name !== 'HEAD' ? raw.target.replace(/^refs\/(heads|remotes)\//, '') : null;
    if (verbosity === 0) {
      context.output.out(`${mark}${name}${target === null ? '' : ` -> ${target}`}\n`);
      continue;
    }
    const pad = ' '.repeat(width - Buffer.from(name, 'latin1').toString().length);
    if (target !== null) {
      context.output.out(`${mark}${name}${pad} -> ${target}\n`);
      continue;
    }
    const commit = await repository.commit(ref.hash);
    const track = await trackOf(repository, ref, verbosity);
    context.output.out(
      `${mark}${name}${pad} ${await abbreviate(repository, ref.hash)} ${track}${subjectOf(commit.message)}\n`,
    );
  }
  return 0;
}

async function trackOf(repository: Repository, ref: Ref, verbosity: number): Promise<string> {
  if (!ref.name.startsWith('refs/heads/')) return '';
  const tracking = await trackingOf(repository, ref.name.slice('refs/heads/'.length));
  if (!tracking) return '';
  const text = trackText(tracking.counts);
  if (verbosity < 2) return text === '' ? '' : `${text} `;
  const inside = text.slice(1, -1);
  return `[${tracking.short}${inside === '' ? '' : `: ${inside}`}] `;
}
