/** Patches: what `git diff` prints of each pair. */

import { hashOf } from '../repository/objects.ts';
import { modeText } from '../repository/parse.ts';
import type { Repository } from '../repository/repository.ts';
import { abbreviate } from '../repository/revisions.ts';
import { quotedPath } from '../text.ts';
import { type Change, changes, isBinary, linesOf } from './lines.ts';
import { contentOf, type Pair, type Side } from './pairs.ts';

export interface PatchOptions {
  readonly context: number;
  readonly fullIndex: boolean;
  readonly noPrefix: boolean;
  readonly isReverse?: boolean;
  readonly isText?: boolean;
}

export const plainPatch: PatchOptions = { context: 3, fullIndex: false, noPrefix: false };

/** What is compared of one pair. */
export interface Compared {
  readonly before: Uint8Array;
  readonly after: Uint8Array;
  readonly isBinary: boolean;
}

export async function compared(repository: Repository, pair: Pair): Promise<Compared> {
  const before = await contentOf(repository, pair.before);
  const after = await contentOf(repository, pair.after);
  const attributes = await repository.attributes();
  const kinds = [pair.before, pair.after].flatMap((side) => (side ? [attributes.diffKind(side.path)] : []));
  const isText = kinds.includes('text');
  const binary = kinds.includes('binary') || (!isText && (isBinary(before) || isBinary(after)));
  return { before, after, isBinary: binary };
}

/** The patch of one pair; empty where nothing is to be said. */
export async function patchOf(repository: Repository, pair: Pair, options: PatchOptions): Promise<string> {
  if (pair.kind === 'U') return `* Unmerged path ${quotedPath(pair.before?.path ?? pair.after!.path)}\n`;
  if (pair.kind === 'T') {
    const removed = await patchOf(repository, { kind: 'D', before: pair.before, after: null }, options);
    return removed + (await patchOf(repository, { kind: 'A', before: null, after: pair.after }, options));
  }
  const { before, after } = pair;
  const content = await compared(repository, pair);
  const hashes = [hashOfSide(before, content.before), hashOfSide(after, content.after)] as const;
  const isSame = hashes[0] === hashes[1];
  if (isSame && pair.kind === 'M' && before!.mode === after!.mode) return '';
  const [a, b] = options.noPrefix ? ['', ''] : ['a/', 'b/'];
  const [oldPath, newPath] = [(before ?? after)!.path, (after ?? before)!.path];
  let text = `diff --git ${quotedPath(a + oldPath)} ${quotedPath(b + newPath)}\n`;
  if (!before) text += `new file mode ${modeText(after!.mode)}\n`;
  else if (!after) text += `deleted file mode ${modeText(before.mode)}\n`;
  else if (before.mode !== after.mode) text += `old mode ${modeText(before.mode)}\nnew mode ${modeText(after.mode)}\n`;
  if (pair.kind === 'R') {
    text += `similarity index ${pair.score}%\nrename from ${quotedPath(oldPath)}\nrename to ${quotedPath(newPath)}\n`;
  }
  if (isSame) return text;
  const short = async (hash: string) => (options.fullIndex ? hash : abbreviate(repository, hash));
  const names = `${await short(hashes[0])}..${await short(hashes[1])}`;
  const mode = before && after && before.mode === after.mode ? ` ${modeText(after.mode)}` : '';
  text += `index ${names}${mode}\n`;
  const [from, to] = [before ? a + oldPath : '/dev/null', after ? b + newPath : '/dev/null'];
  if (content.isBinary) {
    return `${text}Binary files ${shownName(from)} and ${shownName(to)} differ\n`;
  }
  const [oldLines, newLines] = [linesOf(content.before), linesOf(content.after)];
  const hunks = hunksOf(oldLines, newLines, await changes(oldLines, newLines), options.context);
  if (hunks === '') return text;
  return `${text}--- ${headerName(from)}\n+++ ${headerName(to)}\n${hunks}`;
}

const shownName = (path: string): string => (path === '/dev/null' ? path : quotedPath(path));
/** A name with spaces is ended by a tab. */
const headerName = (path: string): string => {
  const quoted = shownName(path);
  return quoted === path && path.includes(' ') ? `${path}\t` : quoted;
};

function hashOfSide(side: Side | null, bytes: Uint8Array): string {
  if (side === null) return '0'.repeat(40);
  return side.hash ?? hashOf('blob', bytes);
}

/** Hunks with their context; `context` lines on each side. */
export function hunksOf(
  before: readonly string[],
  after: readonly string[],
  all: readonly Change[],
  context: number,
): string {
  let text = '';
  let heading = { line: -1, text: '' };
  for (let at = 0; at < all.length; ) {
    let end = at + 1;
    while (end < all.length && all[end]!.oldStart - (all[end - 1]!.oldStart + all[end - 1]!.oldCount) <= 2 * context) {
      end += 1;
    }
    const [first, last] = [all[at]!, all[end - 1]!];
    const lead = Math.min(context, first.oldStart, first.newStart);
    const [oldStart, newStart] = [first.oldStart - lead, first.newStart - lead];
    const tail = Math.min(
      context,
      before.length - last.oldStart - last.oldCount,
      after.length - last.newStart - last.newCount,
    );
    const oldCount = last.oldStart + last.oldCount + tail - oldStart;
    const newCount = last.newStart + last.newCount + tail - newStart;
    heading = headingBefore(before, oldStart, heading);
    const title = heading.text === '' ? '' : ` ${heading.text}`;
    text += `@@ -${range(oldStart, oldCount)} +${range(newStart, newCount)} @@${title}\n`;
    let position = oldStart;
    for (const change of all.slice(at, end)) {
      for (; position < change.oldStart; position++) text += marked(' ', before[position]!);
      for (let line = 0; line < change.oldCount; line++) text += marked('-', before[change.oldStart + line]!);
      for (let line = 0; line < change.newCount; line++) text += marked('+', after[change.newStart + line]!);
      position = change.oldStart + change.oldCount;
    }
    for (; position < oldStart + oldCount; position++) text += marked(' ', before[position]!);
    at = end;
  }
  return text;
}

function range(start: number, count: number): string {
  if (count === 1) return String(start + 1);
  return `${count === 0 ? start : start + 1},${count}`;
}

function marked(mark: string, line: string): string {
  return line.endsWith('\n') ? mark + line : `${mark}${line}\n\\ No newline at end of file\n`;
}

const headingBytes = 80;

/** The last line before a hunk that begins with a letter, `_` or `$`; what an earlier hunk had where there is no newer. */
function headingBefore(lines: readonly string[], start: number, last: { line: number; text: string }) {
  for (let at = start - 1; at > last.line && at >= 0; at--) {
    const line = lines[at]!;
    if (/^[A-Za-z_$]/.test(line)) return { line: start - 1, text: line.slice(0, headingBytes).trimEnd() };
  }
  return { line: Math.max(last.line, start - 1), text: last.text };
}
