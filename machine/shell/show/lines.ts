/** The lines in which two texts differ, chosen as git's own diff chooses them (just-git's, which is made after it). */
import { createHash } from 'node:crypto';
import type { DiffOptions } from 'just-git/repo';
import { binaryOfBytes, bytesOf } from '../text.ts';

/** `oldCount` lines from `oldStart` are replaced by `newCount` from `newStart`; both count from 0. */
export interface Change {
  readonly oldStart: number;
  readonly oldCount: number;
  readonly newStart: number;
  readonly newCount: number;
}

const looked = 8_000;

/** Git's own test: a zero among the first bytes. */
export function isBinary(bytes: Uint8Array): boolean {
  return bytes.subarray(0, looked).includes(0);
}

/** Lines with their ends; the last may have none. */
export function linesOf(bytes: Uint8Array): string[] {
  const text = binaryOfBytes(bytes);
  const lines: string[] = [];
  for (let at = 0; at < text.length; ) {
    const end = text.indexOf('\n', at) + 1 || text.length;
    lines.push(text.slice(at, end));
    at = end;
  }
  return lines;
}

/** Changes in the order of the lines. */
export async function changes(before: readonly string[], after: readonly string[]): Promise<Change[]> {
  if (before.length === 0 && after.length === 0) return [];
  if (before.length === 0 || after.length === 0) {
    return [{ oldStart: 0, oldCount: before.length, newStart: 0, newCount: after.length }];
  }
  let first = 0;
  while (first < before.length && first < after.length && before[first] === after[first]) first += 1;
  if (first === before.length && first === after.length) return [];
  const two = twoCommits(encoded(before), encoded(after));
  // With all lines around, so that there is one hunk and its lines say everything.
  const contextLines = before.length + after.length;
  const options: DiffOptions = { contextLines, renames: false };
  const { diffCommits } = await import('just-git/repo');
  const [file] = await diffCommits(two.repository, two.before, two.after, options);
  const found: Change[] = [];
  let [oldLine, newLine] = [0, 0];
  for (const line of file?.hunks.flatMap(({ lines }) => lines) ?? []) {
    if (line.startsWith('\\')) continue;
    const [isRemoved, isAdded] = [line.startsWith('-'), line.startsWith('+')];
    if (isRemoved || isAdded) {
      const last = found.at(-1);
      const touches = last && last.oldStart + last.oldCount === oldLine && last.newStart + last.newCount === newLine;
      const change = touches ? last : { oldStart: oldLine, oldCount: 0, newStart: newLine, newCount: 0 };
      const grown = {
        ...change,
        oldCount: change.oldCount + Number(isRemoved),
        newCount: change.newCount + Number(isAdded),
      };
      if (touches) found[found.length - 1] = grown;
      else found.push(grown);
    }
    if (!isAdded) oldLine += 1;
    if (!isRemoved) newLine += 1;
  }
  return found;
}

/** A last line without an end is another line than one with it. */
const openEnd = '\u0100';

function encoded(lines: readonly string[]): string {
  const text = lines.join('');
  return text.endsWith('\n') ? text : `${text}${openEnd}\n`;
}

type Repository = Parameters<typeof import('just-git/repo').diffCommits>[0];

/** Two commits of one file each, in memory. */
function twoCommits(before: string, after: string): { repository: Repository; before: string; after: string } {
  const objects = new Map<string, { type: 'blob' | 'tree' | 'commit'; content: Uint8Array }>();
  const put = (type: 'blob' | 'tree' | 'commit', content: Uint8Array): string => {
    const hash = createHash('sha1').update(`${type} ${content.length}\0`).update(content).digest('hex');
    objects.set(hash, { type, content });
    return hash;
  };
  const commit = (text: string): string => {
    const blob = put('blob', Buffer.from(text, 'utf8'));
    const tree = put('tree', Buffer.concat([bytesOf('100644 f\0'), Buffer.from(blob, 'hex')]));
    return put('commit', bytesOf(`tree ${tree}\nauthor a <a> 0 +0000\ncommitter a <a> 0 +0000\n\n`));
  };
  const read = async (hash: string) => objects.get(hash) ?? Promise.reject(new Error(`no object ${hash}`));
  const nothing = () => Promise.reject(new Error('read only'));
  return {
    before: commit(before),
    after: commit(after),
    repository: {
      objectStore: {
        read,
        exists: async (hash) => objects.has(hash),
        findByPrefix: async (prefix) => [...objects.keys()].filter((hash) => hash.startsWith(prefix)),
        write: nothing,
        ingestPack: nothing,
        ingestPackStream: nothing,
      },
      refStore: {
        readRef: async () => null,
        listRefs: async () => [],
        writeRef: nothing,
        deleteRef: nothing,
        compareAndSwapRef: nothing,
      },
    },
  };
}
