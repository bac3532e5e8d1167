/** `git log`, `git show`, and what they have in common. */
import { type Command, type CommandContext, prefixOf, repositoryOf } from '../command.ts';
import { fatal, GitFailure, leave } from '../endings.ts';
import { type Options, type OptionTable, parseOptions } from '../options.ts';
import { type DateFormat, dateFormat, formatDate } from '../repository/dates.ts';
import { headOf } from '../repository/head.ts';
import { mergeBases, refCommits, type WalkOptions, walk } from '../repository/history.ts';
import { type Commit, parseTag } from '../repository/parse.ts';
import { Pathspec } from '../repository/pathspec.ts';
import type { Repository } from '../repository/repository.ts';
import { needCommit, needRevision, peel } from '../repository/revisions.ts';
import { decorationsOf } from '../show/decorations.ts';
import { arranged, asksForOther, diffOptions, diffText } from '../show/diff-output.ts';
import { comparedTrees, contentOf, type Pair, type PathFilter } from '../show/pairs.ts';
import { type PrettyFormat, type PrettySettings, prettyCommit, prettyFormat } from '../show/pretty.ts';
import { binaryOf, quotedPath } from '../text.ts';
import { splitRevisions } from './arguments.ts';
import { blobText } from './plumbing.ts';

export const logOptions: OptionTable = {
  ...diffOptions,
  'n|max-count': 'value',
  skip: 'value',
  oneline: 'flag',
  pretty: 'attached',
  format: 'value',
  date: 'value',
  'abbrev-commit': 'flag',
  'no-abbrev-commit': 'flag',
  decorate: 'attached',
  'no-decorate': 'flag',
  all: 'flag',
  branches: 'flag',
  tags: 'flag',
  remotes: 'flag',
  author: 'value',
  committer: 'value',
  grep: 'value',
  'i|regexp-ignore-case': 'flag',
  'F|fixed-strings': 'flag',
  'E|extended-regexp': 'flag',
  'invert-grep': 'flag',
  merges: 'flag',
  'no-merges': 'flag',
  'first-parent': 'flag',
  reverse: 'flag',
  'topo-order': 'flag',
  'date-order': 'flag',
  'full-history': 'flag',
  graph: 'flag',
  follow: 'flag',
  S: 'value',
  since: 'value',
  after: 'value',
  until: 'value',
  before: 'value',
  m: 'flag',
  c: 'flag',
  cc: 'flag',
  'no-notes': 'flag',
  'no-mailmap': 'flag',
};

export const log: Command = async (context, argv) => {
  const options = parseOptions(argv, logOptions, { numbers: 'max-count' });
  if (options.has('follow', 'm', 'c', 'cc', 'full-history', 'date-order', 'raw', 'z')) leave('an option of log');
  const repository = await repositoryOf(context);
  if ((await repository.refs.list('refs/notes/')).length > 0) leave('notes');
  const prefix = repository.workTree === null ? '' : prefixOf(context, repository);
  const head = await headOf(repository);
  const split = await splitRevisions(repository, context, options).catch((error: unknown) => {
    if (head.hash === null && error instanceof GitFailure && options.words.length === 0) throw unborn(head.branch);
    throw error;
  });
  if (split.revisions.length === 0 && !options.has('all', 'branches', 'tags', 'remotes') && head.hash === null) {
    throw unborn(head.branch);
  }
  const { include, exclude } = await startsOf(repository, split.revisions, options);
  const pathspec = Pathspec.parse(split.paths, prefix, repository.workTree);
  if (options.has('S') && (asksForOther(options) || options.has('patch', 'unified') || !pathspec.isEmpty)) leave('-S');
  if (options.has('graph')) return graph(context, argv, options);
  const printer = await Printer.open(context, repository, options, 'medium');
  const commits = await chosenCommits(repository, include, exclude, options, pathspec);
  for await (const commit of commits) {
    await printer.commit(commit, async () => commitPairs(repository, commit, pathspec.filter()));
  }
  return 0;
};

