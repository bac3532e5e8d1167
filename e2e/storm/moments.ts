/** Somebody says that a step of a message's path was just reached, and somebody waits for it. */
import type { Moment } from './plan.ts';

/** Whether it came within the limit. What comes is whoever calls the function that this adds to `waiting`. */
export async function untilReached(waiting: (() => void)[], limitMs: number): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const reached = () => resolve(true);
  waiting.push(reached);
  const timer = setTimeout(() => resolve(false), limitMs);
  const came = await promise;
  clearTimeout(timer);
  const at = waiting.indexOf(reached);
  if (at !== -1) waiting.splice(at, 1);
  return came;
}

export class Moments {
  readonly #waiting = new Map<Moment, (() => void)[]>();

  reached(moment: Moment): void {
    for (const resolve of this.#waiting.get(moment)?.splice(0) ?? []) resolve();
  }

  /** Whether the moment came within the limit. */
  next(moment: Moment, limitMs: number): Promise<boolean> {
    const waiting = this.#waiting.get(moment) ?? [];
    this.#waiting.set(moment, waiting);
    return untilReached(waiting, limitMs);
  }
}
