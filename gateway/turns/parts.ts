/** What a turn is run with. */
import type { Attachments } from '../acp/attachments.ts';
import type { EventBus } from '../events/events.ts';
import type { Governance } from '../governance/governance.ts';
import type { Log } from '../log.ts';
import type { UnreadAmendments } from '../transcript/amendments.ts';
import type { Transcript } from '../transcript/transcript.ts';
import type { SessionMemory } from './session-memory.ts';

/** Where the engine writes what an operator should see. */
export type TurnLog = Pick<Log, 'info' | 'warn'>;

/** Every bound of a turn. Times in milliseconds. */
export interface TurnLimits {
  /** Bytes of a message's blocks as JSON. */
  readonly maxMessageBytes: number;
  readonly maxBlocks: number;
  /** Messages of one conversation, and of all, that may wait or run. */
  readonly queuePerConversation: number;
  readonly queueTotal: number;
  /** Bytes of their blocks as JSON, of all together: they wait in memory. */
  readonly queueBytes: number;
  /** Conversations whose turn may run at the same time: no more than the machine holds. */
  readonly runningTurns: number;
  /** The machine's answer to an attach, a cold child's start included. */
  readonly attachMs: number;
  /** `initialize` and `session/new` each. */
  readonly startMs: number;
  /** A whole turn, from the start of its attach. */
  readonly turnMs: number;
  /** From `session/cancel` to the end of the prompt. */
  readonly cancelMs: number;
  readonly detachMs: number;
  /** Between two attempts to read a turn's outcome from an authority that does not answer; as many attempts as entries. */
  readonly settleRetriesMs: readonly number[];
}

export const defaultTurnLimits: TurnLimits = {
  maxMessageBytes: 4 * 1024 * 1024,
  maxBlocks: 256,
  queuePerConversation: 100,
  queueTotal: 10_000,
  queueBytes: 512 * 1024 * 1024,
  runningTurns: 64,
  attachMs: 60_000,
  startMs: 60_000,
  turnMs: 30 * 60_000,
  cancelMs: 2_000,
  detachMs: 5_000,
  settleRetriesMs: [100, 400, 1_500, 4_000],
};

export interface TurnParts {
  readonly governance: Governance;
  readonly transcript: Transcript;
  readonly bus: EventBus;
  readonly attachments: Attachments;
  readonly sessions: SessionMemory;
  readonly amendments: UnreadAmendments;
  /** Whether SessionDB has failed to answer that child since then (`performance.now()`). */
  readonly sessiondbFailedSince: (generation: number, since: number) => boolean;
  /** The gateway ends: what cannot be known now is left to the next start. */
  readonly isClosing: () => boolean;
  readonly limits: TurnLimits;
  readonly log: TurnLog;
}
