/** `git rm`, `git mv` and `git clean`. */
import { type Command, pathInWorkTree, prefixOf, repositoryOf, shownPath } from '../command.ts';
import { fatal, GitFailure, leave } from '../endings.ts';
import { parseOptions } from '../options.ts';
import { headOf } from '../repository/head.ts';
import type { IndexEntry } from '../repository/index-file.ts';
import { Pathspec } from '../repository/pathspec.ts';
import type { Repository } from '../repository/repository.ts';
import { removeFile } from '../repository/unpack.ts';
import { trackedIn, untracked, WorkTree } from '../repository/work-tree.ts';
import { filesOf } from '../show/pairs.ts';
import { quotedPath, textOf } from '../text.ts';

export const rm: Command = async (context, argv) => {
  const options = parseOptions(argv, {
    'f|force': 'flag',
    r: 'flag',
    cached: 'flag',
    'q|quiet': 'flag',
    'n|dry-run': 'flag',
    'ignore-unmatch': 'flag',
  });
  const repository = await repositoryOf(context);
  await repository.requireNoSubmodules();
  const words = [...options.words, ...(options.rest ?? [])];
  if (words.length === 0) throw fatal('No pathspec was given. Which files should I remove?');
  const pathspec = Pathspec.parse(words, prefixOf(context, repository), repository.root);
  const index = await repository.index();
  const chosen = index.filter(({ path }) => pathspec.matches(path));
  for (const item of pathspec.items) {
    const own = chosen.filter(({ path }) =>
      Pathspec.parse([item.word], prefixOf(context, repository), repository.root).matches(path),
    );
    if (own.length === 0 && !options.has('ignore-unmatch'))
      throw fatal(`pathspec '${item.word}' did not match any files`);
    const isDirectory = own.length > 0 && item.expression === null && !own.some(({ path }) => path === item.path);
    if (isDirectory && !options.has('r')) throw fatal(`not removing '${item.word}' recursively without -r`);
  }
  if (chosen.some(({ stage }) => stage > 0) && !options.has('force')) leave('rm during a conflict');
  if (!options.has('force')) await requireUnchanged(repository, chosen, options.has('cached'));
  const paths = [...new Set(chosen.map(({ path }) => path))];
  for (const path of paths) if (!options.has('quiet')) context.output.out(`rm '${path}'\n`);
  if (options.has('dry-run') || paths.length === 0) return 0;
  if (!options.has('cached')) for (const path of paths) await removeFile(repository, path);
  const removed = new Set(paths);
  await repository.writeIndex(index.filter(({ path }) => !removed.has(path)));
  return 0;
};

async function requireUnchanged(
  repository: Repository,
  entries: readonly IndexEntry[],
  isCached: boolean,
): Promise<void> {
  const head = await headOf(repository);
  const files = await filesOf(repository, head.hash === null ? null : (await repository.commit(head.hash)).tree);
  const workTree = new WorkTree(repository);
  const [both, staged, local]: [string[], string[], string[]] = [[], [], []];
  for (const entry of entries) {
    const { path } = entry;
    const state = await workTree.state(entry);
    const isLocal = state.state === 'changed';
    const old = files.get(path);
    const isStaged = old?.hash !== entry.hash || old.mode !== entry.mode;
    if (state.state === 'removed') continue;
    if (isLocal && isStaged) both.push(path);
    else if (isStaged && !isCached) staged.push(path);
    else if (isLocal && !isCached) local.push(path);
  }
  let text = '';
  const group = (paths: readonly string[], what: [string, string], how: string) => {
    if (paths.length === 0) return;
    text += `error: the following file${paths.length === 1 ? ` has ${what[0]}` : `s have ${what[1]}`}:\n`;
    text += `${paths.map((path) => `    ${path}\n`).join('')}(${how})\n`;
  };
  const content = 'staged content different from both the\nfile and the HEAD';
  group(both, [content, content], 'use -f to force removal');
  group(
    staged,
    ['changes staged in the index', 'changes staged in the index'],
    'use --cached to keep the file, or -f to force removal',
  );
  group(local, ['local modifications', 'local modifications'], 'use --cached to keep the file, or -f to force removal');
  if (text !== '') throw new GitFailure(text, 1);
}

