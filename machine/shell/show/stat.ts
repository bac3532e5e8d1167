/** `--stat`, `--numstat`, `--shortstat`, `--summary`. */
import { modeText } from '../repository/parse.ts';
import type { Repository } from '../repository/repository.ts';
import { quotedPath } from '../text.ts';
import { changes, linesOf } from './lines.ts';
import type { Pair } from './pairs.ts';
import { compared } from './patch.ts';

export interface Counted {
  readonly pair: Pair;
  readonly name: string;
  readonly added: number;
  readonly removed: number;
  /** Sizes, where bytes are all that can be counted. */
  readonly binary: { readonly before: number; readonly after: number } | null;
  readonly isUnmerged: boolean;
}

export async function counted(repository: Repository, pairs: readonly Pair[]): Promise<Counted[]> {
  const result: Counted[] = [];
  for (const pair of pairs) {
    await repository.pace.rest();
    const name = nameOf(pair);
    if (pair.kind === 'U') {
      result.push({ pair, name, added: 0, removed: 0, binary: null, isUnmerged: true });
      continue;
    }
    const { before, after, isBinary } = await compared(repository, pair);
    if (isBinary) {
      const isSame = Buffer.from(before).equals(Buffer.from(after));
      const binary = { before: isSame ? 0 : before.length, after: isSame ? 0 : after.length };
      result.push({ pair, name, added: 0, removed: 0, binary, isUnmerged: false });
      continue;
    }
    let [added, removed] = [0, 0];
    for (const change of await changes(linesOf(before), linesOf(after))) {
      added += change.newCount;
      removed += change.oldCount;
    }
    // What the index only took for changed.
    if (pair.kind === 'M' && added + removed === 0 && pair.before!.mode === pair.after!.mode) continue;
    result.push({ pair, name, added, removed, binary: null, isUnmerged: false });
  }
  return result;
}

/** `a/{b => c}/d` of a rename, or the path. */
function nameOf({ kind, before, after }: Pair): string {
  if (kind !== 'R' && kind !== 'C') return quotedPath((after ?? before)!.path);
  return renamedPath(before!.path, after!.path);
}

export function renamedPath(from: string, to: string): string {
  if (quotedPath(from) !== from || quotedPath(to) !== to) return `${quotedPath(from)} => ${quotedPath(to)}`;
  let head = 0;
  for (let at = 0; at < from.length && at < to.length && from[at] === to[at]; at++) if (from[at] === '/') head = at + 1;
  let tail = 0;
  const least = head > 0 ? head - 1 : 0;
  for (let back = 1; from.length - back >= least && to.length - back >= least; back++) {
    const character = from[from.length - back];
    if (character !== to[to.length - back]) break;
    if (character === '/') tail = back;
  }
  const oldMiddle = from.slice(head, Math.max(head, from.length - tail));
  const newMiddle = to.slice(head, Math.max(head, to.length - tail));
  if (head + tail === 0) return `${from} => ${to}`;
  return `${from.slice(0, head)}{${oldMiddle} => ${newMiddle}}${from.slice(from.length - tail)}`;
}

export function numstat(files: readonly Counted[], isNul: boolean): string {
  let text = '';
  for (const { pair, name, added, removed, binary, isUnmerged } of files) {
    if (isUnmerged) continue;
    const counts = binary ? '-\t-\t' : `${added}\t${removed}\t`;
    if (!isNul) text += `${counts}${name}\n`;
    else if (pair.kind === 'R') text += `${counts}\0${pair.before!.path}\0${pair.after!.path}\0`;
    else text += `${counts}${(pair.after ?? pair.before)!.path}\0`;
  }
  return text;
}

export function shortstat(files: readonly Counted[]): string {
  const some = files.filter(({ isUnmerged }) => !isUnmerged);
  if (some.length === 0) return files.length === 0 ? '' : ' 0 files changed\n';
  const added = some.reduce((sum, file) => sum + file.added, 0);
  const removed = some.reduce((sum, file) => sum + file.removed, 0);
  let text = ` ${some.length} file${some.length === 1 ? '' : 's'} changed`;
  if (added > 0 || removed === 0) text += `, ${added} insertion${added === 1 ? '' : 's'}(+)`;
  if (removed > 0 || added === 0) text += `, ${removed} deletion${removed === 1 ? '' : 's'}(-)`;
  return `${text}\n`;
}

