/** How a commit is shown: git's named formats, and those that are put together from placeholders. */
import { leave } from '../endings.ts';
import { type DateFormat, formatDate } from '../repository/dates.ts';
import type { Commit, Person } from '../repository/parse.ts';
import type { Repository } from '../repository/repository.ts';
import { abbreviate } from '../repository/revisions.ts';
import { binaryOf } from '../text.ts';

export type PrettyFormat =
  | { readonly kind: 'oneline' | 'short' | 'medium' | 'full' | 'fuller' | 'raw' | 'reference' | 'email' }
  /** `ends`: each commit ends in a newline (tformat); otherwise newlines stand between them (format). */
  | { readonly kind: 'user'; readonly format: string; readonly ends: boolean };

export interface PrettySettings {
  readonly abbreviated: boolean;
  readonly date: DateFormat;
  /** Names of references by commit, for `%d`; null where they are not shown. */
  readonly decorations: ReadonlyMap<string, readonly string[]>;
  readonly showDecorations: boolean;
  readonly mark?: string;
}

const names = new Set(['oneline', 'short', 'medium', 'full', 'fuller', 'raw', 'reference', 'email']);

export function prettyFormat(text: string): PrettyFormat {
  if (names.has(text)) return { kind: text as 'oneline' };
  if (text.startsWith('format:')) return { kind: 'user', format: binaryOf(text.slice(7)), ends: false };
  if (text.startsWith('tformat:')) return { kind: 'user', format: binaryOf(text.slice(8)), ends: true };
  if (text.includes('%')) return { kind: 'user', format: binaryOf(text), ends: true };
  return leave(`the format ${text}`);
}

/** The first paragraph as one line. */
export function subjectOf(message: string): string {
  return paragraph(message).split('\n').join(' ');
}

function paragraph(message: string): string {
  const lines: string[] = [];
  for (const line of message.replace(/^\n+/, '').split('\n')) {
    if (line.trim() === '') break;
    lines.push(line.trimEnd());
  }
  return lines.join('\n');
}

/** What follows the first paragraph. */
export function bodyOf(message: string): string {
  const lines = message.replace(/^\n+/, '').split('\n');
  let at = 0;
  while (at < lines.length && lines[at]!.trim() !== '') at += 1;
  while (at < lines.length && lines[at]!.trim() === '') at += 1;
  return lines.slice(at).join('\n');
}

/** One commit's text, without the end that a format demands of its caller. */
export async function prettyCommit(
  repository: Repository,
  commit: Commit,
  format: PrettyFormat,
  settings: PrettySettings,
): Promise<string> {
  const hash = settings.abbreviated ? await abbreviate(repository, commit.hash) : commit.hash;
  const marked = `${settings.mark ?? ''}${hash}`;
  const decoration = settings.showDecorations ? decorationOf(commit.hash, settings) : '';
  switch (format.kind) {
    case 'user':
      return expand(repository, commit, format.format, settings);
    case 'oneline':
      return `${marked}${decoration} ${subjectOf(commit.message)}`;
    case 'reference': {
      const short = await abbreviate(repository, commit.hash);
      return `${short} (${subjectOf(commit.message)}, ${formatDate(commit.author, 'short')})`;
    }
    case 'email':
      return leave('--pretty=email');
    case 'raw':
      return rawText(commit, marked, decoration);
    default:
      return headedText(repository, commit, format.kind, settings, marked, decoration);
  }
}

async function headedText(
  repository: Repository,
  commit: Commit,
  kind: 'short' | 'medium' | 'full' | 'fuller',
  settings: PrettySettings,
  hash: string,
  decoration: string,
): Promise<string> {
  let text = `commit ${hash}${decoration}\n`;
  if (commit.parents.length > 1) {
    const parents = await Promise.all(commit.parents.map((parent) => abbreviate(repository, parent)));
    text += `Merge: ${parents.join(' ')}\n`;
  }
  const who = ({ name, email }: Person) => `${name} <${email}>`;
  const date = (person: Person) => formatDate(person, settings.date);
  if (kind === 'fuller') {
    text += `Author:     ${who(commit.author)}\nAuthorDate: ${date(commit.author)}\n`;
    text += `Commit:     ${who(commit.committer)}\nCommitDate: ${date(commit.committer)}\n`;
  } else if (kind === 'full') text += `Author: ${who(commit.author)}\nCommit: ${who(commit.committer)}\n`;
  else if (kind === 'medium') text += `Author: ${who(commit.author)}\nDate:   ${date(commit.author)}\n`;
  else text += `Author: ${who(commit.author)}\n`;
  if (kind === 'short') {
    const title = paragraph(commit.message);
    return `${text}\n${indented(title)}`;
  }
  const message = commit.message.replace(/^\n+/, '').trimEnd();
  return message === '' ? `${text}` : `${text}\n${indented(message)}`;
}

