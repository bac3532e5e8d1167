/** Options of one command, as git's own parser takes them. What is not listed is left to the native git. */
import { leave } from './endings.ts';

/**
 * `flag`: takes nothing. `value`: takes a word. `attached`: takes a word only after `=` (or right behind its letter).
 * `last`: takes the next word, unless it is the last of all.
 */
export type OptionKind = 'flag' | 'value' | 'attached' | 'last';
/** By all its names: `'a|all'`, `'m|message'`. */
export type OptionTable = Readonly<Record<string, OptionKind>>;

export class Options {
  readonly #given: { readonly name: string; readonly value: string | null }[] = [];
  /** Words that are no options, before `--`. */
  readonly words: string[] = [];
  /** Words after `--`; null where there was none. */
  rest: string[] | null = null;

  /** Whether one of these was given. */
  has(...names: string[]): boolean {
    return this.#given.some((option) => names.includes(option.name));
  }

  /** The last value of an option; undefined where it was not given, null where it was given without one. */
  value(name: string): string | null | undefined {
    return this.#given.findLast((option) => option.name === name)?.value;
  }

  text(name: string): string | undefined {
    return this.value(name) ?? undefined;
  }

  values(name: string): string[] {
    return this.#given.filter((option) => option.name === name).flatMap(({ value }) => value ?? []);
  }

  /** Which of these was given last. */
  last(...names: string[]): string | undefined {
    return this.#given.findLast((option) => names.includes(option.name))?.name;
  }

  names(): string[] {
    return this.#given.map(({ name }) => name);
  }

  number(name: string): number | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    return /^-?\d+$/.test(text) ? Number(text) : leave(`--${name}=${text}`);
  }

  add(name: string, value: string | null): void {
    this.#given.push({ name, value });
  }
}

export interface ParseSettings {
  /** The first word ends the options (subcommands). */
  readonly stopsAtWord?: boolean;
  /** A name for `-<number>`. */
  readonly numbers?: string;
}

/** Option names are known by their last one: `'m|message'` is `message`. */
export function parseOptions(argv: readonly string[], table: OptionTable, settings: ParseSettings = {}): Options {
  const known = new Map<string, { name: string; kind: OptionKind }>();
  for (const [names, kind] of Object.entries(table)) {
    const all = names.split('|');
    for (const one of all) known.set(one, { name: all.at(-1)!, kind });
  }
  const options = new Options();
  for (let at = 0; at < argv.length; at++) {
    const word = argv[at]!;
    if (word === '--') {
      options.rest = argv.slice(at + 1);
      return options;
    }
    if (!word.startsWith('-') || word === '-') {
      options.words.push(word);
      if (settings.stopsAtWord) {
        options.words.push(...argv.slice(at + 1));
        return options;
      }
      continue;
    }
    if (settings.numbers && /^-\d+$/.test(word)) {
      options.add(settings.numbers, word.slice(1));
      continue;
    }
    const next = () => {
      at += 1;
      return argv[at] ?? leave(`${word} without a value`);
    };
    const after = () => (argv[at + 1] === undefined ? null : next());
    if (word.startsWith('--')) addLong(options, known, word.slice(2), next, after);
    else addShort(options, known, word.slice(1), next);
  }
  return options;
}

type Known = ReadonlyMap<string, { name: string; kind: OptionKind }>;

function addLong(options: Options, known: Known, text: string, next: () => string, after: () => string | null): void {
  const equals = text.indexOf('=');
  const name = equals < 0 ? text : text.slice(0, equals);
  const option = name.length > 1 ? known.get(name) : undefined;
  if (!option) leave(`the option --${name}`);
  const value = equals < 0 ? null : text.slice(equals + 1);
  if (option.kind === 'flag' && value !== null) leave(`the option --${text}`);
  if (option.kind === 'last') options.add(option.name, value ?? after());
  else options.add(option.name, option.kind === 'value' ? (value ?? next()) : value);
}

function addShort(options: Options, known: Known, letters: string, next: () => string): void {
  for (let at = 0; at < letters.length; at++) {
    const option = known.get(letters[at]!);
    if (!option) leave(`the option -${letters[at]}`);
    if (option.kind === 'flag') {
      options.add(option.name, null);
      continue;
    }
    const attached = letters.slice(at + 1);
    options.add(option.name, attached !== '' ? attached : option.kind === 'value' ? next() : null);
    return;
  }
}
