/** Lets clients work, and holds them between two pieces of it while somebody looks at what they have done. */

export class Gate {
  #opened = Promise.resolve();
  #open = () => {};
  #isStopped = false;
  #failure: unknown = null;
  readonly #working = new Set<Promise<void>>();

  /** Does `piece` over and over until `stop`. A failure of it is thrown by the next `hold` or `stop`. */
  run(piece: () => Promise<void>): void {
    void (async () => {
      for (;;) {
        await this.#opened;
        if (this.#isStopped || this.#failure !== null) return;
        const work = piece().catch((error: unknown) => {
          this.#failure ??= error;
        });
        this.#working.add(work);
        await work;
        this.#working.delete(work);
      }
    })();
  }

  /** Resolves when each has ended its piece; no other begins until the call of `open`. */
  async hold(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#opened = promise;
    this.#open = resolve;
    await Promise.all(this.#working);
    if (this.#failure !== null) throw this.#failure;
  }

  open(): void {
    this.#open();
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#open();
    await Promise.all(this.#working);
    if (this.#failure !== null) throw this.#failure;
  }
}
