/** `git config`. */
import type { Command, CommandContext } from '../command.ts';
import { fatal, GitFailure, leave } from '../endings.ts';
import { type Options, parseOptions } from '../options.ts';
import {
  booleanOf,
  Config,
  type ConfigEntry,
  canonicalKey,
  parseConfig,
  withoutKey,
  withoutSection,
  withSectionRenamed,
  withValue,
} from '../repository/config.ts';
import { discover } from '../repository/discover.ts';
import { binaryOf, binaryOfBytes, bytesOf } from '../text.ts';

export const config: Command = async (context, argv) => {
  const options = parseOptions(argv, {
    global: 'flag',
    local: 'flag',
    get: 'flag',
    'get-all': 'flag',
    'get-regexp': 'flag',
    'l|list': 'flag',
    unset: 'flag',
    'unset-all': 'flag',
    add: 'flag',
    'replace-all': 'flag',
    'remove-section': 'flag',
    'rename-section': 'flag',
    bool: 'flag',
    int: 'flag',
    type: 'value',
    path: 'flag',
    'name-only': 'flag',
    'z|null': 'flag',
    'show-origin': 'flag',
    'show-scope': 'flag',
    default: 'value',
    includes: 'flag',
    'f|file': 'value',
  });
  if (options.has('show-origin', 'show-scope', 'int', 'path', 'null', 'includes', 'file')) leave('an option of config');
  const type = options.has('bool') ? 'bool' : options.text('type');
  if (type !== undefined && type !== 'bool' && type !== 'string') leave(`--type=${type}`);
  const place = await discover(context.tree, context.wanted);
  const words = [...options.words, ...(options.rest ?? [])];
  const writes =
    options.has('unset', 'unset-all', 'add', 'replace-all', 'remove-section', 'rename-section') ||
    (words.length === 2 && !options.has('get', 'get-all', 'get-regexp'));
  const file = place === null ? null : `${place.gitDirectory}/config`;
  if (writes) return change(context, options, file, words);
  return read(context, options, await entriesOf(context, options, file), words, type === 'bool');
};

async function entriesOf(context: CommandContext, options: Options, file: string | null): Promise<ConfigEntry[]> {
  const { before, after } = context.around.config;
  if (options.has('global')) {
    if (context.globalFile === null) leave('the global configuration');
    return [...before];
  }
  const isThere = file !== null && (await context.tree.lstat(file))?.kind === 'file';
  if (options.has('local') && file === null) throw fatal('--local can only be used inside a git repository');
  const own = isThere ? parseConfig(binaryOfBytes(await context.tree.read(file)), 'local', file) : [];
  if (own.some(({ key }) => /^include(if)?\./.test(key))) leave('a configuration that includes another');
  return options.has('local') ? own : [...before, ...own, ...after];
}

function read(
  context: CommandContext,
  options: Options,
  entries: readonly ConfigEntry[],
  words: readonly string[],
  isBoolean: boolean,
): number {
  const { output } = context;
  const found = new Config(entries);
  if (options.has('list')) {
    if (words.length > 0) leave('config --list with words');
    for (const { key, value } of entries) {
      output.out(options.has('name-only') ? `${key}\n` : value === null ? `${key}\n` : `${key}=${value}\n`);
    }
    return 0;
  }
  const [word] = words;
  if (word === undefined || words.length > 1) leave('config with other words');
  if (options.has('get-regexp')) {
    if (/[\\(){}]/.test(word)) leave(`the expression ${word}`);
    const expression = new RegExp(binaryOf(word));
    const matching = entries.filter(({ key }) => expression.test(key));
    for (const { key, value } of matching) {
      output.out(options.has('name-only') || value === null ? `${key}\n` : `${key} ${value}\n`);
    }
    return matching.length > 0 ? 0 : 1;
  }
  const key = keyOf(word);
  const shown = (value: string | null) => (isBoolean ? String(booleanOf(value, key)) : (value ?? ''));
  const values = found.all(key);
  if (values.length === 0) {
    const fallback = options.text('default');
    if (fallback === undefined) return 1;
    output.out(`${binaryOf(fallback)}\n`);
    return 0;
  }
  for (const value of options.has('get-all') ? values : values.slice(-1)) output.out(`${shown(value)}\n`);
  return 0;
}

function keyOf(word: string): string {
  const key = canonicalKey(word);
  if (key !== null) return key;
  if (!word.includes('.')) throw new GitFailure(`error: key does not contain a section: ${word}\n`, 2);
  throw new GitFailure(`error: invalid key: ${word}\n`, 1);
}

async function change(
  context: CommandContext,
  options: Options,
  file: string | null,
  words: readonly string[],
): Promise<number> {
  const isGlobal = options.has('global');
  if (isGlobal && context.globalFile === null) leave('the global configuration');
  if (!isGlobal && file === null) {
    if (options.has('local')) throw fatal('--local can only be used inside a git repository');
    throw fatal('not in a git directory');
  }
  const bytes = isGlobal ? await context.globalFile!.read() : await context.tree.read(file!);
  const before = bytes ? binaryOfBytes(bytes) : '';
  const after = changed(before, options, words);
  if (typeof after === 'number') return after;
  if (isGlobal) await context.globalFile!.write(bytesOf(after));
  else if (await context.tree.lstat(`${file}.lock`)) leave('the configuration is locked');
  else await context.tree.write(file!, bytesOf(after));
  return 0;
}

/** The new text, or the exit code of what cannot be done. */
function changed(text: string, options: Options, words: readonly string[]): string | number {
  const own = parseConfig(text, 'local', 'config');
  const [word, second] = words;
  if (word === undefined) leave('config without words');
  if (options.has('remove-section')) {
    return withoutSection(text, word) ?? refuse(`fatal: no such section: ${word}\n`);
  }
  if (options.has('rename-section')) {
    if (second === undefined || withoutSection(text, word) === null) return refuse(`fatal: no such section: ${word}\n`);
    return withSectionRenamed(text, word, second);
  }
  const key = keyOf(word);
  // A key is kept as it was written.
  const name = key.slice(0, key.lastIndexOf('.')) + word.slice(word.lastIndexOf('.'));
  const count = own.filter((entry) => entry.key === key).length;
  if (options.has('unset', 'unset-all')) {
    if (words.length > 1) leave('config --unset of a value');
    if (count === 0) return 5;
    if (count > 1 && options.has('unset')) return refuse(`warning: ${word} has multiple values\n`, 5);
    return withoutKey(text, key);
  }
  if (second === undefined || words.length > 2) leave('config with other words');
  if (options.has('add')) return withValue(text, name, binaryOf(second), 'add');
  if (options.has('replace-all'))
    return withValue(count > 0 ? withoutKey(text, key) : text, name, binaryOf(second), 'add');
  if (count > 1) {
    return refuse(
      `warning: ${word} has multiple values\nerror: cannot overwrite multiple values with a single value\n       Use a regexp, --add or --replace-all to change ${word}.\n`,
      5,
    );
  }
  return withValue(text, name, binaryOf(second), 'set');
}

function refuse(text: string, exitCode = 128): never {
  throw new GitFailure(text, exitCode);
}
