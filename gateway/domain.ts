/**
 * The things the gateway speaks of, as plain data. Rows of Postgres are turned into these and nothing else leaves
 * `governance/`.
 */
import type { ConversationId, Locator, MessageId, OperationId, SpecialistId, TokenId, UserId } from './ids.ts';
import type { ProblemDocument } from './problem.ts';
import type { Reach } from './reach.ts';

export const roles = ['client', 'client_admin', 'expert', 'account_manager', 'superadmin'] as const;
export type Role = (typeof roles)[number];

/** Who is calling, as told by a bearer token. */
export interface Caller {
  readonly token: TokenId;
  readonly role: Role;
  readonly name: string;
  /** The person whose token it is; null for one that speaks for the organization itself. */
  readonly user: UserId | null;
  readonly reach: Reach;
}

export interface User {
  readonly id: UserId;
  readonly name: string;
  readonly role: Role;
  /** Those that an expert works for; empty for every other role. */
  readonly specialists: readonly SpecialistId[];
  readonly createdAt: Date;
  readonly disabledAt: Date | null;
}

export type OperationKind = 'environment.set' | 'environment.reissue' | 'retention.purge';

/** Something that was done to the organization as a whole, kept for ever: names, ids and counts, never a value or prose. */
export interface Operation {
  readonly id: OperationId;
  readonly kind: OperationKind;
  /** Whose token it was. */
  readonly token: TokenId;
  readonly user: UserId | null;
  readonly subject: Readonly<Record<string, unknown>>;
  readonly begunAt: Date;
  /** Null while it runs, or when it was cut off. */
  readonly finishedAt: Date | null;
  readonly result: Readonly<Record<string, unknown>> | null;
}

export interface Specialist {
  readonly id: SpecialistId;
  readonly name: string;
  /** What is appended to the organization's SOUL.md when a conversation of this specialist is established. */
  readonly persona: string;
  readonly offboardedAt: Date | null;
  readonly createdAt: Date;
}

export interface Conversation {
  readonly id: ConversationId;
  readonly specialist: SpecialistId;
  /** The native Hermes session; null until its first turn made one. */
  readonly session: string | null;
  /** The person who began it; null for one that belongs to the organization itself. */
  readonly owner: UserId | null;
  readonly createdAt: Date;
}

/** An ACP content block exactly as the client sent it, unknown fields included. */
export type ContentBlock = { readonly type: string } & Readonly<Record<string, unknown>>;

/** The five phases of ADR-046 §8, in milliseconds. */
export interface PhaseTimings {
  /** API receipt to ACP attach. */
  readonly attachMs: number;
  /** Spawn to ready for a prompt, when a cold admission happened. */
  readonly admissionMs: number | null;
  /** Prompt sent to the first update the model caused. */
  readonly firstUpdateMs: number | null;
  /** First update to the end of the prompt. */
  readonly loopMs: number | null;
  /** End of the prompt to the committed delivery. */
  readonly settleMs: number | null;
}

export type MessageState =
  | { readonly state: 'accepted' }
  | { readonly state: 'dispatched' }
  | { readonly state: 'delivered'; readonly locator: Locator }
  | { readonly state: 'failed'; readonly problem: ProblemDocument }
  | { readonly state: 'cancelled' };

export type Message = MessageState & {
  readonly id: MessageId;
  readonly conversation: ConversationId;
  readonly acceptedAt: Date;
  readonly timings: PhaseTimings | null;
};

/** An event as it is logged: locators and states, never prose. `seq` grows by one per organization. */
export type LoggedEvent = {
  readonly seq: number;
  readonly conversation: ConversationId;
  readonly at: Date;
} & EventBody;

export type EventBody =
  | { readonly type: 'message.accepted'; readonly message: MessageId }
  | { readonly type: 'turn.started'; readonly message: MessageId; readonly admission: 'warm' | 'cold' }
  | { readonly type: 'reply.delivered'; readonly message: MessageId; readonly locator: Locator }
  | { readonly type: 'turn.failed'; readonly message: MessageId; readonly problem: ProblemDocument }
  | { readonly type: 'turn.cancelled'; readonly message: MessageId }
  | { readonly type: 'transcript.edited'; readonly locator: Locator }
  | { readonly type: 'transcript.appended'; readonly locator: Locator }
  | { readonly type: 'card.opened'; readonly locator: Locator }
  | { readonly type: 'conversation.updated' };

/** How much of a turn a reader sees: everything as the agent wrote it, or what a client role may see. */
export type UpdateView = 'verbatim' | 'client';

/** Not logged, no `seq`: Hermes' native ACP update as it came, for whoever listens now. */
export interface SessionUpdate {
  readonly type: 'session.update';
  readonly conversation: ConversationId;
  readonly at: Date;
  readonly update: Readonly<Record<string, unknown>>;
  /** Only in this view; in both when it is left out. */
  readonly view?: UpdateView;
}
