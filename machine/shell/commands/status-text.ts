/** The long form of `git status`, which a commit without changes prints, too. */
import { shownPath } from '../command.ts';
import { leave } from '../endings.ts';
import { detachedText, trackingText, type Unfinished } from '../repository/head.ts';
import type { IndexEntry } from '../repository/index-file.ts';
import type { Repository } from '../repository/repository.ts';
import { abbreviate } from '../repository/revisions.ts';
import { type Pair, pathOf } from '../show/pairs.ts';
import { quotedPath } from '../text.ts';
import type { StatusFacts } from './status.ts';

export async function longStatus(facts: StatusFacts, operations: ReadonlySet<Unfinished>): Promise<string> {
  const { repository, head } = facts;
  if (operations.has('rebase') || operations.has('am')) leave('status during a rebase');
  const hints = repository.config.isTrue('advice.statushints') !== false;
  let text = head.branch === null ? `${await detachedText(repository, head.hash!)}\n` : `On branch ${head.branch}\n`;
  if (head.branch !== null && head.hash !== null) {
    const tracking = await trackingText(repository, head.branch, hints);
    if (tracking !== '') text += `${tracking}\n`;
  }
  text += await operationText(facts, operations, hints);
  if (head.hash === null) text += '\nNo commits yet\n\n';
  const isMerging = operations.has('merge') || operations.has('cherry-pick');
  text += stagedText(facts, hints && !isMerging);
  text += conflictText(facts, hints, isMerging);
  text += unstagedText(facts, hints);
  const shown = (path: string) => quotedPath(shownPath(facts.prefix, path));
  const plain = facts.untracked.filter(({ isIgnored }) => !isIgnored);
  const ignored = facts.untracked.filter(({ isIgnored }) => isIgnored);
  const section = (title: string, hint: string, paths: readonly { path: string }[]) => {
    if (paths.length === 0) return '';
    return `${title}\n${hints ? `  (${hint})\n` : ''}${paths.map(({ path }) => `\t${shown(path)}\n`).join('')}\n`;
  };
  if (facts.showsUntracked) {
    text += section('Untracked files:', 'use "git add <file>..." to include in what will be committed', plain);
    text += section('Ignored files:', 'use "git add -f <file>..." to include in what will be committed', ignored);
  } else if (isCommittable(facts, operations)) {
    text += `Untracked files not listed${hints ? ' (use -u option to show untracked files)' : ''}\n`;
  }
  return text + (isCommittable(facts, operations) ? '' : endingText(facts, plain.length > 0, hints));
}

function isCommittable({ staged, conflicts }: StatusFacts, operations: ReadonlySet<Unfinished>): boolean {
  return staged.length > 0 || (operations.has('merge') && conflicts.size === 0);
}

function endingText(facts: StatusFacts, hasUntracked: boolean, hints: boolean): string {
  const hint = (text: string) => (hints ? ` (${text})` : '');
  if (facts.unstaged.length > 0 || facts.conflicts.size > 0) {
    return `no changes added to commit${hint('use "git add" and/or "git commit -a"')}\n`;
  }
  if (hasUntracked) {
    return `nothing added to commit but untracked files present${hint('use "git add" to track')}\n`;
  }
  if (facts.head.hash === null) return `nothing to commit${hint('create/copy files and use "git add" to track')}\n`;
  if (!facts.showsUntracked) return `nothing to commit${hint('use -u to show untracked files')}\n`;
  return 'nothing to commit, working tree clean\n';
}

async function operationText(
  { repository, conflicts }: StatusFacts,
  operations: ReadonlySet<Unfinished>,
  hints: boolean,
): Promise<string> {
  const lines: string[] = [];
  const hint = (text: string) => {
    if (hints) lines.push(`  (${text})`);
  };
  if (operations.has('merge')) {
    if (conflicts.size > 0) {
      lines.push('You have unmerged paths.');
      hint('fix conflicts and run "git commit"');
      hint('use "git merge --abort" to abort the merge');
    } else {
      lines.push('All conflicts fixed but you are still merging.');
      hint('use "git commit" to conclude merge');
    }
    lines.push('');
  } else {
    for (const operation of ['cherry-pick', 'revert'] as const) {
      if (operations.has(operation)) lines.push(...(await pickLines(repository, operation, conflicts.size > 0, hints)));
    }
  }
  if (operations.has('bisect')) {
    const start = (await repository.readFile('BISECT_START'))?.trim() ?? '';
    lines.push(`You are currently bisecting, started from branch '${start}'.`);
    hint('use "git bisect reset" to get back to the original branch');
    lines.push('');
  }
  return lines.map((line) => `${line}\n`).join('');
}

