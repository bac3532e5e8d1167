/** `git for-each-ref`, and the lists of branches and tags that are made in the same way. */
import { type Command, repositoryOf } from '../command.ts';
import { leave } from '../endings.ts';
import { parseOptions } from '../options.ts';
import { dateFormat, formatDate } from '../repository/dates.ts';
import { headOf, trackingOf } from '../repository/head.ts';
import { isAncestor } from '../repository/history.ts';
import { type Commit, type Person, parseTag, type Tag } from '../repository/parse.ts';
import type { Ref } from '../repository/refs.ts';
import type { Repository } from '../repository/repository.ts';
import { abbreviate, needCommit, needRevision, peel } from '../repository/revisions.ts';
import { wildcard } from '../repository/wildmatch.ts';
import { bodyOf, subjectOf } from '../show/pretty.ts';
import { binaryOf, compareBinary } from '../text.ts';

export const forEachRef: Command = async (context, argv) => {
  const options = parseOptions(argv, {
    format: 'value',
    sort: 'value',
    count: 'value',
    'points-at': 'value',
    contains: 'value',
    merged: 'value',
    'no-merged': 'value',
  });
  const repository = await repositoryOf(context);
  const patterns = options.words.map(binaryOf);
  let refs = (await repository.refs.list()).filter(
    ({ name }) => patterns.length === 0 || patterns.some((pattern) => isBelow(name, pattern)),
  );
  refs = await chosenRefs(repository, refs, {
    pointsAt: options.text('points-at'),
    contains: options.text('contains'),
    merged: options.text('merged'),
    notMerged: options.text('no-merged'),
  });
  const sorted = await sortedRefs(repository, refs, options.values('sort'));
  const format = options.text('format') ?? '%(objectname) %(objecttype)\t%(refname)';
  for (const ref of sorted.slice(0, options.number('count') ?? undefined)) {
    context.output.out(`${await formattedRef(repository, ref, format)}\n`);
    await context.pace.rest();
  }
  return 0;
};

function isBelow(name: string, pattern: string): boolean {
  if (name === pattern || name.startsWith(pattern.endsWith('/') ? pattern : `${pattern}/`)) return true;
  return wildcard(pattern, { isPath: true })?.test(name) ?? false;
}

export interface RefChoice {
  readonly pointsAt?: string | undefined;
  readonly contains?: string | undefined;
  readonly merged?: string | undefined;
  readonly notMerged?: string | undefined;
}

export async function chosenRefs(repository: Repository, refs: readonly Ref[], choice: RefChoice): Promise<Ref[]> {
  const points = choice.pointsAt === undefined ? null : await needRevision(repository, choice.pointsAt);
  const contained = choice.contains === undefined ? null : await needCommit(repository, choice.contains);
  const merged = choice.merged === undefined ? null : await needCommit(repository, choice.merged);
  const notMerged = choice.notMerged === undefined ? null : await needCommit(repository, choice.notMerged);
  const chosen: Ref[] = [];
  for (const ref of refs) {
    const commit = await peel(repository, ref.hash, 'commit');
    if (points !== null && ref.hash !== points && commit !== points) continue;
    if (contained !== null && (commit === null || !(await isAncestor(repository, contained, commit)))) continue;
    if (merged !== null && (commit === null || !(await isAncestor(repository, commit, merged)))) continue;
    if (notMerged !== null && (commit === null || (await isAncestor(repository, commit, notMerged)))) continue;
    chosen.push(ref);
  }
  return chosen;
}

/** By git's keys, the last given first; names decide what is equal. */
export async function sortedRefs(
  repository: Repository,
  refs: readonly Ref[],
  keys: readonly string[],
): Promise<Ref[]> {
  const facts = await Promise.all(refs.map(async (ref) => ({ ref, facts: await factsOf(repository, ref) })));
  const orders = keys.toReversed().map((key) => {
    const isDown = key.startsWith('-');
    const name = key.replace(/^-/, '');
    return { isDown, value: sortValue(name) };
  });
  facts.sort((one, two) => {
    for (const { isDown, value } of orders) {
      const [left, right] = [value(one.facts), value(two.facts)];
      const order = typeof left === 'number' && typeof right === 'number' ? left - right : compareVersions(left, right);
      if (order !== 0) return isDown ? -order : order;
    }
    return compareBinary(one.ref.name, two.ref.name);
  });
  return facts.map(({ ref }) => ref);
}

function sortValue(key: string): (facts: Facts) => number | string {
  switch (key) {
    case 'refname':
      return ({ ref }) => ref.name;
    case 'committerdate':
      return ({ commit, isDirect }) => (commit && isDirect ? commit.committer.seconds : 0);
    case 'authordate':
      return ({ commit, isDirect }) => (commit && isDirect ? commit.author.seconds : 0);
    case 'taggerdate':
      return ({ tag }) => tag?.tagger?.seconds ?? 0;
    case 'creatordate':
      return ({ commit, tag }) => tag?.tagger?.seconds ?? commit?.committer.seconds ?? 0;
    case 'v:refname':
    case 'version:refname':
      return ({ ref }) => `\0${ref.name}`;
    default:
      return leave(`--sort=${key}`);
  }
}

