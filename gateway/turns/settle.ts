/**
 * What a turn came to: a pure decision from how its prompt ended and what SessionDB holds. A reply exists only where
 * SessionDB holds this turn's own closing assistant row; everything else is a failure and is told as one, never as prose
 * (ADR-046 §4).
 */

import type { ChildEnd } from '../../machine/launch.ts';
import { type StatedFailure, statedFailure } from '../acp/agent-profile.ts';
import type { PromptEnd } from '../acp/client.ts';
import { isReply } from '../acp/row-profile.ts';
import { describeChildEnd } from '../machine/child-ends.ts';
import { Problem, type ProblemDocument, type ProblemName } from '../problem.ts';
import type { ClosingRow, TranscriptRow } from '../transcript/transcript.ts';

/** How the wait for the prompt ended: with it, or without it. */
export type TurnEnd =
  | Exclude<PromptEnd, { kind: 'gone' }>
  /** `child` is null where nobody said how it ended. */
  | { readonly kind: 'gone'; readonly child: ChildEnd | null }
  | { readonly kind: 'overdue' }
  | { readonly kind: 'unknown' };

export interface TurnFacts {
  readonly end: TurnEnd;
  /** Why `session/cancel` was sent, if it was. */
  readonly stopped: 'by-client' | 'deadline' | null;
  /** The session's closing row after the watermark. */
  readonly closing: ClosingRow | null;
  /** After a refusal: whether SessionDB has the session. Hermes refuses one that it does not find. */
  readonly sessionHeld: boolean;
  /** The end of what the agent streamed as message text, to quote a failure that it stated itself. */
  readonly streamed: string;
  /** SessionDB has failed to answer the agent during the turn. */
  readonly sessiondbFailed: boolean;
}

export type Settlement =
  | { readonly outcome: 'delivered'; readonly reply: TranscriptRow }
  | { readonly outcome: 'failed'; readonly problem: ProblemDocument }
  | { readonly outcome: 'cancelled' };

/** Decides what becomes of the message. A complete reply is delivered whatever else went wrong. */
export function settle(facts: TurnFacts): Settlement {
  const { end, closing } = facts;
  const turn = end.kind === 'stopped' && end.stopReason === 'end_turn' ? 'ended' : 'cut-off';
  if (closing !== null && isReply({ ...closing, role: 'assistant' }, turn)) {
    return { outcome: 'delivered', reply: { locator: closing.locator, text: closing.text } };
  }
  if (facts.stopped === 'by-client') return { outcome: 'cancelled' };
  return { outcome: 'failed', problem: failure(facts).document };
}

/**
 * Whether the child can take the next prompt. After `session/cancel` the pinned Hermes can answer every later prompt with
 * "Queued for the next turn", and after an error nobody knows. One that ended a turn without a row of its own may have
 * failed to write it, and would write it behind the next turn's: only where it said itself that the model failed there was
 * none to write.
 */
export function childStaysWarm(end: TurnEnd, cancelSent: boolean, settlement: Settlement): boolean {
  if (cancelSent || end.kind !== 'stopped' || end.stopReason !== 'end_turn') return false;
  if (settlement.outcome === 'failed') return modelFailures.has(nameOf(settlement.problem));
  return settlement.outcome === 'delivered';
}

const modelFailures: ReadonlySet<string> = new Set<ProblemName>([
  'model-unreachable',
  'model-refused',
  'model-overloaded',
  'model-failed',
]);
const nameOf = ({ type }: ProblemDocument): string => type.slice(type.lastIndexOf(':') + 1);

function failure({ end, stopped, closing, sessionHeld, streamed, sessiondbFailed }: TurnFacts): Problem {
  if (stopped === 'deadline')
    return new Problem(
      'turn-deadline',
      'The turn was stopped at its deadline without a reply. Send it again, or ask for less at once.',
    );
  const isUnwritten = sessiondbFailed && (closing === null || closing.hasToolCalls);
  if (isUnwritten && (end.kind === 'stopped' || end.kind === 'error' || end.kind === 'gone'))
    return new Problem(
      'sessiondb-unavailable',
      'The transcript could not be written during the turn, and no reply is in it. Send the message again.',
    );
  switch (end.kind) {
    case 'unknown':
      return new Problem(
        'turn-interrupted',
        'The gateway ended during this turn and no complete reply was kept. Send it again.',
      );
    case 'gone':
      return agentEnded(end.child);
    case 'overdue':
      return new Problem(
        'agent-failed',
        'The agent did not end the turn when it was asked to. Send the message again.',
      );
    case 'error':
      return new Problem('agent-failed', `The agent answered with error ${end.code}. Send the message again.`, {
        code: end.code,
      });
    case 'stopped':
      if (end.stopReason === 'refusal') return sessionHeld ? refused() : sessionLost();
      return stoppedWithoutReply(end.stopReason, closing, streamed);
  }
}

function agentEnded(child: ChildEnd | null): Problem {
  if (child === null) return new Problem('agent-failed', 'The agent ended during the turn. Send the message again.');
  const { signal, code } = child;
  const detail = `The agent ended during the turn (${describeChildEnd(child)}). Send the message again.`;
  const name = child.outOfMemory ? 'agent-out-of-memory' : 'agent-failed';
  return new Problem(name, detail, signal === null ? { exitCode: code } : { signal });
}

const refused = (): Problem => new Problem('turn-refused', 'The agent refused the turn. Send the message again.');

function stoppedWithoutReply(stopReason: string, closing: ClosingRow | null, streamed: string): Problem {
  const members = { stopReason };
  // It stands in the transcript as far as it came.
  if (closing?.finishReason === 'length') {
    return new Problem(
      'turn-output-limit',
      'The reply was cut off at the output limit of the model. Ask for a shorter one.',
      members,
    );
  }
  const stated = statedFailure(streamed);
  if (stated?.of === 'model') return modelFailure(stated);
  if (stated !== null) return new Problem('agent-failed', `The agent failed. It said: ${stated.words}`, members);
  return new Problem('turn-no-reply', 'The agent ended the turn without a reply. Send the message again.', members);
}

/** Seconds after which to ask a provider again that takes no more requests: Hermes has tried for some time by then. */
const overloadedSeconds = 30;

function modelFailure({ httpStatus, words }: StatedFailure): Problem {
  const said = `The agent gave no reply. It said: ${words}`;
  if (httpStatus === null) return new Problem('model-unreachable', said);
  const members = { modelStatus: httpStatus };
  if (httpStatus === 429) return new Problem('model-overloaded', said, { ...members, retryAfter: overloadedSeconds });
  return new Problem(httpStatus < 500 ? 'model-refused' : 'model-failed', said, members);
}

/** What is told of a conversation whose transcript is gone: never a fresh session in its place. */
export const sessionLost = (): Problem =>
  new Problem(
    'session-lost',
    'The transcript of this conversation is gone from SessionDB. Restore it from a backup, or start a new conversation.',
  );
