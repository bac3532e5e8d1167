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

export interface Transcript {
  /** Highest `messages.id` in SessionDB now: the watermark taken before a prompt. 0 when there is none. */
  watermark(): Promise<number>;
  /**
   * The canonical assistant row that ended the turn which began after `watermark` in this session's lineage, or null when
   * there is none.
   */
  replyAfter(session: string, watermark: number): Promise<TranscriptRow | null>;
  /** Resolves a locator to its one row; null when it is gone. */
  resolve(locator: Locator): Promise<TranscriptRow | null>;
  /** Turns in order, the whole lineage; `after` is a cursor from an earlier page. */
  read(
    conversation: Conversation,
    view: 'client' | 'canonical',
    after: string | null,
    limit: number,
  ): Promise<{ readonly turns: readonly TranscriptTurn[]; readonly next: string | null }>;
}
