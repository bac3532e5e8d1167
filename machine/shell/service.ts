/**
 * Where a holder's `git` finds the machine: one listening socket a holder, which knows by itself whose calls come. Whoever is
 * in the holder may connect and send anything; see `protocol.ts` for what is understood.
 */
import { chmodSync, rmSync } from 'node:fs';
import type { Socket, UnixSocketListener } from 'bun';
import { SocketWriter } from '../../hermes-run/socket-writer.ts';
import type { Ledger } from '../agentfs/ledger.ts';
import { ledgerRow } from './ledger-row.ts';
import { type CallContext, type GitEngine, type KernelSide, RunningCall } from './running-call.ts';

export interface GitServiceOptions {
  /** Path of the socket, in a directory that only the machine may enter. */
  readonly path: string;
  readonly conversation: string;
  readonly engine: GitEngine;
  readonly kernel: KernelSide;
  readonly ledger: Pick<Ledger, 'record'>;
  /** One line; no secret. */
  log(line: string): void;
  /** Replaced in tests alone. */
  readonly limits?: Partial<ServiceLimits>;
}

export interface ServiceLimits {
  /** Calls that run at once in one holder; more are refused. */
  readonly calls: number;
  /** Connections, with those that say nothing and those whose native git runs. */
  readonly connections: number;
  /** How long a client may take to say its call, and to close when it has its answer. */
  readonly helloMs: number;
  /** Standard input that all calls of one holder may keep. */
  readonly inputBytes: number;
  /** How long a call may take, and how long its reader may take nothing. */
  readonly wallMs: number;
  /** Lines in the log about clients that make no sense. */
  readonly complaints: number;
}

const defaultLimits: ServiceLimits = {
  calls: 16,
  connections: 128,
  helloMs: 5_000,
  inputBytes: 64 * 1024 ** 2,
  wallMs: 600_000,
  complaints: 20,
};

/** How long calls may take to end with their holder. */
const closeMs = 5_000;

type Data = { connection: Connection | null };

export class GitService {
  readonly path: string;
  readonly #limits: ServiceLimits;
  readonly #context: CallContext;
  readonly #listener: UnixSocketListener<Data>;
  readonly #connections = new Set<Connection>();
  #running = 0;
  #inputBytes = 0;
  #complaints = 0;

  /** Listens at once. Throws where that cannot be. */
  constructor(options: GitServiceOptions) {
    this.path = options.path;
    this.#limits = { ...defaultLimits, ...options.limits };
    this.#context = {
      engine: options.engine,
      kernel: options.kernel,
      take: () => this.#take(),
      record: (call) => void options.ledger.record(ledgerRow(options.conversation, call)),
      log: (line) => {
        // A model can cause as many as it likes.
        this.#complaints += 1;
        if (this.#complaints <= this.#limits.complaints) options.log(`holder ${options.conversation}: ${line}`);
      },
      input: {
        limit: this.#limits.inputBytes,
        take: (bytes) => {
          if (this.#inputBytes + bytes > this.#limits.inputBytes) return false;
          this.#inputBytes += bytes;
          return true;
        },
        giveBack: (bytes) => {
          this.#inputBytes -= bytes;
        },
      },
      wallMs: this.#limits.wallMs,
    };
    // Left by a machine that was killed.
    rmSync(this.path, { force: true });
    this.#listener = Bun.listen<Data>({
      unix: this.path,
      socket: {
        open: (socket) => this.#open(socket),
        data: (socket, bytes) => socket.data.connection?.call.received(bytes),
        drain: (socket) => socket.data.connection?.writer.drained(),
        end: (socket) => socket.data.connection?.hasClosed(),
        close: (socket) => socket.data.connection?.hasClosed(),
        error: (socket) => socket.data.connection?.hasClosed(),
      },
    });
    // The holder's user is nobody here: the directory keeps everybody else away.
    chmodSync(this.path, 0o666);
  }

  /** Ends every call and listens no more. Resolves when nothing runs, or when waiting for it makes no sense. */
  async close(): Promise<void> {
    this.#listener.stop(true);
    rmSync(this.path, { force: true });
    const open = [...this.#connections];
    for (const { call } of open) call.stop();
    const late = Promise.withResolvers<void>();
    const timer = setTimeout(late.resolve, closeMs);
    await Promise.race([Promise.all(open.map(({ call }) => call.over)), late.promise]);
    clearTimeout(timer);
  }

  #open(socket: Socket<Data>): void {
    socket.data = { connection: null };
    if (this.#connections.size >= this.#limits.connections) {
      socket.terminate();
      return;
    }
    const connection = new Connection(socket, this.#context, this.#limits);
    socket.data.connection = connection;
    this.#connections.add(connection);
    Promise.all([connection.call.over, connection.closed]).then(() => this.#connections.delete(connection));
  }

  #take(): (() => void) | null {
    if (this.#running >= this.#limits.calls) return null;
    this.#running += 1;
    let isTaken = true;
    return () => {
      if (isTaken) this.#running -= 1;
      isTaken = false;
    };
  }
}

class Connection {
  readonly writer: SocketWriter;
  readonly call: RunningCall;
  readonly closed: Promise<void>;
  readonly #closed = Promise.withResolvers<void>();
  #deadline: Timer;

  constructor(socket: Socket<Data>, context: CallContext, limits: ServiceLimits) {
    this.writer = new SocketWriter(socket, limits.wallMs);
    this.closed = this.#closed.promise;
    this.call = new RunningCall(context, {
      write: (bytes) => this.writer.write(bytes),
      end: () => socket.end(),
      cut: () => socket.terminate(),
    });
    this.#deadline = setTimeout(() => {
      if (this.call.isListening) this.call.stop();
    }, limits.helloMs);
    this.call.over.then(() => {
      clearTimeout(this.#deadline);
      this.#deadline = setTimeout(() => socket.terminate(), limits.helloMs);
    });
  }

  hasClosed(): void {
    clearTimeout(this.#deadline);
    this.writer.gone('closed by the client');
    this.call.gone();
    this.call.over.then(() => clearTimeout(this.#deadline));
    this.#closed.resolve();
  }
}
