/**
 * What the rest of the gateway asks of Postgres: routing, governance, audit and locators (ADR-046 §5). Implemented in
 * `postgres.ts` with the ordinary `postgres` client; no LISTEN, no advisory lock, no session state (see DEPENDENCIES.md,
 * pglite).
 */
import type { Card } from '../cards/card.ts';
import type {
  Caller,
  ContentBlock,
  Conversation,
  EventBody,
  LoggedEvent,
  Message,
  Operation,
  OperationKind,
  PhaseTimings,
  Role,
  Specialist,
  User,
} from '../domain.ts';
import type { ConversationId, Locator, MessageId, OperationId, SpecialistId, UserId } from '../ids.ts';
import type { ProblemDocument } from '../problem.ts';
import type { Reach } from '../reach.ts';
import type { PurgeCounts } from '../retention/counts.ts';
import type { AmendmentLog } from './amendments.ts';
import type { FoundGovernance, Purge, PurgeResult } from './purges.ts';

export interface Page<T> {
  readonly items: readonly T[];
  /** Opaque cursor of the next page; null at the end. */
  readonly next: string | null;
}

export type Acceptance =
  | { readonly outcome: 'accepted'; readonly message: Message; readonly event: LoggedEvent }
  /** The key was used before with the same body: this is that message, as it stands now. */
  | { readonly outcome: 'known'; readonly message: Message }
  | { readonly outcome: 'key-reused' };

/** What became of the wish to cancel a message that waits. */
export type Cancellation =
  | { readonly outcome: 'cancelled'; readonly event: LoggedEvent }
  /** It did not wait any more: this is the message as it stood. */
  | { readonly outcome: 'too-late'; readonly message: Message };

/** Events of one transaction, in the order of their numbers. */
export type EventRun = readonly [LoggedEvent, ...LoggedEvent[]];

/** A message that still has a turn ahead of it, or had one when the process died. */
export interface PendingMessage {
  readonly message: Message;
  readonly blocks: readonly ContentBlock[];
  /** `messages.id` of SessionDB taken before the prompt; null when it was never dispatched. */
  readonly watermark: number | null;
}

export interface Governance {
  // --- organization, tokens
  /** The organization's own settings; made at the first start. */
  organization(): Promise<{ readonly id: string; readonly name: string }>;
  /** Makes a token of the organization itself; the secret is returned once and stored as a SHA-256 digest. */
  createToken(role: Role, name: string): Promise<{ readonly caller: Caller; readonly secret: string }>;
  /** Makes a token of a person, with that person's role. Throws `not-found`, or `conflict` when the person is disabled. */
  createUserToken(user: UserId, name: string): Promise<{ readonly caller: Caller; readonly secret: string }>;
  listTokens(): Promise<readonly (Caller & { readonly createdAt: Date })[]>;
  revokeToken(token: Caller['token']): Promise<boolean>;
  /** Answers from memory when it can: the process that revokes is the process that checks. */
  authenticate(secret: string): Promise<Caller | null>;

  // --- users
  /** `specialists` are those that an expert works for. Throws `not-found` for one that there is not. */
  createUser(name: string, role: Role, specialists: readonly SpecialistId[]): Promise<User>;
  findUser(id: UserId): Promise<User | null>;
  listUsers(cursor: string | null, limit: number): Promise<Page<User>>;
  /** Disables a person and revokes that person's tokens, which are answered; null when there is no such person. */
  disableUser(id: UserId): Promise<{ readonly user: User; readonly revoked: readonly Caller['token'][] } | null>;
  /** Says anew which specialists an expert works for; its tokens, whose reach has changed, are answered. */
  assignSpecialists(
    id: UserId,
    specialists: readonly SpecialistId[],
  ): Promise<{ readonly user: User; readonly tokens: readonly Caller['token'][] } | null>;

  // --- what is done to the organization as a whole
  /** Recorded before it is done, with names, ids and counts and never a value or prose. */
  beginOperation(by: Caller, kind: OperationKind, subject: Readonly<Record<string, unknown>>): Promise<OperationId>;
  finishOperation(id: OperationId, result: Readonly<Record<string, unknown>>): Promise<void>;
  listOperations(cursor: string | null, limit: number): Promise<Page<Operation>>;

