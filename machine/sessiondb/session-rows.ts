/**
 * The rows of `sessions` that one child wrote last, as they stood under the lock of that transaction. Answering a SELECT from
 * here is answering it as of that moment, which SQLite itself may do: it promises no more than that a reader sees one
 * committed state, and its own writes. A row's writers are two. The child whose lineage it belongs to: lineage.ts refuses
 * all other children, no statement of the schema touches the table, and all of that child's connections share this table,
 * so its own writes are always seen. And the gateway, when a human replies: it counts the message in this row, and replaces
 * the child before its next turn. What a transaction does with a row that was read here is checked under its lock
 * (foreseen.ts); what is left out because it would change nothing is a column that the gateway never writes.
 */
import type { SessionRow } from './session-row.ts';

/** A write that has begun and whose outcome is not known yet. */
export type Writing = { readonly session: string | null; readonly alone: boolean; readonly epoch: number };

const maxKept = 64;

export class SessionRows {
  readonly #rows = new Map<string, SessionRow>();
  #writing = 0;
  #epoch = 0;
  #uncertain = false;

  /** The row as the last transaction left it; null when it is not known. */
  get(session: string): SessionRow | null {
    return this.#rows.get(session) ?? null;
  }

  /** A row (null: rows nobody knows which) is about to be written: what was known of it ends here. */
  begin(session: string | null): Writing {
    if (session === null) this.#rows.clear();
    else this.#rows.delete(session);
    this.#writing++;
    this.#epoch++;
    return { session, alone: this.#writing === 1, epoch: this.#epoch };
  }

  /**
   * The write is committed or rolled back. `row` is how it stands, read under its lock. It is kept only if no other write
   * of this child ran at any time since `begin`: of two, nobody could say which came last.
   */
  end(writing: Writing, row: SessionRow | null): void {
    this.#writing--;
    if (row === null || writing.session === null || this.#uncertain) return;
    if (!writing.alone || writing.epoch !== this.#epoch) return;
    if (this.#rows.size >= maxKept) this.#rows.clear();
    this.#rows.set(writing.session, row);
  }

  /** The authority did not answer: the write may still arrive there, at any time. Nothing is known from here on. */
  lose(): void {
    this.#writing--;
    this.#uncertain = true;
    this.#rows.clear();
  }
}
