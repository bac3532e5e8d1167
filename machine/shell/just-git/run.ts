/** just-bash and just-git are large: they are loaded when the first command needs them. */
import type { GitOptions } from 'just-git';
import type { CommandContext } from '../command.ts';
import type { Repository } from '../repository/repository.ts';

export interface JustGitResult {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface JustGitCall {
  readonly argv: readonly string[];
  readonly options?: GitOptions;
  /** Where it changes a repository's working tree: that is brought in order after it. */
  readonly repository?: Repository;
  readonly variables?: Readonly<Record<string, string>>;
}

/** Runs a command of just-git; the texts of the result are binary. */
export async function runJustGit(context: CommandContext, call: JustGitCall): Promise<JustGitResult> {
  const { run } = await import('./engine.ts');
  return run(context, call);
}
