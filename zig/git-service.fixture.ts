/** What the tests of the `git` client put in the machine's place: a socket whose calls a test answers as it likes. */
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  type ClientCall,
  type ClientFrame,
  encode,
  FrameReader,
  type MachineFrame,
} from '../machine/shell/protocol.ts';

/** One call that a client made. */
export class ScriptedCall {
  readonly call: ClientCall;
  readonly closed = Promise.withResolvers<void>();
  readonly #socket: net.Socket;
  readonly #frames: ClientFrame[] = [];
  #arrival = Promise.withResolvers<void>();

  constructor(call: ClientCall, socket: net.Socket) {
    this.call = call;
    this.#socket = socket;
  }

  took(frame: ClientFrame): void {
    this.#frames.push(frame);
    this.#arrival.resolve();
    this.#arrival = Promise.withResolvers();
  }

  /** The next frame of the client's after its call. */
  async next(): Promise<ClientFrame> {
    while (this.#frames.length === 0) await this.#arrival.promise;
    return this.#frames.shift()!;
  }

  /** Frames that came and were not asked for. */
  get unread(): readonly ClientFrame[] {
    return this.#frames;
  }

  /** All of the client's standard input. */
  async input(): Promise<Buffer> {
    await this.send({ kind: 'want-input' });
    const chunks: Uint8Array[] = [];
    for (;;) {
      const frame = await this.next();
      if (frame.kind !== 'input') throw new Error(`${frame.kind} in place of input`);
      if (frame.bytes.length === 0) return Buffer.concat(chunks);
      chunks.push(frame.bytes);
    }
  }

  /** Resolves when the kernel has taken it. */
  send(frame: MachineFrame): Promise<void> {
    return this.raw(encode(frame));
  }

  raw(bytes: Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => this.#socket.write(bytes, (error) => (error ? reject(error) : resolve())));
  }

  print(text: string): Promise<void> {
    return this.send({ kind: 'output', bytes: Buffer.from(text) });
  }

  async exit(code: number): Promise<void> {
    await this.send({ kind: 'exit', code });
  }

  cut(): void {
    this.#socket.destroy();
  }
}

export class GitServiceStub {
  readonly path: string;
  readonly calls: ScriptedCall[] = [];
  /** What is done with each call. */
  answer: (call: ScriptedCall) => Promise<void> = (call) => call.exit(0);
  readonly #directory = mkdtempSync(join(tmpdir(), 'edge-git-'));
  readonly #server: net.Server;
  readonly #sockets = new Set<net.Socket>();

  private constructor() {
    this.path = join(this.#directory, 'git.sock');
    this.#server = net.createServer((socket) => this.#serve(socket));
  }

  static async listen(): Promise<GitServiceStub> {
    const stub = new GitServiceStub();
    const listening = Promise.withResolvers<void>();
    stub.#server.once('error', listening.reject).listen(stub.path, listening.resolve);
    await listening.promise;
    chmodSync(stub.path, 0o666);
    return stub;
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  #serve(socket: net.Socket): void {
    const reader = new FrameReader();
    let call: ScriptedCall | null = null;
    this.#sockets.add(socket);
    socket.on('error', () => socket.destroy()); // The client's end is the subject of the tests, and is seen there.
    socket.on('close', () => {
      this.#sockets.delete(socket);
      call?.closed.resolve();
    });
    socket.on('data', (bytes: Buffer) => {
      for (const frame of reader.feed(bytes)) {
        if (call) {
          call.took(frame);
          continue;
        }
        if (frame.kind !== 'call') throw new Error(`${frame.kind} before the call`);
        call = new ScriptedCall(frame.call, socket);
        this.calls.push(call);
        // A client that is gone is seen by the test, where it looks for that.
        this.answer(call).catch(() => socket.destroy());
      }
    });
  }
}
