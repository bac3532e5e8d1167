/**
 * The id that the next row of `messages` will get. The table numbers its rows one after the other, and nearly all of them
 * are written through this machine; so its children take turns in foretelling the next number. Nothing rests on it being
 * right: each transaction checks it at the authority before it commits (foreseen.ts).
 */

/** How long a child waits for its turn, in milliseconds; then it writes without foretelling. */
const turnWait = 500;
/** A child that has had its turn for so long has stopped: it loses it to who waits in vain, and its check may fail. */
const turnLength = 250;
const maxWaiting = 256;

export class MessageIds {
  #newest: bigint | null = null;
  #owner: object | null = null;
  #since = 0;
  readonly #waiting: { readonly owner: object; readonly grant: () => void }[] = [];

  /** It is nobody's turn. */
  get isFree(): boolean {
    return this.#owner === null;
  }

  /** Rows from here on are numbered beyond this one. */
  saw(id: bigint): void {
    if (this.#newest === null || id > this.#newest) this.#newest = id;
  }

  /** A foretold number was wrong: another writer is at work, whose rows are not seen here. */
  wasWrong(): void {
    this.#newest = null;
  }

  /** The number of the next row, for `owner` alone until it releases it; null when nobody can tell. Never rejects. */
  async claim(owner: object): Promise<bigint | null> {
    if (this.#owner === null) this.#own(owner);
    else if (!(await this.#turn(owner))) return null;
    if (this.#newest !== null) return this.#newest + 1n;
    this.release(owner);
    return null;
  }

  /** Ends the turn of `owner`, if it has it. */
  release(owner: object): void {
    if (this.#owner !== owner) return;
    const next = this.#waiting.shift();
    this.#own(next?.owner ?? null);
    next?.grant();
  }

  #own(owner: object | null): void {
    this.#owner = owner;
    this.#since = performance.now();
  }

  #turn(owner: object): Promise<boolean> {
    if (this.#waiting.length >= maxWaiting) return Promise.resolve(false);
    return new Promise((resolve) => {
      const waiter = {
        owner,
        grant: () => {
          clearTimeout(deadline);
          resolve(true);
        },
      };
      const deadline = setTimeout(() => {
        // Whoever waits longest is the next: this one.
        if (this.#owner !== null && performance.now() - this.#since >= turnLength) return this.release(this.#owner);
        this.#waiting.splice(this.#waiting.indexOf(waiter), 1);
        resolve(false);
      }, turnWait);
      this.#waiting.push(waiter);
    });
  }
}
