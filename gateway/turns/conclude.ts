/** From a turn's report to the message's last state in Postgres and its event (ADR-046 §4, §6). */
import { liftCard } from '../cards/scanner.ts';
import type { Message, PhaseTimings } from '../domain.ts';
import type { EventRun } from '../governance/governance.ts';
import type { MessageId } from '../ids.ts';
import { Problem } from '../problem.ts';
import { decodeLocator } from '../transcript/locator.ts';
import type { TranscriptRow } from '../transcript/transcript.ts';
import type { TurnMarks, TurnOrder, TurnReport } from './dispatch.ts';
import type { TurnParts } from './parts.ts';
import { childStaysWarm, type Settlement, settle, type TurnFacts } from './settle.ts';
import type { StopReason } from './turn-control.ts';

/** What is left to tell those who wait: the events and what became of the message. */
export interface Conclusion {
  readonly events: EventRun;
  readonly settlement: Settlement;
  /** As they are stored: everybody is told the same. */
  readonly timings: PhaseTimings | null;
}

/**
 * Decides and commits what becomes of the message; null when it was cancelled while it waited, which is recorded already.
 * Rejects when governance cannot be reached: the message then stays as it is stored and is recovered at the next start.
 */
export async function conclude(
  parts: TurnParts,
  order: TurnOrder,
  report: Extract<TurnReport, { kind: 'prompted' | 'not-prompted' }>,
  stopped: StopReason | null,
  marks: TurnMarks,
): Promise<Conclusion | null> {
  if (report.kind === 'not-prompted') {
    const settlement: Settlement =
      stopped === 'by-client'
        ? { outcome: 'cancelled' }
        : { outcome: 'failed', problem: (stopped === 'deadline' ? overdue() : report.problem).document };
    try {
      return { settlement, ...(await commit(parts, order, settlement, marks)) };
    } catch (error) {
      if (!(error instanceof Problem) || error.problem !== 'conflict') throw error;
      return null;
    }
  }
  const { end, streamed, sessiondbFailed } = report;
  const facts = { end, stopped: stopped === 'shutdown' ? null : stopped, streamed, sessiondbFailed };
  const settlement = await outcome(parts, report, facts);
  const { session } = report;
  const warm = childStaysWarm(report.end, report.cancelSent, settlement);
  const generation = warm ? report.generation : null;
  report.giveBack(warm);
  parts.sessions.remember(order.conversation, { session, generation, closingRow: null });
  const committed = await commit(parts, order, settlement, marks);
  if (settlement.outcome === 'delivered') {
    const closingRow = decodeLocator(settlement.reply.locator)?.row ?? null;
    parts.sessions.remember(order.conversation, { session, generation, closingRow });
  }
  return { settlement, ...committed };
}

/** Reads what SessionDB has of the turn and decides. Rejects when it cannot be read and the gateway ends. */
export async function outcome(
  parts: Pick<TurnParts, 'transcript' | 'isClosing' | 'limits' | 'log'>,
  turn: { readonly session: string; readonly watermark: number },
  facts: Omit<TurnFacts, 'closing' | 'sessionHeld'>,
): Promise<Settlement> {
  try {
    const closing = await patiently(parts, () => parts.transcript.replyAfter(turn.session, turn.watermark));
    const isRefused = facts.end.kind === 'stopped' && facts.end.stopReason === 'refusal';
    const sessionHeld = !isRefused || (await patiently(parts, () => parts.transcript.holdsSession(turn.session)));
    return settle({ ...facts, closing, sessionHeld });
  } catch (error) {
    // The authority may have ended with the gateway: the next start finds the reply.
    if (!(error instanceof Problem) || parts.isClosing()) throw error;
    const detail =
      'The transcript could not be read when the turn ended. Its reply, if there is one, stands in the transcript.';
    return { outcome: 'failed', problem: new Problem(error.problem, detail).document };
  }
}

/** A reply must not be lost to one failed request: asks again a few times, later each time. */
async function patiently<T>({ limits, log }: Pick<TurnParts, 'limits' | 'log'>, ask: () => Promise<T>): Promise<T> {
  for (const pauseMs of limits.settleRetriesMs) {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof Problem) || error.problem !== 'sessiondb-unavailable') throw error;
      log.warn('the outcome of a turn could not be read; trying again', { ms: pauseMs });
      await Bun.sleep(pauseMs);
    }
  }
  return ask();
}

async function commit(
  parts: TurnParts,
  order: TurnOrder,
  settlement: Settlement,
  marks: TurnMarks,
): Promise<Omit<Conclusion, 'settlement'>> {
  const timings = timingsOf(marks);
  return { events: await record(parts, order, settlement, timings), timings };
}

async function record(
  parts: TurnParts,
  { message }: TurnOrder,
  settlement: Settlement,
  timings: PhaseTimings | null,
): Promise<EventRun> {
  const { governance, log } = parts;
  switch (settlement.outcome) {
    case 'failed':
      return [await governance.fail(message, settlement.problem, timings)];
    case 'cancelled':
      return [await governance.cancel(message, timings)];
    case 'delivered':
      try {
        return await deliver(parts, message, settlement.reply, timings);
      } catch (error) {
        if (!(error instanceof Problem) || error.problem !== 'conflict') throw error;
        // The row was delivered for another message: whatever led here, it is not delivered twice.
        log.warn('a reply was already delivered for another message', { message });
        const problem = new Problem('turn-no-reply', 'The agent ended the turn without a reply of its own.');
        return [await governance.fail(message, problem.document, timings)];
      }
  }
}

/** Delivers a reply, and opens its card. */
export async function deliver(
  { governance, log }: Pick<TurnParts, 'governance' | 'log'>,
  message: MessageId,
  { locator, text }: TranscriptRow,
  timings: PhaseTimings | null,
): Promise<EventRun> {
  const { card } = liftCard(text);
  const events = await governance.deliver(message, locator, timings, card);
  if (card !== null && events.length === 1) log.warn('a card could not be kept; its reply was delivered', { message });
  return events;
}

/** The phases so far; null when the turn was never attached. `settleMs` runs until now, which is just before the commit. */
function timingsOf(marks: TurnMarks): PhaseTimings | null {
  const { receivedAt, attachedAt, admissionMs, promptedAt, firstUpdateAt, endedAt } = marks;
  if (attachedAt === null) return null;
  const between = (from: number | null, to: number | null): number | null =>
    from === null || to === null ? null : to - from;
  return {
    attachMs: attachedAt - receivedAt,
    admissionMs,
    firstUpdateMs: between(promptedAt, firstUpdateAt),
    loopMs: between(firstUpdateAt, endedAt),
    settleMs: between(endedAt, performance.now()),
  };
}

const overdue = (): Problem =>
  new Problem('turn-deadline', 'The turn was stopped at its deadline before it began. Send the message again.');

/** The message after its conclusion. */
export function concluded(before: Message, { events, settlement, timings }: Conclusion): Message {
  const { id, conversation, acceptedAt } = before;
  const head = { id, conversation, acceptedAt, timings };
  const [event] = events;
  if (event.type === 'turn.failed') return { ...head, state: 'failed', problem: event.problem };
  return settlement.outcome === 'delivered'
    ? { ...head, state: 'delivered', locator: settlement.reply.locator }
    : { ...head, state: 'cancelled' };
}
