/** What HTTP and WebSocket ask of the turn engine (intake → dispatch → settle). Implemented in `engine.ts`. */
import type { ContentBlock, Conversation, Message } from '../domain.ts';
import type { ConversationId, Locator, MessageId } from '../ids.ts';
import type { Problem } from '../problem.ts';

export interface Submission {
  readonly conversation: Conversation;
  /** Either one text or ACP content blocks, already parsed as JSON and otherwise untouched. */
  readonly content: { readonly text: string } | { readonly blocks: readonly ContentBlock[] };
  readonly idempotencyKey: string | null;
  /** `performance.now()` when the request arrived. */
  readonly receivedAt: number;
}

export interface DeliveredReply {
  readonly locator: Locator;
  readonly text: string;
}

export interface Turns {
  /** Why `submit` would not take this content, whatever else there is; null when it would. */
  refusal(content: Submission['content']): Problem | null;
  /**
   * Validates (the agent profile's rules), stores and queues a message. Throws a {@link Problem} when it cannot be sent
   * as it is. Returns the stored message: a repeated idempotency key answers with the first one, whatever is full by now.
   */
  submit(submission: Submission): Promise<Message>;
  /**
   * The message that the submission's idempotency key was used for; null when there is none, and nothing is stored. Throws
   * `idempotency-key-reused` when it was used for other content.
   */
  repeated(submission: Submission): Promise<Message | null>;
  /** Whether the key was used in that conversation. */
  isKeyUsed(conversation: ConversationId, idempotencyKey: string): Promise<boolean>;
  /** Resolves with the message once it is delivered, failed or cancelled, or as it stands when `signal` aborts. */
  settled(conversation: ConversationId, id: MessageId, signal: AbortSignal): Promise<Message>;
  /**
   * The text of a delivered reply, read from SessionDB: when the turn was settled, if `of` is the message or the event that
   * came from there, otherwise now.
   */
  reply(locator: Locator, of?: object): Promise<DeliveredReply>;
  /**
   * Cancels the running turn of a conversation; with `message` that message alone, which may still wait for its turn. True when
   * it is cancelled or being cancelled, however often it is asked for; false when it ended otherwise, or, without `message`,
   * nothing runs. Throws `not-found` when the conversation has no such message.
   */
  cancel(conversation: ConversationId, message?: MessageId): Promise<boolean>;
  /** Stops taking work and waits, at most `graceMs`, for running turns; what still runs then is left `dispatched`. */
  close(graceMs: number): Promise<void>;
}
