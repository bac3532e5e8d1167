/**
 * Which removed file an added one was: first those with the same contents, then those with a name of their own and most of
 * their lines in common, then whatever is most alike. Scores go to 60,000, as git's do.
 */
import type { Repository } from '../repository/repository.ts';
import { binaryOfBytes, compareBinary } from '../text.ts';
import { isBinary } from './lines.ts';
import { contentOf, type Pair, pathOf, type Side } from './pairs.ts';

const best = 60_000;
/** Beyond as many comparisons git gives up looking for what is only alike. */
const mostComparisons = 1_000_000;
const candidatesOfOne = 4;
const pieceLength = 64;

interface Candidate {
  readonly from: number;
  readonly to: number;
  readonly score: number;
  readonly sameName: boolean;
}

/** The pairs with renames joined; `threshold` in percent. */
export async function withRenames(repository: Repository, pairs: readonly Pair[], threshold = 50): Promise<Pair[]> {
  const removed = pairs
    .filter(({ kind, before }) => kind === 'D' && before!.mode !== 0o160000)
    .map(({ before }) => before!);
  const added = pairs.filter(({ kind, after }) => kind === 'A' && after!.mode !== 0o160000).map(({ after }) => after!);
  if (removed.length === 0 || added.length === 0) return [...pairs];
  const finder = new Finder(repository, removed, added, (best * threshold) / 100);
  const found = await finder.find();
  const sources = new Set([...found.values()].map(({ from }) => removed[from]!.path));
  const joined: Pair[] = [];
  for (const pair of pairs) {
    if (pair.kind === 'D' && sources.has(pair.before!.path)) continue;
    const match = pair.kind === 'A' ? found.get(added.indexOf(pair.after!)) : undefined;
    if (!match) joined.push(pair);
    else {
      const score = Math.floor((match.score * 100) / best);
      joined.push({ kind: 'R', before: removed[match.from]!, after: pair.after, score });
    }
  }
  return joined.sort((one, two) => compareBinary(pathOf(one), pathOf(two)));
}

class Finder {
  readonly #repository: Repository;
  readonly #removed: readonly Side[];
  readonly #added: readonly Side[];
  readonly #least: number;
  readonly #found = new Map<number, { from: number; score: number }>();
  readonly #used = new Set<number>();
  readonly #pieces = new Map<Side, Promise<Pieces>>();

  constructor(repository: Repository, removed: readonly Side[], added: readonly Side[], least: number) {
    this.#repository = repository;
    this.#removed = removed;
    this.#added = added;
    this.#least = least;
  }

  async find(): Promise<ReadonlyMap<number, { from: number; score: number }>> {
    this.#exact();
    if (this.#least < best) {
      await this.#byName();
      await this.#byLikeness();
    }
    return this.#found;
  }

  #exact(): void {
    for (const [to, side] of this.#added.entries()) {
      if (side.hash === null) continue;
      let choice: Candidate | null = null;
      for (const [from, source] of this.#removed.entries()) {
        if (source.hash !== side.hash || !sameKind(source, side) || this.#used.has(from)) continue;
        const sameName = nameOf(source) === nameOf(side);
        if (!choice || (sameName && !choice.sameName)) choice = { from, to, score: best, sameName };
      }
      if (choice) this.#take(choice);
    }
  }

  /** Names that are removed once and added once. */
  async #byName(): Promise<void> {
    const least = this.#least + Math.floor((best - this.#least) * 0.5);
    const [from, to] = [
      this.#unique(this.#removed, (at) => this.#used.has(at)),
      this.#unique(this.#added, (at) => this.#found.has(at)),
    ];
    for (const [name, source] of from) {
      const target = to.get(name);
      if (source < 0 || target === undefined || target < 0) continue;
      const score = await this.#score(this.#removed[source]!, this.#added[target]!, least);
      if (score >= least) this.#take({ from: source, to: target, score, sameName: true });
    }
  }

  #unique(sides: readonly Side[], isTaken: (at: number) => boolean): Map<string, number> {
    const names = new Map<string, number>();
    for (const [at, side] of sides.entries()) {
      if (isTaken(at)) continue;
      names.set(nameOf(side), names.has(nameOf(side)) ? -1 : at);
    }
    return names;
  }

  async #byLikeness(): Promise<void> {
    const sources = [...this.#removed.keys()].filter((at) => !this.#used.has(at));
    const targets = [...this.#added.keys()].filter((at) => !this.#found.has(at));
    if (sources.length * targets.length > mostComparisons) return;
    const candidates: Candidate[] = [];
    for (const to of targets) {
      const ofOne: Candidate[] = [];
      for (const from of sources) {
        await this.#repository.pace.rest();
        const score = await this.#score(this.#removed[from]!, this.#added[to]!, this.#least);
        if (score < this.#least) continue;
        ofOne.push({ from, to, score, sameName: nameOf(this.#removed[from]!) === nameOf(this.#added[to]!) });
      }
      candidates.push(...ofOne.sort(byScore).slice(0, candidatesOfOne));
    }
    for (const candidate of candidates.sort(byScore)) {
      if (!this.#used.has(candidate.from) && !this.#found.has(candidate.to)) this.#take(candidate);
    }
  }

  #take({ from, to, score }: Candidate): void {
    this.#used.add(from);
    this.#found.set(to, { from, score });
  }

  async #score(source: Side, target: Side, least: number): Promise<number> {
    if (!isFile(source) || !isFile(target)) return 0;
    const [left, right] = [await this.#piecesOf(source), await this.#piecesOf(target)];
    const [small, large] = [Math.min(left.size, right.size), Math.max(left.size, right.size)];
    if (small === 0 || large * (best - least) < (large - small) * best) return 0;
    let kept = 0;
    for (const [piece, bytes] of left.counts) kept += Math.min(bytes, right.counts.get(piece) ?? 0);
    return Math.floor((kept * best) / large);
  }

  #piecesOf(side: Side): Promise<Pieces> {
    let known = this.#pieces.get(side);
    if (!known) {
      known = contentOf(this.#repository, side).then(piecesOf);
      this.#pieces.set(side, known);
    }
    return known;
  }
}

interface Pieces {
  readonly size: number;
  /** Bytes in each distinct line, or piece of a long one. */
  readonly counts: ReadonlyMap<string, number>;
}

function piecesOf(bytes: Uint8Array): Pieces {
  const text = binaryOfBytes(bytes);
  const isText = !isBinary(bytes);
  const counts = new Map<string, number>();
  for (let at = 0; at < text.length; ) {
    const newline = text.indexOf('\n', at);
    let end = Math.min(newline < 0 ? text.length : newline + 1, at + pieceLength);
    let piece = text.slice(at, end);
    if (isText && piece.includes('\r\n')) piece = piece.replace('\r\n', '\n');
    else if (isText && piece.endsWith('\r') && text[end] === '\n' && piece.length === pieceLength) {
      piece = `${piece.slice(0, -1)}\n`;
      end += 1;
    }
    counts.set(piece, (counts.get(piece) ?? 0) + piece.length);
    at = end;
  }
  return { size: text.length, counts };
}

const nameOf = ({ path }: Side): string => path.slice(path.lastIndexOf('/') + 1);
const isFile = ({ mode }: Side): boolean => (mode & 0o170000) === 0o100000;
const sameKind = (one: Side, two: Side): boolean => (one.mode & 0o170000) === (two.mode & 0o170000);

function byScore(one: Candidate, two: Candidate): number {
  return two.score - one.score || Number(two.sameName) - Number(one.sameName);
}
