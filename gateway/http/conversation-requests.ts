/** What is at work on each conversation: who erases one waits for that. */
import type { ConversationId } from '../ids.ts';
import { Problem } from '../problem.ts';

interface Work {
  count: number;
  readonly waiting: (() => void)[];
  readonly givenUp: AbortController;
}

export class ConversationRequests {
  readonly #works = new Map<string, Work>();

  /** Counts a request until the call that it returns. Of none, nothing is counted. */
  enter(conversation: string | null): () => void {
    if (conversation === null) return () => undefined;
    const work = this.#works.get(conversation) ?? { count: 0, waiting: [], givenUp: new AbortController() };
    this.#works.set(conversation, work);
    work.count += 1;
    return () => {
      work.count -= 1;
      if (work.count > 0) return;
      this.#works.delete(conversation);
      for (const resolve of work.waiting) resolve();
    };
  }

  /** Aborts when somebody waits for the requests of a conversation: what a client may draw out for hours ends then. */
  givenUp(conversation: ConversationId): AbortSignal {
    return this.#works.get(conversation)?.givenUp.signal ?? new AbortController().signal;
  }

  /** Resolves when none is at work. New ones are kept out by whoever waits; bodies that still come in are given up. */
  ended(conversation: ConversationId): Promise<void> {
    const work = this.#works.get(conversation);
    if (work === undefined) return Promise.resolve();
    work.givenUp.abort(new Problem('not-found', 'There is no such conversation any more'));
    return new Promise((resolve) => work.waiting.push(resolve));
  }
}