/** just-git draws the lines. */
async function graph(context: CommandContext, argv: readonly string[], options: Options): Promise<number> {
  const known = new Set(['graph', 'oneline', 'all', 'decorate', 'max-count', 'format', 'pretty']);
  if (options.names().some((name) => !known.has(name)) || options.rest !== null) leave('--graph with other options');
  if (!options.has('oneline', 'format') && !/^(t?format:|oneline)/.test(options.text('pretty') ?? ''))
    leave('--graph of several lines');
  const { runJustGit } = await import('../just-git/run.ts');
  const { answered } = await import('../just-git/commands.ts');
  return answered(context, await runJustGit(context, { argv: ['log', ...argv] }));
}

const unborn = (branch: string | null) => fatal(`your current branch '${branch}' does not have any commits yet`);

/** The commits of a walk's options, in their order. */
export async function chosenCommits(
  repository: Repository,
  include: readonly string[],
  exclude: readonly string[],
  options: Options,
  pathspec: Pathspec,
): Promise<AsyncIterable<Commit> | Commit[]> {
  const isWanted = filterOf(repository, options);
  const skip = options.number('skip') ?? 0;
  const most = options.number('max-count') ?? Number.POSITIVE_INFINITY;
  const limit = most < 0 ? Number.POSITIVE_INFINITY : most;
  const isTopological = options.has('graph', 'topo-order');
  const order = isTopological ? 'topology' : 'date';
  const walkOptions: WalkOptions = {
    firstParent: options.has('first-parent'),
    order,
    ...(pathspec.isEmpty ? {} : { simplify: simplifier(repository, pathspec.filter()) }),
  };
  async function* chosen(): AsyncGenerator<Commit> {
    let [skipped, shown] = [0, 0];
    if (limit === 0) return;
    for await (const { commit, isShown } of walk(repository, include, exclude, walkOptions)) {
      if (!isShown || !(await isWanted(commit))) continue;
      if (skipped < skip) {
        skipped += 1;
        continue;
      }
      yield commit;
      if (++shown >= limit) return;
    }
  }
  if (!options.has('reverse')) return chosen();
  const all: Commit[] = [];
  for await (const commit of chosen()) all.push(commit);
  return all.reverse();
}

/** Where walks begin: revisions, ranges and the references that options name. */
export async function startsOf(
  repository: Repository,
  revisions: readonly string[],
  options: Options,
): Promise<{ include: string[]; exclude: string[] }> {
  const [include, exclude]: [string[], string[]] = [[], []];
  for (const revision of revisions) {
    const range = /^(.*?)(\.\.\.?)(.*)$/s.exec(revision);
    if (range && !revision.includes(':')) {
      const [from, to] = [
        await needCommit(repository, range[1] || 'HEAD'),
        await needCommit(repository, range[3] || 'HEAD'),
      ];
      include.push(to);
      if (range[2] === '..') exclude.push(from);
      else {
        include.unshift(from);
        exclude.push(...(await mergeBases(repository, from, to)));
      }
    } else if (revision.startsWith('^')) exclude.push(await needCommit(repository, revision.slice(1)));
    else if (/\^(@|!|-)$/.test(revision)) leave(revision);
    else include.push(await needCommit(repository, revision));
  }
  if (options.has('all')) include.push(...(await refCommits(repository, 'refs/')));
  if (options.has('branches')) include.push(...(await refCommits(repository, 'refs/heads/')));
  if (options.has('tags')) include.push(...(await refCommits(repository, 'refs/tags/')));
  if (options.has('remotes')) include.push(...(await refCommits(repository, 'refs/remotes/')));
  const head = await headOf(repository);
  if (options.has('all') && head.hash !== null) include.push(head.hash);
  const named = options.has('all', 'branches', 'tags', 'remotes');
  if (include.length === 0 && !named && head.hash !== null) include.push(head.hash);
  return { include, exclude };
}

/** Follows the parents that the paths come from. */
function simplifier(repository: Repository, isAsked: PathFilter): NonNullable<WalkOptions['simplify']> {
  return async (commit) => {
    const treeOfParent = async (hash: string) => (await repository.commit(hash)).tree;
    if (commit.parents.length === 0) {
      const pairs = await comparedTrees(repository, null, commit.tree, isAsked);
      return { isShown: pairs.length > 0, parents: [] };
    }
    for (const parent of commit.parents) {
      const pairs = await comparedTrees(repository, await treeOfParent(parent), commit.tree, isAsked);
      if (pairs.length === 0) return { isShown: false, parents: [parent] };
    }
    return { isShown: true, parents: commit.parents };
  };
}

