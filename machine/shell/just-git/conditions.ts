/** What just-git would do otherwise than git 2.39, command by command: the native git does that. */
import { type CommandContext, prefixOf } from '../command.ts';
import { leave } from '../endings.ts';
import type { Options } from '../options.ts';
import { headOf } from '../repository/head.ts';
import type { Repository } from '../repository/repository.ts';
import { needCommit, resolveRevision } from '../repository/revisions.ts';
import { WorkTree } from '../repository/work-tree.ts';

const stashActions = new Set(['push', 'pop', 'apply', 'drop', 'list', 'show', 'clear']);

/** just-git takes no paths: it would put away everything. */
export function requireWholeStash(options: Options, repository: Repository, context: CommandContext): void {
  const [action = 'push', ...words] = options.words;
  if (!stashActions.has(action)) leave(`stash ${action}`);
  if (options.rest !== null || (action === 'push' && words.length > 0)) leave('stash of paths');
  if (['pop', 'apply'].includes(action)) requireRoot(repository, context);
}

/** Ranges, the side of a merge for what is none, and the newer words of a revert of a revert. */
export async function requireSinglePicks(
  command: 'cherry-pick' | 'revert',
  options: Options,
  repository: Repository,
): Promise<void> {
  for (const word of [...options.words, ...(options.rest ?? [])]) {
    if (/\.\.|^\^/.test(word)) leave(`${command} of a range`);
    if ((await resolveRevision(repository, word)) === null) leave(`${command} of what is not found`);
    const { parents, message } = await repository.commit(await needCommit(repository, word));
    if (options.has('mainline') !== parents.length > 1) leave(`${command} and the side of a merge`);
    if (command === 'revert' && message.startsWith('Revert "')) leave('revert of a revert');
  }
}

/** A file that is changed has lines that nobody committed yet. */
export async function requireCommittedLines(
  options: Options,
  repository: Repository,
  context: CommandContext,
): Promise<void> {
  requireRoot(repository, context);
  if (options.has('porcelain', 'line-porcelain')) leave('blame for programs');
  if (options.values('L').some((range) => !/^\d+,\+?\d+$/.test(range))) leave('a range of blame');
  const words = [...options.words, ...(options.rest ?? [])];
  const path = words.at(-1) ?? leave('blame of nothing');
  const index = (await repository.index()).filter((entry) => entry.path === path);
  const [entry] = index;
  if (!entry || index.length > 1 || (await new WorkTree(repository).state(entry)).state !== 'same')
    leave('blame of a file that is changed');
  const head = await headOf(repository);
  if (head.hash === null) leave('blame before the first commit');
  if ((await resolveRevision(repository, `HEAD:${path}`)) !== entry.hash) leave('blame of a file that is staged');
}

/** just-git takes every pattern for one of JavaScript, and looks through everything. */
export function requirePlainGrep(options: Options, repository: Repository, context: CommandContext): void {
  requireRoot(repository, context);
  if (options.has('A', 'B', 'C')) leave('grep with lines around');
  const patterns = options.has('e') ? options.values('e') : options.words.slice(0, 1);
  if (options.words.length > (options.has('e') ? 0 : 1)) leave('grep in some files or in a commit');
  const special = options.has('extended-regexp') ? /\\|\[[:=.]|\[\^?\]|\(\?|\{/ : /[\\()|+?{}]|\[[:=.]|\[\^?\]/;
  if (!options.has('fixed-strings') && patterns.some((pattern) => special.test(pattern))) leave('a pattern of grep');
}

function requireRoot(repository: Repository, context: CommandContext): void {
  if (prefixOf(context, repository) !== '') leave('not at the root of the working tree');
}
