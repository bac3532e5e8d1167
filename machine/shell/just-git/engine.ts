/**
 * Runs a command of just-git, in just-bash, on the conversation's tree: what it writes is held back, so that a result that
 * the engine does not trust can still be left to the native git.
 */
import { Bash } from 'just-bash';
import { createGit } from 'just-git';
import type { CommandContext } from '../command.ts';
import { leave } from '../endings.ts';
import { binaryOf } from '../text.ts';
import { TreeFileSystem } from './file-system.ts';
import type { JustGitCall, JustGitResult } from './run.ts';
import { settleWorkTree } from './settle.ts';

/** just-git says of options that it does not have that they are unknown; the native git has more of them. */
const misunderstandings = [
  /unknown (option|flag|switch)/i,
  /not implemented/i,
  /not supported/i,
  /unexpected argument/i,
];

/** Runs it; the texts of the result are ordinary ones. */
export async function run(context: CommandContext, call: JustGitCall): Promise<JustGitResult> {
  const fs = new TreeFileSystem(context.tree, context.pace);
  const git = createGit(call.options ?? {});
  const bash = new Bash({
    fs,
    cwd: context.cwd,
    commands: [],
    customCommands: [git],
    // It patches globals of the whole process, which under Bun break what else runs in it.
    defenseInDepth: false,
  });
  const result = await bash.exec('git', {
    args: [...call.argv],
    cwd: context.cwd,
    env: { ...variablesOf(context), ...call.variables },
    replaceEnv: true,
    signal: context.call.signal,
  });
  if (misunderstandings.some((pattern) => pattern.test(result.stderr))) leave(result.stderr.trim());
  if (call.repository) await settleWorkTree(call.repository, fs.written);
  const { exitCode, stdout, stderr } = result;
  return { exitCode, stdout: fromBash(stdout), stderr: fromBash(stderr) };
}

/** just-bash hands out bytes as characters where they are no ASCII; the engine's own output is in the same form. */
function fromBash(text: string): string {
  for (const character of text) if (character.charCodeAt(0) > 0xff) return binaryOf(text);
  return text;
}

function variablesOf({ environment }: CommandContext): Record<string, string> {
  const passed: Record<string, string> = { HOME: '/' };
  for (const [name, value] of Object.entries(environment)) {
    if (/^GIT_(AUTHOR|COMMITTER)_(NAME|EMAIL|DATE)$/.test(name)) passed[name] = value;
  }
  return passed;
}