function filterOf(repository: Repository, options: Options): (commit: Commit) => Promise<boolean> {
  const flags = options.has('regexp-ignore-case') ? 'i' : '';
  const expression = (text: string) => grepExpression(text, options, flags);
  const authors = options.values('author').map(expression);
  const committers = options.values('committer').map(expression);
  const greps = options.values('grep').map(expression);
  const [since, until] = [
    options.text('since') ?? options.text('after'),
    options.text('until') ?? options.text('before'),
  ];
  const from = since === undefined ? null : moment(since);
  const to = until === undefined ? null : moment(until);
  return async (commit) => {
    await repository.pace.rest();
    if (options.has('merges') && commit.parents.length < 2) return false;
    if (options.has('no-merges') && commit.parents.length > 1) return false;
    if (from !== null && commit.committer.seconds < from) return false;
    if (to !== null && commit.committer.seconds > to) return false;
    const by = ({ name, email }: Commit['author']) => `${name} <${email}>`;
    if (authors.length > 0 && !authors.some((one) => one.test(by(commit.author)))) return false;
    if (committers.length > 0 && !committers.some((one) => one.test(by(commit.committer)))) return false;
    if (options.has('S') && !(await changesCount(repository, commit, binaryOf(options.text('S')!)))) return false;
    if (greps.length === 0) return true;
    const isFound = commit.message.split('\n').some((line) => greps.some((one) => one.test(line)));
    return isFound !== options.has('invert-grep');
  };
}

/** `-S`: whether a commit has a text more or less often than its parent. */
async function changesCount(repository: Repository, commit: Commit, text: string): Promise<boolean> {
  if (commit.parents.length > 1) return false;
  for (const { before, after } of await commitPairs(repository, commit, () => true)) {
    const count = async (side: typeof before) =>
      Buffer.from(await contentOf(repository, side))
        .toString('latin1')
        .split(text).length;
    if ((await count(before)) !== (await count(after))) return true;
  }
  return false;
}

function moment(text: string): number {
  const iso = /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(Z|[+-]\d\d:\d\d)$/.exec(text);
  if (iso) return Date.parse(text) / 1000;
  const ago = /^(\d+)[ .](second|minute|hour|day|week)s?[ .]ago$/.exec(text);
  const seconds: Readonly<Record<string, number>> = { second: 1, minute: 60, hour: 3600, day: 86_400, week: 604_800 };
  if (ago) return Math.floor(Date.now() / 1000) - Number(ago[1]) * seconds[ago[2]!]!;
  return leave(`the date ${text}`);
}

