/** The stop button of one running turn, from its start to the end of its prompt. */

/** Why a turn is stopped. `shutdown`: the gateway ends and leaves the turn as it is, for recovery. */
export type StopReason = 'by-client' | 'deadline' | 'shutdown';

export class TurnControl {
  readonly #abort = new AbortController();
  #stopped: StopReason | null = null;
  #over = false;
  readonly #deadline: ReturnType<typeof setTimeout>;

  /** Stops the turn by itself after `deadlineMs`. */
  constructor(deadlineMs: number) {
    this.#deadline = setTimeout(() => this.stop('deadline'), deadlineMs);
  }

  /** The first reason that the turn was stopped for. */
  get stopped(): StopReason | null {
    return this.#stopped;
  }

  /** Aborts when the turn is stopped. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Stops the turn; false when there is nothing left to stop. A shutdown overrides what came before. */
  stop(reason: StopReason): boolean {
    if (this.#over) return false;
    if (this.#stopped === null || reason === 'shutdown') this.#stopped = reason;
    this.#abort.abort(new Error(`the turn was stopped: ${reason}`));
    return true;
  }

  /** The prompt has ended: nothing can be stopped any more. */
  end(): void {
    this.#over = true;
    clearTimeout(this.#deadline);
  }
}
