/**
 * One turn, from the attach to the end of its prompt (architecture, "The path of one message", steps 2 to 5). It decides
 * nothing about the message: it reports what happened, and whether a prompt may have reached the agent.
 */
import { chunkText, isModelUpdate } from '../acp/agent-profile.ts';
import type { HeldAttachment } from '../acp/attachments.ts';
import { type AgentClient, connectAgent } from '../acp/client.ts';
import { ClientStream } from '../cards/client-stream.ts';
import type { ContentBlock, LoggedEvent, Message } from '../domain.ts';
import type { ConversationId, MessageId } from '../ids.ts';
import { Problem } from '../problem.ts';
import { unlessAborted, within } from '../waits.ts';
import type { TurnParts } from './parts.ts';
import { readySession } from './session.ts';
import type { TurnEnd } from './settle.ts';
import type { TurnControl } from './turn-control.ts';

export interface TurnOrder {
  readonly message: MessageId;
  readonly conversation: ConversationId;
  /** The native session as it was known at the submission; an earlier turn may have made one since. */
  readonly session: string | null;
  readonly blocks: readonly ContentBlock[];
  /** `performance.now()` when the request arrived. */
  readonly receivedAt: number;
  /** The message once it is stored, null when it is not to be: the attach does not wait for it, the agent hears nothing before. */
  readonly stored: Promise<Message | null>;
}

/** `performance.now()` at the borders of the phases of ADR-046 §8. */
export interface TurnMarks {
  readonly receivedAt: number;
  attachedAt: number | null;
  /** Milliseconds of a cold admission: the machine's part, and `initialize` and `session/new`. */
  admissionMs: number | null;
  promptedAt: number | null;
  firstUpdateAt: number | null;
  endedAt: number | null;
}

export type TurnReport =
  /** The message is dispatched and the prompt was sent. */
  | {
      readonly kind: 'prompted';
      readonly session: string;
      readonly generation: number;
      readonly watermark: number;
      readonly end: TurnEnd;
      readonly streamed: string;
      readonly cancelSent: boolean;
      /** Gives the child back, warm or to be replaced; what is asked after the first time is nothing. */
      giveBack(warm: boolean): void;
      /** SessionDB has failed to answer the agent meanwhile: rows of this turn may be missing. */
      readonly sessiondbFailed: boolean;
    }
  /** Nothing was sent to the agent. */
  | { readonly kind: 'not-prompted'; readonly problem: Problem }
  /** There is no such message: nothing was sent and nothing is to be recorded. */
  | { readonly kind: 'not-stored' }
  /** It was cancelled before it could be dispatched, and that is recorded: nothing was sent. */
  | { readonly kind: 'withdrawn' };

/** The end of the streamed text that is kept to quote a stated failure, in characters. */
const streamedTail = 2_000;

/** ACP lines: an update can carry a whole file, a prompt's text can come back escaped. */
const maxLineBytes = (maxMessageBytes: number): number => Math.max(64 * 1024 * 1024, 8 * maxMessageBytes);

export interface TurnSteps {
  /** The message is dispatched and the event is published. */
  dispatched(message: Message): void;
  /**
   * The child is being given back; called once, if there was one. Resolves when the conversation can be attached again:
   * nobody has to wait for that to deliver the reply.
   */
  released(release: Promise<void>): void;
}

/**
 * Runs the turn. After a prompt the child is the caller's to give back; otherwise it has been. Never rejects for anything
 * that the agent or the machine does; rejects when governance fails.
 */
export async function dispatch(
  parts: TurnParts,
  order: TurnOrder,
  control: TurnControl,
  marks: TurnMarks,
  steps: TurnSteps,
): Promise<TurnReport> {
  const { conversation } = order;
  const known = parts.sessions.session(conversation) ?? order.session ?? (await sessionOf(parts, conversation));
  // What a warm child remembers is not what it would read now.
  const unread = parts.amendments.unread(conversation);
  const attachment = await attach(parts, conversation, known, unread.length > 0, control, steps);
  const message = await order.stored;
  if (message === null) {
    if (!(attachment instanceof Problem)) steps.released(attachment.detach());
    return { kind: 'not-stored' };
  }
  if (attachment instanceof Problem) return { kind: 'not-prompted', problem: attachment };
  const now = performance.now();
  marks.attachedAt = attachment.admission === 'cold' ? now - attachment.admissionMs : now;
  if (attachment.admission === 'cold') marks.admissionMs = attachment.admissionMs;

  // Until something is sent that may leave it in an unknown state.
  let keepChild = true;
  let given = false;
  const giveBack = (warm: boolean): void => {
    if (given) return;
    given = true;
    steps.released(release(attachment, client, warm));
  };
  let prompted: TurnReport | null = null;
  let streamed = '';
  const stream = new ClientStream((update, view) =>
    parts.bus.update({
      type: 'session.update',
      conversation,
      at: new Date(),
      update,
      ...(view === undefined ? {} : { view }),
    }),
  );
  const client = connectAgent(attachment, {
    maxLineBytes: maxLineBytes(parts.limits.maxMessageBytes),
    onUpdate(update) {
      stream.take(update);
      if (marks.promptedAt === null || marks.endedAt !== null || !isModelUpdate(update)) return;
      marks.firstUpdateAt ??= performance.now();
      streamed = (streamed + chunkText(update)).slice(-streamedTail);
    },
  });
  try {
    const asked = watermark(parts, conversation, attachment);
    // A child that did not come as far as this is in an unknown state.
    keepChild = false;
    const session = await readySession(parts, known, { conversation, attachment, client, control, marks });
    if (session instanceof Problem) return { kind: 'not-prompted', problem: session };
    keepChild = true;
    if (unread.length > 0) await parts.amendments.mend(session, unread);
    const ready = { session, watermark: await asked };
    if (control.stopped !== null) return { kind: 'not-prompted', problem: stoppedBefore() };
    const dispatched = await tryDispatch(parts, order.message, ready.watermark, attachment.admission);
    if (dispatched === null) return { kind: 'withdrawn' };
    parts.bus.publish(dispatched);
    steps.dispatched(message);
    if (control.stopped !== null) return { kind: 'not-prompted', problem: stoppedBefore() };
    keepChild = false;
    const { end, cancelSent } = await prompt(parts, order, session, attachment, client, control, marks);
    if (end.kind === 'stopped' && end.stopReason === 'end_turn') stream.end();
    parts.amendments.read(conversation, unread);
    const { generation } = attachment;
    const sessiondbFailed = parts.sessiondbFailedSince(generation, marks.promptedAt ?? 0);
    prompted = { kind: 'prompted', ...ready, generation, end, streamed, cancelSent, sessiondbFailed, giveBack };
    return prompted;
  } catch (error) {
    // The transcript authority does not answer: said before anything was sent.
    if (error instanceof Problem && error.problem === 'sessiondb-unavailable') {
      // A child that was started without it, or met that, may go on without it for good.
      const hasMetIt = parts.sessiondbFailedSince(attachment.generation, order.receivedAt);
      if (attachment.admission === 'cold' || hasMetIt) keepChild = false;
      return { kind: 'not-prompted', problem: error };
    }
    throw error;
  } finally {
    if (prompted === null) giveBack(keepChild);
  }
}

