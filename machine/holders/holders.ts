/**
 * Which conversation has which child. The lock that an attachment takes here is the only serialization of a
 * conversation's turns: no lease, no fence in a database (ADR-046 §8).
 */
import type { Admission, Admissions, RelayedChild } from '../../hermes-run/server.ts';
import type { ChildFate } from '../launch.ts';

/** One conversation's running child, as this registry needs to know it. */
export interface Holder {
  readonly child: RelayedChild;
  /** Resolves when the child can take no further turn, which is before all of the holder has ended. */
  readonly silent: Promise<void>;
  /** Resolves when nothing of the holder is left. */
  readonly ended: Promise<void>;
  /** Opens and closes a work boundary around an attachment (ADR-046 §5). */
  beginWork(): void;
  endWork(): void;
  /** Orderly end of an idle child, bounded. */
  retire(): void;
  /** Immediate end. */
  kill(): void;
}

export type Start =
  | { readonly outcome: 'started'; readonly holder: Holder; readonly admissionMs: number }
  | { readonly outcome: 'refused'; readonly refusal: 'unknown-conversation' | 'failed'; readonly detail: string };

export type StartHolder = (conversation: string, session: string | null, generation: number) => Promise<Start>;

type Entry =
  | { readonly state: 'starting'; readonly started: Promise<void> }
  /** `left` resolves when nobody is attached to it any more. */
  | { readonly state: 'attached'; readonly holder: Holder; readonly left: PromiseWithResolvers<void> }
  | { readonly state: 'idle'; readonly holder: Holder }
  /** `promised`: somebody waits for its end to take its room. */
  | { readonly state: 'ending'; readonly ended: Promise<void>; readonly promised: boolean };

/**
 * How long an attach waits for the one before it, in milliseconds. A gateway attaches a conversation once at a time: the
 * machine has only not yet seen that it let go of the last attachment.
 */
const attachedMs = 5_000;

export class Holders implements Admissions {
  /** Insertion order is the order of last use: the first idle one is the first to go. */
  readonly #entries = new Map<string, Entry>();
  readonly #start: StartHolder;
  readonly #maxHolders: number;
  readonly #attachedMs: number;
  /** Conversations whose child, at work or starting, takes no turn behind this one. */
  readonly #outdated = new Set<string>();
  #generation = 0;
  #closing = false;

  constructor(start: StartHolder, maxHolders: number, attachedLimitMs = attachedMs) {
    this.#start = start;
    this.#maxHolders = maxHolders;
    this.#attachedMs = attachedLimitMs;
  }

