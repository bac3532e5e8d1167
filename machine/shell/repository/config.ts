/** Git's configuration: its files' text, their values by key, and changes that leave the rest of a file as it is. */
import { fatal, leave } from '../endings.ts';

/** `section.key` or `section.subsection.key`; section and key in lower case. */
export interface ConfigEntry {
  readonly key: string;
  /** Null for a key without `=`, which is true. */
  readonly value: string | null;
  readonly scope: ConfigScope;
}

export type ConfigScope = 'system' | 'global' | 'local' | 'command';

/** A line of a file that says something, by where it stands. */
interface Line {
  readonly kind: 'section' | 'value';
  readonly section: string;
  readonly key: string;
  readonly value: string | null;
  readonly start: number;
  readonly end: number;
}

export class Config {
  readonly entries: readonly ConfigEntry[];

  constructor(entries: readonly ConfigEntry[]) {
    this.entries = entries;
  }

  get(key: string): string | null {
    return this.entries.findLast((entry) => entry.key === key)?.value ?? null;
  }

  has(key: string): boolean {
    return this.entries.some((entry) => entry.key === key);
  }

  all(key: string): (string | null)[] {
    return this.entries.filter((entry) => entry.key === key).map(({ value }) => value);
  }

  /** Null where the key is not there. */
  isTrue(key: string): boolean | null {
    const entry = this.entries.findLast((one) => one.key === key);
    return entry ? booleanOf(entry.value, key) : null;
  }

  /** The subsections of a section, in the order of their first appearance. */
  subsections(section: string): string[] {
    const found = new Set<string>();
    for (const { key } of this.entries) {
      if (!key.startsWith(`${section}.`)) continue;
      const rest = key.slice(section.length + 1);
      const dot = rest.lastIndexOf('.');
      if (dot >= 0) found.add(rest.slice(0, dot));
    }
    return [...found];
  }
}

export function booleanOf(value: string | null, key: string): boolean {
  if (value === null || /^(true|yes|on|[1-9]\d*)$/i.test(value)) return true;
  if (value === '' || /^(false|no|off|0)$/i.test(value)) return false;
  throw fatal(`bad boolean config value '${value}' for '${key}'`);
}

export function parseConfig(text: string, scope: ConfigScope, name: string): ConfigEntry[] {
  return parseLines(text, name)
    .filter(({ kind }) => kind === 'value')
    .map(({ section, key, value }) => ({ key: `${section}.${key}`, value, scope }));
}

/** `Section.Sub.Key` as it is compared, or null where it is no key. */
export function canonicalKey(key: string): string | null {
  const [first, last] = [key.indexOf('.'), key.lastIndexOf('.')];
  if (first <= 0 || !/^[A-Za-z][A-Za-z0-9-]*$/.test(key.slice(last + 1))) return null;
  if (!/^[A-Za-z0-9-]+$/.test(key.slice(0, first))) return null;
  return key.slice(0, first).toLowerCase() + key.slice(first, last) + key.slice(last).toLowerCase();
}

/** The text with one value set: instead of the last that the key has, or added to its section. */
export function withValue(text: string, key: string, value: string, mode: 'set' | 'add'): string {
  const { section, name } = splitKey(key);
  const lines = parseLines(text, 'config');
  const line = `\t${name} = ${quotedValue(value)}\n`;
  const old = lines.findLast((one) => one.kind === 'value' && one.section === section && sameName(one.key, name));
  if (mode === 'set' && old) return text.slice(0, old.start) + line + text.slice(old.end);
  const last = lines.findLast((one) => one.section === section);
  if (last) {
    const before = text.slice(0, last.end);
    return `${before}${before.endsWith('\n') ? '' : '\n'}${line}${text.slice(last.end)}`;
  }
  return `${text}${text === '' || text.endsWith('\n') ? '' : '\n'}${sectionLine(section)}${line}`;
}

/** The text without the values of a key, and without its section where nothing is left of that. */
export function withoutKey(text: string, key: string): string {
  const { section, name } = splitKey(key);
  let result = text;
  for (const line of parseLines(text, 'config').reverse()) {
    if (line.kind !== 'value' || line.section !== section || !sameName(line.key, name)) continue;
    result = result.slice(0, line.start) + result.slice(line.end);
  }
  const left = parseLines(result, 'config').filter((line) => line.section === section);
  if (left.some(({ kind }) => kind === 'value')) return result;
  return withoutSection(result, section) ?? result;
}

