/** How much of what a client can draw out as long as it likes runs at the same time, of each token and in all. */
import type { TokenId } from '../ids.ts';
import { Problem } from '../problem.ts';

export class AtOnce {
  readonly #what: string;
  readonly #perToken: number;
  readonly #total: number;
  readonly #running = new Map<TokenId, number>();
  #all = 0;

  /** `what` is the plural that a refusal names. */
  constructor(what: string, perToken: number, total: number) {
    this.#what = what;
    this.#perToken = perToken;
    this.#total = total;
  }

  /** Throws `too-many-requests`; otherwise to be left by calling what it returns, once or more often. */
  enter(token: TokenId): () => void {
    const own = this.#running.get(token) ?? 0;
    if (own >= this.#perToken || this.#all >= this.#total) {
      throw new Problem('too-many-requests', `At most ${this.#perToken} ${this.#what} of a token run at once`, {
        retryAfter: 5,
      });
    }
    this.#running.set(token, own + 1);
    this.#all += 1;
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      this.#all -= 1;
      const left = (this.#running.get(token) ?? 1) - 1;
      if (left === 0) this.#running.delete(token);
      else this.#running.set(token, left);
    };
  }
}
