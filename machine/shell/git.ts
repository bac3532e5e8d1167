/**
 * HyperSH Git: the `git` that an agent's tools find, run in the machine on the conversation's own tree. It neither goes
 * through the kernel nor starts a process; what it cannot do exactly as git does is left to a native git.
 */
import type { HolderView } from '../agentfs/views.ts';
import type { GitCall, GitOutcome, HypershGitOptions } from './git-call.ts';

export type { GitCall, GitOutcome, HypershGitOptions } from './git-call.ts';

export class HypershGit {
  readonly view: HolderView;
  readonly options: HypershGitOptions;

  constructor(view: HolderView, options: HypershGitOptions) {
    this.view = view;
    this.options = options;
  }

  /** Runs one command. Throws for no fault of the caller's repository or arguments. */
  async run(call: GitCall): Promise<GitOutcome> {
    return { kind: 'native', reason: `${call.argv[0] ?? 'no command'} is not done here` };
  }
}
