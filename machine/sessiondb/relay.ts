/**
 * SessionDB for one holder (architecture, "SessionDB"): the machine's end of descriptor 3. The child sends SQL; the relay
 * sends it to the organization's SessionDB authority with a token that the child never sees, one Hrana stream for each of
 * the child's connections. When the child ends, its streams are closed and what it had not committed is rolled back.
 */
import { HranaDatabase } from '../agentfs/hrana.ts';
import type { AuthorityAddress } from '../launch.ts';
import type { SqlChannel } from './channel.ts';
import { type ChildState, RelayConnection } from './connection.ts';
import { relayError } from './errors.ts';
import { BrokenFrame, type ExecutionEvent, encodeAnswer, type Frame, FrameReader } from './frames.ts';
import { Lineage, type LineageOptions } from './lineage.ts';
import { MessageIds } from './message-ids.ts';
import { SessionRows } from './session-rows.ts';

/**
 * Connections, requests that wait or run or whose answer the child has not taken yet, milliseconds for one answer of the
 * authority, bytes of one answer.
 */
export const relayLimits = {
  connections: 16,
  pendingRequests: 64,
  answerTimeout: 30_000,
  timeoutInTrouble: 3_000,
  answerBytes: 32 * 1024 * 1024,
} as const;

/** `closed`: the child ended or closed its end. `broken`: it sent what is not a frame, and was cut off. */
export type ChannelEnd = { readonly end: 'closed' } | { readonly end: 'broken'; readonly reason: string };

const nothing = (): void => undefined;

type Served = { readonly connection: RelayConnection; tail: Promise<void> };

export interface RelayOptions extends LineageOptions {
  /** Receives what the child tells of the programs that it starts. */
  readonly onExecutions: (events: readonly ExecutionEvent[]) => void;
  /** The authority has ceased to answer, or answers again; before the child gets to know. */
  readonly onAnswers: (answers: boolean) => void;
  /** Shared by the relays of one authority. */
  readonly messageIds: MessageIds;
}

export class SessionRelay {
  readonly #database: HranaDatabase;
  readonly #onExecutions: RelayOptions['onExecutions'];
  readonly #child: ChildState;
  readonly #connections = new Map<number, Served>();
  #pending = 0;
  /** Refusals for too many of something that the child has not taken yet. */
  #refusals = 0;
  #writes: Promise<void> = Promise.resolve();

  constructor(address: AuthorityAddress, options: Partial<RelayOptions> = {}) {
    this.#database = new HranaDatabase(address, {
      timeout: relayLimits.answerTimeout,
      timeoutInTrouble: relayLimits.timeoutInTrouble,
      maxAnswerBytes: relayLimits.answerBytes,
      onAnswers: options.onAnswers ?? nothing,
    });
    this.#child = {
      lineage: new Lineage({ sessions: [], onRefusal: nothing, ...options }),
      rows: new SessionRows(),
      ids: options.messageIds ?? new MessageIds(),
    };
    this.#onExecutions = options.onExecutions ?? nothing;
  }

  /**
   * Serves one child from now on. Resolves when the channel has ended and every stream of the child is closed. Never
   * rejects. Call it once.
   */
  async serve(channel: SqlChannel): Promise<ChannelEnd> {
    const end = Promise.withResolvers<ChannelEnd>();
    const reader = new FrameReader();
    channel.onClose(() => end.resolve({ end: 'closed' }));
    channel.onData((bytes) => {
      try {
        for (const frame of reader.push(bytes)) this.#receive(frame, channel);
        if (this.#refusals > relayLimits.pendingRequests)
          throw new BrokenFrame('it goes on asking and takes no answer');
      } catch (error) {
        channel.close();
        end.resolve({ end: 'broken', reason: error instanceof BrokenFrame ? error.message : 'a failure of the relay' });
      }
    });
    const how = await end.promise;
    await Promise.all([...this.#connections.keys()].map((id) => this.#end(id)));
    return how;
  }

  #receive({ id, request }: Frame, channel: SqlChannel): void {
    if ('x' in request) {
      for (const connection of request.x) void this.#end(connection);
      return;
    }
    if ('p' in request) {
      this.#onExecutions(request.p);
      return;
    }
    const served = this.#connections.get(request.c) ?? this.#open(request.c);
    const problem = served ? (this.#pending >= relayLimits.pendingRequests ? 'requests' : null) : 'connections';
    if (!served || problem) {
      const a = served && !served.connection.autocommit ? 0 : 1;
      this.#refusals++;
      this.#write(channel, encodeAnswer(id, { a, r: [], e: relayError(`too many ${problem} at once`) }), () => {
        this.#refusals--;
      });
      return;
    }
    this.#pending++;
    // In order for each connection; a connection that waits for a lock holds up no other.
    served.tail = served.tail.then(async () => {
      const { connection } = served;
      const answer = await ('q' in request ? connection.run(request.q) : connection.script(request.s));
      this.#write(channel, encodeAnswer(id, answer), () => {
        this.#pending--;
      });
    });
  }

  #open(id: number): Served | null {
    if (this.#connections.size >= relayLimits.connections) return null;
    const served: Served = { connection: new RelayConnection(this.#database, this.#child), tail: Promise.resolve() };
    this.#connections.set(id, served);
    return served;
  }

  async #end(id: number): Promise<void> {
    const served = this.#connections.get(id);
    if (!served) return;
    this.#connections.delete(id);
    await served.tail;
    await served.connection.close();
  }

  /** `taken` is called when the child has the bytes, or is gone. */
  #write(channel: SqlChannel, bytes: Uint8Array, taken: () => void): void {
    const written = this.#writes.then(() => channel.write(bytes));
    // A write fails when the child is gone; the end of the channel tells that.
    this.#writes = written.catch(() => undefined).then(taken);
  }
}
