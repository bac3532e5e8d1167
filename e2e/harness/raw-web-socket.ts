/** A WebSocket client that may do everything wrong: frames of any bytes over plain TCP, and what the server says to them. */
import { connect, type Socket } from 'node:net';

export const opcodes = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;

export interface FrameParts {
  readonly opcode: number;
  readonly payload: Uint8Array;
  readonly fin?: boolean;
  /** The three reserved bits. */
  readonly reserved?: number;
  readonly masked?: boolean;
  /** The length that the frame claims, and with how many bytes it does. */
  readonly length?: { readonly value: bigint; readonly bytes: 0 | 2 | 8 };
}

/** The bytes of a client's frame. */
export function frameBytes(parts: FrameParts): Buffer {
  const { opcode, payload, fin = true, reserved = 0, masked = true } = parts;
  const size = payload.byteLength;
  const { value, bytes } = parts.length ?? { value: BigInt(size), bytes: size < 126 ? 0 : size < 65_536 ? 2 : 8 };
  const head = Buffer.alloc(2 + bytes);
  head[0] = (fin ? 0x80 : 0) | ((reserved & 7) << 4) | (opcode & 15);
  head[1] = (masked ? 0x80 : 0) | (bytes === 0 ? Number(value & 0x7fn) : bytes === 2 ? 126 : 127);
  if (bytes === 2) head.writeUInt16BE(Number(value & 0xffffn), 2);
  if (bytes === 8) head.writeBigUInt64BE(value & 0xffff_ffff_ffff_ffffn, 2);
  if (!masked) return Buffer.concat([head, payload]);
  const mask = Buffer.from([0x12, 0x34, 0x56, 0x78]);
  const body = Buffer.from(payload);
  for (let at = 0; at < body.length; at += 1) body[at]! ^= mask[at & 3]!;
  return Buffer.concat([head, mask, body]);
}

export const textFrame = (text: string): Buffer => frameBytes({ opcode: opcodes.text, payload: Buffer.from(text) });

export interface ServerFrame {
  readonly opcode: number;
  readonly payload: Buffer;
}

/** The newest frames of the server, of which not more are kept. */
const keptFrames = 1_000;

export class RawWebSocket {
  readonly frames: ServerFrame[] = [];
  /** Called with each frame as it comes. */
  onFrame: (frame: ServerFrame) => void = () => undefined;
  /** The status of the handshake; null when the connection ended before it. */
  readonly status: Promise<number | null>;
  readonly ended: Promise<void>;
  readonly #socket: Socket;
  #buffer = Buffer.alloc(0);
  #open = false;
  #hasEnded = false;
  #wake: (() => void)[] = [];

  /** @param head the whole request, or the extra lines of a well-formed one */
  constructor(
    url: string,
    head: { readonly raw: string } | { readonly lines: readonly string[]; readonly path?: string },
  ) {
    const { hostname, port } = new URL(url);
    const status = Promise.withResolvers<number | null>();
    const ended = Promise.withResolvers<void>();
    this.status = status.promise;
    this.ended = ended.promise;
    this.#socket = connect({ host: hostname, port: Number(port), noDelay: true });
    this.#socket.on('connect', () => {
      this.#socket.write(
        'raw' in head ? head.raw : request(`${hostname}:${port}`, head.path ?? '/v1/events', head.lines),
      );
    });
    this.#socket.on('data', (bytes: Buffer) => {
      this.#buffer = Buffer.concat([this.#buffer, bytes]);
      if (!this.#open) {
        const end = this.#buffer.indexOf('\r\n\r\n');
        if (end === -1) return;
        const code = Number(/^HTTP\/1\.1 (\d{3})/.exec(this.#buffer.toString('latin1', 0, end))?.[1] ?? 0);
        status.resolve(code);
        if (code !== 101) return;
        this.#open = true;
        this.#buffer = this.#buffer.subarray(end + 4);
      }
      this.#read();
      this.#notify();
    });
    // A reset is an end like another here.
    this.#socket.on('error', () => undefined);
    this.#socket.on('close', () => {
      this.#hasEnded = true;
      status.resolve(null);
      ended.resolve();
      this.#notify();
    });
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Writes as much as the server takes. Resolves when it is written, or the connection has ended. */
  async send(...frames: readonly Uint8Array[]): Promise<void> {
    if (this.#hasEnded || this.#socket.destroyed || this.#socket.write(Buffer.concat(frames))) return;
    await Promise.race([new Promise((resolve) => this.#socket.once('drain', resolve)), this.ended]);
  }

  /** Takes nothing more from the server. */
  stopReading(): void {
    this.#socket.pause();
  }

  /** The first frame for which `wants` holds, or null once the connection has ended. @throws Error after `timeoutMs` */
  async frame(wants: (frame: ServerFrame) => boolean, timeoutMs: number): Promise<ServerFrame | null> {
    const deadline = Bun.sleep(timeoutMs).then(() => 'late' as const);
    for (;;) {
      const found = this.frames.find(wants);
      if (found !== undefined) return found;
      if (this.#hasEnded) return null;
      const change = new Promise<void>((resolve) => this.#wake.push(resolve));
      if ((await Promise.race([change, deadline])) === 'late') throw new Error(`no answer in ${timeoutMs} ms`);
    }
  }

  /** Ends the connection without a word. */
  reset(): void {
    this.#socket.resetAndDestroy();
  }

  /** Says that nothing more will come, and goes on reading. */
  halfClose(): void {
    this.#socket.end();
  }

  #notify(): void {
    const waiting = this.#wake;
    this.#wake = [];
    for (const wake of waiting) wake();
  }

  #read(): void {
    for (;;) {
      const [first, second] = this.#buffer;
      if (first === undefined || second === undefined) return;
      const short = second & 0x7f;
      const head = short === 126 ? 4 : short === 127 ? 10 : 2;
      if (this.#buffer.length < head) return;
      const size =
        short === 126 ? this.#buffer.readUInt16BE(2) : short === 127 ? Number(this.#buffer.readBigUInt64BE(2)) : short;
      if (this.#buffer.length < head + size) return;
      const frame = { opcode: first & 15, payload: Buffer.from(this.#buffer.subarray(head, head + size)) };
      this.frames.push(frame);
      if (this.frames.length > keptFrames) this.frames.shift();
      this.onFrame(frame);
      this.#buffer = this.#buffer.subarray(head + size);
    }
  }
}

function request(host: string, path: string, lines: readonly string[]): string {
  const usual = ['Upgrade: websocket', 'Connection: Upgrade', 'Sec-WebSocket-Version: 13'];
  const key = `Sec-WebSocket-Key: ${Buffer.from(crypto.getRandomValues(new Uint8Array(16))).toString('base64')}`;
  return [`GET ${path} HTTP/1.1`, `Host: ${host}`, ...usual, key, ...lines, '', ''].join('\r\n');
}
