/**
 * A human's changes to the canonical transcript (ADR-046 §6): who made them is written down first, SessionDB is changed in one
 * conditional step, then the change is recorded with its event. A warm child knows nothing of it, so it is remembered until a
 * new child has begun a turn.
 */
import type { Caller, Conversation, LoggedEvent } from '../domain.ts';
import type { EventBus } from '../events/events.ts';
import type { AmendmentIntent, AmendmentLog, OpenAmendment } from '../governance/amendments.ts';
import type { ConversationId, Locator } from '../ids.ts';
import type { Log } from '../log.ts';
import { Problem } from '../problem.ts';
import { type Duplicate, findDuplicate, listDuplicates, takeOut } from './duplicates.ts';
import { humanMark } from './human-mark.ts';
import { type Change, mend } from './mending.ts';
import { createRowWriter, editable, noSuchRow, outcomeUnknown, type SqlWriter } from './row-writer.ts';
import { etagOf, locate } from './sessiondb.ts';
import type { TranscriptTurn } from './transcript.ts';

export interface EditRequest {
  readonly conversation: Conversation;
  readonly locator: string;
  /** Entity tag of the words that the edit is based on. */
  readonly basis: string;
  readonly text: string;
  readonly caller: Caller;
}

export interface ReplyRequest {
  readonly conversation: Conversation;
  readonly text: string;
  readonly idempotencyKey: string;
  readonly caller: Caller;
}

/** What a turn needs to know of them. */
export interface UnreadAmendments {
  /** Those that no child of the conversation has read yet: its next one has to be a new one. */
  unread(conversation: ConversationId): readonly UnreadAmendment[];
  /** Makes them hold for the child that is about to load the session. Throws `sessiondb-unavailable`. */
  mend(session: string, amendments: readonly UnreadAmendment[]): Promise<void>;
  /** A turn has begun with a child that was new when {@link unread} gave them. */
  read(conversation: ConversationId, amendments: readonly UnreadAmendment[]): void;
}

export interface UnreadAmendment {
  readonly id: string;
  /** Null while it is not known where. */
  readonly change: Change | null;
}

export interface Amendments extends UnreadAmendments {
  /** Takes up what an earlier process left; call it once, before the first turn. Throws `sessiondb-unavailable`. */
  start(): Promise<void>;
  /** Throws `not-found`, `conflict`, `invalid-request`, or `precondition-failed` with both texts. */
  edit(request: EditRequest): Promise<TranscriptTurn>;
  /** The same turn however often it is asked for. Throws `conflict` before the first turn, `idempotency-key-reused`. */
  reply(request: ReplyRequest): Promise<TranscriptTurn>;
  /** Rows that a retry appended once more, before idempotency stood at the write boundary. */
  duplicates(conversation: Conversation): Promise<readonly Duplicate[]>;
  /** Takes one of them out. Throws `not-found`, and `conflict` with both texts when it has words of its own. */
  removeDuplicate(conversation: Conversation, locator: string, caller: Caller): Promise<Duplicate>;
}

export interface AmendmentParts {
  readonly database: SqlWriter;
  readonly log: AmendmentLog;
  readonly bus: Pick<EventBus, 'publish'>;
  readonly sessionOf: (conversation: ConversationId) => Promise<string | null>;
  readonly logger: Pick<Log, 'warn'>;
}

/** Remembered for one conversation; only those made during its last turn can have anything to mend. */
const maxUnread = 1_000;

