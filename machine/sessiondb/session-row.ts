/** One row of `sessions` as it is known, and what a statement of a known shape makes of it. Pure. */
import { valueAt } from './arguments.ts';
import type { FrameResult, FrameStatement, FrameValue } from './frames.ts';
import type { Assignment } from './shapes.ts';

/** `undefined`: the column is there, its value is not known. */
type Known = FrameValue | undefined;

export class SessionRow {
  /** As the authority spells them, in its order. */
  readonly columns: readonly string[];
  readonly #values: readonly Known[];

  constructor(columns: readonly string[], values: readonly Known[]) {
    this.columns = columns;
    this.#values = values;
  }

  /** The result of `SELECT columns FROM sessions WHERE id = …`; null where a value is not known. */
  select(columns: readonly string[] | null): FrameResult | null {
    const c: string[] = [];
    const d: FrameValue[] = [];
    for (const name of columns ?? this.columns) {
      const at = this.#at(name);
      const value = this.#values[at];
      if (value === undefined) return null;
      c.push(this.columns[at]!);
      d.push(value);
    }
    return { c, d: [d], n: 0, w: 0 };
  }

  value(column: string): Known {
    return this.#values[this.#at(column)];
  }

  /** The row after these assignments; itself when they provably change nothing; null when a column is not one of its. */
  after(assignments: readonly Assignment[], args: FrameStatement[1]): SessionRow | null {
    const values = [...this.#values];
    let changed = false;
    for (const { column, becomes } of assignments) {
      const at = this.#at(column);
      if (at < 0) return null;
      const old = this.#values[at];
      const next = outcome(old, becomes, args);
      if (next !== undefined && next === old) continue;
      changed = true;
      values[at] = next;
    }
    return changed ? new SessionRow(this.columns, values) : this;
  }

  #at(column: string): number {
    const wanted = column.toLowerCase();
    return this.columns.findIndex((name) => name.toLowerCase() === wanted);
  }
}

/**
 * What a column holds after an assignment. Only texts and NULL are told, and a text only where a text or NULL stands: the
 * column's type may turn anything else into another value when it is stored.
 */
function outcome(old: Known, becomes: Assignment['becomes'], args: FrameStatement[1]): Known {
  if (becomes.kind === 'unknown') return undefined;
  if (becomes.kind === 'itself-or-argument') {
    if (old === undefined) return undefined;
    return old === null ? stored(old, valueAt(args, becomes.argument)) : old;
  }
  const given = valueAt(args, becomes.argument);
  return becomes.kind === 'argument-or-itself' && given === null ? old : stored(old, given);
}

function stored(old: Known, given: FrameValue): Known {
  if (given === null) return null;
  // The same text that stands there is stored as it was before; another one might be taken for a number.
  return typeof given === 'string' && given === old ? given : undefined;
}
