/**
 * Cancelling: a message that waits is cancelled in the database, where this or its dispatch is first, for good; the turn of one
 * that was dispatched is asked to end.
 */
import type { EventBus } from '../events/events.ts';
import type { Governance } from '../governance/governance.ts';
import type { ConversationId, MessageId } from '../ids.ts';
import { Problem } from '../problem.ts';
import type { Flights } from './flights.ts';
import type { Place } from './queue.ts';
import type { TurnControl } from './turn-control.ts';
import type { Turns } from './turns.ts';

export interface RunningTurn {
  readonly message: MessageId;
  readonly control: TurnControl;
}

export interface CancelParts {
  readonly governance: Pick<Governance, 'cancelWaiting' | 'findMessage'>;
  readonly bus: Pick<EventBus, 'publish'>;
  readonly flights: Flights;
  /** The places of messages whose turn has not begun. */
  readonly waiting: Map<MessageId, Place>;
  readonly running: ReadonlyMap<ConversationId, RunningTurn>;
}

export function createCancel({ governance, bus, flights, waiting, running }: CancelParts): Turns['cancel'] {
  /** Stops the turn of the message; false when it does not run, nothing is left of it, or something else has stopped it. */
  function stopTurn(conversation: ConversationId, message: MessageId): boolean {
    const turn = running.get(conversation);
    if (turn?.message !== message) return false;
    turn.control.stop('by-client');
    // Also when it is asked again while its end is being recorded.
    return turn.control.stopped === 'by-client';
  }

  /**
   * Cancels a message that nobody here has seen dispatched, also when the process ends before it hears of it. Null when the
   * conversation has no such message.
   */
  async function cancelAccepted(conversation: ConversationId, id: MessageId): Promise<boolean | null> {
    const cancellation = await governance.cancelWaiting(conversation, id);
    if (cancellation === null) return null;
    if (cancellation.outcome === 'too-late') {
      return cancellation.message.state === 'cancelled' || stopTurn(conversation, id);
    }
    bus.publish(cancellation.event);
    waiting.get(id)?.withdraw();
    waiting.delete(id);
    // It may be at its attach, which nobody needs any more.
    stopTurn(conversation, id);
    const message = flights.current(id);
    if (message !== null) flights.land({ ...message, state: 'cancelled' });
    return true;
  }

  return async (conversation, named) => {
    const runs = running.get(conversation)?.message;
    const id = named ?? runs;
    if (id === undefined) return false;
    const known = flights.current(id);
    const isOwn = known?.conversation === conversation;
    if (isOwn && known.state === 'dispatched') return stopTurn(conversation, id);
    if (isOwn || id === runs) {
      const cancelled = await cancelAccepted(conversation, id);
      // Of one that nobody has named there is nothing to say: its storing has failed.
      if (cancelled !== null || named === undefined) return cancelled ?? false;
    }
    const stored = await governance.findMessage(conversation, id);
    if (stored === null) throw new Problem('not-found', 'There is no such message in this conversation.');
    // What became of its turn could not be recorded: it waits for the next start.
    if (stored.state === 'accepted') return (await cancelAccepted(conversation, id)) ?? false;
    return stored.state === 'cancelled';
  };
}