/** Attaches. A turn that is stopped meanwhile does not wait: its conversation is free when the attach has come to an end. */
async function attach(
  parts: TurnParts,
  conversation: ConversationId,
  session: string | null,
  fresh: boolean,
  control: TurnControl,
  steps: TurnSteps,
): Promise<HeldAttachment | Problem> {
  const { limits, attachments, log } = parts;
  const abort = new AbortController();
  const attaching = attachments.attach(conversation, session, fresh, abort.signal);
  const bounded = within(limits.attachMs, 'the attach', attaching).catch((error: unknown) => {
    abort.abort(error);
    // An answer that crossed the limit: nobody will use that child.
    attaching.then((late) => late.abandon()).catch(() => undefined);
    throw error;
  });
  try {
    return await unlessAborted(bounded, control.signal);
  } catch (error) {
    if (control.stopped !== null) {
      steps.released(bounded.then((late) => late.detach()).catch(() => undefined));
      return stoppedBefore();
    }
    log.warn('a conversation could not be attached', { conversation, reason: messageOf(error) });
    return new Problem('agent-unavailable', attachDetail(error));
  }
}

/** Highest row id before the prompt: remembered where only this child can have written since, otherwise asked for. */
function watermark(parts: TurnParts, conversation: ConversationId, attachment: HeldAttachment): Promise<number> {
  const remembered = parts.sessions.watermark(conversation, attachment.generation);
  const asked = remembered === null ? parts.transcript.watermark() : Promise.resolve(remembered);
  // It is asked for while the child starts, which can fail first.
  asked.catch(() => undefined);
  return asked;
}

async function sessionOf(parts: TurnParts, conversation: ConversationId): Promise<string | null> {
  return (await parts.governance.findConversation(conversation))?.session ?? null;
}

/** Null when the message waits no more: a cancel was first. */
async function tryDispatch(
  { governance }: TurnParts,
  ...[message, watermark, admission]: Parameters<TurnParts['governance']['dispatch']>
): Promise<LoggedEvent | null> {
  try {
    return await governance.dispatch(message, watermark, admission);
  } catch (error) {
    if (error instanceof Problem && error.problem === 'conflict') return null;
    throw error;
  }
}

const stoppedBefore = (): Problem =>
  new Problem('turn-interrupted', 'The turn was stopped before it began. Send the message again.');

/** Sends the prompt and waits for its end; when the turn is stopped meanwhile, cancels and waits a little longer. */
async function prompt(
  parts: TurnParts,
  order: TurnOrder,
  session: string,
  attachment: HeldAttachment,
  client: AgentClient,
  control: TurnControl,
  marks: TurnMarks,
): Promise<{ readonly end: TurnEnd; readonly cancelSent: boolean }> {
  marks.promptedAt = performance.now();
  let cancelSent = false;
  const overdue = Promise.withResolvers<TurnEnd>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const stop = () => {
    if (control.stopped === 'shutdown') {
      overdue.resolve({ kind: 'unknown' });
      return;
    }
    cancelSent = true;
    // A cancel that cannot be written needs no handling: the prompt ends as gone, or the wait below ends.
    client.cancel(session).catch(() => undefined);
    timer = setTimeout(() => overdue.resolve({ kind: 'overdue' }), parts.limits.cancelMs);
  };
  const prompted = client.prompt(session, order.blocks);
  control.signal.addEventListener('abort', stop, { once: true });
  let end = await Promise.race([prompted, overdue.promise]);
  clearTimeout(timer);
  control.signal.removeEventListener('abort', stop);
  control.end();
  marks.endedAt = performance.now();
  if (end.kind === 'gone') end = { kind: 'gone', child: await attachment.childEnd() };
  return { end, cancelSent };
}

/** Gives the child back: warm after an orderly end, otherwise to be replaced. */
async function release(attachment: HeldAttachment, client: AgentClient, keepChild: boolean): Promise<void> {
  if (keepChild) await attachment.detach();
  else attachment.abandon();
  client.close();
}

function attachDetail(error: unknown): string {
  // hermes-run's refusals are written for clients; everything else is for the log.
  return error instanceof Error && error.name === 'AttachRefused'
    ? `The agent cannot be reached: ${error.message}`
    : 'The agent cannot be reached; the log says why. Send the message again.';
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
