/** The turn engine: intake → dispatch → settle, one line of turns a conversation (ADR-046 §8, architecture). */

import type { ChildEnd } from '../../machine/launch.ts';
import { blocksProblem } from '../acp/agent-profile.ts';
import { type Attachments, createAttachments } from '../acp/attachments.ts';
import type { Message } from '../domain.ts';
import type { EventBus } from '../events/events.ts';
import type { Governance } from '../governance/governance.ts';
import { type ConversationId, type MessageId, newMessageId } from '../ids.ts';
import { Problem } from '../problem.ts';
import type { UnreadAmendments } from '../transcript/amendments.ts';
import type { Transcript, TranscriptRow } from '../transcript/transcript.ts';
import { within } from '../waits.ts';
import { createCancel, type RunningTurn } from './cancel.ts';
import { conclude, concluded } from './conclude.ts';
import { dispatch, type TurnMarks, type TurnOrder, type TurnReport } from './dispatch.ts';
import { Flights } from './flights.ts';
import { contentBlocks, contentBytes, contentDigest } from './intake.ts';
import { defaultTurnLimits, type TurnLimits, type TurnLog, type TurnParts } from './parts.ts';
import { type Place, TurnQueue } from './queue.ts';
import { recover } from './recovery.ts';
import { SessionMemory } from './session-memory.ts';
import { TurnControl } from './turn-control.ts';
import type { Submission, Turns } from './turns.ts';

export interface TurnsOptions {
  readonly governance: Governance;
  readonly transcript: Transcript;
  readonly bus: EventBus;
  /** The machine's hermes-run socket and its token; or attachments made otherwise, as tests do. */
  readonly hermesRun: HermesRun | Attachments;
  /** Without them, no human changes the transcript. */
  readonly amendments?: UnreadAmendments;
  readonly limits?: Partial<TurnLimits>;
  readonly logger: TurnLog;
}

const noAmendments: UnreadAmendments = { unread: () => [], mend: async () => undefined, read: () => undefined };

export interface HermesRun {
  readonly socketPath: string;
  readonly token: string;
  /** How that child of the machine ended. */
  readonly childEnd?: (generation: number) => Promise<ChildEnd | null>;
  /** Whether SessionDB has failed to answer that child since then (`performance.now()`). */
  readonly sessiondbFailedSince?: (generation: number, since: number) => boolean;
}

export interface TurnEngine extends Turns {
  /**
   * Settles or queues what an earlier process left; call it once, before the first submission and after that process's
   * machine has ended. Rejects with a `sessiondb-unavailable` Problem when interrupted turns cannot be settled now.
   */
  start(): Promise<void>;
  /**
   * The conversation is being erased: takes no message of it any more, stops its turn and drops those that wait. Resolves when
   * none is left; never rejects.
   */
  retire(conversation: ConversationId): Promise<void>;
}

