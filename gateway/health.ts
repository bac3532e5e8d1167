/**
 * Whether the gateway can serve, for who puts it behind a load balancer. Nothing looks by itself: the parts are asked when
 * somebody asks, all at once, each within a limit, and everybody who asks meanwhile gets the same answer.
 */
import type { FilesState } from '../machine/launch.ts';
import type { Health } from './http/deps.ts';
import { within } from './waits.ts';

/** What is asked. Each rejects when it does not answer; `signal` aborts when nobody waits any more. */
export interface HealthParts {
  readonly database: (signal: AbortSignal) => Promise<unknown>;
  readonly sessiondb: (signal: AbortSignal) => Promise<unknown>;
  readonly agentfs: (signal: AbortSignal) => Promise<unknown>;
  /** What the machine has said last about its replica of AgentFS. */
  readonly files: () => FilesState;
  readonly isMachineRunning: () => boolean;
}

/** Load balancers wait a few seconds. */
const answerMs = 2_000;

export function createHealth(parts: HealthParts, limitMs: number = answerMs): () => Promise<Health> {
  let asking: Promise<Health> | null = null;
  const ask = async (): Promise<Health> => {
    const [database, sessiondb, agentfs] = await Promise.all([
      answers(parts.database, limitMs),
      answers(parts.sessiondb, limitMs),
      answers(parts.agentfs, limitMs),
    ]);
    return judge({ database, sessiondb, agentfs, machine: parts.isMachineRunning() }, parts.files());
  };
  return () => {
    asking ??= ask().finally(() => {
      asking = null;
    });
    return asking;
  };
}

interface Facts {
  readonly database: boolean;
  readonly sessiondb: boolean;
  readonly agentfs: boolean;
  readonly machine: boolean;
}

const details = {
  failing: 'it answers, but the last synchronization of files failed; the log says why',
  unreachable: 'turns go on and changed files wait; no new conversation can be made',
} as const;

/**
 * Without Postgres, SessionDB or the machine no message can be served: not ready. Without AgentFS turns go on, and what
 * they change waits in the replica beside this very gateway: to take it out of service would serve nobody.
 */
export function judge({ database, sessiondb, agentfs, machine }: Facts, files: FilesState): Health {
  const ready = database && sessiondb && machine;
  const cloud = !agentfs ? 'unreachable' : files.trouble !== null ? 'failing' : 'reachable';
  return {
    ready,
    status: !ready ? 'not-ready' : cloud === 'reachable' ? 'ready' : 'degraded',
    agentfs: cloud,
    pendingChanges: files.pending,
    checks: {
      database: { ok: database },
      sessiondb: { ok: sessiondb },
      machine: { ok: machine },
      agentfs: cloud === 'reachable' ? { ok: true } : { ok: false, detail: details[cloud] },
    },
  };
}

/** For `/metrics`. */
export function healthGauges({ ready, checks, pendingChanges }: Health): Record<string, readonly [string, number]> {
  const up = (name: string): number => (checks[name]?.ok === true ? 1 : 0);
  return {
    edge_ready: ['Whether messages can be served.', ready ? 1 : 0],
    edge_database_up: ['Whether Postgres answers.', up('database')],
    edge_sessiondb_up: ['Whether SessionDB answers.', up('sessiondb')],
    edge_agentfs_up: ['Whether AgentFS answers and its last synchronization did not fail.', up('agentfs')],
    edge_machine_up: ['Whether the machine runs.', up('machine')],
    edge_agentfs_pending_changes: [
      'Whether changed files waited for the cloud when the last work boundary ended.',
      pendingChanges ? 1 : 0,
    ],
  };
}

async function answers(ask: (signal: AbortSignal) => Promise<unknown>, limitMs: number): Promise<boolean> {
  const abort = new AbortController();
  try {
    await within(limitMs, 'an answer', ask(abort.signal));
    return true;
  } catch {
    // Whoever asks is told that it does not answer; the cause is logged where the part is used.
    return false;
  } finally {
    abort.abort();
  }
}
