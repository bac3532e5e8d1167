/**
 * Erasure of exact targets (ADR-046 §5): looked at first, confirmed with what that look has answered, done in steps of which
 * each may be repeated, and proved by looking again. Never part of anything else: nothing is inferred from an offboarding.
 */
import { HranaError } from '../../machine/agentfs/hrana.ts';
import type { Caller } from '../domain.ts';
import type { Governance } from '../governance/governance.ts';
import type { Purge, PurgeResult, PurgeTarget, PurgeTargets } from '../governance/purges.ts';
import type { ConversationId, OperationId } from '../ids.ts';
import { inTurn } from '../in-turn.ts';
import type { HolderControl } from '../machine/holder-calls.ts';
import { Problem } from '../problem.ts';
import { WaitedTooLong, within } from '../waits.ts';
import { Confirmations } from './confirmation.ts';
import { addCounts, isNothing, noCounts, type PurgeCounts } from './counts.ts';
import { eraseFiles, type FileSql, findFiles } from './file-rows.ts';
import { eraseSessions, findSessions, indexedWithoutMessage, rewriteIndexes, type SessionSql } from './session-rows.ts';

export interface PurgePlan {
  readonly counts: PurgeCounts;
  readonly failedProse: number;
  /** Shown again, it erases what was looked at and nothing else. */
  readonly confirmation: string;
  readonly expiresAt: Date;
}

export interface Retention {
  /** Looks only. Throws `not-found` for a conversation that there is not. */
  plan(targets: PurgeTargets): Promise<PurgePlan>;
  /**
   * Erases. Throws `conflict` when the confirmation is not of these targets as they are now, and has done nothing then.
   */
  purge(by: Caller, targets: PurgeTargets, confirmation: string): Promise<Purge>;
  /** Goes on with one that was cut off; a finished one is answered as it is. Null when there is none. */
  resume(id: OperationId): Promise<Purge | null>;
  /** At start: goes on with all that were cut off, one after the other. Never rejects: what fails stays to be resumed. */
  resumeAll(): Promise<void>;
}

export interface RetentionParts {
  readonly governance: Pick<
    Governance,
    | 'findConversation'
    | 'findPurgeable'
    | 'countFailedProse'
    | 'eraseFailedProse'
    | 'beginPurge'
    | 'purgeStopped'
    | 'advancePurge'
    | 'erasePurged'
    | 'finishPurge'
    | 'readPurge'
    | 'unfinishedPurges'
  >;
  readonly sessiondb: SessionSql;
  readonly agentfs: FileSql;
  readonly holders: HolderControl;
  /** Takes no message of the conversation any more, and ends its turns; resolves when none is left. */
  readonly endTurns: (conversation: ConversationId) => Promise<void>;
  /**
   * Gives up what comes in for the conversation, and resolves when no request is at work on it and nothing is left of uploads that
   * no message has named.
   */
  readonly requestsEnded: (conversation: ConversationId) => Promise<void>;
  readonly report: (what: string, error: unknown) => void;
}

interface Found {
  readonly counts: PurgeCounts;
  /** Changes whenever something of the conversation does. */
  readonly state: readonly unknown[];
}

/** Far above how long a body of JSON may take to arrive; others are given up at once. */
const requestsLimitMs = 120_000;

