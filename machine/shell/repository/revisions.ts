/** Turns what commands call a revision into the name of an object. */
import { fatal, leave } from '../endings.ts';
import { binaryOf } from '../text.ts';
import { isHash } from './objects.ts';
import { parseTag, type TreeEntry } from './parse.ts';
import type { Repository } from './repository.ts';

/** Where a short name of a reference may stand, strongest first. */
const places = ['', 'refs/', 'refs/tags/', 'refs/heads/', 'refs/remotes/'];

/** The full name of a reference that is called so, or null. */
export async function expandRef(repository: Repository, short: string): Promise<string | null> {
  if (short === '' || !isRefName(short)) return null;
  const found: string[] = [];
  for (const place of places) {
    const name = place + short;
    if (place === '' && !/^(refs\/|[A-Z_]+$)/.test(short)) continue;
    if ((await repository.refs.hash(name)) !== null) found.push(name);
  }
  const remote = `refs/remotes/${short}/HEAD`;
  if ((await repository.refs.hash(remote)) !== null) found.push(remote);
  if (found.length > 1) leave(`${short}, which is ambiguous`);
  return found[0] ?? null;
}

/** Whether git takes this as a reference's name. */
export function isRefName(name: string): boolean {
  if (name === '' || name.startsWith('/') || name.endsWith('/') || name.endsWith('.')) return false;
  if (name === '@' || name.includes('..') || name.includes('//') || name.includes('@{')) return false;
  for (const character of name) {
    if (character <= ' ' || character === '\x7f' || '~^:?*[\\'.includes(character)) return false;
  }
  return name.split('/').every((part) => !part.startsWith('.') && !part.endsWith('.lock'));
}

/** The object that a revision names; null where there is none. */
export async function resolveRevision(repository: Repository, revision: string): Promise<string | null> {
  const text = binaryOf(revision);
  if (text.startsWith(':')) return resolveIndexPath(repository, text);
  const colon = colonOf(text);
  if (colon >= 0) return resolveTreePath(repository, text.slice(0, colon) || 'HEAD', text.slice(colon + 1));
  const steps = /^(.*?)((?:[~^](?:\d+|\{[^}]*\})?)*)$/s.exec(text)!;
  let hash = await resolveBase(repository, steps[1]!);
  for (const step of steps[2]!.match(/[~^](?:\d+|\{[^}]*\})?/g) ?? []) {
    if (hash === null) return null;
    hash = await follow(repository, hash, step);
  }
  return hash;
}

/** The same; git's failure where there is none. */
export async function needRevision(repository: Repository, revision: string): Promise<string> {
  return (await resolveRevision(repository, revision)) ?? Promise.reject(fatal(`bad revision '${revision}'`));
}

/** The commit that a revision leads to; git's failure where it is none. */
export async function needCommit(repository: Repository, revision: string): Promise<string> {
  const hash = await needRevision(repository, revision);
  const commit = await peel(repository, hash, 'commit');
  return commit ?? Promise.reject(fatal(`bad revision '${revision}'`));
}

/** The tree that a revision leads to, or null. */
export async function treeOf(repository: Repository, revision: string): Promise<string | null> {
  const hash = await resolveRevision(repository, revision);
  return hash === null ? null : peel(repository, hash, 'tree');
}

/** Follows tags, and commits to their trees, until an object of this kind; null where there is none. */
export async function peel(
  repository: Repository,
  hash: string,
  kind: 'commit' | 'tree' | 'blob' | 'tag' | 'any',
): Promise<string | null> {
  let current = hash;
  for (;;) {
    const object = await repository.objects.find(current);
    if (!object) return null;
    if (object.kind === kind || (kind === 'any' && object.kind !== 'tag')) return current;
    if (object.kind === 'tag') current = parseTag(object.bytes).object;
    else if (object.kind === 'commit' && kind === 'tree') current = (await repository.commit(current)).tree;
    else return null;
  }
}

async function resolveBase(repository: Repository, base: string): Promise<string | null> {
  const at = /^(.*?)@\{([^}]*)\}$/s.exec(base);
  if (at) return resolveLog(repository, at[1]!, at[2]!);
  if (base === '' || base === '@') return base === '@' ? repository.refs.hash('HEAD') : null;
  if (isHash(base)) return base;
  const ref = await expandRef(repository, base);
  if (ref) return repository.refs.hash(ref);
  const described = /-g([0-9a-f]{4,40})$/.exec(base);
  return resolvePrefix(repository, described ? described[1]! : base);
}