async function pickLines(
  repository: Repository,
  operation: 'cherry-pick' | 'revert',
  hasConflicts: boolean,
  hints: boolean,
): Promise<string[]> {
  const file = operation === 'revert' ? 'REVERT_HEAD' : 'CHERRY_PICK_HEAD';
  const hash = (await repository.readFile(file))?.trim() ?? '';
  const doing = operation === 'revert' ? 'reverting' : 'cherry-picking';
  const lines = [`You are currently ${doing} commit ${await abbreviate(repository, hash)}.`];
  if (hints) {
    const fix = hasConflicts ? 'fix conflicts and run' : 'all conflicts fixed: run';
    lines.push(`  (${fix} "git ${operation} --continue")`);
    lines.push(`  (use "git ${operation} --skip" to skip this patch)`);
    lines.push(`  (use "git ${operation} --abort" to cancel the ${operation} operation)`);
  }
  return [...lines, ''];
}

const labels: Readonly<Record<string, string>> = {
  A: 'new file:',
  D: 'deleted:',
  M: 'modified:',
  R: 'renamed:',
  C: 'copied:',
  T: 'typechange:',
};
const labelWidth = 12;

function changeLine(facts: StatusFacts, pair: Pair): string {
  const shown = (path: string) => quotedPath(shownPath(facts.prefix, path));
  const name = pair.kind === 'R' ? `${shown(pair.before!.path)} -> ${shown(pair.after!.path)}` : shown(pathOf(pair));
  return `\t${labels[pair.kind]!.padEnd(labelWidth)}${name}\n`;
}

function stagedText(facts: StatusFacts, hints: boolean): string {
  if (facts.staged.length === 0) return '';
  const undo = facts.head.hash === null ? 'git rm --cached <file>...' : 'git restore --staged <file>...';
  const hint = hints ? `  (use "${undo}" to unstage)\n` : '';
  return `Changes to be committed:\n${hint}${facts.staged.map((pair) => changeLine(facts, pair)).join('')}\n`;
}

function unstagedText(facts: StatusFacts, hints: boolean): string {
  if (facts.unstaged.length === 0) return '';
  const add = facts.unstaged.some(({ kind }) => kind === 'D') ? 'git add/rm <file>...' : 'git add <file>...';
  const hint = hints
    ? `  (use "${add}" to update what will be committed)\n` +
      '  (use "git restore <file>..." to discard changes in working directory)\n'
    : '';
  return `Changes not staged for commit:\n${hint}${facts.unstaged.map((pair) => changeLine(facts, pair)).join('')}\n`;
}

const conflictLabels = [
  '',
  'both deleted:',
  'added by us:',
  'deleted by them:',
  'added by them:',
  'deleted by us:',
  'both added:',
  'both modified:',
];
const conflictWidth = 17;

function conflictText(facts: StatusFacts, hints: boolean, isMerging: boolean): string {
  if (facts.conflicts.size === 0) return '';
  const masks = [...facts.conflicts.values()].map(maskOf);
  const [bothDeleted, deleted] = [masks.includes(1), masks.some((mask) => mask === 3 || mask === 5)];
  const kept = masks.some((mask) => mask !== 1 && mask !== 3 && mask !== 5);
  let text = 'Unmerged paths:\n';
  if (hints) {
    const undo = facts.head.hash === null ? 'git rm --cached <file>...' : 'git restore --staged <file>...';
    if (!isMerging) text += `  (use "${undo}" to unstage)\n`;
    if (!bothDeleted) {
      text += deleted
        ? '  (use "git add/rm <file>..." as appropriate to mark resolution)\n'
        : '  (use "git add <file>..." to mark resolution)\n';
    } else if (!deleted && !kept) text += '  (use "git rm <file>..." to mark resolution)\n';
    else text += '  (use "git add/rm <file>..." as appropriate to mark resolution)\n';
  }
  for (const [path, entries] of [...facts.conflicts].sort(([one], [two]) => (one < two ? -1 : 1))) {
    const label = conflictLabels[maskOf(entries)]!.padEnd(conflictWidth);
    text += `\t${label}${quotedPath(shownPath(facts.prefix, path))}\n`;
  }
  return `${text}\n`;
}

const maskOf = (entries: readonly IndexEntry[]) => entries.reduce((sum, { stage }) => sum + 2 ** (stage - 1), 0);
