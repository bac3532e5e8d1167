import { expect, test } from 'bun:test';
import { InputLines } from './input-lines.ts';

const linesOf = (...chunks: (string | Uint8Array)[]) =>
  new InputLines(
    new ReadableStream({
      start(controller) {
        for (const chunk of chunks) controller.enqueue(Buffer.from(chunk));
        controller.close();
      },
    }),
  );

test('lines come one by one, however the bytes are cut', async () => {
  const umlaut = Buffer.from('ü');
  const lines = linesOf('fi', 'rst\nsecond\n', '\nthi', umlaut.subarray(0, 1), umlaut.subarray(1), 'rd\nunfinished');
  const all: (string | null)[] = [];
  do all.push(await lines.next(20));
  while (all.at(-1) !== null);
  expect(all).toEqual(['first', 'second', '', 'thiürd', null]);
});

test('a line that is too long is refused before its end has come', async () => {
  await expect(linesOf('12345', '678901234\n').next(10)).rejects.toThrow('more than 10 bytes');
  expect(await linesOf('1234567890\n').next(10)).toBe('1234567890');
});
