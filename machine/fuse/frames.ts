/** Cuts a byte stream into the kernel's messages, each as long as its first four bytes say. */
import { headerBytes } from './wire.ts';

/** A 1 MiB write, its header and some room. */
export const maxFrameBytes = 1024 * 1024 + 4096;

export class FrameDecoder {
  #partial: Uint8Array | null = null;
  #filled = 0;
  readonly #length = new Uint8Array(4);
  #lengthFilled = 0;

  /** Gives out the messages that `bytes` completes. Throws on a length that no message has: the stream is lost then. */
  feed(bytes: Uint8Array, take: (message: Uint8Array) => void): void {
    let at = 0;
    while (at < bytes.length) {
      if (this.#partial) {
        const more = Math.min(this.#partial.length - this.#filled, bytes.length - at);
        this.#partial.set(bytes.subarray(at, at + more), this.#filled);
        this.#filled += more;
        at += more;
        if (this.#filled < this.#partial.length) return;
        const whole = this.#partial;
        this.#partial = null;
        take(whole);
        continue;
      }
      while (this.#lengthFilled < 4 && at < bytes.length) this.#length[this.#lengthFilled++] = bytes[at++]!;
      if (this.#lengthFilled < 4) return;
      this.#lengthFilled = 0;
      const [low, high] = [this.#length[0]! | (this.#length[1]! << 8), this.#length[2]! | (this.#length[3]! << 8)];
      const length = high * 2 ** 16 + low;
      if (length < headerBytes || length > maxFrameBytes) throw new Error(`FUSE: a message of ${length} bytes`);
      if (at >= 4 && bytes.length - at >= length - 4) {
        const start = at - 4;
        at = start + length;
        take(start === 0 && at === bytes.length ? bytes : bytes.subarray(start, at));
        continue;
      }
      this.#partial = new Uint8Array(length);
      this.#partial.set(this.#length);
      this.#filled = 4;
    }
  }
}
