/** Walks of the commits' graph. */
import type { Commit } from './parse.ts';
import type { Repository } from './repository.ts';
import { peel } from './revisions.ts';

export interface WalkOptions {
  readonly firstParent?: boolean;
  /** Commits that count; their parents, as the walk goes on. Null leaves a commit out and follows all its parents. */
  readonly simplify?: (commit: Commit) => Promise<{ readonly isShown: boolean; readonly parents: readonly string[] }>;
  readonly order?: 'date' | 'topology';
}

export interface Walked {
  readonly commit: Commit;
  readonly isShown: boolean;
  /** Parents as far as the walk followed them. */
  readonly parents: readonly string[];
}

/** Commits reachable from `include` and from none of `exclude`, latest committed first. */
export async function* walk(
  repository: Repository,
  include: readonly string[],
  exclude: readonly string[],
  options: WalkOptions = {},
): AsyncGenerator<Walked> {
  const excluded = exclude.length === 0 ? new Set<string>() : await uninteresting(repository, include, exclude);
  if (options.order === 'topology') {
    yield* byTopology(repository, include, excluded, options);
    return;
  }
  const queue = new CommitQueue();
  const seen = new Set<string>();
  const add = async (hash: string) => {
    if (seen.has(hash) || excluded.has(hash)) return;
    seen.add(hash);
    queue.push(await repository.commit(hash));
  };
  for (const hash of include) await add(hash);
  for (let commit = queue.pop(); commit; commit = queue.pop()) {
    await repository.pace.rest();
    const walked = await visit(commit, options);
    for (const parent of walked.parents) await add(parent);
    yield walked;
  }
}

async function visit(commit: Commit, options: WalkOptions): Promise<Walked> {
  const simplified = await options.simplify?.(commit);
  const parents = simplified?.parents ?? commit.parents;
  return { commit, isShown: simplified?.isShown ?? true, parents: options.firstParent ? parents.slice(0, 1) : parents };
}

/** No parent before all of its children. */
async function* byTopology(
  repository: Repository,
  include: readonly string[],
  excluded: ReadonlySet<string>,
  options: WalkOptions,
): AsyncGenerator<Walked> {
  const nodes = new Map<string, Walked>();
  const children = new Map<string, number>();
  for await (const walked of walk(repository, include, [], { ...options, order: 'date' })) {
    if (excluded.has(walked.commit.hash)) continue;
    nodes.set(walked.commit.hash, walked);
    for (const parent of walked.parents) children.set(parent, (children.get(parent) ?? 0) + 1);
  }
  const ready = [...nodes.values()].filter(({ commit }) => !children.get(commit.hash)).reverse();
  for (let next = ready.pop(); next; next = ready.pop()) {
    yield next;
    for (const parent of next.parents) {
      const left = (children.get(parent) ?? 0) - 1;
      children.set(parent, left);
      const node = nodes.get(parent);
      if (left === 0 && node) ready.push(node);
    }
  }
}

/** Everything reachable from `exclude`; the walk ends where nothing of `include` can be met any more. */
async function uninteresting(
  repository: Repository,
  include: readonly string[],
  exclude: readonly string[],
): Promise<Set<string>> {
  const queue = new CommitQueue();
  const seen = new Set<string>();
  const excluded = new Set<string>(exclude);
  /** Commits in the queue that may still be wanted. */
  const open = new Set<string>(include.filter((hash) => !excluded.has(hash)));
  const add = async (hash: string) => {
    if (seen.has(hash)) return;
    seen.add(hash);
    queue.push(await repository.commit(hash));
  };
  for (const hash of [...include, ...exclude]) await add(hash);
  for (let commit = queue.pop(); commit; commit = queue.pop()) {
    await repository.pace.rest();
    const isExcluded = excluded.has(commit.hash);
    open.delete(commit.hash);
    for (const parent of commit.parents) {
      if (isExcluded) {
        if (seen.has(parent) && !excluded.has(parent)) await exclude1(repository, parent, excluded, seen);
        excluded.add(parent);
        open.delete(parent);
      } else if (!excluded.has(parent) && !seen.has(parent)) open.add(parent);
      await add(parent);
    }
    if (open.size === 0 && queue.size > slop && !isExcluded) break;
  }
  return excluded;
}

/** Clocks of commits may be wrong: a walk goes on a little past the end. */
const slop = 1_000;

