/**
 * The frames on descriptor 3 between a holder's Hermes (`bunfs-assets/hermes/channel.py`) and its relay. Both ways: 4 bytes
 * length of the rest, 4 bytes request id (big-endian), then UTF-8 JSON.
 *
 * Request: `{"c": connection, "q": [[sql, args?], …]}` runs statements in order up to the first failure;
 * `{"c": connection, "s": script}` runs a script. Two with id 0 have no answer: `{"x": [connection, …]}` ends connections,
 * `{"p": [event, …]}` tells of programs (bunfs-assets/hermes/executions.py).
 * Answer: `{"a": autocommit 0|1, "r": [result, …], "e"?: error}` with one result for each statement that went well.
 *
 * A value is null, a string, `{"b": base64}`, an integer as a JSON number or beyond 2^53 as `{"i": digits}`, and a REAL as
 * a JSON number or, when it has no fraction, as `{"f": number}`.
 */
import * as v from 'valibot';
import type { WireNamedValue, WireValue } from '../agentfs/hrana-wire.ts';

/** Bytes of a frame behind its length. */
export const maxFrameBytes = 16 * 1024 * 1024;
const headerBytes = 8;

const integer = v.pipe(v.number(), v.safeInteger());
const value = v.union([
  v.null(),
  v.string(),
  v.number(),
  v.strictObject({ i: v.pipe(v.string(), v.regex(/^-?\d{1,19}$/)) }),
  v.strictObject({ f: v.number() }),
  v.strictObject({ b: v.pipe(v.string(), v.regex(/^[A-Za-z0-9+/]*={0,2}$/)) }),
]);
export type FrameValue = v.InferOutput<typeof value>;
const statement = v.union([
  v.strictTuple([v.string()]),
  v.strictTuple([v.string(), v.union([v.array(value), v.record(v.string(), value)])]),
]);
export type FrameStatement = v.InferOutput<typeof statement>;

/** Milliseconds since 1970. */
const time = v.pipe(integer, v.minValue(0), v.maxValue(2 ** 45));
const executionId = v.pipe(integer, v.minValue(1));
const text = v.pipe(v.string(), v.maxLength(70_000));
const execution = v.union([
  /** A program runs: `a` its arguments, the first included, `f` the program, `d` its directory. */
  v.strictObject({ i: executionId, a: v.pipe(v.array(text), v.maxLength(1001)), f: text, d: text, t: time }),
  /** It exited with code `c`. */
  v.strictObject({ i: executionId, c: v.pipe(integer, v.minValue(0), v.maxValue(255)), t: time }),
  /** Signal `s` ended it. */
  v.strictObject({ i: executionId, s: v.pipe(integer, v.minValue(1), v.maxValue(64)), t: time }),
  /** It could not be executed after all. */
  v.strictObject({ i: executionId, x: v.literal(1) }),
  /** So many events could not be told. */
  v.strictObject({ l: v.pipe(integer, v.minValue(1)) }),
]);
export type ExecutionEvent = v.InferOutput<typeof execution>;

const requestSchema = v.union([
  v.strictObject({ c: integer, q: v.pipe(v.array(statement), v.minLength(1), v.maxLength(256)) }),
  v.strictObject({ c: integer, s: v.string() }),
  v.strictObject({ x: v.pipe(v.array(integer), v.maxLength(4096)) }),
  v.strictObject({ p: v.pipe(v.array(execution), v.maxLength(64)) }),
]);
export type FrameRequest = v.InferOutput<typeof requestSchema>;

/** `w`: 1 after a statement that changes rows; `l`: rowid after an INSERT. `c` and `d`: columns and rows, when there are any. */
export type FrameResult = {
  readonly c?: readonly string[];
  readonly d?: readonly (readonly FrameValue[])[];
  readonly n: number;
  readonly w: 0 | 1;
  readonly l?: string;
};

/** `k`: the class in Python's sqlite3, `m`: SQLite's own message, `n`: its name, such as SQLITE_BUSY. */
export type FrameError = { readonly k: string; readonly m: string; readonly n?: string };
export type FrameAnswer = { readonly a: 0 | 1; readonly r: readonly FrameResult[]; readonly e?: FrameError };

