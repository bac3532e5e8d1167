/** Which sessions' rows the open transaction of one connection writes, and how the one that it wrote stands at its end. */
import type { WireStatement, WireStatementResult } from '../agentfs/hrana-wire.ts';
import { valueAt } from './arguments.ts';
import { fromWire } from './frames.ts';
import { SessionRow } from './session-row.ts';
import type { SessionRows, Writing } from './session-rows.ts';
import type { Step } from './step.ts';

/** Large, and seldom changed: not read again where it provably stayed as it was. */
const large = 'system_prompt';

export class WrittenRows {
  readonly #rows: SessionRows;
  readonly #writings = new Map<string | null, Writing>();
  /** The only row written so far as it should stand now; null when it is not known, or not the only one. */
  #expected: SessionRow | null = null;

  constructor(rows: SessionRows) {
    this.#rows = rows;
  }

  /** These statements are about to be sent. */
  add(steps: readonly Step[]): void {
    for (const { shape, args } of steps) {
      if (shape.kind === 'write-session') {
        const session = valueAt(args, shape.session);
        const name = typeof session === 'string' ? session : null;
        const before = this.#writings.has(name) ? this.#expected : name === null ? null : this.#rows.get(name);
        this.#expected = before?.after(shape.assignments, args) ?? null;
        this.#begin(name);
      } else if (shape.kind === 'other' && shape.sessions) this.#begin(null);
    }
    if (this.#writings.size !== 1) this.#expected = null;
  }

  /** The read of the only row that was written; null when there is no such row. */
  get read(): WireStatement | null {
    const session = this.#only();
    if (session === null) return null;
    const columns = this.#expected?.columns;
    const kept = this.#expected?.value(large) !== undefined;
    const list =
      columns && kept
        ? columns
            .filter((name) => name !== large)
            .map(quoted)
            .join(', ')
        : '*';
    return {
      sql: `SELECT ${list} FROM sessions WHERE id = ?`,
      args: [{ type: 'text', value: session }],
      want_rows: true,
    };
  }

  /** The transaction has ended. `read`: what that read gave, if it was committed. */
  end(read: WireStatementResult | null): void {
    const row = read === null ? null : this.#rowOf(read);
    for (const writing of this.#writings.values()) this.#rows.end(writing, row);
    this.#clear();
  }

  /** Nobody knows whether the transaction was committed. */
  lose(): void {
    for (const _ of this.#writings) this.#rows.lose();
    this.#clear();
  }

  #clear(): void {
    this.#writings.clear();
    this.#expected = null;
  }

  #begin(session: string | null): void {
    if (!this.#writings.has(session)) this.#writings.set(session, this.#rows.begin(session));
  }

  #only(): string | null {
    const [session, ...others] = this.#writings.keys();
    return others.length === 0 ? (session ?? null) : null;
  }

  #rowOf({ cols, rows: [row] }: WireStatementResult): SessionRow | null {
    if (!row) return null;
    const names = cols.map(({ name }) => name);
    const values = row.map(fromWire);
    const expected = this.#expected;
    if (!expected || expected.columns.length === names.length) return new SessionRow(names, values);
    return new SessionRow(
      expected.columns,
      expected.columns.map((name) => (name === large ? expected.value(large) : values[names.indexOf(name)])),
    );
  }
}

const quoted = (name: string): string => `"${name.replaceAll('"', '""')}"`;