async function resolvePrefix(repository: Repository, text: string): Promise<string | null> {
  const prefix = text.toLowerCase();
  if (!/^[0-9a-f]{4,40}$/.test(prefix)) return null;
  const found = await repository.objects.beginningWith(prefix);
  if (found.length < 2) return found[0] ?? null;
  return leave(`${text}, which is ambiguous`);
}

async function resolveLog(repository: Repository, name: string, inside: string): Promise<string | null> {
  if (/^-\d+$/.test(inside) && name === '') {
    const branch = await previousBranch(repository, Number(inside.slice(1)));
    return branch === null ? null : resolveRevision(repository, branch);
  }
  if (/^(u|upstream)$/i.test(inside)) {
    const upstream = await upstreamOf(repository, name);
    if (upstream === null) throw await noUpstream(repository, name);
    return repository.refs.hash(upstream);
  }
  if (!/^\d+$/.test(inside)) return leave(`@{${inside}}`);
  const ref = name === '' ? ((await repository.refs.final('HEAD'))?.name ?? 'HEAD') : await expandRef(repository, name);
  if (ref === null) return null;
  const log = await repository.refs.log(ref);
  const number = Number(inside);
  if (number === log.length && log[0]) return log[0].from === '0'.repeat(40) ? leave('a log that ends') : log[0].from;
  const line = log[log.length - 1 - number];
  if (line) return line.to;
  if (log.length === 0) return leave('a reference without a log');
  throw fatal(`log for '${name === '' ? ref.replace('refs/heads/', '') : name}' only has ${log.length} entries`);
}

/** The branch (or detached commit) that was left `count` checkouts ago. */
export async function previousBranch(repository: Repository, count: number): Promise<string | null> {
  let left = count;
  for (const { message } of (await repository.refs.log('HEAD')).reverse()) {
    const match = /^checkout: moving from (\S+) to /.exec(message);
    if (match && --left === 0) return match[1]!;
  }
  return null;
}

