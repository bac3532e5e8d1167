/** Commands that just-git does, with the options of each that were found to give git's own results. */
import { type Command, type CommandContext, personOf, repositoryOf } from '../command.ts';
import { leave } from '../endings.ts';
import { type Options, type OptionTable, parseOptions } from '../options.ts';
import { formatDate } from '../repository/dates.ts';
import { headOf, unfinished } from '../repository/head.ts';
import type { Repository } from '../repository/repository.ts';
import { textOf } from '../text.ts';
import { type JustGitResult, runJustGit } from './run.ts';

interface Accepted {
  readonly options: OptionTable;
  /** Hooks for which the native git does it. */
  readonly hooks?: readonly string[];
  /** Looks at what was given; leaves what is not done here. */
  check?(options: Options, repository: Repository, context: CommandContext): Promise<void> | void;
  readonly changes: boolean;
}

/** A command of just-git under these conditions. */
export function justGit(name: string, accepted: Accepted): Command {
  return async (context, argv) => {
    const options = parseOptions(argv, accepted.options);
    const repository = await repositoryOf(context);
    if (accepted.changes) {
      // just-git sees the repository's own settings alone.
      for (const key of ['merge.conflictstyle', 'merge.ff'])
        if (repository.config.has(key)) leave(`the setting ${key}`);
      await repository.requireNoSubmodules();
      await repository.requireUnlocked();
      await requireNoConversion(repository);
    }
    await repository.requireNoHooks(...(accepted.hooks ?? []));
    await accepted.check?.(options, repository, context);
    const rewritten = rewrittenArguments(argv, options);
    const variables = accepted.changes ? identityFor(context, repository) : {};
    const call = accepted.changes
      ? { argv: [name, ...rewritten], repository, variables }
      : { argv: [name, ...rewritten] };
    const result = await runJustGit(context, call);
    const isQuiet = options.has('quiet');
    return answered(context, await asGit(repository, name, argv, isQuiet ? { ...result, stdout: '' } : result));
  };
}

/** Who commits, from all of the configuration. */
export function identityFor(context: CommandContext, repository: Repository): Record<string, string> {
  const variables: Record<string, string> = {};
  for (const role of ['author', 'committer'] as const) {
    const { name, email } = personOf(context, repository, role);
    variables[`GIT_${role.toUpperCase()}_NAME`] = textOf(name);
    variables[`GIT_${role.toUpperCase()}_EMAIL`] = textOf(email);
  }
  return variables;
}

/** Options that say nothing to just-git. */
const unsaid = new Set(['-q', '--quiet', '--no-edit', '--no-color', '--no-pager', '--no-gpg-sign', '--stat']);

function rewrittenArguments(argv: readonly string[], options: Options): string[] {
  const end = options.rest === null ? argv.length : argv.indexOf('--');
  return argv.filter((word, at) => at >= end || !unsaid.has(word));
}

/** What just-git says otherwise than git 2.39. */
async function asGit(
  repository: Repository,
  name: string,
  argv: readonly string[],
  result: JustGitResult,
): Promise<JustGitResult> {
  if (name === 'revert' && result.exitCode === 0 && /^\[/m.test(result.stdout)) {
    const head = await headOf(repository);
    const { author } = await repository.commit(head.hash!);
    const date = ` Date: ${formatDate(author, 'default')}\n`;
    return { ...result, stdout: result.stdout.replace(/^\[.*\n/m, (line) => line + date) };
  }
  if (name === 'rebase') {
    const stderr = result.stderr
      .replace(/^((?:Rebasing \(\d+\/\d+\)\r)+)Successfully/, `$1\r${' '.repeat(80)}\rSuccessfully`)
      .replace(/^(Could not apply [0-9a-f]+\.\.\.) # /m, '$1 ');
    return { ...result, stderr };
  }
  if (name === 'stash' && ['pop', 'apply', 'drop', 'show'].includes(argv[0] ?? '')) {
    const isEmpty = (await repository.refs.hash('refs/stash')) === null && result.exitCode !== 0;
    if (isEmpty) return { ...result, stderr: 'No stash entries found.\n' };
  }
  return result;
}

export function answered({ output }: CommandContext, result: JustGitResult): number {
  output.out(result.stdout);
  output.err(result.stderr);
  return result.exitCode;
}

/** Attributes that convert or merge in their own way: just-git knows none. */
async function requireNoConversion(repository: Repository): Promise<void> {
  const attributes = await repository.attributes();
  if (attributes.areNone) return;
  for (const { path } of await repository.index()) {
    attributes.requireUnconverted(path, null);
    if (attributes.of(path).has('merge') || attributes.of(path).has('text')) leave(`attributes of ${path}`);
  }
}

export async function requireNothing(repository: Repository): Promise<void> {
  if ((await unfinished(repository)).size > 0) leave('another operation is unfinished');
}

export async function requireBranch(repository: Repository): Promise<void> {
  const head = await headOf(repository);
  if (head.hash === null || head.branch === null) leave('no branch');
}
