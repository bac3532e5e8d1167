/** Runs pieces of work side by side; each has its own output, which nobody else's lines get into. */
import type { Counts } from './junit.ts';

export interface Outcome {
  readonly counts: Counts;
  /** What it printed, unless that was seen as it came. */
  readonly output: string;
  /** Seconds of processor time of it and all that it waited for; null where nobody counted. */
  readonly processorS: number | null;
}

export interface Work {
  readonly name: string;
  readonly run: () => Promise<Outcome>;
}

export interface Ended {
  readonly name: string;
  readonly seconds: number;
  readonly outcome: Outcome;
}

/** A failure in `run` is the failure of all: a piece of work tells its own in its counts. */
async function ended({ name, run }: Work): Promise<Ended> {
  const began = performance.now();
  const outcome = await run();
  return { name, seconds: (performance.now() - began) / 1_000, outcome };
}

/**
 * Runs all in one lane or in two: the first takes from the front, the second from the back, so that what stands at the front
 * runs beside what stands at the back, and both end at about the same time.
 * @param tell is called for one after the other, in the order in which they end
 * @returns in the order of `work`
 */
export async function inLanes(
  work: readonly Work[],
  lanes: 1 | 2,
  tell: (one: Ended) => Promise<void>,
): Promise<Ended[]> {
  const results: Ended[] = [];
  let [front, back] = [0, work.length];
  let telling: Promise<void> = Promise.resolve();
  const next = (lane: number): number | null => {
    if (front >= back) return null;
    if (lane === 0) return front++;
    return --back;
  };
  const drive = async (lane: number): Promise<void> => {
    for (let at = next(lane); at !== null; at = next(lane)) {
      const result = await ended(work[at]!);
      results[at] = result;
      telling = telling.then(() => tell(result));
    }
  };
  await Promise.all(Array.from({ length: lanes }, (_, lane) => drive(lane)));
  await telling;
  return results;
}
