/** Lets the rest of the machine run during a long command. */
import { breathe } from '../agentfs/breathe.ts';

/** How long the engine may hold the thread, in milliseconds. */
const turnMs = 4;

export class Pace {
  readonly #signal: AbortSignal;
  #since = performance.now();

  constructor(signal: AbortSignal) {
    this.#signal = signal;
  }

  /** Call this in every loop that may be long. Throws what the call was aborted with. */
  rest(): Promise<void> | undefined {
    if (performance.now() - this.#since < turnMs) return undefined;
    return this.#rest();
  }

  async #rest(): Promise<void> {
    await breathe();
    this.#signal.throwIfAborted();
    this.#since = performance.now();
  }
}