export const mv: Command = async (context, argv) => {
  const options = parseOptions(argv, { 'f|force': 'flag', 'n|dry-run': 'flag', 'v|verbose': 'flag' });
  if (options.has('dry-run', 'verbose')) leave('mv -n');
  const repository = await repositoryOf(context);
  await repository.requireNoSubmodules();
  const prefix = prefixOf(context, repository);
  const words = [...options.words, ...(options.rest ?? [])];
  if (words.length < 2) leave('mv of less than two');
  const inside = (word: string) => pathInWorkTree(prefix, word) ?? leave(`mv of ${word}`);
  const target = inside(words.at(-1)!);
  const workTree = new WorkTree(repository);
  const isInto = target === '' || (await workTree.status(target))?.kind === 'directory';
  if (words.length > 2 && !isInto) throw fatal(`destination '${words.at(-1)}' is not a directory`);
  const tracked = trackedIn(await repository.index());
  const moves: [string, string][] = [];
  for (const word of words.slice(0, -1)) {
    const source = inside(word);
    const name = source.slice(source.lastIndexOf('/') + 1);
    const to = isInto ? (target === '' ? name : `${target}/${name}`) : target;
    const status = await workTree.status(source);
    const said = (what: string) => fatal(`${what}, source=${source}, destination=${to}`);
    if (!status) throw said('bad source');
    if (status.kind === 'directory') {
      if (!tracked.directories.has(source)) throw said('source directory is empty');
      if (`${to}/`.startsWith(`${source}/`)) throw said('can not move directory into itself');
    } else if (!tracked.files.has(source)) throw said('not under version control');
    if ((await repository.index()).some(({ path, stage }) => path === source && stage > 0)) throw said('conflicted');
    const there = await workTree.status(to);
    if (there && there.kind !== 'directory') {
      if (!options.has('force')) throw said('destination exists');
    } else if (there) throw said('destination already exists');
    const parent = to.slice(0, Math.max(0, to.lastIndexOf('/')));
    if (parent !== '' && (await workTree.status(parent))?.kind !== 'directory')
      throw said('destination directory does not exist');
    moves.push([source, to]);
  }
  let entries = [...(await repository.index())];
  await repository.requireUnlocked();
  for (const [from, to] of moves) {
    await context.tree.move(`${repository.root}/${textOf(from)}`, `${repository.root}/${textOf(to)}`);
    entries = entries
      .filter(({ path }) => path !== to)
      .map((entry) => {
        if (entry.path === from) return { ...entry, path: to };
        return entry.path.startsWith(`${from}/`) ? { ...entry, path: to + entry.path.slice(from.length) } : entry;
      });
  }
  await repository.writeIndex(entries);
  return 0;
};

export const clean: Command = async (context, argv) => {
  const options = parseOptions(argv, {
    'f|force': 'flag',
    'n|dry-run': 'flag',
    d: 'flag',
    x: 'flag',
    X: 'flag',
    'q|quiet': 'flag',
    'e|exclude': 'value',
  });
  const repository = await repositoryOf(context);
  await repository.requireNoSubmodules();
  const requires = repository.config.isTrue('clean.requireforce') !== false;
  if (!options.has('force', 'dry-run')) {
    if (!requires) leave('clean without -f');
    throw fatal(
      repository.config.has('clean.requireforce')
        ? 'clean.requireForce set to true and neither -i, -n, nor -f given; refusing to clean'
        : 'clean.requireForce defaults to true and neither -i, -n, nor -f given; refusing to clean',
    );
  }
  const prefix = prefixOf(context, repository);
  const words = [...options.words, ...(options.rest ?? [])];
  if (options.has('X') || options.has('exclude')) leave('clean of ignored files alone');
  const pathspec = Pathspec.parse(words.length === 0 && prefix !== '' ? ['.'] : words, prefix, repository.root);
  const workTree = new WorkTree(repository);
  const found = await untracked(workTree, {
    mode: 'normal',
    ignored: 'no',
    pathspec,
    withoutRules: options.has('x'),
    emptyDirectories: options.has('d'),
  });
  const takesDirectories = options.has('d') || words.length > 0;
  const chosen: string[] = [];
  for (const { path } of found) {
    if (!path.endsWith('/')) chosen.push(path);
    else if (takesDirectories) {
      if ((await workTree.directory(path.slice(0, -1))).has('.git')) leave('clean of a repository');
      if (await holdsIgnored(workTree, path.slice(0, -1), options.has('x')))
        leave('clean of a directory with ignored files');
      chosen.push(path);
    }
  }
  for (const path of chosen) {
    const shown = quotedPath(shownPath(prefix, path.replace(/\/$/, ''))) + (path.endsWith('/') ? '/' : '');
    if (options.has('dry-run')) context.output.out(`Would remove ${shown}\n`);
    else if (!options.has('quiet')) context.output.out(`Removing ${shown}\n`);
    if (!options.has('dry-run')) await context.tree.remove(`${repository.root}/${textOf(path.replace(/\/$/, ''))}`);
  }
  return 0;
};

async function holdsIgnored(workTree: WorkTree, directory: string, takesAll: boolean): Promise<boolean> {
  if (takesAll) return false;
  const ignores = await workTree.repository.ignores();
  for (const [name, status] of await workTree.directory(directory)) {
    const path = `${directory}/${name}`;
    if (await ignores.ignores(path, status.kind === 'directory')) return true;
    if (status.kind === 'directory' && (await holdsIgnored(workTree, path, false))) return true;
  }
  return false;
}
