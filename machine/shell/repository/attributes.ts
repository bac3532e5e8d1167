/** `.gitattributes`: what of it changes a command's result, for each path. */
import { leave } from '../endings.ts';
import { binaryOfBytes, textOf } from '../text.ts';
import type { Tree } from '../tree/tree.ts';
import { wildcard } from './wildmatch.ts';

export type AttributeValue = string | true | false;

interface Rule {
  readonly base: string;
  readonly byName: boolean;
  readonly expression: RegExp;
  readonly values: readonly (readonly [string, AttributeValue | undefined])[];
}

const largestFile = 1024 ** 2;

export class Attributes {
  readonly #rules: readonly Rule[];
  readonly #known = new Map<string, ReadonlyMap<string, AttributeValue>>();

  private constructor(rules: readonly Rule[]) {
    this.#rules = rules;
  }

  /** `directories`: those of the working tree that have a file of attributes, binary, `''` for its root; any order. */
  static async open(
    tree: Tree,
    root: string | null,
    gitDirectory: string,
    directories: Iterable<string>,
  ): Promise<Attributes> {
    const rules: Rule[] = [];
    const read = async (path: string, base: string) => {
      const status = await tree.lstat(path);
      if (status?.kind !== 'file') return;
      if (status.size > largestFile) leave('a large .gitattributes');
      rules.push(...parseAttributes(binaryOfBytes(await tree.read(path)), base));
    };
    // The deeper one decides.
    for (const directory of root === null ? [] : [...new Set(directories)].sort((a, b) => a.length - b.length)) {
      const base = directory === '' ? '' : `${directory}/`;
      await read(`${root}/${textOf(base)}.gitattributes`, base);
    }
    await read(`${gitDirectory}/info/attributes`, '');
    return new Attributes(rules);
  }

  get areNone(): boolean {
    return this.#rules.length === 0;
  }

  of(path: string): ReadonlyMap<string, AttributeValue> {
    if (this.#rules.length === 0) return none;
    const known = this.#known.get(path);
    if (known) return known;
    const values = new Map<string, AttributeValue>();
    const name = path.slice(path.lastIndexOf('/') + 1);
    for (const { base, byName, expression, values: set } of this.#rules) {
      if (!path.startsWith(base)) continue;
      if (!expression.test(byName ? name : path.slice(base.length))) continue;
      for (const [key, value] of set) {
        if (value === undefined) values.delete(key);
        else values.set(key, value);
      }
    }
    this.#known.set(path, values);
    return values;
  }

  /** Leaves a file to the native git whose contents in the working tree are not those of its blob. */
  requireUnconverted(path: string, bytes: Uint8Array | null): void {
    const values = this.of(path);
    if (values.size === 0) return;
    for (const key of ['filter', 'ident', 'working-tree-encoding', 'crlf']) {
      const value = values.get(key);
      if (value !== undefined && value !== false) leave(`the attribute ${key} of ${path}`);
    }
    const [text, eol] = [values.get('text'), values.get('eol')];
    if (eol === 'crlf' && text !== false) leave(`the attribute eol of ${path}`);
    const isText = (text !== undefined && text !== false) || (eol !== undefined && text !== false);
    if (isText && bytes !== null && Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).includes('\r\n')) {
      leave(`line endings of ${path}`);
    }
  }

  /** How a file is compared: by lines, or as bytes alone. A driver is the native git's. */
  diffKind(path: string): 'by contents' | 'binary' | 'text' {
    const value = this.of(path).get('diff');
    if (value === undefined) return 'by contents';
    if (value === true) return 'text';
    if (value === false) return 'binary';
    return leave(`the attribute diff=${value} of ${path}`);
  }
}

const none: ReadonlyMap<string, AttributeValue> = new Map();

function parseAttributes(text: string, base: string): Rule[] {
  const rules: Rule[] = [];
  for (const line of text.split('\n')) {
    const words = line.trim().split(/[ \t]+/);
    let pattern = words.shift() ?? '';
    if (pattern === '' || pattern.startsWith('#')) continue;
    if (pattern.startsWith('"') || pattern.startsWith('[attr]') || pattern.startsWith('!')) {
      leave('a .gitattributes with quotes or macros');
    }
    const byName = !pattern.includes('/');
    if (pattern.startsWith('/')) pattern = pattern.slice(1);
    const expression = wildcard(pattern, { isPath: true });
    if (!expression) continue;
    rules.push({ base, byName, expression, values: words.flatMap(attributeOf) });
  }
  return rules;
}

function attributeOf(word: string): (readonly [string, AttributeValue | undefined])[] {
  if (word === 'binary') {
    return [
      ['diff', false],
      ['merge', false],
      ['text', false],
    ];
  }
  if (word.startsWith('-')) return [[word.slice(1), false]];
  if (word.startsWith('!')) return [[word.slice(1), undefined]];
  const equals = word.indexOf('=');
  return equals < 0 ? [[word, true]] : [[word.slice(0, equals), word.slice(equals + 1)]];
}