export function createTurns(options: TurnsOptions): TurnEngine {
  const limits = { ...defaultTurnLimits, ...options.limits };
  const { governance, transcript, bus, logger: log, hermesRun } = options;
  const attachments =
    'attach' in hermesRun ? hermesRun : createAttachments({ ...hermesRun, detachMs: limits.detachMs });
  const { amendments = noAmendments } = options;
  const sessiondbFailedSince = ('attach' in hermesRun ? null : hermesRun.sessiondbFailedSince) ?? (() => false);
  const sessions = new SessionMemory();
  let closing = false;
  const parts: TurnParts = {
    governance,
    transcript,
    bus,
    attachments,
    sessions,
    amendments,
    sessiondbFailedSince,
    isClosing: () => closing,
    limits,
    log,
  };
  const queue = new TurnQueue({
    perConversation: limits.queuePerConversation,
    total: limits.queueTotal,
    bytes: limits.queueBytes,
    running: limits.runningTurns,
  });
  const flights = new Flights();
  const running = new Map<ConversationId, RunningTurn>();
  /** The places of messages whose turn has not begun. */
  const waiting = new Map<MessageId, Place>();
  /** What settling read is handed to those who wait for just that. It lives as long as the message or event in their hands. */
  const settledReplies = new WeakMap<object, TranscriptRow>();
  /** Conversations that are being erased; as many as were erased in the life of this process. */
  const retired = new Set<ConversationId>();

  /** The end of a message whose conversation is being erased: it gets no turn. */
  async function drop(order: TurnOrder): Promise<void> {
    const message = await order.stored;
    if (message === null) return;
    try {
      bus.publish(await governance.cancel(message.id, null));
    } catch (error) {
      log.warn('a dropped turn could not be recorded', { message: message.id, reason: String(error) });
    }
    flights.land({ ...message, state: 'cancelled' });
  }

  /** One turn from its start to its end; never rejects. Resolves when the conversation can be attached again. */
  async function turn(order: TurnOrder): Promise<void> {
    waiting.delete(order.message);
    if (retired.has(order.conversation)) return drop(order);
    const control = new TurnControl(limits.turnMs);
    running.set(order.conversation, { message: order.message, control });
    const marks: TurnMarks = {
      receivedAt: order.receivedAt,
      attachedAt: null,
      admissionMs: null,
      promptedAt: null,
      firstUpdateAt: null,
      endedAt: null,
    };
    let released: Promise<void> = Promise.resolve();
    let giveBack: (warm: boolean) => void = () => undefined;
    try {
      const report = await dispatch(parts, order, control, marks, {
        dispatched: (message) => flights.update({ ...message, state: 'dispatched' }),
        released: (release) => {
          released = release;
        },
      }).catch((error: unknown) => notBegun(order, error));
      control.end();
      if (report.kind === 'prompted') giveBack = report.giveBack;
      const message = await order.stored;
      if (report.kind === 'not-stored' || message === null) return;
      // A shutdown leaves the message as it is stored; the next start settles it.
      if (control.stopped === 'shutdown') return;
      const conclusion =
        report.kind === 'withdrawn' ? null : await conclude(parts, order, report, control.stopped, marks);
      if (conclusion === null) {
        flights.land({ ...message, state: 'cancelled' });
        return;
      }
      const landed = concluded(message, conclusion);
      if (conclusion.settlement.outcome === 'delivered')
        for (const one of [landed, ...conclusion.events]) settledReplies.set(one, conclusion.settlement.reply);
      for (const event of conclusion.events) bus.publish(event);
      flights.land(landed);
    } catch (error) {
      // Governance failed, or the transcript at the gateway's end. The message stays as it is stored and the next start settles it.
      log.warn('a turn could not be recorded', { message: order.message, reason: String(error) });
      const message = await order.stored;
      if (message !== null) flights.land(flights.current(message.id) ?? message);
    } finally {
      control.end();
      // Where nothing was decided about it nobody knows what it is in the middle of.
      giveBack(false);
      if (running.get(order.conversation)?.control === control) running.delete(order.conversation);
      await released;
    }
  }

  /** What governance did not answer before the prompt is said as a failure: left as it is, the message would wait for a restart. */
  function notBegun({ message }: TurnOrder, error: unknown): TurnReport {
    log.warn('a turn could not begin', { message, reason: String(error) });
    const detail = 'The database of the gateway did not answer before the turn began. Send the message again.';
    return { kind: 'not-prompted', problem: new Problem('turn-interrupted', detail) };
  }

  function enqueue(place: Place, order: TurnOrder): void {
    waiting.set(order.message, place);
    place.run(() => turn(order));
  }

  /** Stores and queues a new message. */
  async function accept({ conversation, content, idempotencyKey, receivedAt }: Submission): Promise<Message> {
    const blocks = contentBlocks(content);
    const place = queue.take(conversation.id, { stored: false, bytes: contentBytes(blocks) });
    try {
      const id = newMessageId();
      const digest = contentDigest(blocks);
      const accepting = governance.accept({ id, conversation: conversation.id, blocks, digest, key: idempotencyKey });
      const stored = accepting.then(
        (accepted) => {
          if (accepted.outcome !== 'accepted') return null;
          flights.begin(accepted.message);
          return accepted.message;
        },
        // The submission itself fails with the reason.
        () => null,
      );
      const order = {
        message: id,
        conversation: conversation.id,
        session: conversation.session,
        blocks,
        receivedAt,
        stored,
      };
      // Side by side: a client waits for both. A key may turn out to be another message's: such a one attaches to nothing.
      if (idempotencyKey === null) enqueue(place, order);
      const accepted = await accepting;
      if (accepted.outcome === 'key-reused') throw keyReused();
      const { message } = accepted;
      if (accepted.outcome === 'known') return flights.current(message.id) ?? message;
      if (idempotencyKey !== null) enqueue(place, order);
      bus.publish(accepted.event);
      return message;
    } finally {
      place.release();
    }
  }

  const repeated: Turns['repeated'] = async ({ conversation, content, idempotencyKey }) => {
    const known = idempotencyKey === null ? null : await governance.findKeyed(conversation.id, idempotencyKey);
    if (known === null) return null;
    if (known.digest !== contentDigest(contentBlocks(content))) throw keyReused();
    return flights.current(known.message.id) ?? known.message;
  };

  const refusal: Turns['refusal'] = (content) =>
    blocksProblem(contentBlocks(content), { maxBlocks: limits.maxBlocks, maxBytes: limits.maxMessageBytes });

  return {
    refusal,

    async start() {
      const ahead = await recover(parts, await governance.pending());
      for (const { message, blocks } of ahead) {
        const place = queue.take(message.conversation, { stored: true, bytes: contentBytes(blocks) });
        flights.begin(message);
        const order = {
          message: message.id,
          conversation: message.conversation,
          session: null,
          blocks,
          receivedAt: performance.now(),
          stored: Promise.resolve(message),
        };
        enqueue(place, order);
      }
    },

    async submit(submission) {
      if (closing) throw new Problem('not-ready', 'The gateway is shutting down. Send the message again later.');
      const flaw = refusal(submission.content);
      if (flaw !== null) throw flaw;
      const { conversation } = submission;
      if (retired.has(conversation.id)) throw new Problem('not-found', 'There is no such conversation');
      try {
        return await accept(submission);
      } catch (error) {
        // What there is no room for may have come before: such a one takes none.
        const known = isLimit(error) ? await repeated(submission) : null;
        if (known === null) throw error;
        return known;
      }
    },

    repeated,

    isKeyUsed: async (conversation, key) => (await governance.findKeyed(conversation, key)) !== null,

    async settled(conversation, id, signal) {
      const landed = await flights.landing(id, signal);
      if (landed !== null) return landed;
      const stored = await governance.findMessage(conversation, id);
      if (stored === null) throw new Problem('not-found', 'There is no such message in this conversation.');
      return stored;
    },

    async reply(locator, of) {
      const settled = of && settledReplies.get(of);
      if (settled?.locator === locator) return settled;
      const row = await transcript.resolve(locator);
      if (row === null) throw new Problem('not-found', 'The reply is no longer in the transcript.');
      return row;
    },

    cancel: createCancel({ governance, bus, flights, waiting, running }),

    async retire(conversation) {
      retired.add(conversation);
      running.get(conversation)?.control.stop('by-client');
      await queue.emptied(conversation);
    },

    async close(graceMs) {
      closing = true;
      const ended = queue.stop();
      try {
        await within(graceMs, 'the running turns', ended);
      } catch {
        // The grace is over: what still runs is left to the next start.
        for (const { control } of [...running.values()]) control.stop('shutdown');
      }
      flights.landAll();
    },
  };
}

const keyReused = (): Problem =>
  new Problem('idempotency-key-reused', 'This Idempotency-Key was used for another message. Use a new one.');

/** There is no room for a new message now. */
const isLimit = (error: unknown): boolean =>
  error instanceof Problem && (error.problem === 'too-many-requests' || error.problem === 'not-ready');