export type Frame = { readonly id: number; readonly request: FrameRequest };

/** The child sent what is not a frame: nothing behind it can be understood, so the channel ends. */
export class BrokenFrame extends Error {}

/** Cuts a byte stream into frames. Holds at most one incomplete frame. */
export class FrameReader {
  #chunks: Uint8Array[] = [];
  #size = 0;

  /** @throws BrokenFrame */
  *push(chunk: Uint8Array): Generator<Frame> {
    // A copy: the socket may use the memory of its chunk again.
    this.#chunks.push(chunk.slice());
    this.#size += chunk.length;
    while (this.#size >= 4) {
      const length = this.#peekLength();
      // Judged before more of it is kept.
      if (length < 4 || length > maxFrameBytes) throw new BrokenFrame(`a frame of ${length} bytes`);
      if (this.#size < length + 4) return;
      const bytes = this.#join();
      const rest = bytes.subarray(length + 4);
      this.#chunks = rest.length > 0 ? [rest] : [];
      this.#size = rest.length;
      yield parse(bytes.subarray(4, length + 4));
    }
  }

  #peekLength(): number {
    if (this.#chunks[0]!.length < 4) this.#join();
    return Buffer.from(this.#chunks[0]!.buffer, this.#chunks[0]!.byteOffset, 4).readUInt32BE(0);
  }

  #join(): Uint8Array {
    if (this.#chunks.length > 1) this.#chunks = [Buffer.concat(this.#chunks)];
    return this.#chunks[0]!;
  }
}

function parse(bytes: Uint8Array): Frame {
  const id = Buffer.from(bytes.buffer, bytes.byteOffset, 4).readUInt32BE(0);
  let json: unknown;
  try {
    json = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes.subarray(4)));
  } catch {
    throw new BrokenFrame('a frame that is not JSON');
  }
  const parsed = v.safeParse(requestSchema, json);
  // Without valibot's text, which would repeat what the child sent.
  if (!parsed.success) throw new BrokenFrame('a frame of an unknown form');
  return { id, request: parsed.output };
}

/** Encodes an answer; one that is too large becomes an error that says so. */
export function encodeAnswer(id: number, answer: FrameAnswer): Uint8Array {
  const body = Buffer.from(JSON.stringify(answer));
  if (body.length + 4 > maxFrameBytes)
    return encodeAnswer(id, {
      a: answer.a,
      r: [],
      e: { k: 'DataError', m: `sessiondb: the result is larger than ${maxFrameBytes} bytes` },
    });
  const frame = Buffer.allocUnsafe(headerBytes + body.length);
  frame.writeUInt32BE(body.length + 4, 0);
  frame.writeUInt32BE(id, 4);
  frame.set(body, headerBytes);
  return frame;
}

/** A value on its way to the authority. */
export function toWire(given: FrameValue): WireValue {
  if (given === null) return { type: 'null' };
  if (typeof given === 'string') return { type: 'text', value: given };
  if (typeof given === 'number')
    return Number.isInteger(given) ? { type: 'integer', value: String(given) } : { type: 'float', value: given };
  if ('i' in given) return { type: 'integer', value: given.i };
  if ('f' in given) return { type: 'float', value: given.f };
  return { type: 'blob', base64: given.b };
}

/** A statement's arguments as Hrana wants them; SQLite knows a named parameter by its prefix too. */
export function wireArguments(given: FrameStatement[1]): { args?: WireValue[]; named_args?: WireNamedValue[] } {
  if (given === undefined) return {};
  if (Array.isArray(given)) return { args: given.map(toWire) };
  return { named_args: Object.entries(given).map(([name, value]) => ({ name, value: toWire(value) })) };
}

/** A value on its way to the child. @throws Error when the authority sent what is no value */
export function fromWire(given: WireValue): FrameValue {
  switch (given?.type) {
    case 'null':
      return null;
    case 'text':
      return given.value;
    case 'integer': {
      const number = Number(given.value);
      return Number.isSafeInteger(number) ? number : { i: String(given.value) };
    }
    case 'float':
      return Number.isInteger(given.value) ? { f: given.value } : given.value;
    case 'blob':
      return { b: given.base64 };
    default:
      throw new Error('a value that is not one of Hrana');
  }
}
