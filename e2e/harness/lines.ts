/** Whole lines of a byte stream. */

/** A line longer than this is a defect of the program under test. */
const maxLineBytes = 64 * 1024 * 1024;

export async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const chunk of stream) {
    rest += decoder.decode(chunk, { stream: true });
    if (rest.length > maxLineBytes) throw new Error('a line without an end');
    const lines = rest.split('\n');
    rest = lines.pop()!;
    yield* lines;
  }
  if (rest !== '') yield rest;
}
