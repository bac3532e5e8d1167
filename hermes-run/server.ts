/**
 * The hermes-run server: authenticates a peer, attaches it to one child and relays raw bytes both ways (ADR-046 §1, §7).
 * It knows tokens and frames and not one word of what flows through it.
 */
import { timingSafeEqual } from 'node:crypto';
import type { Socket, UnixSocketListener } from 'bun';
import * as v from 'valibot';
import { encodeFrame, FrameCollector } from './frame.ts';
import { type Answer, type Preface, prefaceSchema, prefaceTimeoutMs, type Refusal } from './protocol.ts';
import { SocketWriter } from './socket-writer.ts';

/** The raw ends of one child. */
export interface RelayedChild {
  readonly generation: number;
  /** Resolves when the child's standard input has taken the bytes; rejects when it is gone. */
  write(bytes: Uint8Array): Promise<void>;
  /**
   * The next bytes of the child's standard output, null at its end. The same promise until {@link take} is called, so
   * that what arrives while nobody is attached waits for the next peer.
   */
  peek(): Promise<Uint8Array | null>;
  take(): void;
}

export type Admission =
  | {
      readonly outcome: 'admitted';
      readonly child: RelayedChild;
      readonly admission: 'warm' | 'cold';
      readonly admissionMs: number;
    }
  | { readonly outcome: 'refused'; readonly refusal: Refusal; readonly detail: string };

/** Who may attach to what: the holders of the machine. */
export interface Admissions {
  /**
   * Gives a conversation's child to the caller alone, until {@link release}; waits a while for who still has it. `fresh`: not
   * one that is warm now.
   */
  admit(conversation: string, session: string | null, fresh: boolean): Promise<Admission>;
  /**
   * Gives the child back. `detached`: it stays warm. `abandoned`: the peer went away without the orderly end, so the
   * child is in the middle of something and has to be replaced.
   */
  release(child: RelayedChild, how: 'detached' | 'abandoned'): void;
}

export interface RelayServerOptions {
  readonly socketPath: string;
  /** 64 hex digits that a peer must show. */
  readonly token: string;
  readonly admissions: Admissions;
  /** Peers connected at once, attached or not; one more is closed at once. */
  readonly maxPeers: number;
  /** A peer that takes no byte for so long is cut. */
  readonly stallMs?: number;
  readonly prefaceMs?: number;
  /** Called once for each refused or cut peer, with a reason that holds no secret. */
  readonly onTrouble: (reason: string) => void;
}

export interface RelayServer {
  /** Stops accepting and cuts every peer. */
  stop(): void;
}

type PeerData = { peer: Peer | null };

/** Listens on a unix socket. Throws when the path cannot be bound. */
export function serveHermesRun(options: RelayServerOptions): RelayServer {
  const peers = new Set<Peer>();
  const listener: UnixSocketListener<PeerData> = Bun.listen<PeerData>({
    unix: options.socketPath,
    allowHalfOpen: true,
    socket: {
      open(socket) {
        if (peers.size >= options.maxPeers) {
          options.onTrouble(`more than ${options.maxPeers} peers`);
          socket.data = { peer: null };
          socket.terminate();
          return;
        }
        const peer = new Peer(socket, options, () => peers.delete(peer));
        socket.data = { peer };
        peers.add(peer);
      },
      data: (socket, bytes) => socket.data.peer?.received(bytes),
      drain: (socket) => socket.data.peer?.writer.drained(),
      end: (socket) => socket.data.peer?.halfClosed(),
      close: (socket) => socket.data?.peer?.closed('closed by the peer'),
      error: (socket, error) => socket.data.peer?.closed(error.message),
    },
  });
  return {
    stop() {
      listener.stop(true);
      for (const peer of peers) peer.closed('the server stops');
    },
  };
}

type PeerState =
  | { readonly at: 'preface'; readonly frames: FrameCollector; readonly deadline: Timer }
  | { readonly at: 'admitting' }
  | { readonly at: 'relaying'; readonly child: RelayedChild; readonly detach: PromiseWithResolvers<'detach'> }
  | { readonly at: 'ended' };

class Peer {
  readonly writer: SocketWriter;
  readonly #socket: Socket<PeerData>;
  readonly #options: RelayServerOptions;
  readonly #forget: () => void;
  #state: PeerState;
  /** Bytes that came before the child was there; the socket is paused meanwhile, so this is one chunk at most. */
  #early: Uint8Array[] = [];
  #toChild: Promise<void> = Promise.resolve();

