/**
 * What clients see of a turn while it streams: the agent's own updates, but never a part of a question card. Experts see
 * every update as it came.
 */
import type { UpdateView } from '../domain.ts';
import { CardScanner } from './scanner.ts';

type Update = Readonly<Record<string, unknown>>;

/** Gets an update for everyone, or for one view alone. */
export type Emit = (update: Update, view?: UpdateView) => void;

/** One turn's updates. Its beginning is the turn's: a listener that comes later gets the same text from there on. */
export class ClientStream {
  readonly #emit: Emit;
  #scanner = new CardScanner();

  constructor(emit: Emit) {
    this.#emit = emit;
  }

  /** The agent's next update. */
  take(update: Update): void {
    const text = messageText(update);
    if (text === null) {
      // What the model said before it called a tool is a row of its own, and its reply begins anew after it.
      if (update.sessionUpdate === 'tool_call') this.#begin();
      this.#emit(update);
      return;
    }
    const shown = this.#scanner.push(text);
    if (shown === text) {
      this.#emit(update);
    } else {
      this.#emit(update, 'verbatim');
      this.#say(shown);
    }
  }

  /** The turn ended in order: what was not shown yet is prose. Not for a turn that broke off: clients withdraw its text. */
  end(): void {
    this.#begin();
  }

  #begin(): void {
    this.#say(this.#scanner.end());
    this.#scanner = new CardScanner();
  }

  #say(text: string): void {
    if (text !== '') this.#emit({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } }, 'client');
  }
}

/** The text of a message chunk; null for every other update. */
function messageText(update: Update): string | null {
  if (update.sessionUpdate !== 'agent_message_chunk') return null;
  const { content } = update;
  if (typeof content !== 'object' || content === null) return null;
  const { type, text } = content as { type?: unknown; text?: unknown };
  return type === 'text' && typeof text === 'string' ? text : null;
}
