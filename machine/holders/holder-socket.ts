/**
 * The unix socket where the holders' FUSE streams and control lines arrive. A connection starts with 64 hex digits and
 * `F` or `C`; anything else is cut.
 */
import type { Socket, UnixSocketListener } from 'bun';
import { SocketWriter } from '../../hermes-run/socket-writer.ts';

/** One accepted connection after its hello: bytes in order, writes that wait, one close. */
export interface HolderStream {
  /**
   * Resolves when the kernel has taken the bytes, which may be several messages; calls are queued in order. Rejects when the
   * holder is gone.
   */
  write(bytes: Uint8Array): Promise<void>;
  /** Bytes that came; set once, right when the stream is handed over. */
  onData(listener: (bytes: Uint8Array) => void): void;
  onClose(listener: () => void): void;
  /** Stops and resumes reading. */
  pause(): void;
  resume(): void;
  close(): void;
}

/** What a holder that is being started waits for. */
export interface ExpectedHolder {
  readonly token: string;
  onFuse(stream: HolderStream): void;
  onControl(stream: HolderStream): void;
}

export interface HolderSocket {
  readonly path: string;
  /** Lets one holder in by its token; returns the call that ends that. */
  expect(holder: ExpectedHolder): () => void;
  stop(): void;
}

const helloBytes = 65;
const helloTimeoutMs = 5_000;
const stallMs = 30_000;

type Data = { connection: Connection };

export function listenForHolders(path: string): HolderSocket {
  const expected = new Map<string, ExpectedHolder>();
  const listener: UnixSocketListener<Data> = Bun.listen<Data>({
    unix: path,
    socket: {
      open: (socket) => {
        socket.data = { connection: new Connection(socket, expected) };
      },
      data: (socket, bytes) => socket.data.connection.received(bytes),
      drain: (socket) => socket.data.connection.writer.drained(),
      close: (socket) => socket.data.connection.closed(),
      error: (socket) => socket.data.connection.closed(),
    },
  });
  return {
    path,
    expect(holder) {
      expected.set(holder.token, holder);
      return () => expected.delete(holder.token);
    },
    stop: () => listener.stop(true),
  };
}

class Connection implements HolderStream {
  readonly writer: SocketWriter;
  readonly #socket: Socket<Data>;
  readonly #expected: ReadonlyMap<string, ExpectedHolder>;
  readonly #deadline: Timer;
  #hello = Buffer.alloc(0);
  #greeted = false;
  #closed = false;
  #tail: Promise<void> = Promise.resolve();
  #data: (bytes: Uint8Array) => void = () => undefined;
  #close: () => void = () => undefined;

  constructor(socket: Socket<Data>, expected: ReadonlyMap<string, ExpectedHolder>) {
    this.#socket = socket;
    this.#expected = expected;
    this.writer = new SocketWriter(socket, stallMs);
    this.#deadline = setTimeout(() => socket.terminate(), helloTimeoutMs);
  }

  received(bytes: Uint8Array): void {
    if (this.#greeted) {
      this.#data(bytes);
      return;
    }
    this.#hello = Buffer.concat([this.#hello, bytes]);
    if (this.#hello.length < helloBytes) return;
    clearTimeout(this.#deadline);
    this.#greeted = true;
    const holder = this.#expected.get(this.#hello.toString('latin1', 0, helloBytes - 1));
    const kind = this.#hello.toString('latin1', helloBytes - 1, helloBytes);
    const rest = this.#hello.subarray(helloBytes);
    this.#hello = Buffer.alloc(0);
    if (!holder || (kind !== 'F' && kind !== 'C')) {
      this.#socket.terminate();
      return;
    }
    if (kind === 'F') holder.onFuse(this);
    else holder.onControl(this);
    if (rest.length > 0) this.#data(rest);
  }

  closed(): void {
    if (this.#closed) return;
    this.#closed = true;
    clearTimeout(this.#deadline);
    this.writer.gone('closed by the holder');
    this.#close();
  }

  write(bytes: Uint8Array): Promise<void> {
    const written = this.#tail.then(() => this.writer.write(bytes));
    // The chain goes on after a failure; whoever wrote gets the failure.
    this.#tail = written.catch(() => undefined);
    return written;
  }

  onData(listener: (bytes: Uint8Array) => void): void {
    this.#data = listener;
  }

  onClose(listener: () => void): void {
    this.#close = listener;
    if (this.#closed) listener();
  }

  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  close(): void {
    this.#socket.terminate();
  }
}
