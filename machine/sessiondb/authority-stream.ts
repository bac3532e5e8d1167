/** The Hrana stream of one connection: opened when it is needed, again when it was idle for too long, and its transaction. */
import { type HranaDatabase, HranaError, type HranaStream } from '../agentfs/hrana.ts';
import type { WireRequest, WireResult, WireStatement } from '../agentfs/hrana-wire.ts';

export class AuthorityStream {
  readonly #database: HranaDatabase;
  #stream: HranaStream | null = null;
  #foreignKeys: boolean | null = null;
  #autocommit = true;

  constructor(database: HranaDatabase) {
    this.#database = database;
  }

  /** False while a transaction is open at the authority. */
  get autocommit(): boolean {
    return this.#autocommit;
  }

  /** Kept for every stream of this connection. Must not be called inside a transaction. @throws HranaError */
  async setForeignKeys(on: boolean): Promise<void> {
    this.#foreignKeys = on;
    if (this.#stream) await this.exchange([{ type: 'execute', stmt: foreignKeys(on) }]);
  }

  /** One round trip. Answers the results of `requests`; notes whether a transaction is open. @throws HranaError */
  async exchange(requests: readonly WireRequest[]): Promise<readonly WireResult[]> {
    try {
      return await this.#pipeline(requests);
    } catch (error) {
      // The authority forgets idle streams. Without a transaction nothing is lost: the request was not carried out.
      if (!(error instanceof HranaError && error.kind === 'stream-expired' && this.#autocommit)) throw error;
      this.#stream = null;
      return await this.#pipeline(requests);
    }
  }

  /** Gives up a stream that has failed, and with it what was not committed. */
  drop(): void {
    // Not waited for: it may take as long as the request that failed.
    void this.#stream?.close();
    this.#stream = null;
    this.#autocommit = true;
  }

  /** Rolls back what is open. Never rejects. */
  async close(): Promise<void> {
    const stream = this.#stream;
    this.#stream = null;
    await stream?.close();
  }

  async #pipeline(requests: readonly WireRequest[]): Promise<readonly WireResult[]> {
    const fresh = this.#stream === null;
    this.#stream ??= this.#database.stream();
    const first: WireRequest[] =
      fresh && this.#foreignKeys !== null ? [{ type: 'execute', stmt: foreignKeys(this.#foreignKeys) }] : [];
    const results = await this.#stream.pipeline([...first, ...requests, { type: 'get_autocommit' }]);
    const state = results.at(-1);
    if (state?.type !== 'ok' || state.response.type !== 'get_autocommit')
      throw new HranaError('protocol', 'PROTOCOL', 'no state of the transaction');
    this.#autocommit = state.response.is_autocommit;
    return results.slice(first.length, -1);
  }
}

const foreignKeys = (on: boolean): WireStatement => ({ sql: `PRAGMA foreign_keys=${on ? 'ON' : 'OFF'}` });
