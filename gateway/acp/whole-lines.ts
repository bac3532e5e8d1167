/**
 * Passes a byte stream on in whole lines only. A line that the stream's end cuts off is dropped here: at a detach its
 * beginning is kept by hermes-run and comes back in front of the next attachment.
 */

/** A line was longer than allowed. */
class LineTooLong extends Error {
  constructor(maxBytes: number) {
    super(`the agent sent a line of more than ${maxBytes} bytes`);
    this.name = 'LineTooLong';
  }
}

/** Every chunk that comes out ends with a line feed. Errors with {@link LineTooLong}. */
export function wholeLines(maxBytes: number): TransformStream<Uint8Array, Uint8Array> {
  let pending: Uint8Array[] = [];
  let pendingBytes = 0;
  return new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      const end = chunk.lastIndexOf(0x0a) + 1;
      if (end > 0) {
        const whole = chunk.subarray(0, end);
        controller.enqueue(pendingBytes === 0 ? whole : new Uint8Array(Buffer.concat([...pending, whole])));
        pending = [];
        pendingBytes = 0;
      }
      if (end === chunk.length) return;
      pending.push(chunk.subarray(end));
      pendingBytes += chunk.length - end;
      if (pendingBytes > maxBytes) throw new LineTooLong(maxBytes);
    },
  });
}
