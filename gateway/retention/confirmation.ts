/** The word that confirms: it stands for exactly what was looked at, and for a short time. Nothing is kept of it. */

const minutes = 15;

export class Confirmations {
  /** Of this process: a confirmation does not outlive it. */
  readonly #key = crypto.getRandomValues(new Uint8Array(32));
  readonly #now: () => number;

  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  of(state: string): { readonly confirmation: string; readonly expiresAt: Date } {
    const expiresAt = this.#now() + minutes * 60_000;
    return { confirmation: `${expiresAt}.${this.#digest(state, expiresAt)}`, expiresAt: new Date(expiresAt) };
  }

  isOf(confirmation: string, state: string): boolean {
    const [, expires] = /^(\d{1,15})\.[\w-]{43}$/.exec(confirmation) ?? [];
    if (expires === undefined || Number(expires) < this.#now()) return false;
    return confirmation === `${expires}.${this.#digest(state, Number(expires))}`;
  }

  #digest(state: string, expiresAt: number): string {
    return new Bun.CryptoHasher('sha256', this.#key).update(`${expiresAt}\0${state}`).digest('base64url');
  }
}
