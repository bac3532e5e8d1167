/**
 * Places in a conversation's view, as clients name them: `/workspace` and `/artifacts` and what is below, each in one form only.
 * Everything else is refused before anything is looked up. Pure.
 */
import { Problem } from '../problem.ts';

/** The names on the way, the first of which is `workspace` or `artifacts`. */
export type ViewPath = readonly [root: Root, ...below: string[]];
type Root = keyof typeof folders;

/** What is where in a conversation's tree (ADR-046 §5). */
const folders = { workspace: 'work', artifacts: 'artifacts' } as const;

const maxLength = 4_096;
const maxNameBytes = 255;
const maxDepth = 256;

/** The path of a directory or file, such as `/workspace/a`. Throws `invalid-request`. */
export function parseViewPath(path: string): ViewPath {
  const found = path.length <= maxLength && path.startsWith('/') ? fromNames(path.slice(1).split('/')) : null;
  if (found !== null) return found;
  throw malformed('path', '/workspace/folder');
}

/** A managed file URI, such as `file:///workspace/a%20b.txt`. Throws `invalid-request`. */
export function parseFileUri(uri: string): ViewPath {
  const path = uri.length <= maxLength * 3 && uri.startsWith('file:///') ? uri.slice('file:///'.length) : '';
  // What is written is what is meant: a slash separates, whatever is encoded is in a name.
  const names = /[?#\\]|%2f|%00/i.test(path) || /[\p{Cc}\p{Z}]/u.test(path) ? null : path.split('/').map(decoded);
  const found = names === null || names.includes(null) ? null : fromNames(names as string[]);
  if (found !== null && found.length > 1) return found;
  throw malformed('uri', 'file:///workspace/report.pdf');
}

/** The same place as a URI. */
export function fileUri(path: ViewPath): string {
  return `file:///${path.map(encodeURIComponent).join('/')}`;
}

/** The names on the way from the root of the organization's tree. */
export function treeNames(conversation: string, [root, ...below]: ViewPath): string[] {
  return ['conversations', conversation, folders[root], ...below];
}

/**
 * Where a symbolic link leads that is `at` the view, when `rest` is behind it; null when that is outside of the view, or would have
 * to be walked to be known. As the agent sees it: both roots are in one directory, and nothing else of that is anybody's business.
 */
export function followLink(at: ViewPath, target: string, rest: readonly string[]): ViewPath | null {
  const steps = target.split('/').filter((step) => step !== '' && step !== '.');
  const from: string[] = target.startsWith('/') ? [] : [...at.slice(0, -1)];
  while (steps[0] === '..') {
    // Above the root is the root, as for every program.
    from.pop();
    steps.shift();
  }
  return steps.includes('..') ? null : fromNames([...from, ...steps, ...rest]);
}

function fromNames(names: readonly string[]): ViewPath | null {
  const [root = '', ...below] = names;
  if (!Object.hasOwn(folders, root) || names.length > maxDepth || !below.every(isName)) return null;
  return [root as Root, ...below];
}

function isName(name: string): boolean {
  return (
    name !== '' &&
    name !== '.' &&
    name !== '..' &&
    !/[/\0]/.test(name) &&
    name.isWellFormed() &&
    Buffer.byteLength(name) <= maxNameBytes
  );
}

function decoded(part: string): string | null {
  try {
    return decodeURIComponent(part);
  } catch {
    return null;
  }
}

function malformed(what: string, example: string): Problem {
  return new Problem(
    'invalid-request',
    `The ${what} must name something in /workspace or /artifacts in its plain form, such as ${example}`,
  );
}
