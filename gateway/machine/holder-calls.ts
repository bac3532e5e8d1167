/** Asking the machine to replace or to end the children of conversations: an explicit operation, never part of a turn. */
import { type ChildFate, type HoldersDone, type HoldersRequest, maxHolderConversations } from '../../machine/launch.ts';
import type { ConversationId } from '../ids.ts';
import { WaitedTooLong, within } from '../waits.ts';

export type HoldersOutcome =
  /** One fate for each conversation, in their order. */
  | { readonly state: 'done'; readonly fates: readonly ChildFate[] }
  | { readonly state: 'failing'; readonly reason: string };

/** What can be asked for; of any number of conversations. Neither rejects. */
export interface HolderControl {
  /** Their next turns have new children, which read their private files anew. No running turn is harmed. */
  replace(conversations: readonly ConversationId[]): Promise<HoldersOutcome>;
  /** Ends the children at once, whatever they do; then nothing of them is left, and what they changed is in the cloud. */
  end(conversations: readonly ConversationId[]): Promise<HoldersOutcome>;
}

/** A child that is killed is gone in a moment; what it changed may have to be brought into a slow cloud. */
const answerMs = 120_000;

export class HolderCalls implements HolderControl {
  readonly #send: (line: HoldersRequest) => void;
  readonly #limitMs: number;
  readonly #waiting = new Map<number, (outcome: HoldersOutcome) => void>();
  #lastId = 0;
  #closed = false;

  constructor(send: (line: HoldersRequest) => void, limitMs = answerMs) {
    this.#send = send;
    this.#limitMs = limitMs;
  }

  replace(conversations: readonly ConversationId[]): Promise<HoldersOutcome> {
    return this.#ask('replace', conversations);
  }

  end(conversations: readonly ConversationId[]): Promise<HoldersOutcome> {
    return this.#ask('end', conversations);
  }

  heard({ holdersDone: { id, ...outcome } }: HoldersDone): void {
    this.#waiting.get(id)?.(outcome);
  }

  /** The machine has ended: it answers nothing more. */
  close(): void {
    this.#closed = true;
    for (const resolve of [...this.#waiting.values()]) resolve(gone);
  }

  /** In parts that fit into a line, one after the other; the first failure ends it. */
  async #ask(what: 'replace' | 'end', conversations: readonly ConversationId[]): Promise<HoldersOutcome> {
    const fates: ChildFate[] = [];
    // Also for none: it is then the pull, or the push, alone.
    for (let at = 0; at === 0 || at < conversations.length; at += maxHolderConversations) {
      const outcome = await this.#exchange(what, conversations.slice(at, at + maxHolderConversations));
      if (outcome.state === 'failing') return outcome;
      fates.push(...outcome.fates);
    }
    return { state: 'done', fates };
  }

  async #exchange(what: 'replace' | 'end', conversations: readonly ConversationId[]): Promise<HoldersOutcome> {
    if (this.#closed) return gone;
    const id = ++this.#lastId;
    const { promise, resolve } = Promise.withResolvers<HoldersOutcome>();
    this.#waiting.set(id, resolve);
    try {
      this.#send({ holders: { id, what, conversations: [...conversations] } });
      return await within(this.#limitMs, 'the answer of the machine', promise);
    } catch (error) {
      if (error instanceof WaitedTooLong) return { state: 'failing', reason: error.message };
      throw error;
    } finally {
      this.#waiting.delete(id);
    }
  }
}

const gone: HoldersOutcome = { state: 'failing', reason: 'the machine has ended' };
