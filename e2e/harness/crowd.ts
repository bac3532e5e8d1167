/** Many clients of the event WebSocket at once, as light as they can be: they note what arrives and when. */
import * as v from 'valibot';
import type { Api } from './http.ts';

/** Event streams that one token may have open; see `connectionsPerToken` of the gateway's limits. */
const perToken = 32;
const tokenSchema = v.looseObject({ token: v.string() });

export interface Arrived {
  readonly type: string;
  readonly seq: number;
  /** Milliseconds since the epoch when the event was committed, by the gateway's clock. */
  readonly at: number;
  /** The same when this client had it. */
  readonly receivedAt: number;
}

export class Crowd {
  /** The logged events of each client, in the order in which they came. */
  readonly got: readonly Arrived[][];
  readonly #sockets: WebSocket[] = [];
  readonly #enough = new Set<{ readonly count: number; readonly type: string; resolve(): void }>();

  private constructor(size: number) {
    this.got = Array.from({ length: size }, () => []);
  }

  /** `size` clients that have subscribed to the conversation. @param api of a superadmin, who makes their tokens */
  static async gather(api: Api, conversation: string, size: number): Promise<Crowd> {
    const crowd = new Crowd(size);
    const tokens: string[] = [];
    for (let made = 0; made < size; made += perToken) {
      const answer = await api.post('/v1/tokens', { role: 'superadmin', name: `crowd ${made}` });
      tokens.push(v.parse(tokenSchema, answer.json()).token);
    }
    // Not all in one moment: a kernel's queue of connections is shorter than that.
    for (let from = 0; from < size; from += 50) {
      const some = Array.from({ length: Math.min(50, size - from) }, (_, index) => from + index);
      await Promise.all(
        some.map((index) => crowd.#join(api.url, tokens[Math.floor(index / perToken)]!, conversation, index)),
      );
    }
    return crowd;
  }

  /** Resolves when every client has `count` events of that type. */
  all(type: string, count: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const waiter = { count, type, resolve };
    this.#enough.add(waiter);
    this.#check();
    return promise;
  }

  leave(): void {
    for (const socket of this.#sockets) socket.close();
  }

  #join(url: string, token: string, conversation: string, index: number): Promise<void> {
    const headers = { authorization: `Bearer ${token}` };
    const socket = new WebSocket(`${url.replace(/^http/, 'ws')}/v1/events`, { headers });
    this.#sockets.push(socket);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    socket.onopen = () => socket.send(JSON.stringify({ type: 'subscribe', conversation }));
    socket.onerror = () => reject(new Error(`client ${index} could not connect`));
    socket.onmessage = ({ data }) => {
      const receivedAt = performance.timeOrigin + performance.now();
      const frame = JSON.parse(String(data)) as { type: string; seq?: number; at: string };
      if (frame.type === 'subscribed') resolve();
      if (frame.seq === undefined) return;
      this.got[index]?.push({ type: frame.type, seq: frame.seq, at: Date.parse(frame.at), receivedAt });
      this.#check();
    };
    return promise;
  }

  #check(): void {
    for (const waiter of this.#enough) {
      const has = (events: readonly Arrived[]) =>
        events.filter(({ type }) => type === waiter.type).length >= waiter.count;
      if (!this.got.every(has)) continue;
      this.#enough.delete(waiter);
      waiter.resolve();
    }
  }
}
