/**
 * A client that follows one conversation, comes back after every end, and goes on from what it has. Now and then it hangs up
 * by itself.
 */
import type { Frame } from '../harness/events.ts';
import { Arrivals } from '../harness/waiting.ts';

const terminal = new Set(['reply.delivered', 'turn.failed', 'turn.cancelled']);

/** One connection that brings frames. */
export interface Line {
  readonly closed: Promise<unknown>;
  close(): void;
}

/** Opens a connection that brings what came after `after`. */
export type Connect = (conversation: string, after: number, onFrame: (frame: Frame) => void) => Promise<Line>;

export interface ReaderOptions {
  readonly conversation: string;
  readonly connect: Connect;
  /** How many frames each connection takes before the reader hangs up. */
  readonly hangUps: Iterator<number>;
  /** Sees every frame, those without a number too. */
  readonly onFrame: (frame: Frame) => void;
}

export class Reader {
  readonly conversation: string;
  /** The numbered ones. */
  readonly frames = new Arrivals<Frame>();
  /** What no client should ever see. */
  readonly complaints: string[] = [];
  connections = 0;
  readonly #options: ReaderOptions;
  #last = 0;
  #line: Line | null = null;
  #stopped = false;
  readonly #ended: Promise<void>;

  constructor(options: ReaderOptions) {
    this.#options = options;
    this.conversation = options.conversation;
    this.#ended = this.#follow();
  }

  /** How a message ended, from the stream alone. */
  end(message: string, timeoutMs: number): Promise<Frame> {
    const wants = (frame: Frame) => terminal.has(frame.type) && frame.message === message;
    return this.frames.wait(`the end of ${message}`, wants, timeoutMs);
  }

  endsOf(message: string): readonly Frame[] {
    return this.frames.all.filter((frame) => terminal.has(frame.type) && frame.message === message);
  }

  /** Resolves when the event of that number has come. @throws Error after `timeoutMs` */
  async reach(seq: number, timeoutMs: number): Promise<void> {
    if (this.#last < seq) await this.frames.wait(`event ${seq}`, (frame) => Number(frame.seq) >= seq, timeoutMs);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#line?.close();
    await this.#ended;
  }

  async #follow(): Promise<void> {
    const { connect, conversation, hangUps } = this.#options;
    while (!this.#stopped) {
      let left = Number(hangUps.next().value);
      let mine: Line | null = null;
      try {
        const line = await connect(conversation, this.#last, (frame) => {
          // What comes behind a hang-up was not read.
          if (left <= 0) return;
          left -= 1;
          this.#take(frame);
          if (left === 0) mine?.close();
        });
        mine = line;
        this.#line = line;
        this.connections += 1;
        if (this.#stopped || left <= 0) line.close();
        await line.closed;
      } catch {
        // Nobody there just now: the storm has struck. Again in a moment.
        await Bun.sleep(150);
      }
    }
  }

  #take(frame: Frame): void {
    if (frame.type === 'resync') this.complaints.push(`a gap: ${JSON.stringify(frame)}`);
    this.#options.onFrame(frame);
    if (frame.seq === undefined) return;
    if (frame.seq <= this.#last) this.complaints.push(`seq ${frame.seq} after ${this.#last}`);
    this.#last = Math.max(this.#last, frame.seq);
    this.frames.add(frame);
  }
}
