/** Whether SessionDB answered the machine's children, as the machine tells it: a turn whose row could not be written says so. */
import type { SessiondbState } from '../../machine/launch.ts';

/** Children whose trouble is remembered: far more than can run at once. */
const kept = 2_048;

export class SessiondbAnswers {
  /** By generation: `performance.now()` when it ceased to answer last, and whether it answers again. */
  readonly #troubles = new Map<number, { at: number; isOver: boolean }>();

  heard({ generation, answers }: SessiondbState): void {
    const known = this.#troubles.get(generation);
    if (!answers) this.#troubles.set(generation, { at: performance.now(), isOver: false });
    else if (known) known.isOver = true;
    const [oldest] = this.#troubles.keys();
    if (this.#troubles.size > kept && oldest !== undefined) this.#troubles.delete(oldest);
  }

  /** Whether a request of that child has failed since then (`performance.now()`), or its last one did. */
  failedSince(generation: number, since: number): boolean {
    const trouble = this.#troubles.get(generation);
    return trouble !== undefined && (!trouble.isOver || trouble.at >= since);
  }
}
