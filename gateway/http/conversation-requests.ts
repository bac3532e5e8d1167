/** What is at work on each conversation: who erases one waits for that. */
import type { ConversationId } from '../ids.ts';

interface Work {
  count: number;
  readonly waiting: (() => void)[];
}

export class ConversationRequests {
  readonly #works = new Map<string, Work>();

  /** Counts a request until the call that it returns. Of none, nothing is counted. */
  enter(conversation: string | null): () => void {
    if (conversation === null) return () => undefined;
    const work = this.#works.get(conversation) ?? { count: 0, waiting: [] };
    this.#works.set(conversation, work);
    work.count += 1;
    return () => {
      work.count -= 1;
      if (work.count > 0) return;
      this.#works.delete(conversation);
      for (const resolve of work.waiting) resolve();
    };
  }

  /** Resolves when none is at work. New ones are kept out by whoever waits. */
  ended(conversation: ConversationId): Promise<void> {
    const work = this.#works.get(conversation);
    return work === undefined ? Promise.resolve() : new Promise((resolve) => work.waiting.push(resolve));
  }
}
