/**
 * The native ledger (ADR-046 §6): each executed shell and git command is one row of AgentFS' public `tool_calls` table,
 * written by the machine from where it ran. No output of a command is kept, and there is no other ledger.
 */
import { boundedJson } from './bounded-json.ts';
import type { OrganizationFiles } from './files.ts';
import { randomIno } from './ids.ts';

/** One command that has ended. */
export interface LedgerCall {
  readonly name: 'shell' | 'git';
  readonly conversation: string;
  /** What was started: the command, its directory. Beyond 24 KiB it is cut, with a mark that says so. */
  readonly parameters: Readonly<Record<string, unknown>>;
  /** How it ended: an exit code, byte counts; never its output. 2 KiB at most. */
  readonly result: Readonly<Record<string, unknown>> | null;
  /** Why it counts as failed; null when it succeeded. */
  readonly error: string | null;
  /** Milliseconds since 1970. */
  readonly startedAt: number;
  readonly endedAt: number;
}

const parametersBytes = 24 * 1024;
const resultBytes = 2 * 1024;
/** Rows that wait for the store: about 24 MiB at most. */
const maxWaiting = 1_000;

interface Waiting {
  readonly call: LedgerCall;
  readonly written: () => void;
}

export class Ledger {
  readonly #files: OrganizationFiles;
  readonly #log: (text: string) => void;
  #waiting: Waiting[] = [];
  #isWriting = false;
  /** By conversation: calls that are not recorded, since the last row that says how many. */
  readonly #lost = new Map<string, number>();
  #unlogged = 0;

  constructor(files: OrganizationFiles, log: (text: string) => void = console.error) {
    this.#files = files;
    this.#log = log;
  }

  /**
   * Writes one row into the store's open group, which is committed with the files that changed meanwhile; none is made durable
   * by itself. Resolves when the row stands there or is given up; never rejects, for no command may fail because it could
   * not be noted: what is lost is counted, logged, and said by the conversation's next row (`lostBefore`).
   */
  record(call: LedgerCall): Promise<void> {
    if (this.#waiting.length >= maxWaiting) {
      this.lost(call.conversation, 1);
      return Promise.resolve();
    }
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push({ call, written: resolve });
    this.#writeSoon();
    return promise;
  }

  /** Counts commands that were executed but are not recorded. */
  lost(conversation: string, count: number): void {
    this.#lost.set(conversation, (this.#lost.get(conversation) ?? 0) + count);
    this.#unlogged += count;
    this.#writeSoon();
  }

  /** Writes the rows that wait. For whoever runs exclusively. */
  async writeHere(): Promise<void> {
    this.#isWriting = false;
    const waiting = this.#waiting;
    this.#waiting = [];
    if (waiting.length > 0) await this.#writeAll(waiting).catch((error: unknown) => this.#failed(waiting, error));
    if (this.#unlogged > 0) this.#log(`ledger: ${this.#unlogged} executed commands are not recorded`);
    this.#unlogged = 0;
    for (const { written } of waiting) written();
  }

  #writeSoon(): void {
    if (this.#isWriting) return;
    this.#isWriting = true;
    void this.#files.store.exclusive(() => this.writeHere());
  }

  async #writeAll(waiting: readonly Waiting[]): Promise<void> {
    const { store } = this.#files;
    await store.beginHere(waiting.length);
    for (const { call } of waiting) {
      const { conversation } = call;
      await store.sql.run(insertion, ...rowOf(call, this.#lost.get(conversation) ?? 0));
      this.#lost.delete(conversation);
    }
    await store.commitFullHere();
  }

  #failed(waiting: readonly Waiting[], error: unknown): void {
    this.#log(`ledger: rows could not be written: ${error instanceof Error ? error.message : String(error)}`);
    for (const { call } of waiting) this.lost(call.conversation, 1);
  }
}

const insertion =
  'INSERT INTO tool_calls (id, name, parameters, result, error, status, started_at, completed_at, duration_ms) ' +
  'VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)';

/** As agentfs-sdk 0.6.4 would write it (whole seconds), but with an id that no other replica gives and an exact duration. */
function rowOf(call: LedgerCall, lost: number): (string | number | null)[] {
  const startedAt = Math.floor(call.startedAt);
  const endedAt = Math.max(startedAt, Math.floor(call.endedAt));
  // The exact time is the order within one second.
  const ours = { conversation: call.conversation, startedAtMs: startedAt, ...(lost > 0 ? { lostBefore: lost } : {}) };
  // First, so that they are never cut; and last, so that nothing else is taken for them.
  const parameters = { ...ours, ...call.parameters, ...ours };
  return [
    randomIno(),
    call.name,
    boundedJson(parameters, parametersBytes),
    call.result === null ? null : boundedJson(call.result, resultBytes),
    call.error === null ? null : call.error.slice(0, resultBytes),
    call.error === null ? 'success' : 'error',
    Math.floor(startedAt / 1000),
    Math.floor(endedAt / 1000),
    endedAt - startedAt,
  ];
}
