/** Where a repository stands: its branch, what that follows, and which operation is unfinished. */
import { aheadBehind } from './history.ts';
import type { Repository } from './repository.ts';
import { abbreviate, expandRef, upstreamOf } from './revisions.ts';

export interface Head {
  /** Full name; null when detached. */
  readonly ref: string | null;
  /** Short name; null when detached. */
  readonly branch: string | null;
  /** Null before the first commit. */
  readonly hash: string | null;
}

export async function headOf(repository: Repository): Promise<Head> {
  const raw = await repository.refs.raw('HEAD');
  if (raw && 'hash' in raw) return { ref: null, branch: null, hash: raw.hash };
  const final = await repository.refs.final('HEAD');
  const ref = final?.name ?? 'refs/heads/master';
  return { ref, branch: ref.replace(/^refs\/heads\//, ''), hash: final?.hash ?? null };
}

export interface Tracking {
  readonly upstream: string;
  /** `origin/main` */
  readonly short: string;
  /** Null where the upstream is gone. */
  readonly counts: readonly [ahead: number, behind: number] | null;
}

export async function trackingOf(repository: Repository, branch: string): Promise<Tracking | null> {
  const upstream = await upstreamOf(repository, branch);
  if (upstream === null) return null;
  const short = upstream.replace(/^refs\/(remotes|heads)\//, '');
  const [there, own] = [await repository.refs.hash(upstream), await repository.refs.hash(`refs/heads/${branch}`)];
  if (there === null || own === null) return { upstream, short, counts: null };
  return { upstream, short, counts: there === own ? [0, 0] : await aheadBehind(repository, own, there) };
}

/** `Your branch is …`, with its hints; empty where the branch follows nothing. */
export async function trackingText(repository: Repository, branch: string, withHints: boolean): Promise<string> {
  const tracking = await trackingOf(repository, branch);
  if (!tracking) return '';
  const { short, counts } = tracking;
  const hint = (text: string) => (withHints ? `  (${text})\n` : '');
  if (!counts) {
    return `Your branch is based on '${short}', but the upstream is gone.\n${hint('use "git branch --unset-upstream" to fixup')}`;
  }
  const [ahead, behind] = counts;
  const commits = (count: number) => `${count} commit${count === 1 ? '' : 's'}`;
  if (ahead === 0 && behind === 0) return `Your branch is up to date with '${short}'.\n`;
  if (behind === 0) {
    return `Your branch is ahead of '${short}' by ${commits(ahead)}.\n${hint('use "git push" to publish your local commits')}`;
  }
  if (ahead === 0) {
    return `Your branch is behind '${short}' by ${commits(behind)}, and can be fast-forwarded.\n${hint('use "git pull" to update your local branch')}`;
  }
  return (
    `Your branch and '${short}' have diverged,\nand have ${ahead} and ${behind} different commits each, respectively.\n` +
    hint('use "git pull" to merge the remote branch into yours')
  );
}

/** `HEAD detached at v1.0`, as git finds it in HEAD's log. */
export async function detachedText(repository: Repository, hash: string): Promise<string> {
  for (const { to, message } of (await repository.refs.log('HEAD')).reverse()) {
    const match = /^checkout: moving from \S+ to (\S+)$/.exec(message);
    if (!match) continue;
    const ref = await expandRef(repository, match[1]!);
    const isName = ref !== null && !/^[0-9a-f]{40}$/.test(match[1]!) && ref !== 'HEAD';
    const name = isName ? ref.replace(/^refs\/(heads|tags|remotes)\//, '') : await abbreviate(repository, to);
    return `HEAD detached ${to === hash ? 'at' : 'from'} ${name}`;
  }
  return 'Not currently on any branch.';
}

export type Unfinished = 'merge' | 'cherry-pick' | 'revert' | 'rebase' | 'am' | 'bisect';

export async function unfinished(repository: Repository): Promise<Set<Unfinished>> {
  const found = new Set<Unfinished>();
  if (await repository.hasFile('MERGE_HEAD')) found.add('merge');
  if (await repository.hasFile('CHERRY_PICK_HEAD')) found.add('cherry-pick');
  if (await repository.hasFile('REVERT_HEAD')) found.add('revert');
  if ((await repository.hasFile('rebase-merge')) || (await repository.hasFile('rebase-apply'))) found.add('rebase');
  if (await repository.hasFile('BISECT_LOG')) found.add('bisect');
  return found;
}
