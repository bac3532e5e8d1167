/** Commits, trees and tags as their objects say. Their text is binary (text.ts). */
import { binaryOfBytes, bytesOf } from '../text.ts';

export interface Person {
  readonly name: string;
  readonly email: string;
  /** Seconds since 1970. */
  readonly seconds: number;
  /** As written: `+0200`. */
  readonly zone: string;
}

export interface Commit {
  readonly hash: string;
  readonly tree: string;
  readonly parents: readonly string[];
  readonly author: Person;
  readonly committer: Person;
  readonly isSigned: boolean;
  readonly encoding: string | null;
  /** All after the header's empty line. */
  readonly message: string;
}

export interface TreeEntry {
  /** `100644`, `100755`, `120000`, `40000`, `160000`. */
  readonly mode: number;
  readonly name: string;
  readonly hash: string;
}

export interface Tag {
  readonly object: string;
  readonly kind: string;
  readonly name: string;
  readonly tagger: Person | null;
  readonly message: string;
}

export const modeTree = 0o040000;
export const modeGitlink = 0o160000;
export const isTree = (mode: number): boolean => mode === modeTree;

export function parseCommit(hash: string, bytes: Uint8Array): Commit {
  const text = binaryOfBytes(bytes);
  const end = text.indexOf('\n\n');
  const head = end < 0 ? text : text.slice(0, end);
  let tree = '';
  const parents: string[] = [];
  let author = nobody;
  let committer = nobody;
  let isSigned = false;
  let encoding: string | null = null;
  for (const line of head.split('\n')) {
    if (line.startsWith('tree ')) tree = line.slice(5);
    else if (line.startsWith('parent ')) parents.push(line.slice(7));
    else if (line.startsWith('author ')) author = parsePerson(line.slice(7));
    else if (line.startsWith('committer ')) committer = parsePerson(line.slice(10));
    else if (line.startsWith('gpgsig')) isSigned = true;
    else if (line.startsWith('encoding ')) encoding = line.slice(9);
  }
  const message = end < 0 ? '' : text.slice(end + 2);
  return { hash, tree, parents, author, committer, isSigned, encoding, message };
}

const nobody: Person = { name: '', email: '', seconds: 0, zone: '+0000' };

export function parsePerson(text: string): Person {
  const match = /^(.*?) ?<([^>]*)> (-?\d+) ([+-]\d{4})$/s.exec(text);
  if (!match) return { ...nobody, name: text.replace(/ ?<.*$/s, ''), email: /<([^>]*)>/.exec(text)?.[1] ?? '' };
  return { name: match[1]!, email: match[2]!, seconds: Number(match[3]), zone: match[4]! };
}

export function personText(person: Person): string {
  return `${person.name} <${person.email}> ${person.seconds} ${person.zone}`;
}

export function parseTag(bytes: Uint8Array): Tag {
  const text = binaryOfBytes(bytes);
  const end = text.indexOf('\n\n');
  const head = new Map<string, string>();
  for (const line of (end < 0 ? text : text.slice(0, end)).split('\n')) {
    const space = line.indexOf(' ');
    head.set(line.slice(0, space), line.slice(space + 1));
  }
  const tagger = head.get('tagger');
  return {
    object: head.get('object') ?? '',
    kind: head.get('type') ?? '',
    name: head.get('tag') ?? '',
    tagger: tagger === undefined ? null : parsePerson(tagger),
    message: end < 0 ? '' : text.slice(end + 2),
  };
}

export function parseTree(bytes: Uint8Array): TreeEntry[] {
  const entries: TreeEntry[] = [];
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 0; at < buffer.length; ) {
    const space = buffer.indexOf(0x20, at);
    const zero = buffer.indexOf(0, space);
    entries.push({
      mode: Number.parseInt(buffer.toString('latin1', at, space), 8),
      name: buffer.toString('latin1', space + 1, zero),
      hash: buffer.toString('hex', zero + 1, zero + 21),
    });
    at = zero + 21;
  }
  return entries;
}

/** The bytes of a tree; entries in any order. */
export function treeBytes(entries: readonly TreeEntry[]): Uint8Array {
  const sorted = [...entries].sort((left, right) => (sortName(left) < sortName(right) ? -1 : 1));
  const parts: Uint8Array[] = [];
  for (const { mode, name, hash } of sorted) {
    parts.push(bytesOf(`${mode.toString(8)} ${name}\0`), Buffer.from(hash, 'hex'));
  }
  return Buffer.concat(parts);
}

/** Trees are sorted as if their names ended in a slash. */
const sortName = ({ mode, name }: TreeEntry): string => (isTree(mode) ? `${name}/` : name);

/** `100644` */
export const modeText = (mode: number): string => mode.toString(8).padStart(6, '0');