  // --- erasure: each step on record before the next
  findPurgeable(conversation: ConversationId): Promise<FoundGovernance>;
  countFailedProse(before: Date): Promise<number>;
  /** Of messages that failed before then; answers how many had some. */
  eraseFailedProse(before: Date): Promise<number>;
  /** From here on the conversations do not exist for anybody, after a restart too. */
  beginPurge(
    by: Caller,
    failedProseBefore: Date | null,
    found: ReadonlyMap<ConversationId, PurgeCounts>,
  ): Promise<OperationId>;
  purgeStopped(id: OperationId, conversation: ConversationId): Promise<void>;
  advancePurge(id: OperationId, conversation: ConversationId, step: 'sessions' | 'files'): Promise<void>;
  /** Erases what this database has of the conversation, at once. */
  erasePurged(id: OperationId, conversation: ConversationId): Promise<void>;
  finishPurge(id: OperationId, result: PurgeResult): Promise<void>;
  readPurge(id: OperationId): Promise<Purge | null>;
  unfinishedPurges(): Promise<readonly Purge[]>;
  listPurges(cursor: string | null, limit: number): Promise<Page<Purge>>;

  // --- specialists, conversations
  createSpecialist(name: string, persona: string): Promise<Specialist>;
  listSpecialists(): Promise<readonly Specialist[]>;
  /** By id or by exact name. */
  findSpecialist(idOrName: string): Promise<Specialist | null>;
  offboardSpecialist(id: SpecialistId): Promise<Specialist | null>;
  /** Without an owner it belongs to the organization itself. */
  createConversation(id: ConversationId, specialist: SpecialistId, owner?: UserId | null): Promise<Conversation>;
  findConversation(id: ConversationId): Promise<Conversation | null>;
  listConversations(reach: Reach, cursor: string | null, limit: number): Promise<Page<Conversation>>;
  /** Once, after `session/new`. */
  bindSession(id: ConversationId, session: string): Promise<void>;
  /**
   * Whether nothing that only the transcript has could be lost with the conversation's session: no message of it was
   * delivered or cancelled, and no row of it was edited or appended by hand.
   */
  isUntold(id: ConversationId): Promise<boolean>;
  /** Routes an untold conversation from a session that is no more to a new one; false when it is none or routed elsewhere. */
  replaceSession(id: ConversationId, lost: string, session: string): Promise<boolean>;

  // --- messages: every transition and its event are one statement or one transaction
  /** `digest` is the SHA-256 (hex) of the canonical request body; `key` is null when the client gave none. */
  accept(input: {
    readonly id: MessageId;
    readonly conversation: ConversationId;
    readonly blocks: readonly ContentBlock[];
    readonly digest: string;
    readonly key: string | null;
  }): Promise<Acceptance>;
  /** The message that a key was used for, and the digest of its body; what is being accepted now is waited for. */
  findKeyed(
    conversation: ConversationId,
    key: string,
  ): Promise<{ readonly message: Message; readonly digest: string } | null>;
  findMessage(conversation: ConversationId, id: MessageId): Promise<Message | null>;
  /** accepted → dispatched, with the watermark taken before the prompt. Throws `conflict` when it was cancelled first. */
  dispatch(id: MessageId, watermark: number, admission: 'warm' | 'cold'): Promise<LoggedEvent>;
  /**
   * dispatched → delivered; the inbound prose is erased; unique by locator. No timings: it was recovered. With a card its
   * row and `card.opened` are written too, unless the database refuses them: that holds no reply.
   */
  deliver(id: MessageId, locator: Locator, timings: PhaseTimings | null, card: Card | null): Promise<EventRun>;
  /** accepted or dispatched → failed; the prose is kept for a retry by the client. */
  fail(id: MessageId, problem: ProblemDocument, timings: PhaseTimings | null): Promise<LoggedEvent>;
  cancel(id: MessageId, timings: PhaseTimings | null): Promise<LoggedEvent>;
  /**
   * accepted → cancelled, when no dispatch was first: one statement decides. Null when the conversation has no such message.
   */
  cancelWaiting(conversation: ConversationId, id: MessageId): Promise<Cancellation | null>;
  /** At start: what was accepted or dispatched when the last process ended, in order of acceptance. */
  pending(): Promise<readonly PendingMessage[]>;
  /** Logs an event that belongs to no message transition. */
  log(conversation: ConversationId, body: EventBody): Promise<LoggedEvent>;
  /** Events after `seq` in order, at most `limit`; `oldest` is the first seq still kept. */
  eventsAfter(
    seq: number,
    limit: number,
  ): Promise<{ readonly events: readonly LoggedEvent[]; readonly oldest: number }>;
  /** The newest sequence number. */
  lastSeq(): number;
  /** Changes that humans made to the transcript. */
  readonly amendments: AmendmentLog;

  close(): Promise<void>;
}
