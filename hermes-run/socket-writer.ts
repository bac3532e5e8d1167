/** Promised writes on a Bun socket: the promise settles when the kernel has taken every byte. */
import type { Socket } from 'bun';

/** The peer is gone, or did not take a byte within the allowed time. */
class SocketGone extends Error {
  readonly reason: string;

  constructor(reason: string) {
    super(`the socket is gone: ${reason}`);
    this.name = 'SocketGone';
    this.reason = reason;
  }
}

interface Waiting {
  bytes: Uint8Array;
  readonly resolve: () => void;
  readonly reject: (error: SocketGone) => void;
}

/**
 * One writer at a time owns a socket's outgoing side. The owner forwards the socket's `drain` and `close` events to
 * {@link drained} and {@link gone}.
 */
export class SocketWriter {
  readonly #socket: Socket<unknown>;
  readonly #stallMs: number;
  #waiting: Waiting | null = null;
  #stall: Timer | null = null;
  #gone: SocketGone | null = null;

  /** `stallMs`: how long a peer may take no byte at all before it counts as gone. */
  constructor(socket: Socket<unknown>, stallMs: number) {
    this.#socket = socket;
    this.#stallMs = stallMs;
  }

  /** Writes all of `bytes`. At most one write may be under way. Rejects with {@link SocketGone}. */
  write(bytes: Uint8Array): Promise<void> {
    if (this.#gone) return Promise.reject(this.#gone);
    if (this.#waiting) throw new Error('a write is under way already');
    const written = this.#socket.write(bytes);
    if (written < 0) return Promise.reject(this.gone('closed'));
    if (written === bytes.length) return Promise.resolve();
    return new Promise((resolve, reject) => {
      this.#waiting = { bytes: bytes.subarray(written), resolve, reject };
      this.#armStall();
    });
  }

  drained(): void {
    const waiting = this.#waiting;
    if (!waiting) return;
    const written = this.#socket.write(waiting.bytes);
    if (written < 0) {
      this.gone('closed');
      return;
    }
    waiting.bytes = waiting.bytes.subarray(written);
    if (waiting.bytes.length > 0) {
      if (written > 0) this.#armStall();
      return;
    }
    this.#disarmStall();
    this.#waiting = null;
    waiting.resolve();
  }

  /** Settles the write under way and every later one with the reason; the first reason given stays. */
  gone(reason: string): SocketGone {
    this.#disarmStall();
    this.#gone ??= new SocketGone(reason);
    const waiting = this.#waiting;
    this.#waiting = null;
    waiting?.reject(this.#gone);
    return this.#gone;
  }

  #armStall(): void {
    this.#disarmStall();
    this.#stall = setTimeout(() => {
      this.gone(`no byte taken in ${this.#stallMs} ms`);
      this.#socket.terminate();
    }, this.#stallMs);
  }

  #disarmStall(): void {
    if (this.#stall) clearTimeout(this.#stall);
    this.#stall = null;
  }
}