/** The full name of the reference that a branch follows, or null. An empty name is the current branch. */
export async function upstreamOf(repository: Repository, branch: string): Promise<string | null> {
  let name = branch.replace(/^refs\/heads\//, '');
  if (name === '' || name === 'HEAD' || name === '@') {
    const head = await repository.refs.final('HEAD');
    if (!head?.name.startsWith('refs/heads/')) return null;
    name = head.name.slice('refs/heads/'.length);
  }
  const { config } = repository;
  const [remote, merge] = [config.get(`branch.${name}.remote`), config.get(`branch.${name}.merge`)];
  if (remote === null || merge === null) return null;
  if (remote === '.') return binaryOf(merge);
  for (const spec of config.all(`remote.${remote}.fetch`)) {
    const match = /^\+?([^:]*):(.*)$/.exec(spec ?? '');
    if (!match) continue;
    if (match[1] === merge) return binaryOf(match[2]!);
    const star = match[1]!.indexOf('*');
    if (star < 0) continue;
    const [before, after] = [match[1]!.slice(0, star), match[1]!.slice(star + 1)];
    if (!merge.startsWith(before) || !merge.endsWith(after)) continue;
    return binaryOf(match[2]!.replace('*', merge.slice(before.length, merge.length - after.length)));
  }
  return null;
}

async function noUpstream(repository: Repository, name: string): Promise<Error> {
  const head = (await repository.refs.final('HEAD'))?.name ?? 'HEAD';
  if (name === '' && !head.startsWith('refs/heads/')) return fatal('HEAD does not point to a branch');
  const branch = name === '' ? head.replace('refs/heads/', '') : name;
  if ((await repository.refs.hash(`refs/heads/${branch}`)) === null && name !== '') {
    return fatal(`no such branch: '${branch}'`);
  }
  return fatal(`no upstream configured for branch '${branch}'`);
}

async function follow(repository: Repository, hash: string, step: string): Promise<string | null> {
  const braces = /^\^\{(.*)\}$/s.exec(step);
  if (braces) {
    const kind = braces[1]!;
    if (kind === '') return peel(repository, hash, 'any');
    if (kind === 'object') return (await repository.objects.find(hash)) ? hash : null;
    if (kind === 'commit' || kind === 'tree' || kind === 'blob' || kind === 'tag') return peel(repository, hash, kind);
    return leave(`^{${kind}}`);
  }
  const count = step.length === 1 ? 1 : Number(step.slice(1));
  let commit = await peel(repository, hash, 'commit');
  if (step.startsWith('^')) {
    if (commit === null || count === 0) return commit;
    return (await repository.commit(commit)).parents[count - 1] ?? null;
  }
  for (let left = count; left > 0 && commit !== null; left--) {
    commit = (await repository.commit(commit)).parents[0] ?? null;
    await repository.pace.rest();
  }
  return commit;
}

/** Where `rev:path` is divided, outside of braces; -1 where it is none. */
function colonOf(text: string): number {
  let depth = 0;
  for (let at = 0; at < text.length; at++) {
    if (text[at] === '{') depth += 1;
    else if (text[at] === '}') depth -= 1;
    else if (text[at] === ':' && depth === 0) return at;
  }
  return -1;
}

async function resolveTreePath(repository: Repository, revision: string, path: string): Promise<string | null> {
  const tree = await treeOf(repository, revision);
  if (tree === null) return null;
  if (path.startsWith('./') || path.startsWith('../')) return leave('a relative path in a revision');
  return (await entryAt(repository, tree, path))?.hash ?? null;
}

/** Why `revision:path` names nothing, in git's words; null for words of another kind. `isThere` tells of the working tree. */
export async function missingPath(
  repository: Repository,
  word: string,
  isThere: (path: string) => Promise<boolean>,
): Promise<Error | null> {
  const colon = colonOf(word);
  if (colon <= 0) return null;
  const [revision, path] = [word.slice(0, colon), word.slice(colon + 1)];
  if ((await treeOf(repository, revision)) === null) return null;
  if (await isThere(path)) return fatal(`path '${path}' exists on disk, but not in '${revision}'`);
  return fatal(`path '${path}' does not exist in '${revision}'`);
}

/** What a path names within a tree, or null. */
export async function entryAt(repository: Repository, tree: string, path: string): Promise<TreeEntry | null> {
  let entry: TreeEntry = { mode: 0o040000, name: '', hash: tree };
  for (const name of path.split('/').filter((part) => part !== '')) {
    if (entry.mode !== 0o040000) return null;
    const found = (await repository.treeEntries(entry.hash)).find((one) => one.name === name);
    if (!found) return null;
    entry = found;
  }
  return entry;
}

async function resolveIndexPath(repository: Repository, text: string): Promise<string | null> {
  if (text.startsWith(':/')) return leave(':/ with words of a message');
  const match = /^:(?:([0-3]):)?(.*)$/s.exec(text)!;
  if (match[2]!.startsWith('./') || match[2]!.startsWith('../')) return leave('a relative path in a revision');
  const stage = Number(match[1] ?? 0);
  const entry = (await repository.index()).find((one) => one.path === match[2] && one.stage === stage);
  return entry?.hash ?? null;
}

/** As many digits as tell an object from all others, and no fewer than git's seven. */
export async function abbreviate(repository: Repository, hash: string, length?: number): Promise<string> {
  const start = length ?? (await defaultAbbreviation(repository));
  for (let digits = Math.max(4, start); digits < 40; digits++) {
    const found = await repository.objects.beginningWith(hash.slice(0, digits));
    if (found.length < 2) return hash.slice(0, digits);
  }
  return hash;
}

const lengths = new WeakMap<Repository, Promise<number>>();

/** Git makes abbreviations longer where there are many objects. */
async function defaultAbbreviation(repository: Repository): Promise<number> {
  const setting = repository.config.get('core.abbrev');
  if (setting !== null && setting !== 'auto') return /^\d+$/.test(setting) ? Number(setting) : leave('core.abbrev');
  let known = lengths.get(repository);
  if (!known) {
    known = repository.objects.packedCount().then((count) => {
      const bits = count === 0 ? 0 : Math.floor(Math.log2(count)) + 1;
      return Math.max(7, Math.ceil(bits / 2));
    });
    lengths.set(repository, known);
  }
  return known;
}
