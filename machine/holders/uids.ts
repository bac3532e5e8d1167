/** Host user ids for holders: each living holder has one of its own, so that no holder can touch another's processes. */

/** The first id; far from those of people and services. */
const firstUid = 101_000;

export class HostUids {
  readonly #taken = new Set<number>();

  take(): number {
    let uid = firstUid;
    while (this.#taken.has(uid)) uid += 1;
    this.#taken.add(uid);
    return uid;
  }

  release(uid: number): void {
    this.#taken.delete(uid);
  }
}
