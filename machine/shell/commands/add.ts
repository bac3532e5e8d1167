/** `git add`. */
import { type Command, prefixOf, repositoryOf } from '../command.ts';
import { fatal, leave } from '../endings.ts';
import { parseOptions } from '../options.ts';
import type { IndexEntry } from '../repository/index-file.ts';
import { Pathspec } from '../repository/pathspec.ts';
import type { Repository } from '../repository/repository.ts';
import { stagedEntry, trackedIn, type Untracked, untracked, WorkTree } from '../repository/work-tree.ts';

export const add: Command = async (context, argv) => {
  const options = parseOptions(argv, {
    'A|all': 'flag',
    'no-ignore-removal': 'flag',
    'f|force': 'flag',
    'u|update': 'flag',
    'n|dry-run': 'flag',
    'v|verbose': 'flag',
    'N|intent-to-add': 'flag',
  });
  const repository = await repositoryOf(context);
  await repository.requireNoSubmodules();
  const prefix = prefixOf(context, repository);
  const words = [...options.words, ...(options.rest ?? [])];
  const isAll = options.has('all', 'no-ignore-removal');
  if (isAll && options.has('update')) throw fatal("options '-A' and '-u' cannot be used together");
  if (words.length === 0 && !isAll && !options.has('update')) {
    context.output.say('Nothing specified, nothing added.\n');
    if (repository.config.isTrue('advice.addemptypathspec') !== false) {
      context.output.say("hint: Maybe you wanted to say 'git add .'?\n");
      context.output.say('hint: Turn this message off by running\nhint: "git config advice.addEmptyPathspec false"\n');
    }
    return 0;
  }
  const pathspec = Pathspec.parse(words, prefix, repository.root);
  const workTree = new WorkTree(repository);
  const others = options.has('update') ? [] : await newPaths(workTree, pathspec, options.has('force'));
  const tracked = trackedIn(await repository.index());
  const missing = pathspec.unmatched([...tracked.files, ...others.map(({ path }) => path)]);
  if (missing !== null && !(await ignoredWord(workTree, pathspec, missing))) {
    if (!(await isEmptyDirectory(workTree, pathspec, missing))) {
      throw fatal(`pathspec '${missing}' did not match any files`);
    }
  }
  const refused = options.has('force') ? [] : await ignoredWords(workTree, pathspec);
  if (refused.length > 0) context.output.say(ignoredText(repository, refused));
  if (others.some(({ path }) => path.endsWith('/'))) leave('a repository within the repository');
  if (options.has('intent-to-add')) leave('--intent-to-add');
  const changed = await updated(workTree, pathspec);
  const [isDry, isVerbose] = [options.has('dry-run'), options.has('verbose')];
  const said: [string, string][] = [];
  const entries = new Map<string, IndexEntry | null>();
  for (const [path, status] of changed) {
    said.push([path, status ? `add '${path}'\n` : `remove '${path}'\n`]);
    if (!isDry) entries.set(path, status ? await stagedEntry(workTree, path, status) : null);
  }
  for (const { path } of others) {
    said.push([path, `add '${path}'\n`]);
    if (isDry) continue;
    const status = await workTree.status(path);
    if (status) entries.set(path, await stagedEntry(workTree, path, status));
    await repository.pace.rest();
  }
  if (isDry || isVerbose) {
    const tracksFirst = said.sort(([one], [two]) => (one < two ? -1 : 1));
    for (const [, line] of tracksFirst) context.output.out(line);
  }
  if (!isDry) await replaceEntries(repository, entries);
  return refused.length > 0 ? 1 : 0;
};

/** Replaces entries of these paths; null takes a path out. Conflicts of the path end. */
export async function replaceEntries(
  repository: Repository,
  entries: ReadonlyMap<string, IndexEntry | null>,
): Promise<void> {
  if (entries.size === 0) {
    if (!(await repository.hasFile('index'))) await repository.writeIndex([]);
    return;
  }
  const directories = trackedIn([...entries.values()].filter((entry) => entry !== null)).directories;
  const kept = (await repository.index()).filter(({ path }) => {
    if (entries.has(path)) return false;
    // A file gives way to a directory of its name, and what was below a directory to a file.
    return !directories.has(path) && !isBelowFile(path, entries);
  });
  await repository.writeIndex([...kept, ...[...entries.values()].filter((entry) => entry !== null)]);
}

function isBelowFile(path: string, entries: ReadonlyMap<string, IndexEntry | null>): boolean {
  for (let slash = path.lastIndexOf('/'); slash > 0; slash = path.lastIndexOf('/', slash - 1)) {
    if (entries.get(path.slice(0, slash))) return true;
  }
  return false;
}

async function newPaths(workTree: WorkTree, pathspec: Pathspec, isForced: boolean): Promise<Untracked[]> {
  const found = await untracked(workTree, {
    mode: 'all',
    ignored: 'no',
    pathspec,
    withoutRules: isForced,
  });
  return found.filter(({ path }) => pathspec.matches(path.replace(/\/$/, '')));
}

/** Files of the index that are other than they were; null for those that are gone. */
export async function updated(workTree: WorkTree, pathspec: Pathspec) {
  const changed = new Map<string, Awaited<ReturnType<WorkTree['status']>>>();
  for (const entry of await workTree.repository.index()) {
    if (!pathspec.matches(entry.path)) continue;
    if (entry.stage > 0) {
      const status = await workTree.status(entry.path);
      changed.set(entry.path, status?.kind === 'directory' ? null : status);
      continue;
    }
    const state = await workTree.state(entry);
    if (state.state === 'removed') changed.set(entry.path, null);
    else if (state.state === 'changed') changed.set(entry.path, state.status);
  }
  return changed;
}

async function ignoredWord(workTree: WorkTree, pathspec: Pathspec, word: string): Promise<boolean> {
  return (await ignoredWords(workTree, pathspec)).includes(word);
}

/** Words that name one ignored file or directory of their own. */
async function ignoredWords(workTree: WorkTree, pathspec: Pathspec): Promise<string[]> {
  const ignores = await workTree.repository.ignores();
  const tracked = trackedIn(await workTree.repository.index());
  const found: string[] = [];
  for (const { word, path, expression, isExcluded } of pathspec.items) {
    if (isExcluded || path === '' || (expression && !(await workTree.status(path)))) continue;
    if (tracked.files.has(path) || tracked.directories.has(path)) continue;
    const status = await workTree.status(path);
    if (status && (await ignores.ignores(path, status.kind === 'directory'))) found.push(word);
  }
  return found;
}

async function isEmptyDirectory(workTree: WorkTree, pathspec: Pathspec, word: string): Promise<boolean> {
  const item = pathspec.items.find((one) => one.word === word)!;
  if (item.path === '') return true;
  return (await workTree.status(item.path))?.kind === 'directory';
}

function ignoredText(repository: Repository, words: readonly string[]): string {
  const shown = words.map((word) => `${word.replace(/\/$/, '')}\n`);
  const hints =
    repository.config.isTrue('advice.addignoredfile') === false
      ? ''
      : 'hint: Use -f if you really want to add them.\nhint: Turn this message off by running\nhint: "git config advice.addIgnoredFile false"\n';
  return `The following paths are ignored by one of your .gitignore files:\n${shown.join('')}${hints}`;
}
