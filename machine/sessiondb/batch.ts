/** The one batch in which a transaction's statements go to the authority, and what its answer says. Pure. */
import type {
  WireBatchResult,
  WireCondition,
  WireStatement,
  WireStatementResult,
  WireStep,
} from '../agentfs/hrana-wire.ts';
import { sqliteError } from './errors.ts';
import type { Answered } from './foreseen.ts';
import type { FrameError } from './frames.ts';
import type { Step } from './step.ts';

export type Batch = {
  readonly steps: readonly WireStep[];
  /** Where the guards are. */
  readonly guards: ReadonlySet<number>;
  /** Steps of statements that the child has been answered. */
  readonly answered: number;
  /** Where `rest` is. */
  readonly rest: readonly number[];
  readonly row: number | null;
};

/**
 * @param answered what the child was answered: when one of these or its guard fails, all is rolled back
 * @param rest what it waits for; the first failure ends it, and the transaction stays open as in SQLite
 * @param row a read before the final COMMIT, under its lock; nothing depends on it
 */
export function batchOf(answered: readonly Answered[], rest: readonly Step[], row: WireStatement | null): Batch {
  const steps: WireStep[] = [];
  const guards = new Set<number>();
  let last: number | null = null;
  const add = (stmt: WireStatement): number => {
    steps.push({ condition: last === null ? null : { type: 'ok', step: last }, stmt });
    return steps.length - 1;
  };
  for (const { step, guard } of answered) {
    last = add(step.stmt);
    if (guard === null) continue;
    last = add(guard);
    guards.add(last);
  }
  const lastAnswered = last;
  const places: number[] = [];
  let rowAt: number | null = null;
  for (const [index, step] of rest.entries()) {
    if (index === rest.length - 1 && row !== null) rowAt = add(row);
    last = add(step.stmt);
    places.push(last);
  }
  const count = answered.length === 0 ? 0 : lastAnswered! + 1;
  if (count > 1)
    steps.push({ condition: failedAfterBegin(lastAnswered!), stmt: { sql: 'ROLLBACK', want_rows: false } });
  return { steps, guards, answered: count, rest: places, row: rowAt };
}

const failedAfterBegin = (last: number): WireCondition => ({
  type: 'and',
  conds: [
    { type: 'ok', step: 0 },
    { type: 'not', cond: { type: 'ok', step: last } },
    { type: 'not', cond: { type: 'is_autocommit' } },
  ],
});

export type Outcome = {
  /** Of `rest`, as far as it went well. */
  readonly results: readonly WireStatementResult[];
  readonly error: FrameError | null;
  /** The error is that of a guard. */
  readonly foretoldWrongly: boolean;
};

/** `null` when the answer is not one of this batch. */
export function outcomeOf(batch: Batch, { step_results, step_errors }: WireBatchResult): Outcome | null {
  for (let at = 0; at < batch.answered; at++) {
    const failed = step_errors[at];
    if (failed && batch.guards.has(at)) return { results: [], error: locked, foretoldWrongly: true };
    if (failed) return { results: [], error: sqliteError(failed.code, failed.message), foretoldWrongly: false };
    if (!step_results[at]) return null;
  }
  const results: WireStatementResult[] = [];
  for (const at of batch.rest) {
    const failed = step_errors[at];
    if (failed) return { results, error: sqliteError(failed.code, failed.message), foretoldWrongly: false };
    const result = step_results[at];
    if (!result) return null;
    results.push(result);
  }
  return { results, error: null, foretoldWrongly: false };
}

/** What SQLite says when another writer was in the way: Hermes runs the transaction again. */
const locked: FrameError = { k: 'OperationalError', m: 'database is locked', n: 'SQLITE_BUSY' };
