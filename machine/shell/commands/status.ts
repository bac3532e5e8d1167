/** `git status`. */
import { type Command, prefixOf, repositoryOf, shownPath } from '../command.ts';
import { leave } from '../endings.ts';
import { type Options, parseOptions } from '../options.ts';
import { refreshedIndex, stagedPairs, unstagedPairs } from '../repository/changes.ts';
import { headOf, trackingOf, unfinished } from '../repository/head.ts';
import type { IndexEntry } from '../repository/index-file.ts';
import { modeText } from '../repository/parse.ts';
import { Pathspec } from '../repository/pathspec.ts';
import type { Repository } from '../repository/repository.ts';
import { type Untracked, untracked, WorkTree } from '../repository/work-tree.ts';
import { type Pair, pathOf } from '../show/pairs.ts';
import { withRenames } from '../show/renames.ts';
import { quotedPath } from '../text.ts';
import { longStatus } from './status-text.ts';

export interface StatusFacts {
  readonly repository: Repository;
  readonly prefix: string;
  readonly head: Awaited<ReturnType<typeof headOf>>;
  readonly staged: readonly Pair[];
  readonly unstaged: readonly Pair[];
  readonly conflicts: ReadonlyMap<string, IndexEntry[]>;
  readonly untracked: readonly Untracked[];
  readonly showsUntracked: boolean;
}

export const status: Command = async (context, argv) => {
  const options = parseOptions(argv, {
    's|short': 'flag',
    'b|branch': 'flag',
    'no-branch': 'flag',
    porcelain: 'attached',
    long: 'flag',
    'u|untracked-files': 'attached',
    ignored: 'attached',
    z: 'flag',
    'no-renames': 'flag',
    'no-column': 'flag',
    'ahead-behind': 'flag',
    'no-ahead-behind': 'flag',
  });
  if (options.has('no-ahead-behind')) leave('--no-ahead-behind');
  const repository = await repositoryOf(context);
  const prefix = prefixOf(context, repository);
  const words = [...options.words, ...(options.rest ?? [])];
  const facts = await factsOf(repository, prefix, options, words);
  const format = formatOf(options);
  context.output.out(
    format === 'v2'
      ? await porcelain2(facts, options)
      : format === 'long'
        ? await longStatus(facts, await unfinished(repository))
        : await short(facts, options, format === 'v1' ? '' : prefix),
  );
  return 0;
};

function formatOf(options: Options): 'long' | 'short' | 'v1' | 'v2' {
  const last = options.last('short', 'porcelain', 'long');
  if (last === 'porcelain') {
    const version = options.value('porcelain') ?? 'v1';
    if (version === 'v1' || version === '1') return 'v1';
    if (version === 'v2' || version === '2') return 'v2';
    return leave(`--porcelain=${version}`);
  }
  if (last === 'short') return 'short';
  return options.has('z') && last === undefined ? 'v1' : 'long';
}

/** Looks at everything, and keeps what was looked at again in the index. */
export async function factsOf(
  repository: Repository,
  prefix: string,
  options: Options,
  words: readonly string[],
): Promise<StatusFacts> {
  await repository.requireNoSubmodules();
  const pathspec = Pathspec.parse(words, prefix, repository.root);
  const head = await headOf(repository);
  const tree = head.hash === null ? null : (await repository.commit(head.hash)).tree;
  const workTree = new WorkTree(repository);
  const { pairs: unstaged, refreshed } = await unstagedPairs(workTree, pathspec.filter());
  let staged = (await stagedPairs(repository, tree, pathspec.filter())).filter(({ kind }) => kind !== 'U');
  if (!options.has('no-renames')) staged = await withRenames(repository, staged);
  const mode = options.value('untracked-files') ?? (options.has('untracked-files') ? 'all' : 'normal');
  if (mode !== 'no' && mode !== 'normal' && mode !== 'all') leave(`--untracked-files=${mode}`);
  const ignored = options.value('ignored') ?? (options.has('ignored') ? 'traditional' : 'no');
  if (ignored !== 'no' && ignored !== 'traditional') leave(`--ignored=${ignored}`);
  if (ignored !== 'no' && mode === 'no') leave('--ignored without untracked files');
  const others = mode === 'no' ? [] : await untracked(workTree, { mode, ignored, pathspec });
  const conflicts = new Map<string, IndexEntry[]>();
  for (const entry of await repository.index()) {
    if (entry.stage === 0 || !pathspec.matches(entry.path)) continue;
    conflicts.set(entry.path, [...(conflicts.get(entry.path) ?? []), entry]);
  }
  const again = refreshedIndex(await repository.index(), refreshed);
  if (again && !(await repository.hasFile('index.lock'))) await repository.writeIndex(again);
  return {
    repository,
    prefix,
    head,
    staged,
    unstaged: unstaged.filter(({ kind }) => kind !== 'U'),
    conflicts,
    untracked: others,
    showsUntracked: mode !== 'no',
  };
}

/** `AA`, `UU`, … by the stages that are there. */
export function conflictLetters(entries: readonly IndexEntry[]): string {
  const stages = entries.reduce((sum, { stage }) => sum + 2 ** (stage - 1), 0);
  return ['', 'DD', 'AU', 'UD', 'UA', 'DU', 'AA', 'UU'][stages]!;
}

interface Line {
  index: string;
  workTree: string;
  from: string | null;
  path: string;
}