/** `\0` before a text: numbers in it are compared as numbers. */
function compareVersions(left: number | string, right: number | string): number {
  const [one, two] = [String(left), String(right)];
  if (!one.startsWith('\0')) return compareBinary(one, two);
  if (/[-~+]/.test(one + two)) leave('versions with suffixes');
  const [parts, others] = [one.match(/\d+|\D+/g) ?? [], two.match(/\d+|\D+/g) ?? []];
  for (let at = 0; at < Math.min(parts.length, others.length); at++) {
    const [a, b] = [parts[at]!, others[at]!];
    const order = /^\d/.test(a) && /^\d/.test(b) ? Number(a) - Number(b) : compareBinary(a, b);
    if (order !== 0) return order;
  }
  return parts.length - others.length;
}

interface Facts {
  readonly ref: Ref;
  readonly tag: Tag | null;
  readonly commit: Commit | null;
  /** The reference names the commit itself, and no tag of it. */
  readonly isDirect: boolean;
}

async function factsOf(repository: Repository, ref: Ref): Promise<Facts> {
  const object = await repository.objects.read(ref.hash);
  const tag = object.kind === 'tag' ? parseTag(object.bytes) : null;
  const hash = await peel(repository, ref.hash, 'commit');
  return { ref, tag, commit: hash === null ? null : await repository.commit(hash), isDirect: tag === null };
}

export async function formattedRef(repository: Repository, ref: Ref, format: string): Promise<string> {
  const facts = await factsOf(repository, ref);
  let text = '';
  let rest = binaryOf(format);
  for (;;) {
    const at = rest.indexOf('%');
    if (at < 0) return text + rest;
    text += rest.slice(0, at);
    rest = rest.slice(at);
    const hex = /^%([0-9a-fA-F]{2})/.exec(rest);
    const atom = /^%\(([^()]*)\)/.exec(rest);
    if (rest.startsWith('%%')) {
      text += '%';
      rest = rest.slice(2);
    } else if (hex) {
      text += String.fromCharCode(Number.parseInt(hex[1]!, 16));
      rest = rest.slice(3);
    } else if (atom) {
      text += await atomOf(repository, facts, atom[1]!);
      rest = rest.slice(atom[0].length);
    } else leave(`the format ${format}`);
  }
}

const shortName = (name: string): string => name.replace(/^refs\/(heads|tags|remotes)\//, '');

async function atomOf(repository: Repository, facts: Facts, atom: string): Promise<string> {
  if (atom.startsWith('*')) {
    if (!facts.tag) return '';
    const target = { name: facts.ref.name, hash: facts.tag.object };
    return atomOf(repository, await factsOf(repository, target), atom.slice(1));
  }
  const { ref, tag, commit, isDirect } = facts;
  const message = tag ? tag.message : isDirect ? (commit?.message ?? '') : '';
  const person = (one: Person | null | undefined, part: string): string => {
    if (!one) return '';
    if (part === 'name') return one.name;
    if (part === 'email') return `<${one.email}>`;
    if (!part.startsWith('date')) return leave(`%(${atom})`);
    return formatDate(one, dateFormat(part.split(':')[1] ?? 'default'));
  };
  const who = /^(author|committer|tagger|creator)(name|email|date(?::.*)?)$/.exec(atom);
  if (who) {
    if (who[1] === 'tagger') return person(tag?.tagger, who[2]!);
    if (who[1] === 'creator') return person(tag ? tag.tagger : commit?.committer, who[2]!);
    return isDirect ? person(who[1] === 'author' ? commit?.author : commit?.committer, who[2]!) : '';
  }
  switch (atom) {
    case 'refname':
      return ref.name;
    case 'refname:short':
      return shortName(ref.name);
    case 'objectname':
      return ref.hash;
    case 'objectname:short':
      return abbreviate(repository, ref.hash);
    case 'objecttype':
      return (await repository.objects.read(ref.hash)).kind;
    case 'objectsize':
      return String((await repository.objects.read(ref.hash)).bytes.length);
    case 'tree':
      return isDirect ? (commit?.tree ?? '') : '';
    case 'subject':
    case 'contents:subject':
      return subjectOf(message);
    case 'body':
    case 'contents:body':
      return bodyOf(message);
    case 'contents':
      return message;
    case 'HEAD':
      return (await headOf(repository)).ref === ref.name ? '*' : ' ';
    case 'upstream':
    case 'upstream:short':
    case 'upstream:track': {
      const tracking = await trackingOf(repository, ref.name.replace(/^refs\/heads\//, ''));
      if (!tracking || !ref.name.startsWith('refs/heads/')) return '';
      if (atom === 'upstream') return tracking.upstream;
      return atom === 'upstream:short' ? tracking.short : trackText(tracking.counts);
    }
    default:
      return leave(`%(${atom})`);
  }
}

export function trackText(counts: readonly [number, number] | null): string {
  if (!counts) return '[gone]';
  const parts = [counts[0] > 0 ? `ahead ${counts[0]}` : '', counts[1] > 0 ? `behind ${counts[1]}` : ''];
  const said = parts.filter((part) => part !== '').join(', ');
  return said === '' ? '' : `[${said}]`;
}
