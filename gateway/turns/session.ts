/**
 * The native session of a turn (architecture, "The path of one message", step 3). Hermes calls a session made that it could
 * not keep, and takes a prompt for one that it does not know as a refusal: so SessionDB is asked, and a session is routed to
 * only when it is there.
 */
import type { HeldAttachment } from '../acp/attachments.ts';
import type { AgentClient } from '../acp/client.ts';
import type { ConversationId } from '../ids.ts';
import { Problem } from '../problem.ts';
import { WaitedTooLong, within } from '../waits.ts';
import type { TurnMarks } from './dispatch.ts';
import type { TurnParts } from './parts.ts';
import { sessionLost } from './settle.ts';
import type { TurnControl } from './turn-control.ts';

/** The turn's child and all that bounds it. */
export interface StartingTurn {
  readonly conversation: ConversationId;
  readonly attachment: Pick<HeldAttachment, 'generation' | 'childEnd'>;
  readonly client: AgentClient;
  readonly control: TurnControl;
  readonly marks: TurnMarks;
}

/**
 * Makes the child ready for a prompt and gives its session, `known` unless that is null or was lost before anything came of
 * it; a Problem when there is none. Rejects with a `sessiondb-unavailable` Problem when SessionDB cannot be asked.
 */
export async function readySession(
  parts: TurnParts,
  known: string | null,
  turn: StartingTurn,
): Promise<string | Problem> {
  const { conversation, attachment, marks } = turn;
  const { generation } = attachment;
  if (known !== null && parts.sessions.isReady(conversation, generation)) return known;
  const from = performance.now();
  // Asked while the child starts, which can fail first.
  const held = known === null ? null : parts.transcript.holdsSession(known);
  held?.catch(() => undefined);
  const initialized = await started(parts, turn, 'initialize', () => turn.client.initialize());
  if (initialized instanceof Problem) return initialized;
  const session = known !== null && (await held) ? known : await newSession(parts, known, turn);
  if (session instanceof Problem) return session;
  marks.admissionMs = (marks.admissionMs ?? 0) + performance.now() - from;
  parts.sessions.remember(conversation, { session, generation, closingRow: null });
  return session;
}

/** The conversation's first session, or the one in place of `lost`. */
async function newSession(parts: TurnParts, lost: string | null, turn: StartingTurn): Promise<string | Problem> {
  const { governance, transcript, log } = parts;
  const { conversation } = turn;
  if (lost !== null && !(await governance.isUntold(conversation))) return sessionLost();
  const session = await started(parts, turn, 'session/new', () => turn.client.newSession());
  if (session instanceof Problem) return session;
  if (!(await transcript.holdsSession(session))) {
    log.warn('a new session was not kept', { conversation });
    return new Problem(
      'sessiondb-unavailable',
      'The transcript authority did not keep the new session of the conversation. Send the message again.',
    );
  }
  if (lost === null) await governance.bindSession(conversation, session);
  else {
    if (!(await governance.replaceSession(conversation, lost, session))) return sessionLost();
    log.warn('a session that was lost before its first reply was replaced', { conversation });
  }
  return session;
}

/** One step of a child's start, in time. */
async function started<T>(
  { limits, log, sessiondbFailedSince }: TurnParts,
  { conversation, control, attachment, marks }: StartingTurn,
  what: string,
  step: () => Promise<T>,
): Promise<T | Problem> {
  try {
    return await within(limits.startMs, what, step(), control.signal);
  } catch (error) {
    log.warn('a child did not start', { conversation, reason: error instanceof Error ? error.message : String(error) });
    // The machine has told that before it told of the end.
    if (!(error instanceof WaitedTooLong) && !control.signal.aborted) await attachment.childEnd();
    if (sessiondbFailedSince(attachment.generation, marks.receivedAt)) {
      const detail =
        'The transcript authority does not answer, so the agent could not start. Send the message again later.';
      return new Problem('sessiondb-unavailable', detail);
    }
    return new Problem('agent-unavailable', 'The agent did not start; the log says why. Send the message again.');
  }
}
