/** `git ls-files` and `git check-ignore`. */
import { type Command, pathInWorkTree, prefixOf, repositoryOf, shownPath } from '../command.ts';
import { fatal, GitFailure, leave } from '../endings.ts';
import { parseOptions } from '../options.ts';
import { modeText } from '../repository/parse.ts';
import { Pathspec } from '../repository/pathspec.ts';
import { trackedIn, untracked, WorkTree } from '../repository/work-tree.ts';
import { binaryOf, binaryOfBytes, compareBinary, quotedPath, textOf } from '../text.ts';

export const lsFiles: Command = async (context, argv) => {
  const options = parseOptions(argv, {
    'c|cached': 'flag',
    'd|deleted': 'flag',
    'm|modified': 'flag',
    'o|others': 'flag',
    'i|ignored': 'flag',
    's|stage': 'flag',
    'u|unmerged': 'flag',
    z: 'flag',
    'exclude-standard': 'flag',
    'error-unmatch': 'flag',
    'full-name': 'flag',
    directory: 'flag',
    t: 'flag',
  });
  if (options.has('t', 'directory')) leave('an option of ls-files');
  const repository = await repositoryOf(context);
  const prefix = prefixOf(context, repository);
  const words = [...options.words, ...(options.rest ?? [])];
  const pathspec = Pathspec.parse(words.length === 0 && prefix !== '' ? ['.'] : words, prefix, repository.root);
  const end = options.has('z') ? '\0' : '\n';
  const base = options.has('full-name') ? '' : prefix;
  const shown = (path: string) => (options.has('z') ? shownPath(base, path) : quotedPath(shownPath(base, path)));
  const index = await repository.index();
  const workTree = new WorkTree(repository);
  const { output } = context;
  if (options.has('ignored') && !options.has('others')) leave('ls-files -i without -o');
  if (options.has('others')) {
    const isIgnored = options.has('ignored');
    if (isIgnored && !options.has('exclude-standard')) leave('ls-files -i without rules');
    const found = await untracked(workTree, {
      mode: 'all',
      ignored: isIgnored ? 'traditional' : 'no',
      pathspec,
      withoutRules: !options.has('exclude-standard'),
    });
    const chosen = isIgnored
      ? await filesBelow(
          workTree,
          found.filter((one) => one.isIgnored).map(({ path }) => path),
        )
      : found.map(({ path }) => path);
    for (const path of chosen.sort(compareBinary)) output.out(`${shown(path)}${end}`);
  }
  const listsIndex = options.has('cached', 'stage', 'unmerged') || !options.has('others', 'deleted', 'modified');
  const changes = options.has('deleted', 'modified');
  const matched: string[] = [];
  let last = '';
  for (const entry of index) {
    if (!pathspec.matches(entry.path)) continue;
    matched.push(entry.path);
    const isStaged = options.has('stage', 'unmerged');
    const line = isStaged
      ? `${modeText(entry.mode)} ${entry.hash} ${entry.stage}\t${shown(entry.path)}${end}`
      : `${shown(entry.path)}${end}`;
    if (listsIndex && !(options.has('unmerged') && entry.stage === 0)) output.out(line);
    if (!changes || entry.path === last) continue;
    if (entry.stage > 0) leave('ls-files of a conflict');
    last = entry.path;
    const state = await workTree.state(entry);
    if (state.state === 'removed' && options.has('deleted')) output.out(line);
    if (state.state !== 'same' && options.has('modified')) output.out(line);
  }
  const missing = options.has('error-unmatch') ? pathspec.unmatched(matched) : null;
  if (missing !== null) {
    output.say(`error: pathspec '${missing}' did not match any file(s) known to git\nDid you forget to 'git add'?\n`);
    return 1;
  }
  return 0;
};

async function filesBelow(workTree: WorkTree, paths: readonly string[]): Promise<string[]> {
  const files: string[] = [];
  for (const path of paths) {
    if (!path.endsWith('/')) {
      files.push(path);
      continue;
    }
    const directory = path.slice(0, -1);
    for (const [name, status] of await workTree.directory(directory)) {
      files.push(...(await filesBelow(workTree, [status.kind === 'directory' ? `${path}${name}/` : path + name])));
    }
  }
  return files;
}

export const checkIgnore: Command = async (context, argv) => {
  const options = parseOptions(argv, {
    'q|quiet': 'flag',
    'v|verbose': 'flag',
    'n|non-matching': 'flag',
    stdin: 'flag',
    z: 'flag',
    'no-index': 'flag',
  });
  if (options.has('z')) leave('check-ignore -z');
  const repository = await repositoryOf(context);
  const prefix = prefixOf(context, repository);
  const words = options.has('stdin')
    ? textOf(binaryOfBytes(await context.call.stdin()))
        .split('\n')
        .filter((line) => line !== '')
    : [...options.words, ...(options.rest ?? [])];
  if (words.length === 0) {
    if (options.has('stdin')) return 1;
    throw fatal('no path specified');
  }
  const ignores = await repository.ignores();
  const workTree = new WorkTree(repository);
  const tracked = trackedIn(await repository.index());
  let found = 0;
  for (const word of words) {
    const path = pathInWorkTree(
      prefix,
      word.startsWith(`${repository.root}/`) ? word.slice(repository.root.length + 1) : word,
    );
    if (path === null)
      throw new GitFailure(`fatal: ${word}: '${word}' is outside repository at '${repository.root}'\n`);
    const isKnown = !options.has('no-index') && (tracked.files.has(path) || tracked.directories.has(path));
    const status = await workTree.status(path);
    const isDirectory = status?.kind === 'directory' || word.endsWith('/');
    const pattern = isKnown || path === '' ? null : await ignores.decides(path, isDirectory);
    const isIgnored = pattern !== null && (options.has('verbose') || !pattern.isNegated);
    if (isIgnored) found += 1;
    if (options.has('quiet') || (!isIgnored && !options.has('non-matching'))) continue;
    const name = quotedPath(binaryOf(word));
    if (!options.has('verbose')) context.output.out(`${name}\n`);
    else if (pattern) context.output.out(`${pattern.source}:${pattern.line}:${pattern.text}\t${name}\n`);
    else context.output.out(`::\t${name}\n`);
  }
  return found > 0 ? 0 : 1;
};