/** The table; `columns` is the width of the terminal that there is none of. */
export function stat(files: readonly Counted[], columns = 80): string {
  if (files.length === 0) return '';
  const widest = Math.max(...files.map(({ name }) => displayWidth(name)));
  const most = Math.max(...files.map(({ added, removed }) => added + removed));
  const binaryWidth = Math.max(
    0,
    ...files.flatMap(({ binary }) => (binary ? [14 + String(binary.before).length + String(binary.after).length] : [])),
  );
  let numbers = String(most).length;
  if (binaryWidth > 0 && numbers < 3) numbers = 3;
  const width = Math.max(columns, 16 + 6 + numbers);
  let graph = most + 4 > binaryWidth ? most : binaryWidth - 4;
  let names = widest;
  if (names + numbers + 6 + graph > width) {
    const share = Math.floor((width * 3) / 8) - numbers - 6;
    if (graph > share) graph = Math.max(6, share);
    if (names > width - numbers - 6 - graph) names = width - numbers - 6 - graph;
    else graph = width - numbers - 6 - names;
  }
  let text = '';
  for (const { name, added, removed, binary, isUnmerged } of files) {
    const label = shortened(name, names);
    const start = ` ${label}${' '.repeat(names - displayWidth(label))} |`;
    if (isUnmerged) text += `${start} Unmerged\n`;
    else if (binary) {
      const sizes = binary.before === 0 && binary.after === 0 ? '' : ` ${binary.before} -> ${binary.after} bytes`;
      text += `${start} ${'Bin'.padStart(numbers)}${sizes}\n`;
    } else {
      const [plus, minus] = bars(added, removed, graph, most);
      const total = added + removed;
      text += `${start} ${String(total).padStart(numbers)}${total > 0 ? ' ' : ''}${'+'.repeat(plus)}${'-'.repeat(minus)}\n`;
    }
  }
  return text + shortstat(files);
}

function bars(added: number, removed: number, width: number, most: number): [number, number] {
  if (width > most) return [added, removed];
  const scaled = (count: number) => (count === 0 ? 0 : 1 + Math.floor((count * (width - 1)) / most));
  let total = scaled(added + removed);
  if (total < 2 && added > 0 && removed > 0) total = 2;
  if (added < removed) {
    const plus = scaled(added);
    return [plus, total - plus];
  }
  const minus = scaled(removed);
  return [total - minus, minus];
}

function shortened(name: string, width: number): string {
  if (name.length <= width) return name;
  const end = name.slice(name.length - (width - 3));
  const slash = end.indexOf('/');
  return `...${slash < 0 ? end : end.slice(slash)}`;
}

/** Names are quoted, so each character is one column. */
const displayWidth = (name: string): number => name.length;

/** ` create mode 100644 x`, ` rename a => b (90%)`, … */
export function summary(pairs: readonly Pair[]): string {
  let text = '';
  for (const { kind, before, after, score } of pairs) {
    if (kind === 'A') text += ` create mode ${modeText(after!.mode)} ${quotedPath(after!.path)}\n`;
    else if (kind === 'D') text += ` delete mode ${modeText(before!.mode)} ${quotedPath(before!.path)}\n`;
    else if (kind === 'R') {
      text += ` rename ${renamedPath(before!.path, after!.path)} (${score}%)\n`;
      if (before!.mode !== after!.mode) text += ` mode change ${modeText(before!.mode)} => ${modeText(after!.mode)}\n`;
    } else if ((kind === 'M' || kind === 'T') && before!.mode !== after!.mode) {
      text += ` mode change ${modeText(before!.mode)} => ${modeText(after!.mode)} ${quotedPath(after!.path)}\n`;
    }
  }
  return text;
}
