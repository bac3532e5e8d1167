/**
 * What the gateway remembers of a conversation's session between two turns, so that a warm turn asks no database for it.
 * Forgetting costs one question.
 */
import type { ConversationId } from '../ids.ts';

/** Conversations remembered at most; the ones not used for longest are forgotten. */
const capacity = 10_000;

interface Remembered {
  readonly session: string;
  /** The child that this process made ready for the session; another one has to be initialized first. */
  readonly generation: number | null;
  /** The row that ended the last turn, when nothing else can have written to the session since. */
  readonly closingRow: number | null;
}

export class SessionMemory {
  readonly #known = new Map<ConversationId, Remembered>();

  session(conversation: ConversationId): string | null {
    return this.#known.get(conversation)?.session ?? null;
  }

  /** Whether that child was made ready for a prompt of this conversation's session. */
  isReady(conversation: ConversationId, generation: number): boolean {
    return this.#known.get(conversation)?.generation === generation;
  }

  /** The watermark for the next prompt to that child; null when it has to be asked for. */
  watermark(conversation: ConversationId, generation: number): number | null {
    const known = this.#known.get(conversation);
    return known?.generation === generation ? known.closingRow : null;
  }

  remember(conversation: ConversationId, known: Remembered): void {
    this.#known.delete(conversation);
    this.#known.set(conversation, known);
    if (this.#known.size <= capacity) return;
    const [oldest] = this.#known.keys();
    if (oldest !== undefined) this.#known.delete(oldest);
  }
}