  constructor(socket: Socket<PeerData>, options: RelayServerOptions, forget: () => void) {
    this.#socket = socket;
    this.#options = options;
    this.#forget = forget;
    this.writer = new SocketWriter(socket, options.stallMs ?? 30_000);
    const deadline = setTimeout(() => this.#cut('no preface in time'), options.prefaceMs ?? prefaceTimeoutMs);
    this.#state = { at: 'preface', frames: new FrameCollector(), deadline };
  }

  received(bytes: Uint8Array): void {
    switch (this.#state.at) {
      case 'preface':
        this.#readPreface(this.#state, bytes);
        return;
      case 'admitting':
        this.#early.push(bytes.slice());
        return;
      case 'relaying':
        this.#forward(this.#state.child, bytes.slice());
        return;
      case 'ended':
        return;
    }
  }

  /** The peer sent its last byte. Whether it still reads is known once the socket had the chance to say that it closed. */
  halfClosed(): void {
    const state = this.#state;
    if (state.at !== 'relaying') {
      this.#cut('closed before it was attached');
      return;
    }
    setImmediate(() => {
      // What the peer sent before is still on its way into the child; only then the detach is orderly.
      if (this.#state === state) this.#toChild.then(() => state.detach.resolve('detach'));
    });
  }

  closed(reason: string): void {
    const state = this.#state;
    if (state.at === 'ended') return;
    this.#end(reason);
    if (state.at === 'relaying') this.#options.admissions.release(state.child, 'abandoned');
  }

  #readPreface(state: PeerState & { at: 'preface' }, bytes: Uint8Array): void {
    const progress = state.frames.push(bytes);
    if (progress.status === 'incomplete') return;
    clearTimeout(state.deadline);
    this.#state = { at: 'admitting' };
    if (progress.status === 'broken') {
      this.#refuse('bad-preface', progress.reason);
      return;
    }
    const preface = v.safeParse(prefaceSchema, progress.value);
    if (!preface.success) {
      this.#refuse('bad-preface', 'not a preface of version 1');
      return;
    }
    if (!sameToken(preface.output.token, this.#options.token)) {
      this.#refuse('unauthorized', 'wrong token');
      return;
    }
    if (progress.rest.length > 0) this.#early.push(progress.rest);
    this.#socket.pause();
    this.#admit(preface.output).catch((error: Error) => this.#cut(error.message));
  }

  async #admit(preface: Preface): Promise<void> {
    const { conversation, session, fresh } = preface;
    const admission = await this.#options.admissions.admit(conversation, session, fresh);
    if (admission.outcome === 'refused') {
      this.#refuse(admission.refusal, admission.detail);
      return;
    }
    const { child } = admission;
    if (this.#state.at !== 'admitting') {
      // The peer went away while the child was being made; nothing was written to it, so it stays usable.
      this.#options.admissions.release(child, 'detached');
      return;
    }
    const state: PeerState = { at: 'relaying', child, detach: Promise.withResolvers() };
    this.#state = state;
    await this.#answer({
      status: 'attached',
      admission: admission.admission,
      generation: child.generation,
      admissionMs: admission.admissionMs,
    });
    for (const bytes of this.#early.splice(0)) this.#forward(child, bytes);
    this.#socket.resume();
    await this.#relayOutput(state);
  }

  #forward(child: RelayedChild, bytes: Uint8Array): void {
    // Paused until the child has taken it: the peer's kernel buffer is the queue.
    this.#socket.pause();
    this.#toChild = this.#toChild
      .then(() => child.write(bytes))
      .then(() => {
        if (this.#state.at === 'relaying') this.#socket.resume();
      });
    this.#toChild.catch((error: Error) => this.#cut(`the child takes no input: ${error.message}`));
  }

  async #relayOutput(state: PeerState & { at: 'relaying' }): Promise<void> {
    const { child } = state;
    for (;;) {
      const next = await Promise.race([state.detach.promise, child.peek()]);
      if (this.#state !== state) return;
      if (next === 'detach') break;
      child.take();
      if (next === null) break;
      await this.writer.write(next);
    }
    this.#end(null);
    this.#options.admissions.release(child, 'detached');
    this.#socket.end();
  }

  #answer(answer: Answer): Promise<void> {
    return this.writer.write(encodeFrame(answer));
  }

  #refuse(refusal: Refusal, detail: string): void {
    this.#options.onTrouble(`refused: ${refusal}`);
    this.#answer({ status: 'refused', refusal, detail }).then(
      () => this.#socket.end(),
      // The peer left before it heard the refusal, which changes nothing.
      () => undefined,
    );
    this.#end(null);
  }

  #cut(reason: string): void {
    this.closed(reason);
    this.#socket.terminate();
  }

  #end(trouble: string | null): void {
    if (this.#state.at === 'preface') clearTimeout(this.#state.deadline);
    this.#state = { at: 'ended' };
    this.#early = [];
    this.#forget();
    if (trouble === null) return;
    this.#options.onTrouble(`cut: ${this.writer.gone(trouble).reason}`);
  }
}

function sameToken(shown: string, expected: string): boolean {
  const a = Buffer.from(shown);
  const b = Buffer.from(expected);
  return a.length === b.length && timingSafeEqual(a, b);
}
