/**
 * After a restart: what the last process left unsettled (architecture, "Crash rules"). A message that was never dispatched
 * is dispatched. A dispatched one is settled by what SessionDB holds beyond its watermark; it is never sent to the agent
 * again behind the client's back.
 */
import type { EventRun, PendingMessage } from '../governance/governance.ts';
import { Problem } from '../problem.ts';
import { deliver, outcome } from './conclude.ts';
import type { TurnParts } from './parts.ts';
import type { Settlement } from './settle.ts';

/**
 * Settles the dispatched ones among `pending` and gives back those that still have their turn ahead, in order. Rejects when
 * the transcript authority cannot be read: whether there is a reply is then unknown, and nothing may be said about it.
 */
export async function recover(
  parts: TurnParts,
  pending: readonly PendingMessage[],
): Promise<readonly PendingMessage[]> {
  const ahead: PendingMessage[] = [];
  for (const one of pending) {
    if (one.message.state === 'accepted') {
      ahead.push(one);
      continue;
    }
    const settlement = await settleInterrupted(parts, one);
    if (settlement.outcome === 'failed' && settlement.problem.type.endsWith(':sessiondb-unavailable')) {
      throw new Problem(
        'sessiondb-unavailable',
        'Interrupted turns cannot be settled while the transcript cannot be read.',
      );
    }
    for (const event of await record(parts, one, settlement)) parts.bus.publish(event);
    parts.log.info('an interrupted turn was settled', { message: one.message.id, outcome: settlement.outcome });
  }
  return ahead;
}

async function settleInterrupted(parts: TurnParts, { message, watermark }: PendingMessage): Promise<Settlement> {
  const session = (await parts.governance.findConversation(message.conversation))?.session ?? null;
  if (session === null || watermark === null) return interrupted;
  return outcome(
    parts,
    { session, watermark },
    { end: { kind: 'unknown' }, stopped: null, streamed: '', sessiondbFailed: false },
  );
}

async function record(parts: TurnParts, { message }: PendingMessage, settlement: Settlement): Promise<EventRun> {
  if (settlement.outcome === 'delivered') {
    try {
      return await deliver(parts, message.id, settlement.reply, null);
    } catch (error) {
      if (!(error instanceof Problem) || error.problem !== 'conflict') throw error;
      return [await parts.governance.fail(message.id, interrupted.problem, null)];
    }
  }
  const problem = settlement.outcome === 'failed' ? settlement.problem : interrupted.problem;
  return [await parts.governance.fail(message.id, problem, null)];
}

const interrupted = {
  outcome: 'failed',
  problem: new Problem(
    'turn-interrupted',
    'The gateway ended during this turn and no complete reply was kept. Send it again.',
  ).document,
} as const;
