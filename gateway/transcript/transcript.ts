/** Reading the canonical transcript from the SessionDB authority (ADR-046 §6, §9). Implemented in `sessiondb.ts`. */
import type { Conversation } from '../domain.ts';
import type { Locator } from '../ids.ts';

export interface TranscriptTurn {
  readonly locator: Locator;
  readonly role: 'user' | 'assistant';
  readonly text: string;
  readonly at: Date;
  /** Strong entity tag of this row's text. */
  readonly etag: string;
  /** Only in the canonical view. */
  readonly toolCalls?: readonly unknown[];
}

export interface TranscriptRow {
  readonly locator: Locator;
  readonly text: string;
}

/** The row that ended a turn's output, whatever it is worth: the agent profile decides whether it is a reply. */
export interface ClosingRow extends TranscriptRow {
  readonly hasToolCalls: boolean;
  readonly finishReason: string | null;
}

export interface Transcript {
  /** Highest `messages.id` in SessionDB now: the watermark taken before a prompt. 0 when there is none. */
  watermark(): Promise<number>;
  /** Whether SessionDB has this session, or a row of it. */
  holdsSession(session: string): Promise<boolean>;
  /**
   * The last row of this session's lineage when Hermes wrote it after `watermark` and it is an assistant's, or null: then
   * the turn that began there has no reply.
   */
  replyAfter(session: string, watermark: number): Promise<ClosingRow | null>;
  /**
   * Resolves a locator to its one row; null when it is gone. Throws a `conflict` Problem when more than one row could be
   * meant.
   */
  resolve(locator: Locator): Promise<TranscriptRow | null>;
  /** One turn by its locator; null when the view shows no such turn of this conversation. Throws as {@link resolve} does. */
  turn(conversation: Conversation, locator: string, view: 'client' | 'canonical'): Promise<TranscriptTurn | null>;
  /** Turns in order, the whole lineage; `after` is a cursor from an earlier page. */
  read(
    conversation: Conversation,
    view: 'client' | 'canonical',
    after: string | null,
    limit: number,
  ): Promise<{ readonly turns: readonly TranscriptTurn[]; readonly next: string | null }>;
}
