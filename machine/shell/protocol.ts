/**
 * The frames between the `git` of a holder (zig/git.zig) and the machine: a letter, four bytes of length (little endian), the
 * payload. Whoever is in a holder may send any bytes: everything that comes is bounded, and understood or refused.
 */

export const limits = {
  /** Words of a call with their zeros, in bytes. */
  words: 128 * 1024,
  wordCount: 16 * 1024,
  variables: 64 * 1024,
  variableCount: 1024,
  /** The user's own configuration file. */
  config: 64 * 1024,
  path: 4096,
  /** A frame of input or output. */
  data: 64 * 1024,
} as const;

const version = 1;
export const headerBytes = 5;
const fixedBytes = 24;
const maxCallBytes = fixedBytes + limits.path + limits.words + limits.variables + limits.config;

/** One call of `git`, as its client tells it. Nothing of it says who calls: that is known by the socket. */
export interface ClientCall {
  readonly argv: readonly string[];
  readonly cwd: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly terminals: { readonly input: boolean; readonly output: boolean; readonly errors: boolean };
  readonly umask: number;
  /** Whether the holder has a native git. */
  readonly hasNative: boolean;
  /** The user's own configuration file; null when there is none. */
  readonly config: Uint8Array | null;
}

/** How a process ended. */
export type ProcessEnd =
  | { readonly kind: 'exited'; readonly code: number }
  | { readonly kind: 'killed'; readonly signal: number };

/** What a client says. */
export type ClientFrame =
  | { readonly kind: 'call'; readonly call: ClientCall }
  /** Some of its standard input; an empty one is the end. */
  | { readonly kind: 'input'; readonly bytes: Uint8Array }
  /** It was interrupted by this signal. */
  | { readonly kind: 'abort'; readonly signal: number }
  /** The configuration file was replaced, or could not be: an errno. */
  | { readonly kind: 'config-written'; readonly errno: number }
  | { readonly kind: 'native-ended'; readonly end: ProcessEnd };

/** What no client of ours ever says. */
export class ProtocolError extends Error {
  constructor(what: string) {
    super(what);
    this.name = 'ProtocolError';
  }
}

const kinds = { call: 0x43, input: 0x49, abort: 0x4b, configWritten: 0x57, nativeEnded: 0x45 } as const;
const longest: Readonly<Record<number, number>> = {
  [kinds.call]: maxCallBytes,
  [kinds.input]: limits.data,
  [kinds.abort]: 1,
  [kinds.configWritten]: 4,
  [kinds.nativeEnded]: 4,
};

/** Cuts a client's bytes into frames. Holds at most one unfinished frame. */
export class FrameReader {
  #header = new Uint8Array(headerBytes);
  #headerFilled = 0;
  #payload: Uint8Array | null = null;
  #filled = 0;

