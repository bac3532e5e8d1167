/** A client that follows one conversation over the WebSocket, comes back after every end, and goes on from what it has. */
import { EventClient, type Frame } from '../harness/events.ts';
import { Arrivals } from '../harness/waiting.ts';

const terminal = new Set(['reply.delivered', 'turn.failed', 'turn.cancelled']);

export class Reader {
  readonly conversation: string;
  readonly frames = new Arrivals<Frame>();
  /** What no client should ever see. */
  readonly complaints: string[] = [];
  readonly #url: string;
  readonly #token: string;
  #last = 0;
  #socket: EventClient | null = null;
  #stopped = false;
  readonly #ended: Promise<void>;

  constructor(url: string, token: string, conversation: string) {
    this.#url = url;
    this.#token = token;
    this.conversation = conversation;
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

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#socket?.close();
    await this.#ended;
  }

  async #follow(): Promise<void> {
    while (!this.#stopped) {
      try {
        const socket = await EventClient.open(this.#url, this.#token);
        this.#socket = socket;
        socket.onFrame((frame) => this.#take(frame));
        socket.send({ type: 'subscribe', conversation: this.conversation, after: this.#last });
        await socket.closed;
      } catch {
        // Nobody there just now: the storm has struck. Again in a moment.
        await Bun.sleep(150);
      }
    }
  }

  #take(frame: Frame): void {
    if (frame.type === 'resync') this.complaints.push(`a gap: ${JSON.stringify(frame)}`);
    if (frame.seq === undefined) return;
    if (frame.seq <= this.#last) this.complaints.push(`seq ${frame.seq} after ${this.#last}`);
    this.#last = Math.max(this.#last, frame.seq);
    this.frames.add(frame);
  }
}
