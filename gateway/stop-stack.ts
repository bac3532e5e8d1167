/** What was started, in order, so that it can be stopped in the reverse order, whatever happened in between. */

export interface StopStep {
  readonly name: string;
  /** Longer than this is given up on and reported. */
  readonly limitMs: number;
  readonly stop: () => Promise<void> | void;
}

export type StepReport = (name: string, error: unknown) => void;

export class StopStack {
  readonly #steps: StopStep[] = [];
  #stopping: Promise<void> | null = null;

  /** Called right after a thing was started. */
  add(step: StopStep): void {
    this.#steps.push(step);
  }

  /** Stops everything, the last started first. A step that fails or hangs does not keep the others from stopping. */
  stop(report: StepReport): Promise<void> {
    this.#stopping ??= this.#stop(report);
    return this.#stopping;
  }

  async #stop(report: StepReport): Promise<void> {
    for (let step = this.#steps.pop(); step !== undefined; step = this.#steps.pop()) {
      const { name, limitMs, stop } = step;
      let timer: ReturnType<typeof setTimeout> | undefined;
      const late = new Promise<never>((_, reject) => {
        timer = setTimeout(() => reject(new Error(`not stopped within ${limitMs} ms`)), limitMs);
      });
      try {
        await Promise.race([(async () => stop())(), late]);
      } catch (error) {
        report(name, error);
      } finally {
        clearTimeout(timer);
      }
    }
  }
}