/** What was walked over as wanted turns out not to be. */
async function exclude1(repository: Repository, hash: string, excluded: Set<string>, seen: Set<string>): Promise<void> {
  const open = [hash];
  for (let one = open.pop(); one !== undefined; one = open.pop()) {
    if (excluded.has(one)) continue;
    excluded.add(one);
    if (!seen.has(one)) continue;
    open.push(...(await repository.commit(one)).parents);
  }
}

/** The best common ancestors of two commits. */
export async function mergeBases(repository: Repository, one: string, two: string): Promise<string[]> {
  if (one === two) return [one];
  const [left, right] = [await ancestors(repository, one), await ancestors(repository, two)];
  const common = [...left].filter((hash) => right.has(hash));
  const stale = new Set<string>();
  for (const hash of common) {
    if (stale.has(hash)) continue;
    const open = [...(await repository.commit(hash)).parents];
    for (let parent = open.pop(); parent !== undefined; parent = open.pop()) {
      if (stale.has(parent)) continue;
      stale.add(parent);
      open.push(...(await repository.commit(parent)).parents);
    }
    await repository.pace.rest();
  }
  const best = common.filter((hash) => !stale.has(hash));
  const dated = await Promise.all(best.map(async (hash) => repository.commit(hash)));
  return dated.sort((a, b) => b.committer.seconds - a.committer.seconds).map(({ hash }) => hash);
}

export async function isAncestor(repository: Repository, ancestor: string, descendant: string): Promise<boolean> {
  if (ancestor === descendant) return true;
  const limit = (await repository.commit(ancestor)).committer.seconds;
  const seen = new Set<string>([descendant]);
  const open = [descendant];
  for (let hash = open.pop(); hash !== undefined; hash = open.pop()) {
    await repository.pace.rest();
    const commit = await repository.commit(hash);
    // A day of grace for clocks that were wrong.
    if (commit.committer.seconds + 86_400 < limit) continue;
    for (const parent of commit.parents) {
      if (parent === ancestor) return true;
      if (!seen.has(parent)) {
        seen.add(parent);
        open.push(parent);
      }
    }
  }
  return false;
}

export async function ancestors(repository: Repository, from: string): Promise<Set<string>> {
  const seen = new Set<string>([from]);
  const open = [from];
  for (let hash = open.pop(); hash !== undefined; hash = open.pop()) {
    await repository.pace.rest();
    for (const parent of (await repository.commit(hash)).parents) {
      if (seen.has(parent)) continue;
      seen.add(parent);
      open.push(parent);
    }
  }
  return seen;
}

/** How many commits each of two has that the other has not. */
export async function aheadBehind(repository: Repository, one: string, two: string): Promise<[number, number]> {
  const count = async (include: string, exclude: string) => {
    let found = 0;
    for await (const _ of walk(repository, [include], [exclude])) found += 1;
    return found;
  };
  return [await count(one, two), await count(two, one)];
}

/** References with the commits that they lead to, for `--all` and its like. */
export async function refCommits(repository: Repository, prefix: string): Promise<string[]> {
  const hashes: string[] = [];
  for (const { hash } of await repository.refs.list(prefix)) {
    const commit = await peel(repository, hash, 'commit');
    if (commit) hashes.push(commit);
  }
  return hashes;
}

/** Latest first; those of the same second in the order in which they came. */
class CommitQueue {
  readonly #heap: { readonly commit: Commit; readonly number: number }[] = [];
  #count = 0;

  get size(): number {
    return this.#heap.length;
  }

  push(commit: Commit): void {
    this.#heap.push({ commit, number: this.#count++ });
    let at = this.#heap.length - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!this.#before(at, parent)) break;
      this.#swap(at, parent);
      at = parent;
    }
  }

  pop(): Commit | undefined {
    const first = this.#heap[0];
    const last = this.#heap.pop();
    if (!first || !last) return undefined;
    if (this.#heap.length > 0) {
      this.#heap[0] = last;
      for (let at = 0; ; ) {
        const [left, right] = [2 * at + 1, 2 * at + 2];
        let best = at;
        if (left < this.#heap.length && this.#before(left, best)) best = left;
        if (right < this.#heap.length && this.#before(right, best)) best = right;
        if (best === at) break;
        this.#swap(at, best);
        at = best;
      }
    }
    return first.commit;
  }

  #before(one: number, two: number): boolean {
    const [left, right] = [this.#heap[one]!, this.#heap[two]!];
    const difference = left.commit.committer.seconds - right.commit.committer.seconds;
    return difference > 0 || (difference === 0 && left.number < right.number);
  }

  #swap(one: number, two: number): void {
    [this.#heap[one], this.#heap[two]] = [this.#heap[two]!, this.#heap[one]!];
  }
}