  /** The frames that `bytes` completes. Throws a {@link ProtocolError} as soon as the stream makes no sense. */
  *feed(bytes: Uint8Array): Generator<ClientFrame> {
    for (let at = 0; at < bytes.length || this.#isWhole(); ) {
      if (!this.#payload) {
        const take = Math.min(headerBytes - this.#headerFilled, bytes.length - at);
        this.#header.set(bytes.subarray(at, at + take), this.#headerFilled);
        this.#headerFilled += take;
        at += take;
        if (this.#headerFilled < headerBytes) return;
        this.#payload = new Uint8Array(this.#announced());
        this.#filled = 0;
      }
      const take = Math.min(this.#payload.length - this.#filled, bytes.length - at);
      this.#payload.set(bytes.subarray(at, at + take), this.#filled);
      this.#filled += take;
      at += take;
      if (!this.#isWhole()) return;
      const payload = this.#payload;
      this.#payload = null;
      this.#headerFilled = 0;
      yield decode(this.#header[0]!, payload);
    }
  }

  #isWhole(): boolean {
    return this.#payload !== null && this.#filled === this.#payload.length;
  }

  #announced(): number {
    const kind = this.#header[0]!;
    const most = longest[kind];
    if (most === undefined) throw new ProtocolError(`a frame of kind ${kind}`);
    const length = new DataView(this.#header.buffer).getUint32(1, true);
    if (length > most) throw new ProtocolError(`a frame of kind ${kind} with ${length} bytes`);
    return length;
  }
}

function decode(kind: number, payload: Uint8Array): ClientFrame {
  if (kind === kinds.call) return { kind: 'call', call: decodeCall(payload) };
  if (kind === kinds.input) return { kind: 'input', bytes: payload };
  if (payload.length !== longest[kind]) throw new ProtocolError(`a frame of kind ${kind} that is too short`);
  if (kind === kinds.abort) return { kind: 'abort', signal: signalOf(payload[0]!) };
  const number = new DataView(payload.buffer).getUint32(0, true);
  if (kind === kinds.configWritten) return { kind: 'config-written', errno: Math.min(number, 4095) };
  return { kind: 'native-ended', end: endOf(number) };
}

function signalOf(number: number): number {
  if (number < 1 || number > 64) throw new ProtocolError(`signal ${number}`);
  return number;
}

/** Of the number that wait(2) gives. */
function endOf(status: number): ProcessEnd {
  const signal = status & 0x7f;
  if (signal !== 0) return { kind: 'killed', signal: signalOf(signal) };
  return { kind: 'exited', code: (status >>> 8) & 0xff };
}

/** What is not UTF-8 keeps its place, not its bytes: no name in AgentFS has it either. */
const text = new TextDecoder('utf-8', { ignoreBOM: true });

function decodeCall(payload: Uint8Array): ClientCall {
  if (payload.length < fixedBytes) throw new ProtocolError('a call that is too short');
  const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
  const [given, flags, umask, wordCount, variableCount, configBytes] = [0, 4, 8, 12, 16, 20].map((at) =>
    view.getUint32(at, true),
  ) as [number, number, number, number, number, number];
  if (given !== version) throw new ProtocolError(`version ${given}`);
  if (wordCount > limits.wordCount || variableCount > limits.variableCount || configBytes > limits.config) {
    throw new ProtocolError('a call with too much in it');
  }
  const texts = payload.subarray(fixedBytes, payload.length - configBytes);
  if (payload.length - configBytes < fixedBytes) throw new ProtocolError('a call that is too short');
  const strings = zeroEnded(texts, 1 + wordCount + variableCount);
  const [cwd, ...rest] = strings as [Uint8Array, ...Uint8Array[]];
  const words = rest.slice(0, wordCount);
  const variables = rest.slice(wordCount);
  if (cwd.length > limits.path || cwd[0] !== 0x2f) throw new ProtocolError('a directory that is none');
  if (bytesOf(words) > limits.words || bytesOf(variables) > limits.variables) {
    throw new ProtocolError('a call that is too long');
  }
  return {
    argv: words.map((word) => text.decode(word)),
    cwd: text.decode(cwd),
    environment: Object.fromEntries(variables.map(variableOf)),
    terminals: { input: (flags & 1) !== 0, output: (flags & 2) !== 0, errors: (flags & 4) !== 0 },
    umask: umask & 0o777,
    hasNative: (flags & 8) !== 0,
    config: (flags & 16) !== 0 ? payload.slice(payload.length - configBytes) : null,
  };
}

function zeroEnded(bytes: Uint8Array, count: number): Uint8Array[] {
  const found: Uint8Array[] = [];
  let at = 0;
  while (found.length < count) {
    const end = bytes.indexOf(0, at);
    if (end < 0) throw new ProtocolError('a text without an end');
    found.push(bytes.subarray(at, end));
    at = end + 1;
  }
  if (at !== bytes.length) throw new ProtocolError('bytes after the last text');
  return found;
}

function bytesOf(texts: readonly Uint8Array[]): number {
  return texts.reduce((sum, one) => sum + one.length + 1, 0);
}

function variableOf(entry: Uint8Array): [string, string] {
  const decoded = text.decode(entry);
  const equals = decoded.indexOf('=');
  if (equals < 1) throw new ProtocolError('a variable without a name');
  return [decoded.slice(0, equals), decoded.slice(equals + 1)];
}

/** What the machine says. */
export type MachineFrame =
  | { readonly kind: 'output' | 'errors'; readonly bytes: Uint8Array }
  | { readonly kind: 'want-input' }
  /** The text that the user's configuration file gets. */
  | { readonly kind: 'put-config'; readonly bytes: Uint8Array }
  | { readonly kind: 'exit'; readonly code: number }
  /** The native git has to do it. */
  | { readonly kind: 'native' };

export function encode(frame: MachineFrame): Uint8Array {
  switch (frame.kind) {
    case 'output':
      return framed('O', frame.bytes);
    case 'errors':
      return framed('R', frame.bytes);
    case 'want-input':
      return framed('S', nothing);
    case 'put-config':
      return framed('P', frame.bytes);
    case 'exit':
      return framed('X', Uint8Array.of(frame.code));
    case 'native':
      return framed('N', nothing);
  }
}

const nothing = new Uint8Array(0);

function framed(letter: string, payload: Uint8Array): Uint8Array {
  if (payload.length > limits.data) throw new RangeError('a frame that is too long');
  const bytes = new Uint8Array(headerBytes + payload.length);
  bytes[0] = letter.charCodeAt(0);
  new DataView(bytes.buffer).setUint32(1, payload.length, true);
  bytes.set(payload, headerBytes);
  return bytes;
}
