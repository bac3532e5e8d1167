/** What the options of `diff`, `log` and `show` print of pairs. */
import { leave } from '../endings.ts';
import type { Options, OptionTable } from '../options.ts';
import { modeText } from '../repository/parse.ts';
import type { Repository } from '../repository/repository.ts';
import { abbreviate } from '../repository/revisions.ts';
import { quotedPath } from '../text.ts';
import { type Pair, pathOf } from './pairs.ts';
import { type PatchOptions, patchOf } from './patch.ts';
import { withRenames } from './renames.ts';
import { counted, numstat, shortstat, stat, summary } from './stat.ts';

export const diffOptions: OptionTable = {
  'p|u|patch': 'flag',
  's|no-patch': 'flag',
  stat: 'attached',
  numstat: 'flag',
  shortstat: 'flag',
  summary: 'flag',
  'compact-summary': 'flag',
  'name-only': 'flag',
  'name-status': 'flag',
  raw: 'flag',
  'patch-with-stat': 'flag',
  'U|unified': 'value',
  'no-renames': 'flag',
  'M|find-renames': 'attached',
  'full-index': 'flag',
  abbrev: 'attached',
  'no-prefix': 'flag',
  'no-color': 'flag',
  color: 'attached',
  'no-ext-diff': 'flag',
  'no-textconv': 'flag',
  'diff-filter': 'value',
  z: 'flag',
  'a|text': 'flag',
  'R|reverse': 'flag',
  'exit-code': 'flag',
  quiet: 'flag',
  'indent-heuristic': 'flag',
  minimal: 'flag',
};

/** The pairs as the options want them: renames joined, turned round, filtered. */
export async function arranged(repository: Repository, pairs: readonly Pair[], options: Options): Promise<Pair[]> {
  if (options.has('color') && (options.value('color') ?? 'always') === 'always') leave('colours');
  if (options.has('minimal', 'raw', 'reverse', 'compact-summary', 'text')) leave('an option of diff');
  const turned = options.has('reverse') ? pairs.map(reversed) : [...pairs];
  const finds = options.value('find-renames');
  const threshold = finds ? (/^(\d{1,2})%$/.exec(finds)?.[1] ?? leave(`--find-renames=${finds}`)) : 50;
  const joined = options.has('no-renames') ? turned : await withRenames(repository, turned, Number(threshold));
  const filter = options.text('diff-filter');
  if (filter === undefined) return joined;
  if (/[^ACDMRTUacdmrtu]/.test(filter)) leave(`--diff-filter=${filter}`);
  const [wanted, unwanted] = [filter.replace(/[a-z]/g, ''), filter.replace(/[A-Z]/g, '').toUpperCase()];
  return joined.filter(({ kind }) => (wanted === '' || wanted.includes(kind)) && !unwanted.includes(kind));
}

function reversed(pair: Pair): Pair {
  const kind = pair.kind === 'A' ? 'D' : pair.kind === 'D' ? 'A' : pair.kind;
  return { ...pair, kind, before: pair.after, after: pair.before };
}

/** Whether the options ask for anything but a patch. */
export function asksForOther(options: Options): boolean {
  return options.has(
    'stat',
    'numstat',
    'shortstat',
    'summary',
    'name-only',
    'name-status',
    'patch-with-stat',
    'no-patch',
  );
}

export interface Shown {
  readonly text: string;
  /** Tables and patch are there both, and an empty line between them. */
  readonly isDivided: boolean;
}

/** What is printed; `byDefault`: a patch where the options ask for nothing. */
export async function diffText(
  repository: Repository,
  pairs: readonly Pair[],
  options: Options,
  byDefault: boolean,
): Promise<string> {
  if (options.has('no-patch') && options.last('no-patch', 'patch', 'stat', 'name-only') === 'no-patch') return '';
  const isNul = options.has('z');
  const end = isNul ? '\0' : '\n';
  const shown = (path: string) => (isNul ? path : quotedPath(path));
  if (options.has('name-only')) return pairs.map((pair) => `${shown(pathOf(pair))}${end}`).join('');
  if (options.has('name-status')) {
    return pairs.map((pair) => nameStatus(pair, shown, isNul)).join('');
  }
  let text = '';
  const needsCounts = options.has('stat', 'numstat', 'shortstat', 'patch-with-stat');
  const files = needsCounts ? await counted(repository, pairs) : [];
  if (options.has('numstat')) text += numstat(files, isNul);
  if (options.has('stat', 'patch-with-stat')) text += stat(files, columnsOf(options));
  if (options.has('shortstat')) text += shortstat(files);
  if (options.has('summary')) text += summary(pairs);
  const wantsPatch = options.has('patch', 'patch-with-stat', 'unified') || (byDefault && !asksForOther(options));
  if (!wantsPatch) return text;
  if (text !== '' && pairs.length > 0) text += '\n';
  if (isNul) leave('-z with a patch');
  for (const pair of pairs) {
    text += await patchOf(repository, pair, patchOptions(options));
    await repository.pace.rest();
  }
  return text;
}

function columnsOf(options: Options): number {
  const value = options.value('stat');
  if (!value) return 80;
  return /^\d+$/.test(value) ? Number(value) : leave(`--stat=${value}`);
}

export function patchOptions(options: Options): PatchOptions {
  const context = options.number('unified') ?? 3;
  if (options.has('abbrev')) leave('--abbrev with a patch');
  return { context, fullIndex: options.has('full-index'), noPrefix: options.has('no-prefix') };
}

function nameStatus(pair: Pair, shown: (path: string) => string, isNul: boolean): string {
  const [between, end] = isNul ? ['\0', '\0'] : ['\t', '\n'];
  if (pair.kind === 'R') {
    const score = String(pair.score).padStart(3, '0');
    return `R${score}${between}${shown(pair.before!.path)}${between}${shown(pair.after!.path)}${end}`;
  }
  return `${pair.kind}${between}${shown(pathOf(pair))}${end}`;
}

/** `:100644 100644 1234567 89abcde M\tpath`, as `diff-tree` prints it. */
export async function rawLine(
  repository: Repository,
  pair: Pair,
  isAbbreviated: boolean,
  isNul: boolean,
): Promise<string> {
  const zero = '0'.repeat(40);
  const [before, after] = [pair.before, pair.after];
  const hashes = [before?.hash ?? zero, after?.hash ?? zero];
  const shown = isAbbreviated ? await Promise.all(hashes.map((hash) => abbreviate(repository, hash))) : hashes;
  const line = nameStatus(pair, (path) => (isNul ? path : quotedPath(path)), isNul);
  return `:${modeText(before?.mode ?? 0)} ${modeText(after?.mode ?? 0)} ${shown.join(' ')} ${line}`;
}
