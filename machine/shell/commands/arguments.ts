/** Tells revisions from paths, as git does where no `--` says it. */
import type { CommandContext } from '../command.ts';
import { fatal, GitFailure } from '../endings.ts';
import type { Options } from '../options.ts';
import { looksLikePath } from '../repository/pathspec.ts';
import type { Repository } from '../repository/repository.ts';
import { missingPath, resolveRevision } from '../repository/revisions.ts';

export interface Split {
  readonly revisions: string[];
  readonly paths: string[];
}

export async function splitRevisions(
  repository: Repository,
  context: CommandContext,
  options: Options,
): Promise<Split> {
  const revisions: string[] = [];
  if (options.rest !== null) {
    for (const word of options.words) {
      if (!(await isRevision(repository, word))) throw fatal(`bad revision '${word}'`);
      revisions.push(word);
    }
    return { revisions, paths: options.rest };
  }
  for (const [at, word] of options.words.entries()) {
    const [isRev, isPath] = [await isRevision(repository, word), await exists(context, word)];
    if (isRev && isPath) {
      throw new GitFailure(`fatal: ambiguous argument '${word}': both revision and filename\n${separateHint}`);
    }
    if (isRev) {
      revisions.push(word);
      continue;
    }
    const paths = options.words.slice(at);
    for (const path of paths)
      if (!looksLikePath(path) && !(await exists(context, path))) {
        throw (await missingIn(context, repository, path)) ?? unknownArgument(path);
      }
    for (const path of paths.slice(1)) {
      if (!looksLikePath(path) && (await isRevision(repository, path)) && !(await exists(context, path))) {
        throw fatal(`bad revision '${path}'`);
      }
    }
    return { revisions, paths };
  }
  return { revisions, paths: [] };
}

/** The failure of a `revision:path` without such a path, or null. */
export function missingIn(context: CommandContext, repository: Repository, word: string): Promise<Error | null> {
  const root = repository.workTree;
  return missingPath(repository, word, async (path) => root !== null && exists(context, `${root}/${path}`));
}

const separateHint = `Use '--' to separate paths from revisions, like this:\n'git <command> [<revision>...] -- [<file>...]'\n`;

export function unknownArgument(word: string): GitFailure {
  return new GitFailure(
    `fatal: ambiguous argument '${word}': unknown revision or path not in the working tree.\n${separateHint}`,
  );
}

async function exists(context: CommandContext, word: string): Promise<boolean> {
  const path = word.startsWith('/') ? word : `${context.cwd}/${word}`;
  if (word === '') return false;
  return (await context.tree.lstat(path)) !== null;
}

/** Whether a word is a revision or a range of them. */
export async function isRevision(repository: Repository, word: string): Promise<boolean> {
  const range = /^(.*?)\.\.\.?(.*)$/s.exec(word);
  if (range && !word.includes(':')) {
    if (word === '..' || word === '...') return false;
    return (
      (await resolveRevision(repository, range[1] || 'HEAD')) !== null &&
      (await resolveRevision(repository, range[2] || 'HEAD')) !== null
    );
  }
  const bare = word.startsWith('^') ? word.slice(1) : word;
  return bare !== '' && (await resolveRevision(repository, bare)) !== null;
}