export function createRetention(parts: RetentionParts): Retention {
  const { governance, sessiondb, agentfs, holders } = parts;
  const confirmations = new Confirmations();
  const oneByOne = inTurn();
  /** One after the other, so that a resume does not run beside the purge that it goes on with. */
  const alone = <T>(work: () => Promise<T>): Promise<T> => oneByOne(() => reaching(work()));

  const find = async (conversation: ConversationId, session: string | null): Promise<Found> => {
    const [rows, sessions, files] = await Promise.all([
      governance.findPurgeable(conversation),
      findSessions(sessiondb, session),
      findFiles(agentfs, conversation),
    ]);
    return {
      counts: { ...rows.counts, ...sessions.counts, ...files.counts },
      state: [conversation, session, rows, sessions, files],
    };
  };

  const look = async ({ conversations, failedProseBefore }: PurgeTargets) => {
    const found = new Map<ConversationId, PurgeCounts>();
    const states: (readonly unknown[])[] = [];
    let counts = noCounts;
    for (const id of conversations) {
      const conversation = await governance.findConversation(id);
      if (conversation === null) throw new Problem('not-found', `There is no conversation ${id}`);
      const one = await find(id, conversation.session);
      found.set(id, one.counts);
      states.push(one.state);
      counts = addCounts(counts, one.counts);
    }
    const failedProse = failedProseBefore === null ? 0 : await governance.countFailedProse(failedProseBefore);
    return { found, counts, failedProse, state: JSON.stringify([states, failedProseBefore, failedProse]) };
  };

  const step = async (purge: Purge, target: PurgeTarget): Promise<void> => {
    const { conversation } = target;
    // Each is repeated when it was cut off; those before it are done.
    switch (target.step) {
      case 'confirmed': {
        // At once: nobody waits for the reply of a conversation that is erased. Again behind the last turn, which may have
        // had a child of its own.
        await Promise.all([parts.endTurns(conversation), ended(holders, conversation)]);
        await within(requestsLimitMs, 'the requests of a conversation', parts.requestsEnded(conversation));
        await ended(holders, conversation);
        await governance.purgeStopped(purge.id, conversation);
        return;
      }
      case 'stopped':
        if (target.session !== null) await eraseSessions(sessiondb, target.session);
        await governance.advancePurge(purge.id, conversation, 'sessions');
        return;
      case 'sessions':
        await eraseFiles(agentfs, conversation);
        await governance.advancePurge(purge.id, conversation, 'files');
        return;
      case 'files':
        await governance.erasePurged(purge.id, conversation);
        return;
      case 'erased':
    }
  };

  const run = async (id: OperationId): Promise<Purge> => {
    for (;;) {
      const purge = await known(id);
      if (purge.finishedAt !== null) return purge;
      const open = purge.targets.filter((target) => target.step !== 'erased');
      if (open.length === 0) return finish(purge);
      for (const target of open) await step(purge, target);
    }
  };

  const finish = async (purge: Purge): Promise<Purge> => {
    const failedProse =
      purge.failedProseBefore === null ? 0 : await governance.eraseFailedProse(purge.failedProseBefore);
    if (purge.targets.some(({ session }) => session !== null)) await rewriteIndexes(sessiondb);
    let erased = noCounts;
    let remaining = noCounts;
    for (const { conversation, session, found } of purge.targets) {
      erased = addCounts(erased, found);
      remaining = addCounts(remaining, (await find(conversation, session)).counts);
    }
    if (purge.targets.length > 0) {
      remaining = { ...remaining, indexed: remaining.indexed + (await indexedWithoutMessage(sessiondb)) };
    }
    if (!isNothing(remaining)) {
      const detail = 'Something is left of what was to be erased; the purge stays open. Resume it.';
      throw new Problem('conflict', detail, { purge: purge.id, remaining });
    }
    // What the machine has of it locally goes with this pull.
    await pulled(holders);
    const result: PurgeResult = { erased, remaining, failedProse };
    await governance.finishPurge(purge.id, result);
    return known(purge.id);
  };

  const known = async (id: OperationId): Promise<Purge> => {
    const purge = await governance.readPurge(id);
    if (purge === null) throw new Error(`purge ${id} is gone`);
    return purge;
  };

  return {
    plan: (targets) =>
      reaching(
        look(targets).then(({ counts, failedProse, state }) => ({ counts, failedProse, ...confirmations.of(state) })),
      ),

    purge: (by, targets, confirmation) =>
      alone(async () => {
        const { found, state } = await look(targets);
        if (!confirmations.isOf(confirmation, state)) {
          throw new Problem(
            'conflict',
            'The confirmation is too old, or something has changed since: ask for a new one and look at its counts',
          );
        }
        const id = await governance.beginPurge(by, targets.failedProseBefore, found);
        return run(id);
      }),

    resume: (id) => alone(async () => ((await governance.readPurge(id)) === null ? null : run(id))),

    async resumeAll() {
      for (const { id } of await governance.unfinishedPurges()) {
        await alone(() => run(id)).catch((error: unknown) => parts.report('a purge could not be finished', error));
      }
    },
  };
}

async function ended(holders: HolderControl, conversation: ConversationId): Promise<void> {
  const outcome = await holders.end([conversation]);
  if (outcome.state === 'failing') throw unreachable(outcome.reason);
}

async function pulled(holders: HolderControl): Promise<void> {
  const outcome = await holders.replace([]);
  if (outcome.state === 'failing') throw unreachable(outcome.reason);
}

const unreachable = (reason: string): Problem => {
  const problem = new Problem(
    'agentfs-unavailable',
    'The machine cannot reach the files now; the purge stays open. Resume it later.',
  );
  problem.cause = new Error(reason);
  return problem;
};

async function reaching<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof HranaError) && !(error instanceof WaitedTooLong)) throw error;
    const problem = new Problem(
      'not-ready',
      'The work could not be ended in time or a database cannot be reached. What was begun stays open: resume it later.',
    );
    problem.cause = error;
    throw problem;
  }
}
