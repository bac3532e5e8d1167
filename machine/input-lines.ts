/** Lines of a byte stream, each of a bounded length. */
export class InputLines {
  readonly #input: { read(): Promise<{ done: boolean; value?: Uint8Array | undefined }> };
  #rest: Uint8Array = new Uint8Array(0);

  constructor(stream: ReadableStream<Uint8Array>) {
    this.#input = stream.getReader();
  }

  /** The next line without its end; null at the end of the stream, also in the middle of a line. Throws beyond `maxBytes`. */
  async next(maxBytes: number): Promise<string | null> {
    const chunks: Uint8Array[] = [];
    let size = 0;
    for (;;) {
      const end = this.#rest.indexOf(0x0a);
      const part = end < 0 ? this.#rest : this.#rest.subarray(0, end);
      size += part.length;
      if (size > maxBytes) throw new Error(`a line of more than ${maxBytes} bytes`);
      chunks.push(part);
      if (end >= 0) {
        this.#rest = this.#rest.subarray(end + 1);
        return Buffer.concat(chunks).toString('utf8');
      }
      const { value } = await this.#input.read();
      if (!value) return null;
      this.#rest = value;
    }
  }
}
