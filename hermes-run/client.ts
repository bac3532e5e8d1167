/** The gateway's end of hermes-run: attaches to one conversation's child and gives its raw byte streams. */
import type { Socket } from 'bun';
import * as v from 'valibot';
import { encodeFrame, FrameCollector } from './frame.ts';
import { type Answer, answerSchema, type Refusal } from './protocol.ts';
import { SocketWriter } from './socket-writer.ts';

/** The machine said no. */
export class AttachRefused extends Error {
  readonly refusal: Refusal;

  constructor(refusal: Refusal, detail: string) {
    super(detail);
    this.name = 'AttachRefused';
    this.refusal = refusal;
  }
}

/** The machine could not be reached, or went away before it answered. */
export class AttachFailed extends Error {
  constructor(reason: string) {
    super(reason);
    this.name = 'AttachFailed';
  }
}

export interface Attachment {
  readonly admission: 'warm' | 'cold';
  /** Time the machine took to make a cold child ready, in milliseconds. */
  readonly admissionMs: number;
  readonly generation: number;
  readonly readable: ReadableStream<Uint8Array>;
  readonly writable: WritableStream<Uint8Array>;
  /**
   * Orderly end: half-closes, reads what the machine still has for us, and resolves with the bytes after the last line
   * end, which belong in front of the next attachment of the same generation.
   */
  detach(): Promise<Uint8Array>;
  /** Disorderly end: the machine replaces the child. */
  abandon(): void;
  /** Resolves when the machine closed the stream: the child or the machine is gone, or the detach is complete. */
  readonly closed: Promise<void>;
}

export interface AttachOptions {
  readonly socketPath: string;
  readonly token: string;
  readonly conversation: string;
  /** The conversation's native session, null before it has one. */
  readonly session: string | null;
  /** A warm child is replaced first. */
  readonly fresh?: boolean;
  readonly signal: AbortSignal;
  /** What an earlier {@link Attachment.detach} left over; ignored when the child is another one now. */
  readonly carried?: { readonly generation: number; readonly bytes: Uint8Array } | undefined;
}

/** Bytes of child output that may wait for the reader before the socket is paused. */
const highWaterBytes = 256 * 1024;
const writeStallMs = 60_000;

/**
 * Attaches. Rejects with {@link AttachRefused}, {@link AttachFailed}, or the signal's reason. The caller bounds the wait
 * with `signal`.
 */
export async function attach(options: AttachOptions): Promise<Attachment> {
  options.signal.throwIfAborted();
  const peer = new PeerStream(options.carried);
  let socket: Socket<undefined>;
  try {
    socket = await Bun.connect<undefined>({
      unix: options.socketPath,
      allowHalfOpen: true,
      socket: {
        data: (_, bytes) => peer.received(bytes),
        drain: () => peer.writer?.drained(),
        end: () => peer.ended(),
        close: () => peer.ended(),
        error: () => peer.ended(),
      },
    });
  } catch (error) {
    throw new AttachFailed(`cannot reach the machine: ${(error as Error).message}`);
  }
  peer.opened(socket);
  const aborted = () => peer.terminate();
  options.signal.addEventListener('abort', aborted, { once: true });
  try {
    const { token, conversation, session, fresh = false } = options;
    await peer.write(encodeFrame({ version: 1, token, conversation, session, ...(fresh ? { fresh } : {}) }));
    const answer = await peer.answer.promise;
    if (answer.status === 'refused') throw new AttachRefused(answer.refusal, answer.detail);
    return peer.attachment(answer);
  } catch (error) {
    peer.terminate();
    options.signal.throwIfAborted();
    throw error instanceof AttachRefused ? error : new AttachFailed((error as Error).message);
  } finally {
    options.signal.removeEventListener('abort', aborted);
  }
}

class PeerStream {
  writer: SocketWriter | null = null;
  readonly answer = Promise.withResolvers<Answer>();
  readonly #closed = Promise.withResolvers<void>();
  #socket: Socket<undefined> | null = null;
  #frames: FrameCollector | null = new FrameCollector();
  #output: ReadableStreamDefaultController<Uint8Array> | null = null;
  #readable: ReadableStream<Uint8Array>;
  readonly #carried: AttachOptions['carried'];
  #ended = false;
  #detaching = false;
  /** The bytes since the last line end. */
  #tail: Uint8Array[] = [];

  constructor(carried: AttachOptions['carried']) {
    this.#carried = carried;
    this.#readable = new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          this.#output = controller;
        },
        pull: () => {
          this.#socket?.resume();
        },
        // The reader stopped before the detach: nobody is there for what still comes.
        cancel: () => {
          this.#output = null;
        },
      },
      { highWaterMark: highWaterBytes, size: (chunk) => chunk?.length ?? 0 },
    );
    // Nobody may be waiting yet when the machine goes away.
    this.answer.promise.catch(() => undefined);
  }

  opened(socket: Socket<undefined>): void {
    this.#socket = socket;
    this.writer = new SocketWriter(socket, writeStallMs);
  }

  write(bytes: Uint8Array): Promise<void> {
    if (!this.writer) throw new Error('not open');
    return this.writer.write(bytes);
  }

  received(bytes: Uint8Array): void {
    if (!this.#frames) {
      this.#deliver(bytes.slice());
      return;
    }
    const progress = this.#frames.push(bytes);
    if (progress.status === 'incomplete') return;
    this.#frames = null;
    if (progress.status === 'broken') {
      this.answer.reject(new Error('the machine answered with no frame'));
      return;
    }
    const answer = v.safeParse(answerSchema, progress.value);
    if (!answer.success) {
      this.answer.reject(new Error('the machine gave no known answer'));
      return;
    }
    const generation = answer.output.status === 'attached' ? answer.output.generation : null;
    if (this.#carried && this.#carried.generation === generation) this.#deliver(this.#carried.bytes);
    this.answer.resolve(answer.output);
    if (progress.rest.length > 0) this.#deliver(progress.rest);
  }

  ended(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.writer?.gone('closed by the machine');
    this.answer.reject(new Error('the machine closed the connection'));
    this.#output?.close();
    this.#output = null;
    this.#socket?.end();
    this.#closed.resolve();
  }

  terminate(): void {
    this.#socket?.terminate();
    this.ended();
  }

  attachment(answer: Answer & { status: 'attached' }): Attachment {
    const writable = new WritableStream<Uint8Array>({ write: (bytes) => this.write(bytes) });
    return {
      admission: answer.admission,
      admissionMs: answer.admissionMs,
      generation: answer.generation,
      readable: this.#readable,
      writable,
      detach: () => this.#detach(),
      abandon: () => this.terminate(),
      closed: this.#closed.promise,
    };
  }

  #deliver(bytes: Uint8Array): void {
    this.#remember(bytes);
    if (!this.#output) return;
    this.#output.enqueue(bytes);
    if (!this.#detaching && (this.#output.desiredSize ?? 0) <= 0) this.#socket?.pause();
  }

  #remember(bytes: Uint8Array): void {
    const lineEnd = bytes.lastIndexOf(0x0a);
    if (lineEnd >= 0) this.#tail = [bytes.subarray(lineEnd + 1)];
    else this.#tail.push(bytes);
  }

  async #detach(): Promise<Uint8Array> {
    if (!this.#ended) {
      this.#detaching = true;
      this.#socket?.shutdown();
      this.#socket?.resume();
      await this.#closed.promise;
    }
    return new Uint8Array(Buffer.concat(this.#tail));
  }
}
