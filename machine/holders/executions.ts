/**
 * The programs of one holder, as its Hermes tells of them over the machine channel, turned into rows of the ledger: one a
 * program, when it ends. What no wait of Hermes has seen the end of, ends with the holder.
 */
import { constants } from 'node:os';
import type { Ledger } from '../agentfs/ledger.ts';
import type { ExecutionEvent } from '../sessiondb/frames.ts';
import { withoutUrlUser } from '../shell/ledger-row.ts';

type Started = Extract<ExecutionEvent, { a: unknown }>;
type Ended = Extract<ExecutionEvent, { c: unknown } | { s: unknown }>;

/** Programs whose end is awaited: more processes than a holder may have. */
const maxRunning = 4_096;

// Where two names are one number, the first is the usual one.
const signalNames = new Map(
  Object.entries(constants.signals)
    .reverse()
    .map(([name, number]) => [number, name]),
);

export class Executions {
  readonly #ledger: Pick<Ledger, 'record' | 'lost'>;
  readonly #conversation: string;
  readonly #recordedElsewhere: ReadonlySet<string>;
  readonly #running = new Map<number, Started>();

  /** `recordedElsewhere`: programs that have a row by themselves, such as git. */
  constructor(
    ledger: Pick<Ledger, 'record' | 'lost'>,
    conversation: string,
    recordedElsewhere: readonly string[] = [],
  ) {
    this.#ledger = ledger;
    this.#conversation = conversation;
    this.#recordedElsewhere = new Set(recordedElsewhere);
  }

  heard(events: readonly ExecutionEvent[]): void {
    for (const event of events) {
      if ('l' in event) this.#ledger.lost(this.#conversation, event.l);
      else if ('a' in event) this.#begin(event);
      else if ('x' in event) this.#running.delete(event.i);
      else this.#end(event);
    }
  }

  /** The holder has ended, and everything in it. Resolves when that is recorded. */
  async holderEnded(): Promise<void> {
    const at = Date.now();
    const rows = [...this.#running.values()].map((started) => this.#record(started, at, null, 'ended with its holder'));
    this.#running.clear();
    await Promise.all(rows);
  }

  #begin(started: Started): void {
    if (this.#recordedElsewhere.has(started.f)) return;
    if (this.#running.size >= maxRunning) this.#ledger.lost(this.#conversation, 1);
    else this.#running.set(started.i, started);
  }

  #end(ended: Ended): void {
    const started = this.#running.get(ended.i);
    // Its start was among what could not be told, and counted there.
    if (!started) return;
    this.#running.delete(ended.i);
    if ('c' in ended) {
      const error = ended.c === 0 ? null : `exit code ${ended.c}`;
      void this.#record(started, ended.t, { exitCode: ended.c }, error);
    } else {
      const name = signalNames.get(ended.s) ?? `signal ${ended.s}`;
      void this.#record(started, ended.t, { signal: name }, `ended by ${name}`);
    }
  }

  #record(started: Started, at: number, result: Record<string, unknown> | null, error: string | null): Promise<void> {
    const { a: argv, f: program, d: cwd } = started;
    return this.#ledger.record({
      name: 'shell',
      conversation: this.#conversation,
      parameters: { argv: argv.map(withoutUrlUser), program, cwd },
      result,
      error,
      startedAt: started.t,
      endedAt: at,
    });
  }
}
