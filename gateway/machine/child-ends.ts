/** How the machine's children ended: the machine says it once, and whoever needs it may ask before or after that. */
import type { ChildEnd } from '../../machine/launch.ts';

/** How long to wait for the machine's word about a child whose stream has ended. */
const waitMs = 5_000;
/** Ends that are kept for those who ask later. */
const kept = 256;

export class ChildEnds {
  readonly #known = new Map<number, ChildEnd>();
  readonly #waiting = new Map<number, Set<(end: ChildEnd | null) => void>>();
  readonly #waitMs: number;
  #closed = false;

  constructor(limitMs = waitMs) {
    this.#waitMs = limitMs;
  }

  add(end: ChildEnd): void {
    this.#known.set(end.generation, end);
    const [oldest] = this.#known.keys();
    if (this.#known.size > kept && oldest !== undefined) this.#known.delete(oldest);
    for (const resolve of this.#waiting.get(end.generation) ?? []) resolve(end);
  }

  /** The machine has ended: it says nothing more. */
  close(): void {
    this.#closed = true;
    for (const waiting of this.#waiting.values()) for (const resolve of waiting) resolve(null);
  }

  /** Null when it is not known in time. */
  async of(generation: number): Promise<ChildEnd | null> {
    const known = this.#known.get(generation);
    if (known || this.#closed) return known ?? null;
    const { promise, resolve } = Promise.withResolvers<ChildEnd | null>();
    const waiting = this.#waiting.get(generation) ?? new Set();
    this.#waiting.set(generation, waiting.add(resolve));
    const timer = setTimeout(() => resolve(null), this.#waitMs);
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
      waiting.delete(resolve);
      if (waiting.size === 0) this.#waiting.delete(generation);
    }
  }
}

/** For a sentence such as `The agent ended (…)`: the signal, or the exit code and what confined-exec said. */
export function describeChildEnd(end: ChildEnd): string {
  if (end.outOfMemory) {
    return `${end.signal ?? `exit code ${end.code}`}: out of memory, EDGE_HOLDER_MEMORY_MIB is its limit`;
  }
  if (end.signal !== null) return end.signal;
  const said = end.report.replaceAll('\n', '; ');
  return said ? `exit code ${end.code}: ${said}` : `exit code ${end.code}`;
}
