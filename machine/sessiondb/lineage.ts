/**
 * Whose sessions a holder's Hermes may write: those it created through its relay, those the machine named when it attached
 * the conversation, and their descendants (subagents, compression).
 */

/** Answers for one session id the id of its parent, null for a root, or undefined when there is no such session. */
export type ParentLookup = (session: string) => Promise<string | null | undefined>;

export type LineageOptions = {
  /** Sessions of this conversation from before. */
  readonly sessions: readonly string[];
  /** A statement was refused; the reason names tables and sessions, never content. For the log. */
  readonly onRefusal: (reason: string) => void;
};

/** Generations of parents that are looked at to find one of one's own. */
const maxAncestors = 64;
/** Sessions remembered; more than a conversation ever has. Beyond it ancestry is looked up again each time. */
const maxRemembered = 10_000;

export class Lineage {
  readonly #own: Set<string>;
  readonly #options: LineageOptions;

  constructor(options: LineageOptions) {
    this.#options = options;
    this.#own = new Set(options.sessions);
  }

  refused(reason: string): void {
    this.#options.onRefusal(reason);
  }

  /** True when nothing needs to be looked up. */
  has(session: string): boolean {
    return this.#own.has(session);
  }

  sessions(): Iterable<string> {
    return this.#own;
  }

  /**
   * Decides about a session that is not known yet. `creates`: whether the statement would bring it into being if it is not
   * there. Must run on the stream of the statement, after what precedes it, so that the
   * answer still holds when it runs.
   */
  async admits(session: string, creates: boolean, parentOf: ParentLookup): Promise<boolean> {
    const parent = await parentOf(session);
    // Where nothing is, nothing can be harmed: a write finds no row, or violates the foreign key.
    if (parent === undefined) {
      if (creates) this.#take(session);
      return true;
    }
    let ancestor: string | null = parent;
    for (let n = 0; ancestor !== null && n < maxAncestors; n++) {
      if (this.has(ancestor)) {
        this.#take(session);
        return true;
      }
      ancestor = (await parentOf(ancestor)) ?? null;
    }
    return false;
  }

  #take(session: string): void {
    if (this.#own.size < maxRemembered) this.#own.add(session);
  }
}