/** The text without a section (`branch.main`); null where it has none. */
export function withoutSection(text: string, section: string): string | null {
  const lines = parseLines(text, 'config');
  if (!lines.some((line) => line.section === section)) return null;
  let result = text;
  for (const line of lines.filter((one) => one.kind === 'section' && one.section === section).reverse()) {
    const next = lines.find((one) => one.kind === 'section' && one.start > line.start);
    result = result.slice(0, line.start) + (next ? result.slice(next.start) : '');
  }
  return result;
}

/** The text with a section under another name. */
export function withSectionRenamed(text: string, from: string, to: string): string {
  let result = text;
  for (const line of parseLines(text, 'config').reverse()) {
    if (line.kind === 'section' && line.section === from) {
      result = result.slice(0, line.start) + sectionLine(to) + result.slice(line.end);
    }
  }
  return result;
}

function splitKey(key: string): { section: string; name: string } {
  const dot = key.lastIndexOf('.');
  return { section: key.slice(0, dot), name: key.slice(dot + 1) };
}

const sameName = (left: string, right: string): boolean => left.toLowerCase() === right.toLowerCase();

function sectionLine(section: string): string {
  const dot = section.indexOf('.');
  if (dot < 0) return `[${section}]\n`;
  return `[${section.slice(0, dot)} "${section.slice(dot + 1).replace(/["\\]/g, '\\$&')}"]\n`;
}

function quotedValue(value: string): string {
  const escaped = value.replace(/["\\]/g, '\\$&').replaceAll('\n', '\\n').replaceAll('\t', '\\t');
  return /^ | $|[#;]/.test(value) ? `"${escaped}"` : escaped;
}

function parseLines(text: string, name: string): Line[] {
  const lines: Line[] = [];
  let section = '';
  let number = 0;
  for (let start = 0; start < text.length; ) {
    number += 1;
    let end = text.indexOf('\n', start) + 1 || text.length;
    const bad = () => fatal(`bad config line ${number} in file ${name}`);
    let line = text.slice(start, end).replace(/\r?\n$/, '');
    const head = /^\s*\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\\n]|\\.)*)")?\s*\]/.exec(line);
    if (head) {
      const sub = head[2];
      section = head[1]!.toLowerCase() + (sub === undefined ? '' : `.${sub.replace(/\\(.)/g, '$1')}`);
      const rest = line.slice(head[0].length).trim();
      if (rest !== '' && !/^[#;]/.test(rest)) leave('a configuration with a value beside its section');
      lines.push({ kind: 'section', section, key: '', value: null, start, end });
    } else if (!/^\s*([#;].*)?$/.test(line)) {
      const found = /^\s*([A-Za-z][A-Za-z0-9-]*)\s*(=?)/.exec(line);
      if (!found || section === '') throw bad();
      while (/(^|[^\\])(\\\\)*\\$/.test(line) && end < text.length) {
        const next = text.indexOf('\n', end) + 1 || text.length;
        line = line.slice(0, -1) + text.slice(end, next).replace(/\r?\n$/, '');
        end = next;
        number += 1;
      }
      const value = found[2] ? parseValue(line.slice(found[0].length), bad) : null;
      lines.push({ kind: 'value', section, key: found[1]!.toLowerCase(), value, start, end });
    }
    start = end;
  }
  return lines;
}

const escapes: Readonly<Record<string, string>> = { n: '\n', t: '\t', b: '\b', '"': '"', '\\': '\\' };

function parseValue(text: string, bad: () => Error): string {
  let [value, pending, quoted] = ['', '', false];
  const source = text.replace(/^\s+/, '');
  for (let at = 0; at < source.length; at++) {
    const character = source[at]!;
    if (character === '"') quoted = !quoted;
    else if (character === '\\') {
      const escaped = escapes[source[++at] ?? ''];
      if (escaped === undefined) throw bad();
      value += pending + escaped;
      pending = '';
    } else if (!quoted && (character === '#' || character === ';')) break;
    else if (!quoted && /\s/.test(character)) pending += character;
    else {
      value += pending + character;
      pending = '';
    }
  }
  if (quoted) throw bad();
  return value;
}
