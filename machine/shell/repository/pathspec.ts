/** What a command's path arguments match. */
import { pathInWorkTree } from '../command.ts';
import { fatal, leave } from '../endings.ts';
import { binaryOf } from '../text.ts';
import { isLiteral, wildcard } from './wildmatch.ts';

interface Item {
  /** As given. */
  readonly word: string;
  /** From the root of the working tree; empty is all of it. */
  readonly path: string;
  readonly expression: RegExp | null;
  /** The part before the first special character. */
  readonly literal: string;
  readonly isExcluded: boolean;
  /** Ended in a slash: directories alone. */
  readonly onlyDirectory: boolean;
}

export class Pathspec {
  readonly items: readonly Item[];
  readonly #included: readonly Item[];
  readonly #excluded: readonly Item[];

  private constructor(items: readonly Item[]) {
    this.items = items;
    this.#included = items.filter(({ isExcluded }) => !isExcluded);
    this.#excluded = items.filter(({ isExcluded }) => isExcluded);
  }

  /** No words match everything. `root` is the working tree, of which absolute words may speak. */
  static parse(words: readonly string[], prefix: string, root: string | null): Pathspec {
    return new Pathspec(words.map((word) => itemOf(word, prefix, root)));
  }

  get isEmpty(): boolean {
    return this.items.length === 0;
  }

  matches(path: string): boolean {
    if (this.#excluded.some((item) => matchesItem(item, path))) return false;
    return this.#included.length === 0 || this.#included.some((item) => matchesItem(item, path));
  }

  /** Whether something below a directory may match. */
  mayMatchBelow(directory: string): boolean {
    if (this.#included.length === 0) return true;
    const start = `${directory}/`;
    return this.#included.some(
      (item) =>
        matchesItem(item, directory) ||
        item.path.startsWith(start) ||
        (item.expression !== null && (item.literal.startsWith(start) || start.startsWith(item.literal))),
    );
  }

  /** For `comparedTrees`. */
  filter(): (path: string, isDirectory: boolean) => boolean {
    if (this.isEmpty) return () => true;
    return (path, isDirectory) => (isDirectory ? this.mayMatchBelow(path) : this.matches(path));
  }

  /** The first word that none of these paths matches, or null. */
  unmatched(paths: Iterable<string>): string | null {
    const open = new Set(this.#included);
    for (const path of paths) {
      for (const item of open) if (matchesItem(item, path)) open.delete(item);
      if (open.size === 0) return null;
    }
    return open.values().next().value?.word ?? null;
  }
}

export function matchesItem({ path: wanted, expression, onlyDirectory }: Item, path: string): boolean {
  if (wanted === '' || path.startsWith(`${wanted}/`)) return true;
  if (path === wanted) return !onlyDirectory;
  return expression?.test(path) ?? false;
}

function itemOf(word: string, prefix: string, root: string | null): Item {
  let [text, isExcluded, from] = [word, false, prefix];
  const magic = /^:([!^/]+):?/.exec(word);
  if (magic) {
    text = word.slice(magic[0].length);
    isExcluded = /[!^]/.test(magic[1]!);
    if (magic[1]!.includes('/')) from = '';
  } else if (word.startsWith(':(exclude)')) {
    text = word.slice(':(exclude)'.length);
    isExcluded = true;
  } else if (word.startsWith(':')) leave(`the path ${word}`);
  if (text.startsWith('/') && root !== null) {
    if (text !== root && !text.startsWith(`${root}/`)) {
      throw fatal(`${word}: '${word}' is outside repository at '${root}'`);
    }
    text = text.slice(root.length + 1);
    from = '';
  }
  if (text === '' && word !== root && !magic)
    throw fatal('empty string is not a valid pathspec. please use . instead if you meant to match all paths');
  const path = pathInWorkTree(from, text);
  if (path === null) throw fatal(`${word}: '${word}' is outside repository at '${root ?? ''}'`);
  const onlyDirectory = text.endsWith('/') && path !== '';
  if (isLiteral(path)) return { word, path, expression: null, literal: path, isExcluded, onlyDirectory };
  const expression = wildcard(path, { isPath: false });
  return { word, path, expression, literal: /^[^*?[\\]*/.exec(path)![0], isExcluded, onlyDirectory };
}

/** A word that is a path of the working tree, or might be meant as one. */
export const looksLikePath = (word: string): boolean => !isLiteral(binaryOf(word)) || word.startsWith(':');