/** A POSIX expression where JavaScript has the same; the rest is the native git's. */
export function grepExpression(text: string, options: Options, flags: string): RegExp {
  const binary = binaryOf(text);
  if (options.has('fixed-strings')) return new RegExp(binary.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'), flags);
  const isExtended = options.has('extended-regexp');
  if (/\\[^.*[\]^$\\/|+?(){}]|\[\[|[{}]/.test(binary)) leave(`the expression ${text}`);
  if (isExtended) return new RegExp(binary, flags);
  // In a basic expression these are themselves, and with a backslash what they are elsewhere.
  const source = binary.replace(/\\?[+?()|]/g, (found) => (found.length === 1 ? `\\${found}` : found.slice(1)));
  return new RegExp(source, flags);
}

/** What a commit changed: against its first parent, or from nothing. */
export async function commitPairs(repository: Repository, commit: Commit, isAsked: PathFilter): Promise<Pair[]> {
  const parent = commit.parents[0];
  const before = parent === undefined ? null : (await repository.commit(parent)).tree;
  return comparedTrees(repository, before, commit.tree, isAsked);
}

/** Prints commits one after another, with what the options want to see of their changes. */
export class Printer {
  readonly #context: CommandContext;
  readonly #repository: Repository;
  readonly #options: Options;
  readonly #format: PrettyFormat;
  readonly #settings: PrettySettings;
  readonly #showsPatch: boolean;
  #isFirst = true;

  private constructor(
    context: CommandContext,
    repository: Repository,
    options: Options,
    format: PrettyFormat,
    settings: PrettySettings,
    showsPatch: boolean,
  ) {
    this.#context = context;
    this.#repository = repository;
    this.#options = options;
    this.#format = format;
    this.#settings = settings;
    this.#showsPatch = showsPatch;
  }

  static async open(
    context: CommandContext,
    repository: Repository,
    options: Options,
    byDefault: 'medium',
    showsPatch = false,
  ): Promise<Printer> {
    if (options.has('graph')) leave('--graph');
    const format = formatOf(options, byDefault);
    const decorate = options.last('decorate', 'no-decorate') === 'decorate';
    const style = options.value('decorate');
    if (style && style !== 'short' && style !== 'full') leave(`--decorate=${style}`);
    const usesNames = decorate || (format.kind === 'user' && /%[+\- ]?[dD]/.test(format.format));
    const abbreviated =
      !options.has('no-abbrev-commit') &&
      (options.has('abbrev-commit') || options.last('oneline', 'pretty', 'format') === 'oneline');
    const date: DateFormat = dateFormat(options.text('date') ?? repository.config.get('log.date') ?? 'default');
    const decorations = usesNames ? await decorationsOf(repository, style === 'full') : new Map<string, string[]>();
    const settings = { abbreviated, date, decorations, showDecorations: decorate };
    return new Printer(context, repository, options, format, settings, showsPatch);
  }

  /** `mark` stands before the commit's name. */
  async commit(commit: Commit, pairs: () => Promise<Pair[]>): Promise<void> {
    const { output, pace } = this.#context;
    await pace.rest();
    const text = await prettyCommit(this.#repository, commit, this.#format, this.#settings);
    const isMerge = commit.parents.length > 1;
    const changes = isMerge && !this.#options.has('first-parent') ? '' : await this.#changes(pairs);
    const isOneLine = this.#format.kind === 'oneline' || this.#format.kind === 'reference';
    const ends = this.#format.kind !== 'user' || this.#format.ends;
    if (!this.#isFirst) {
      if (this.#format.kind === 'user' && !ends) output.out('\n');
      else if (this.#format.kind !== 'user' && !isOneLine) output.out('\n');
    }
    this.#isFirst = false;
    output.out(text);
    const needsEnd = isOneLine || (this.#format.kind === 'user' && (ends ? text !== '' : changes !== ''));
    if (needsEnd) output.out('\n');
    if (changes === '') return;
    // A patch or a table stands apart from a message of several lines; one line is apart by itself.
    const first = isOneLine ? '' : this.#wantsBoth() ? '---\n' : '\n';
    output.out(first + changes);
  }

  #wantsBoth(): boolean {
    const wantsPatch = this.#options.has('patch', 'unified', 'patch-with-stat');
    return (
      wantsPatch && this.#options.has('stat', 'shortstat', 'numstat', 'patch-with-stat') && this.#format.kind !== 'user'
    );
  }

  async #changes(pairs: () => Promise<Pair[]>): Promise<string> {
    const wants = this.#showsPatch || asksForOther(this.#options) || this.#options.has('patch', 'unified');
    if (!wants) return '';
    const found = await arranged(this.#repository, await pairs(), this.#options);
    const text = await diffText(this.#repository, found, this.#options, this.#showsPatch);
    return this.#wantsBoth() && text !== '' ? text.replace(/^/, '') : text;
  }
}

function formatOf(options: Options, byDefault: 'medium'): PrettyFormat {
  const last = options.last('oneline', 'pretty', 'format');
  if (last === 'oneline') return { kind: 'oneline' };
  if (last === 'format') {
    const text = options.text('format')!;
    return prettyFormat(text);
  }
  if (last === 'pretty') return prettyFormat(options.value('pretty') ?? 'medium');
  return { kind: byDefault };
}

export const show: Command = async (context, argv) => {
  const options = parseOptions(argv, logOptions, { numbers: 'max-count' });
  for (const name of options.names()) if (walking.has(name)) leave(`show --${name}`);
  const repository = await repositoryOf(context);
  if ((await repository.refs.list('refs/notes/')).length > 0) leave('notes');
  const prefix = repository.workTree === null ? '' : prefixOf(context, repository);
  const head = await headOf(repository);
  if (head.hash === null && options.words.length === 0) throw unborn(head.branch);
  const { revisions, paths } = await splitRevisions(repository, context, options);
  const pathspec = Pathspec.parse(paths, prefix, repository.workTree);
  const printer = await Printer.open(context, repository, options, 'medium', true);
  for (const revision of revisions.length === 0 ? ['HEAD'] : revisions) {
    if (/\.\.|^\^/.test(revision)) leave('show with a range');
    await showObject(
      context,
      repository,
      await needRevision(repository, revision),
      revision,
      printer,
      pathspec,
      revisions.length > 1,
      options,
    );
  }
  return 0;
};

const walking = new Set([
  'max-count',
  'skip',
  'all',
  'branches',
  'tags',
  'remotes',
  'reverse',
  'graph',
  'follow',
  'S',
  'm',
  'c',
  'cc',
  'author',
  'grep',
  'since',
  'until',
  'after',
  'before',
  'merges',
  'no-merges',
]);

async function showObject(
  context: CommandContext,
  repository: Repository,
  hash: string,
  name: string,
  printer: Printer,
  pathspec: Pathspec,
  isOneOfMany: boolean,
  options: Options,
): Promise<void> {
  const object = await repository.objects.read(hash);
  const { output } = context;
  if (object.kind === 'blob') {
    output.out(blobText(object.bytes));
    return;
  }
  if (isOneOfMany && object.kind !== 'commit') leave('show of several things');
  if (object.kind === 'tree') {
    output.out(`tree ${name}\n\n`);
    for (const entry of await repository.treeEntries(hash)) {
      output.out(`${quotedPath(entry.name)}${entry.mode === 0o040000 ? '/' : ''}\n`);
    }
    return;
  }
  if (object.kind === 'tag') {
    const tag = parseTag(object.bytes);
    if (/-----BEGIN/.test(tag.message)) leave('a signed tag');
    output.out(`tag ${tag.name}\n`);
    if (tag.tagger) {
      const { name: who, email } = tag.tagger;
      output.out(
        `Tagger: ${who} <${email}>\nDate:   ${formatDate(tag.tagger, dateFormat(options.text('date') ?? 'default'))}\n`,
      );
    }
    output.out(`\n${tag.message}${tag.message.endsWith('\n') ? '' : '\n'}`);
    output.out('\n');
    await showObject(context, repository, tag.object, name, printer, pathspec, isOneOfMany, options);
    return;
  }
  const commit = await repository.commit((await peel(repository, hash, 'commit'))!);
  if (commit.parents.length > 1) {
    const isOther = options.names().some((one) => one !== 'no-patch' && one in diffOptionNames);
    if (isOther || (await isCombined(repository, commit, pathspec.filter()))) leave('a combined comparison');
  }
  await printer.commit(commit, async () => commitPairs(repository, commit, pathspec.filter()));
  // A combined comparison without files is an empty line.
  if (commit.parents.length > 1 && !options.has('no-patch')) output.out('\n');
}

const diffOptionNames = Object.fromEntries(
  Object.keys(diffOptions).map((names) => [names.split('|').at(-1)!, true] as const),
);

/** Whether a merge has files that differ from those of all its parents. */
async function isCombined(repository: Repository, commit: Commit, isAsked: PathFilter): Promise<boolean> {
  let common: Set<string> | null = null;
  for (const parent of commit.parents) {
    const pairs = await comparedTrees(repository, (await repository.commit(parent)).tree, commit.tree, isAsked);
    const paths = new Set(pairs.map((pair) => (pair.after ?? pair.before)!.path));
    common = common === null ? paths : new Set<string>([...(common as Set<string>)].filter((path) => paths.has(path)));
  }
  return (common?.size ?? 0) > 0;
}
