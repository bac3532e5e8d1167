/** Which untracked files git leaves out of sight: `.gitignore` of each directory, `info/exclude`, `core.excludesFile`. */
import { binaryOf, binaryOfBytes, textOf } from '../text.ts';
import type { Tree } from '../tree/tree.ts';
import { wildcard } from './wildmatch.ts';

export interface IgnorePattern {
  readonly text: string;
  /** Where it stands, as `check-ignore -v` says it. */
  readonly source: string;
  readonly line: number;
  readonly isNegated: boolean;
  readonly onlyDirectories: boolean;
  /** The directory it stands in (`a/b/`, or empty), binary. */
  readonly base: string;
  /** Null matches nothing. */
  readonly expression: RegExp | null;
  /** Compared with the name alone, in any directory below. */
  readonly byName: boolean;
}

const largestFile = 1024 ** 2;

export class Ignores {
  readonly #tree: Tree;
  readonly #root: string;
  readonly #general: IgnorePattern[];
  readonly #ofDirectory = new Map<string, IgnorePattern[]>();
  readonly #excluded = new Map<string, IgnorePattern | null>();

  /** `general`: weakest first. */
  constructor(tree: Tree, root: string, general: IgnorePattern[]) {
    this.#tree = tree;
    this.#root = root;
    this.#general = general;
  }

  static async open(tree: Tree, root: string, gitDirectory: string, others: IgnorePattern[] = []): Promise<Ignores> {
    const path = `${gitDirectory}/info/exclude`;
    const text = await readIfFile(tree, path);
    const source = path.startsWith(`${root}/`) ? path.slice(root.length + 1) : path;
    return new Ignores(tree, root, [...others, ...(text === null ? [] : parseIgnores(text, '', source))]);
  }

  /** The pattern that decides about a path, which may be a negated one; null where none does. */
  async decides(path: string, isDirectory: boolean): Promise<IgnorePattern | null> {
    const slash = path.lastIndexOf('/');
    const directory = slash < 0 ? '' : path.slice(0, slash);
    if (directory !== '') {
      const above = await this.#ofWhole(directory);
      if (above && !above.isNegated) return above;
    }
    for (let at = directory; ; at = at.slice(0, Math.max(0, at.lastIndexOf('/')))) {
      const found = lastMatch(await this.patternsIn(at), path, isDirectory);
      if (found) return found;
      if (at === '') break;
    }
    return lastMatch(this.#general, path, isDirectory);
  }

  async ignores(path: string, isDirectory: boolean): Promise<boolean> {
    const found = await this.decides(path, isDirectory);
    return found !== null && !found.isNegated;
  }

  async patternsIn(directory: string): Promise<IgnorePattern[]> {
    const known = this.#ofDirectory.get(directory);
    if (known) return known;
    const base = directory === '' ? '' : `${directory}/`;
    const text = await readIfFile(this.#tree, `${this.#root}/${textOf(base)}.gitignore`);
    const patterns = text === null ? [] : parseIgnores(text, base, `${base}.gitignore`);
    this.#ofDirectory.set(directory, patterns);
    return patterns;
  }

  async #ofWhole(directory: string): Promise<IgnorePattern | null> {
    const known = this.#excluded.get(directory);
    if (known !== undefined) return known;
    const found = await this.decides(directory, true);
    this.#excluded.set(directory, found);
    return found;
  }
}

async function readIfFile(tree: Tree, path: string): Promise<string | null> {
  const status = await tree.lstat(path);
  if (status?.kind !== 'file' || status.size > largestFile) return null;
  return binaryOfBytes(await tree.read(path));
}

function lastMatch(patterns: readonly IgnorePattern[], path: string, isDirectory: boolean): IgnorePattern | null {
  for (let at = patterns.length - 1; at >= 0; at--) {
    const pattern = patterns[at]!;
    if (pattern.onlyDirectories && !isDirectory) continue;
    const subject = pattern.byName ? path.slice(path.lastIndexOf('/') + 1) : path.slice(pattern.base.length);
    if (pattern.expression?.test(subject)) return pattern;
  }
  return null;
}

export function parseIgnores(text: string, base: string, source: string): IgnorePattern[] {
  const patterns: IgnorePattern[] = [];
  for (const [number, line] of text
    .replace(/^\xef\xbb\xbf/, '')
    .split('\n')
    .entries()) {
    const pattern = parseIgnore(line.replace(/\r$/, ''), base, source, number + 1);
    if (pattern) patterns.push(pattern);
  }
  return patterns;
}

/** One line; null where it says nothing. */
export function parseIgnore(text: string, base: string, source: string, line: number): IgnorePattern | null {
  let pattern = text;
  while (/[ \t]$/.test(pattern) && !/\\[ \t]$/.test(pattern)) pattern = pattern.slice(0, -1);
  if (pattern === '' || pattern.startsWith('#')) return null;
  const isNegated = pattern.startsWith('!');
  const shown = pattern;
  if (isNegated) pattern = pattern.slice(1);
  const onlyDirectories = pattern.endsWith('/');
  if (onlyDirectories) pattern = pattern.slice(0, -1);
  const byName = !pattern.includes('/');
  if (pattern.startsWith('/')) pattern = pattern.slice(1);
  const expression = wildcard(pattern, { isPath: true });
  return { text: shown, source, line, isNegated, onlyDirectories, base, expression, byName };
}

/** Patterns of a command line (`--exclude=`). */
export function patternsOf(words: readonly string[]): IgnorePattern[] {
  return words.flatMap((word) => parseIgnore(binaryOf(word), '', '--exclude option', 0) ?? []);
}