const indented = (text: string): string =>
  text
    .split('\n')
    .map((line) => (line.trimEnd() === '' ? '    \n' : `    ${line.trimEnd()}\n`))
    .join('')
    .replace(/^ {4}\n/gm, '    \n');

function rawText(commit: Commit, hash: string, decoration: string): string {
  const person = ({ name, email, seconds, zone }: Person) => `${name} <${email}> ${seconds} ${zone}`;
  const parents = commit.parents.map((parent) => `parent ${parent}\n`).join('');
  const message = commit.message.trimEnd();
  return (
    `commit ${hash}${decoration}\ntree ${commit.tree}\n${parents}author ${person(commit.author)}\n` +
    `committer ${person(commit.committer)}\n${message === '' ? '' : `\n${indented(message)}`}`
  );
}

/** ` (HEAD -> main, tag: v1)` */
function decorationOf(hash: string, { decorations }: PrettySettings): string {
  const found = decorations.get(hash);
  return found && found.length > 0 ? ` (${found.join(', ')})` : '';
}

async function expand(
  repository: Repository,
  commit: Commit,
  format: string,
  settings: PrettySettings,
): Promise<string> {
  let text = '';
  for (let at = 0; at < format.length; at++) {
    if (format[at] !== '%') {
      text += format[at];
      continue;
    }
    const found =
      /^%(?:x([0-9a-fA-F]{2})|([ac])([neldDtisIr]|[NEL])|(C)(\([^)]*\)|red|green|blue|reset)|([+\- ]?)([a-zA-Z%])(\([^)]*\))?)/.exec(
        format.slice(at),
      );
    if (!found) leave(`the format ${format}`);
    if (found[1]) text += String.fromCharCode(Number.parseInt(found[1], 16));
    else if (found[2])
      text += personPlaceholder(found[2] === 'a' ? commit.author : commit.committer, found[3]!, settings);
    // Colours are for terminals; there is none.
    else if (found[4]) text += /always/.test(found[5]!) ? leave('colours') : '';
    else {
      const argument = found[8] && !['C', 'w'].includes(found[7]!) && /^\((trailers|describe)/.test(found[8]);
      if (argument || found[7] === 'w' || found[7] === 'G' || found[7] === 'g' || found[7] === 'N') {
        leave(`the placeholder %${found[7]}`);
      }
      const value = await placeholder(repository, commit, found[7]!, settings);
      const sign = found[6];
      if (value !== '' && sign === '+') text += '\n';
      else if (value !== '' && sign === ' ') text += ' ';
      else if (value === '' && sign === '-') text = text.replace(/\n+$/, '');
      text += value;
      if (found[8]) at -= found[8].length;
    }
    at += found[0].length - 1;
  }
  return text;
}

function personPlaceholder(person: Person, letter: string, settings: PrettySettings): string {
  switch (letter) {
    case 'n':
    case 'N':
      return person.name;
    case 'e':
    case 'E':
      return person.email;
    case 'l':
    case 'L':
      return person.email.split('@')[0]!;
    case 'd':
      return formatDate(person, settings.date);
    case 'D':
      return formatDate(person, 'rfc');
    case 't':
      return formatDate(person, 'unix');
    case 'i':
      return formatDate(person, 'iso');
    case 's':
      return formatDate(person, 'short');
    case 'I':
      return formatDate(person, 'iso-strict');
    case 'r':
      return formatDate(person, 'relative');
    default:
      return leave(`the placeholder %a${letter}`);
  }
}

async function placeholder(
  repository: Repository,
  commit: Commit,
  letter: string,
  settings: PrettySettings,
): Promise<string> {
  switch (letter) {
    case 'H':
      return commit.hash;
    case 'h':
      return abbreviate(repository, commit.hash);
    case 'T':
      return commit.tree;
    case 't':
      return abbreviate(repository, commit.tree);
    case 'P':
      return commit.parents.join(' ');
    case 'p':
      return (await Promise.all(commit.parents.map((parent) => abbreviate(repository, parent)))).join(' ');
    case 's':
      return subjectOf(commit.message);
    case 'f':
      return sanitized(subjectOf(commit.message));
    case 'b':
      return bodyOf(commit.message);
    case 'B':
      return commit.message.replace(/^\n+/, '');
    case 'd':
      return decorationOf(commit.hash, settings);
    case 'D':
      return decorationOf(commit.hash, settings).replace(/^ \(|\)$/g, '');
    case 'm':
      return '>';
    case 'n':
      return '\n';
    case 'e':
      return commit.encoding ?? '';
    case '%':
      return '%';
    default:
      return leave(`the placeholder %${letter}`);
  }
}

/** A subject as part of a file name. */
export function sanitized(subject: string): string {
  return subject
    .replace(/[^A-Za-z0-9._]+/g, '-')
    .replace(/\.+/g, '.')
    .replace(/^-+|[-.]+$/g, '');
}
