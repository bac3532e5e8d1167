/** Length-prefixed JSON frames of the hermes-run preface and answer. */
import { maxFrameBytes } from './protocol.ts';

const headerBytes = 4;

/** Encodes one frame. Throws a RangeError when the value does not fit, which is a defect of the caller. */
export function encodeFrame(value: unknown): Uint8Array {
  const body = new TextEncoder().encode(JSON.stringify(value));
  if (body.length > maxFrameBytes) throw new RangeError(`a hermes-run frame of ${body.length} bytes`);
  const frame = new Uint8Array(headerBytes + body.length);
  new DataView(frame.buffer).setUint32(0, body.length);
  frame.set(body, headerBytes);
  return frame;
}

export type FrameProgress =
  | { readonly status: 'incomplete' }
  | { readonly status: 'complete'; readonly value: unknown; readonly rest: Uint8Array }
  | { readonly status: 'broken'; readonly reason: string };

/** Collects the bytes of exactly one frame; what follows it is handed back untouched as `rest`. */
export class FrameCollector {
  #bytes: Uint8Array = new Uint8Array(0);

  push(chunk: Uint8Array): FrameProgress {
    const bytes = this.#bytes.length === 0 ? chunk : concatenate(this.#bytes, chunk);
    if (bytes.length < headerBytes) return this.#keep(bytes);
    const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0);
    // Refused before a byte of the body is kept: the length is a stranger's word.
    if (length > maxFrameBytes) return { status: 'broken', reason: `a frame of ${length} bytes` };
    if (bytes.length < headerBytes + length) return this.#keep(bytes);
    const body = bytes.subarray(headerBytes, headerBytes + length);
    try {
      const value: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body));
      return { status: 'complete', value, rest: bytes.slice(headerBytes + length) };
    } catch {
      // Not JSON or not UTF-8: the peer is told that its preface is bad, nothing more.
      return { status: 'broken', reason: 'a frame that is not JSON' };
    }
  }

  #keep(bytes: Uint8Array): FrameProgress {
    // A copy: the socket may reuse the memory of its chunk.
    this.#bytes = bytes.slice();
    return { status: 'incomplete' };
  }
}

function concatenate(a: Uint8Array, b: Uint8Array): Uint8Array {
  const joined = new Uint8Array(a.length + b.length);
  joined.set(a);
  joined.set(b, a.length);
  return joined;
}
