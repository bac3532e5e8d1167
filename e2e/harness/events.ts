/** One client of the event WebSocket. */
import * as v from 'valibot';
import { Arrivals } from './waiting.ts';

export const frameSchema = v.looseObject({
  type: v.string(),
  seq: v.optional(v.number()),
  conversation: v.optional(v.string()),
});
export type Frame = v.InferOutput<typeof frameSchema>;

export class EventClient {
  readonly frames = new Arrivals<Frame>();
  readonly #socket: WebSocket;
  readonly closed: Promise<{ code: number; reason: string }>;
  #listener: ((frame: Frame) => void) | null = null;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    const { promise, resolve } = Promise.withResolvers<{ code: number; reason: string }>();
    this.closed = promise;
    socket.addEventListener('message', ({ data }) => {
      const frame = v.parse(frameSchema, JSON.parse(String(data)));
      this.frames.add(frame);
      this.#listener?.(frame);
    });
    socket.addEventListener('close', ({ code, reason }) => {
      this.frames.end(new Error(`the event socket was closed: ${code} ${reason}`));
      resolve({ code, reason });
    });
  }

  /** @param query for example `?after=12` */
  static async open(url: string, token: string | null, query = ''): Promise<EventClient> {
    const headers: Record<string, string> = token === null ? {} : { authorization: `Bearer ${token}` };
    const socket = new WebSocket(`${url.replace(/^http/, 'ws')}/v1/events${query}`, { headers });
    const client = new EventClient(socket);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    socket.addEventListener('open', () => resolve());
    socket.addEventListener('error', () => reject(new Error('the event socket did not open')));
    // A server that dies in between says no error.
    socket.addEventListener('close', () => reject(new Error('the event socket was closed before it opened')));
    await promise;
    return client;
  }

  /** Calls back for every frame from the first on. */
  onFrame(listener: (frame: Frame) => void): void {
    for (const frame of this.frames.all) listener(frame);
    this.#listener = listener;
  }

  send(frame: unknown): void {
    this.#socket.send(JSON.stringify(frame));
  }

  /** The first frame of this type, past or future, for which `also` holds. */
  frame(type: string, also: (frame: Frame) => boolean = () => true, timeoutMs = 60_000): Promise<Frame> {
    return this.frames.wait(`a ${type} frame`, (frame) => frame.type === type && also(frame), timeoutMs);
  }

  async close(): Promise<void> {
    this.#socket.close();
    await this.closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
