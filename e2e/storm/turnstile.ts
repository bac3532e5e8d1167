/** How many conversations have messages under way at the same time. */

export class Turnstile {
  #places: number;
  #inside = 0;
  readonly #waiting: (() => void)[] = [];

  constructor(places: number) {
    this.#places = places;
  }

  /** From now on so many may be inside; nobody is sent out. */
  resize(places: number): void {
    this.#places = places;
    this.#admit();
  }

  /** More are inside than there are places for: whoever can should leave. */
  get isOverfull(): boolean {
    return this.#inside > this.#places;
  }

  /** Lets one more in, whether there is a place or not. */
  admitOne(): void {
    const next = this.#waiting.shift();
    if (next === undefined) return;
    this.#inside += 1;
    next();
  }

  /** Resolves, in order, when there is a place. */
  enter(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push(resolve);
    this.#admit();
    return promise;
  }

  leave(): void {
    this.#inside -= 1;
    this.#admit();
  }

  #admit(): void {
    while (this.#inside < this.#places && this.#waiting.length > 0) this.admitOne();
  }
}