function linesOf(facts: StatusFacts): Line[] {
  const lines = new Map<string, Line>();
  for (const pair of facts.staged) {
    const path = pathOf(pair);
    const from = pair.kind === 'R' ? pair.before!.path : null;
    lines.set(path, { index: pair.kind, workTree: ' ', from, path });
  }
  for (const pair of facts.unstaged) {
    const path = pathOf(pair);
    const line = lines.get(path) ?? { index: ' ', workTree: ' ', from: null, path };
    line.workTree = pair.kind;
    lines.set(path, line);
  }
  for (const [path, entries] of facts.conflicts) {
    const letters = conflictLetters(entries);
    lines.set(path, { index: letters[0]!, workTree: letters[1]!, from: null, path });
  }
  return [...lines.values()].sort((one, two) => (one.path < two.path ? -1 : 1));
}

async function short(facts: StatusFacts, options: Options, prefix: string): Promise<string> {
  const isNul = options.has('z');
  const end = isNul ? '\0' : '\n';
  const shown = (path: string) => {
    if (isNul) return path;
    const quoted = quotedPath(shownPath(prefix, path));
    return quoted.includes(' ') && !quoted.startsWith('"') ? `"${quoted}"` : quoted;
  };
  let text = options.has('branch') ? `${await branchLine(facts)}${end}` : '';
  for (const { index, workTree, from, path } of linesOf(facts)) {
    if (from === null) text += `${index}${workTree} ${shown(path)}${end}`;
    else if (isNul) text += `${index}${workTree} ${path}\0${from}\0`;
    else text += `${index}${workTree} ${shown(from)} -> ${shown(path)}\n`;
  }
  for (const { path, isIgnored } of facts.untracked) if (!isIgnored) text += `?? ${shown(path)}${end}`;
  for (const { path, isIgnored } of facts.untracked) if (isIgnored) text += `!! ${shown(path)}${end}`;
  return text;
}

async function branchLine({ repository, head }: StatusFacts): Promise<string> {
  if (head.branch === null) return '## HEAD (no branch)';
  if (head.hash === null) return `## No commits yet on ${head.branch}`;
  const tracking = await trackingOf(repository, head.branch);
  if (!tracking) return `## ${head.branch}`;
  const start = `## ${head.branch}...${tracking.short}`;
  if (!tracking.counts) return `${start} [gone]`;
  const [ahead, behind] = tracking.counts;
  const parts = [ahead > 0 ? `ahead ${ahead}` : '', behind > 0 ? `behind ${behind}` : ''].filter((part) => part !== '');
  return parts.length === 0 ? start : `${start} [${parts.join(', ')}]`;
}

async function porcelain2(facts: StatusFacts, options: Options): Promise<string> {
  const isNul = options.has('z');
  const end = isNul ? '\0' : '\n';
  const shown = (path: string) => (isNul ? path : quotedPath(path));
  let text = '';
  if (options.has('branch')) text += await porcelain2Head(facts, end);
  const [staged, unstaged] = [byPathOf(facts.staged), byPathOf(facts.unstaged)];
  const index = new Map((await facts.repository.index()).map((entry) => [entry.path, entry]));
  for (const line of linesOf(facts)) {
    if (facts.conflicts.has(line.path)) continue;
    const [first, second] = [staged.get(line.path), unstaged.get(line.path)];
    const entry = index.get(line.path);
    const head = first ? first.before : entry ? { mode: entry.mode, hash: entry.hash } : null;
    const middle = first ? first.after : second?.before;
    const modes = [head?.mode ?? 0, middle?.mode ?? 0, second ? (second.after?.mode ?? 0) : (middle?.mode ?? 0)];
    const hashes = [head?.hash ?? zero, middle?.hash ?? zero];
    const letters = `${line.index}${line.workTree}`.replaceAll(' ', '.');
    const numbers = `${letters} N... ${modes.map(modeText).join(' ')} ${hashes.join(' ')}`;
    if (line.from === null) text += `1 ${numbers} ${shown(line.path)}${end}`;
    else text += `2 ${numbers} R${first!.score} ${shown(line.path)}${isNul ? '\0' : '\t'}${shown(line.from)}${end}`;
  }
  const workTree = new WorkTree(facts.repository);
  for (const [path, entries] of [...facts.conflicts].sort(([one], [two]) => (one < two ? -1 : 1))) {
    const stages = [1, 2, 3].map((stage) => entries.find((entry) => entry.stage === stage));
    const status = await workTree.status(path);
    const mode = status === null ? 0 : status.kind === 'symlink' ? 0o120000 : status.mode & 0o100 ? 0o100755 : 0o100644;
    const modes = [...stages.map((entry) => entry?.mode ?? 0), mode].map(modeText).join(' ');
    const hashes = stages.map((entry) => entry?.hash ?? zero).join(' ');
    text += `u ${conflictLetters(entries)} N... ${modes} ${hashes} ${shown(path)}${end}`;
  }
  for (const { path, isIgnored } of facts.untracked) if (!isIgnored) text += `? ${shown(path)}${end}`;
  for (const { path, isIgnored } of facts.untracked) if (isIgnored) text += `! ${shown(path)}${end}`;
  return text;
}

const zero = '0'.repeat(40);
const byPathOf = (pairs: readonly Pair[]) => new Map(pairs.map((pair) => [pathOf(pair), pair]));

async function porcelain2Head({ repository, head }: StatusFacts, end: string): Promise<string> {
  let text = `# branch.oid ${head.hash ?? '(initial)'}${end}# branch.head ${head.branch ?? '(detached)'}${end}`;
  if (head.branch === null) return text;
  const tracking = await trackingOf(repository, head.branch);
  if (!tracking) return text;
  text += `# branch.upstream ${tracking.short}${end}`;
  if (tracking.counts) text += `# branch.ab +${tracking.counts[0]} -${tracking.counts[1]}${end}`;
  return text;
}