  async admit(conversation: string, session: string | null, fresh = false): Promise<Admission> {
    const limit = Promise.withResolvers<'late'>();
    let timer: ReturnType<typeof setTimeout> | undefined;
    try {
      return await this.#admit(conversation, session, fresh, () => {
        timer ??= setTimeout(() => limit.resolve('late'), this.#attachedMs);
        return limit.promise;
      });
    } finally {
      clearTimeout(timer);
    }
  }

  /** `late` starts the limit of the waits for an earlier attachment, which is one for all of them. */
  async #admit(
    conversation: string,
    session: string | null,
    fresh: boolean,
    late: () => Promise<'late'>,
  ): Promise<Admission> {
    for (;;) {
      if (this.#closing) return { outcome: 'refused', refusal: 'closing', detail: 'the machine is closing' };
      const entry = this.#entries.get(conversation);
      if (entry?.state === 'attached') {
        if ((await Promise.race([entry.left.promise, late()])) !== 'late') continue;
        return { outcome: 'refused', refusal: 'busy', detail: 'somebody is attached to this conversation' };
      }
      if (entry?.state === 'starting') {
        // Whoever asked for it may have gone meanwhile: then the child is there for the next one.
        await entry.started;
        continue;
      }
      if (entry?.state === 'ending') {
        await entry.ended;
        continue;
      }
      if (entry && fresh) {
        entry.holder.retire();
        this.#entries.set(conversation, { state: 'ending', ended: entry.holder.ended, promised: false });
        continue;
      }
      if (entry) return this.#attachWarm(conversation, entry.holder);
      return this.#attachCold(conversation, session);
    }
  }

  release(child: RelayedChild, how: 'detached' | 'abandoned'): void {
    for (const [conversation, entry] of this.#entries) {
      if (entry.state !== 'attached' || entry.holder.child !== child) continue;
      entry.holder.endWork();
      if (how === 'abandoned' || this.#closing) {
        entry.holder.kill();
        this.#change(conversation, { state: 'ending', ended: entry.holder.ended, promised: false });
      } else if (this.#outdated.has(conversation)) {
        this.#retire(conversation, entry.holder);
      } else {
        this.#use(conversation, { state: 'idle', holder: entry.holder });
      }
      return;
    }
    // Not found: the child ended by itself and was forgotten already.
  }

  /**
   * Lets the conversation's next turn have a new child: what this one was given at its start is outdated. A turn that runs is
   * not touched.
   */
  replace(conversation: string): ChildFate {
    const entry = this.#entries.get(conversation);
    if (entry === undefined || entry.state === 'ending') return 'none';
    if (entry.state === 'idle') {
      this.#retire(conversation, entry.holder);
      return 'ended';
    }
    this.#outdated.add(conversation);
    return 'after-turn';
  }

  /** Ends the conversation's child at once, in whatever it is. Resolves when nothing of it is left. */
  async end(conversation: string): Promise<ChildFate> {
    let fate: ChildFate = 'none';
    for (;;) {
      const entry = this.#entries.get(conversation);
      if (entry === undefined) return fate;
      fate = 'ended';
      if (entry.state === 'starting') await entry.started;
      else if (entry.state === 'ending') await entry.ended;
      else {
        if (entry.state === 'idle') entry.holder.retire();
        else entry.holder.kill();
        this.#change(conversation, { state: 'ending', ended: entry.holder.ended, promised: false });
      }
    }
  }

  /** Ends every holder: idle ones orderly, attached ones at once. Resolves when nothing is left. */
  async close(): Promise<void> {
    this.#closing = true;
    const ended: Promise<void>[] = [];
    for (const entry of this.#entries.values()) {
      if (entry.state === 'ending') ended.push(entry.ended);
      if (entry.state === 'idle') entry.holder.retire();
      if (entry.state === 'attached') entry.holder.kill();
      if (entry.state === 'idle' || entry.state === 'attached') ended.push(entry.holder.ended);
    }
    await Promise.all(ended);
  }

  #attachWarm(conversation: string, holder: Holder): Admission {
    holder.beginWork();
    this.#use(conversation, attachedTo(holder));
    return { outcome: 'admitted', child: holder.child, admission: 'warm', admissionMs: 0 };
  }

  async #attachCold(conversation: string, session: string | null): Promise<Admission> {
    const evicted = this.#makeRoom();
    if (!evicted) return { outcome: 'refused', refusal: 'full', detail: `all ${this.#maxHolders} holders are at work` };
    const started = Promise.withResolvers<void>();
    this.#entries.set(conversation, { state: 'starting', started: started.promise });
    this.#outdated.delete(conversation);
    let start: Start;
    try {
      await evicted;
      this.#generation += 1;
      start = await this.#start(conversation, session, this.#generation);
    } catch (error) {
      this.#entries.delete(conversation);
      throw error;
    } finally {
      started.resolve();
    }
    if (start.outcome === 'refused') {
      this.#entries.delete(conversation);
      return start;
    }
    const { holder, admissionMs } = start;
    holder.silent.then(() => this.#condemn(conversation, holder));
    holder.ended.then(() => this.#forget(conversation, holder));
    this.#change(conversation, attachedTo(holder));
    if (this.#closing) {
      holder.kill();
      return { outcome: 'refused', refusal: 'closing', detail: 'the machine is closing' };
    }
    return { outcome: 'admitted', child: holder.child, admission: 'cold', admissionMs };
  }

  /** Null when there is no room; otherwise a wait for the holder that goes, if any. */
  #makeRoom(): Promise<void> | null {
    if (this.#entries.size < this.#maxHolders) return Promise.resolve();
    const entries = [...this.#entries];
    for (const [conversation, entry] of entries) {
      if (entry.state !== 'ending' || entry.promised) continue;
      this.#entries.set(conversation, { ...entry, promised: true });
      return entry.ended;
    }
    for (const [conversation, entry] of entries) {
      if (entry.state !== 'idle') continue;
      entry.holder.retire();
      this.#entries.set(conversation, { state: 'ending', ended: entry.holder.ended, promised: true });
      return entry.holder.ended;
    }
    return null;
  }

  #retire(conversation: string, holder: Holder): void {
    holder.retire();
    this.#change(conversation, { state: 'ending', ended: holder.ended, promised: false });
    this.#outdated.delete(conversation);
  }

  #use(conversation: string, entry: Entry): void {
    this.#change(conversation, null);
    this.#change(conversation, entry);
  }

  /** Every change of an entry once its child has started. */
  #change(conversation: string, entry: Entry | null): void {
    const before = this.#entries.get(conversation);
    if (entry === null) this.#entries.delete(conversation);
    else this.#entries.set(conversation, entry);
    if (before?.state === 'attached') before.left.resolve();
  }

  /** Nobody is attached to a child that has ended: the next one waits until it is gone and gets another. */
  #condemn(conversation: string, holder: Holder): void {
    const entry = this.#entries.get(conversation);
    if ((entry?.state !== 'idle' && entry?.state !== 'attached') || entry.holder !== holder) return;
    this.#change(conversation, { state: 'ending', ended: holder.ended, promised: false });
    // It ends by itself, and tells how; one that has only closed its output is ended.
    holder.retire();
  }

  #forget(conversation: string, holder: Holder): void {
    const entry = this.#entries.get(conversation);
    const isItsOwn =
      entry?.state === 'ending'
        ? entry.ended === holder.ended
        : (entry?.state === 'idle' || entry?.state === 'attached') && entry.holder === holder;
    if (!isItsOwn) return;
    this.#change(conversation, null);
    this.#outdated.delete(conversation);
  }
}

const attachedTo = (holder: Holder): Entry => ({ state: 'attached', holder, left: Promise.withResolvers() });
