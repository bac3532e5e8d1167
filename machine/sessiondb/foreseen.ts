/**
 * A transaction that has begun for the child and of which nothing has been sent. Inside it Hermes asks for results before it
 * goes on: the id of a new message, the values of its session's row. What they will be is known or can be foretold, so the
 * child is answered at once, and the whole transaction goes in one request, in which a guard stands behind each statement
 * that was answered: under the lock, the statement does what was told, or the transaction fails as a whole with "database
 * is locked". Hermes then runs it again. So whatever is committed is what a transaction with a round trip for every
 * statement would have committed, and every answer that led to it was true.
 */
import type { WireStatement } from '../agentfs/hrana-wire.ts';
import { valueAt } from './arguments.ts';
import type { FrameResult } from './frames.ts';
import { changedOneRow, gaveId, sessionHas } from './guards.ts';
import type { MessageIds } from './message-ids.ts';
import type { SessionRow } from './session-row.ts';
import type { SessionRows } from './session-rows.ts';
import type { Step } from './step.ts';

export type Answered = { readonly step: Step; readonly guard: WireStatement | null };

const nothing: FrameResult = { n: 0, w: 0 };

export class ForeseenTransaction {
  readonly #rows: SessionRows;
  readonly #ids: MessageIds;
  /** What SQLite's last_insert_rowid() is on this connection. */
  readonly #lastRowId: string;
  readonly #answered: Answered[] = [];
  /** Rows as this transaction has left them. */
  readonly #own = new Map<string, SessionRow>();
  #changes = false;
  #nextId: bigint | null = null;

  constructor(rows: SessionRows, ids: MessageIds, lastRowId: string) {
    this.#rows = rows;
    this.#ids = ids;
    this.#lastRowId = lastRowId;
  }

  /** What was answered so far, BEGIN first. */
  get answered(): readonly Answered[] {
    return this.#answered;
  }

  /** The id that was told last. */
  get newestId(): bigint | null {
    return this.#nextId === null ? null : this.#nextId - 1n;
  }

  /** Tells the result of a statement beforehand and takes it in; null when that cannot be done. */
  async take(step: Step): Promise<FrameResult | null> {
    const foretold = step.shape.kind === 'add-message' ? await this.#message() : this.#tell(step);
    if (foretold === null) return null;
    this.#answered.push({ step, guard: foretold.guard });
    return foretold.result;
  }

  /** The results of these statements when all of them provably change nothing; otherwise null, and nothing is taken in. */
  idle(steps: readonly Step[]): FrameResult[] | null {
    const results: FrameResult[] = [];
    if (this.#changes) return null;
    for (const [index, { shape, args, inserts }] of steps.entries()) {
      if (shape.kind === 'begin-immediate' && index + this.#answered.length === 0) {
        results.push(nothing);
        continue;
      }
      if (shape.kind !== 'write-session') return null;
      if (shape.required.some((argument) => valueAt(args, argument) === null)) return null;
      const row = this.row(valueAt(args, shape.session));
      if (row === null || row.after(shape.assignments, args) !== row) return null;
      results.push(this.#written(inserts));
    }
    return results;
  }

  /** The row of a session as this transaction sees it; null when it is not known. */
  row(session: unknown): SessionRow | null {
    if (typeof session !== 'string') return null;
    return this.#own.get(session) ?? this.#rows.get(session);
  }

  /** It is over, or has been sent: the next message may be another's. */
  release(): void {
    this.#ids.release(this);
  }

  #written(inserts: boolean): FrameResult {
    return { n: 1, w: 1, ...(inserts ? { l: this.#lastRowId } : {}) };
  }

  async #message(): Promise<{ result: FrameResult; guard: WireStatement } | null> {
    const id = this.#nextId ?? (await this.#ids.claim(this));
    if (id === null) return null;
    this.#nextId = id + 1n;
    this.#changes = true;
    return { result: { n: 1, w: 1, l: String(id) }, guard: gaveId(id) };
  }

  #tell({ shape, args, inserts }: Step): { result: FrameResult; guard: WireStatement | null } | null {
    if (shape.kind === 'begin-immediate') return this.#answered.length === 0 ? { result: nothing, guard: null } : null;
    if (shape.kind !== 'read-session' && shape.kind !== 'write-session') return null;
    const session = valueAt(args, shape.session);
    const row = this.row(session);
    if (row === null || typeof session !== 'string') return null;
    if (shape.kind === 'read-session') {
      const result = shape.columns && row.select(shape.columns);
      const guard = result && sessionHas(session, result.c!, result.d![0]!);
      return guard && { result: result!, guard };
    }
    // After a message's INSERT last_insert_rowid() is that message's.
    if (inserts && this.#nextId !== null) return null;
    const after = row.after(shape.assignments, args);
    if (after === null) return null;
    this.#own.set(session, after);
    this.#changes ||= after !== row;
    return { result: this.#written(inserts), guard: changedOneRow };
  }
}