export function createAmendments({ database, log, bus, sessionOf, logger }: AmendmentParts): Amendments {
  const writer = createRowWriter(database);
  const unread = new Map<ConversationId, UnreadAmendment[]>();

  const remember = (conversation: ConversationId, amendment: UnreadAmendment): void => {
    const known = (unread.get(conversation) ?? []).filter(({ id }) => id !== amendment.id);
    unread.set(conversation, [...known.slice(1 - maxUnread), amendment]);
  };
  const forget = (conversation: ConversationId, gone: (one: UnreadAmendment) => boolean): void => {
    const left = (unread.get(conversation) ?? []).filter((one) => !gone(one));
    if (left.length === 0) unread.delete(conversation);
    else unread.set(conversation, left);
  };
  const publish = (event: LoggedEvent | null): void => {
    if (event !== null) bus.publish(event);
  };

  /** Intends, writes, records. The child is condemned before the write: one too many costs a cold start, no more. */
  const amend = async <T extends { readonly locator: Locator }>(
    intent: AmendmentIntent,
    write: () => Promise<T>,
  ): Promise<T> => {
    const { conversation } = intent;
    const id = await log.intend(intent);
    remember(conversation, { id, change: null });
    try {
      const turn = await write();
      remember(conversation, { id, change: changeOf(intent, turn.locator) });
      publish(await log.record(id, conversation, intent.kind, turn.locator));
      return turn;
    } catch (error) {
      if (!(error instanceof Problem) || outcomeUnknown(error)) {
        // Whether it was done is found out at the next start.
        const change = intent.kind === 'reply' ? null : changeOf(intent, intent.locator);
        remember(conversation, { id, change });
        if (error instanceof Problem) throw unknownAmendment(error);
      } else {
        forget(conversation, (one) => one.id === id);
        await log.drop(id);
      }
      throw error;
    }
  };

  const turnAt = async (session: string, locator: Locator): Promise<TranscriptTurn> => {
    const turn = (await locate(database, session, locator))?.shown('client') ?? null;
    if (turn === null)
      throw new Problem('conflict', 'The reply was appended, and was taken out of the transcript since.');
    return turn;
  };

  return {
    async edit({ conversation, locator, basis, text, caller }) {
      checkText(text);
      const { id, session } = conversation;
      if (session === null) throw noSuchRow();
      // What is refused at first sight leaves no trace; the writer looks again at the moment of the change.
      const turn = editable(await locate(database, session, locator), basis, text);
      if (turn.text === text) return turn;
      const change = { kind: 'edit', locator: turn.locator, was: basis, becomes: etagOf(text) } as const;
      const intent = { ...change, conversation: id, by: caller };
      return amend(intent, () => writer.edit(session, turn.locator, basis, text));
    },

    async reply({ conversation, text, idempotencyKey, caller }) {
      checkText(text);
      const { id, session } = conversation;
      if (session === null) throw noSession();
      const mark = humanMark(idempotencyKey, text);
      const before = await writer.replyOf(session, mark);
      if (before?.otherText) throw keyReused();
      const intent = { kind: 'reply', conversation: id, by: caller, mark: mark.whole } as const;
      if (before !== null) {
        // Whoever appended it may not have come so far.
        publish(await log.record(await log.intend(intent), id, 'reply', before.locator));
        return turnAt(session, before.locator);
      }
      return amend(intent, async () => {
        await writer.append(session, mark, text);
        const found = await writer.replyOf(session, mark);
        if (found === null) throw noSession();
        if (found.otherText) throw keyReused();
        return turnAt(session, found.locator);
      });
    },

    duplicates: async ({ session }) => (session === null ? [] : listDuplicates(database, session)),

    async removeDuplicate({ id, session }, locator, caller) {
      if (session === null) throw noSuchRow();
      const duplicate = await findDuplicate(database, session, locator);
      const intent = { kind: 'removal', conversation: id, by: caller, locator: duplicate.locator } as const;
      return amend(intent, async () => {
        await takeOut(database, duplicate);
        return duplicate;
      });
    },

    async start() {
      for (const one of await log.open()) {
        const locator = one.isRecorded ? one.locator : await settle(one);
        if (locator !== null) remember(one.conversation, { id: one.id, change: changeOf(one, locator) });
      }
    },

    unread: (conversation) => unread.get(conversation) ?? [],

    async mend(session, amendments) {
      const changes = amendments.flatMap(({ change }) => (change === null ? [] : [change]));
      if (changes.length > 0) await mend(database, session, changes);
    },

    read(conversation, amendments) {
      if (amendments.length === 0) return;
      const ids = amendments.map(({ id }) => id);
      // The same objects: one that was being written then is remembered anew at its end.
      forget(conversation, (one) => amendments.includes(one));
      // Not taken in the database they are looked after once more at the next start, which finds nothing to do.
      log.take(ids).catch((error: unknown) => logger.warn('read amendments were not noted', { reason: String(error) }));
    },
  };

  /** What an earlier process intended and did not record: records it when it was done, drops it when it was not. */
  async function settle(one: OpenAmendment): Promise<Locator | null> {
    const session = await sessionOf(one.conversation);
    const locator = session === null ? null : await doneAt(session, one);
    if (locator === null) await log.drop(one.id);
    else publish(await log.record(one.id, one.conversation, one.kind, locator));
    return locator;
  }

  async function doneAt(session: string, { kind, locator, becomes, mark }: OpenAmendment): Promise<Locator | null> {
    if (kind === 'reply') {
      const found = mark === null ? null : await writer.replyOf(session, { ofKey: mark, whole: mark });
      return found?.locator ?? null;
    }
    const turn = locator === null ? null : ((await locate(database, session, locator))?.shown('canonical') ?? null);
    if (kind === 'removal') return turn === null ? locator : null;
    return turn?.etag === becomes ? turn.locator : null;
  }
}

/** The authority was asked again, and did not answer either. */
function unknownAmendment({ cause }: Problem): Problem {
  const detail = 'The transcript does not answer. Whether it was changed is not known: read it before you try again.';
  const problem = new Problem('sessiondb-unavailable', detail);
  problem.cause = cause;
  return problem;
}

/** Of a removal nothing comes back: a child writes no row of which it has read none. */
function changeOf(one: { kind: AmendmentIntent['kind']; was?: string | null }, locator: Locator): Change | null {
  if (one.kind === 'reply') return { kind: 'reply', locator };
  return one.kind === 'edit' && one.was ? { kind: 'edit', locator, was: one.was } : null;
}

/** Hermes keeps these words for a model that answered nothing, and marks structured content with a NUL. */
const emptyAnswer = '(empty)';

function checkText(text: string): void {
  if (text.includes('\0')) throw new Problem('invalid-request', 'A NUL character cannot be kept; leave it out.');
  if (!text.isWellFormed()) {
    throw new Problem(
      'invalid-request',
      'The text holds a lone surrogate, which is no Unicode text and cannot be kept.',
    );
  }
  if (text.trim() === '') throw new Problem('invalid-request', 'The text is blank: a reply has words.');
  if (text === emptyAnswer) {
    throw new Problem('invalid-request', `The agent keeps ${emptyAnswer} for a missing answer; use other words.`);
  }
}

const noSession = (): Problem =>
  new Problem('conflict', 'This conversation has no transcript yet: it begins with the first message. Send one first.');

const keyReused = (): Problem =>
  new Problem('idempotency-key-reused', 'This Idempotency-Key was used for another reply. Use a new one.');
