import { test } from 'bun:test';
import { uploadLarge } from './large-upload.ts';

const mebibyte = 1024 * 1024;

// The gateway that keeps the body would need more than the body's length. What it takes is the same at any length: `large-upload.long.test.ts`.
test('192 MiB where 224 are allowed take less than 150 MB of memory', async () => {
  await uploadLarge({ bytes: 192 * mebibyte, limit: 224 * mebibyte, memory: 150e6 });
}, 400_000);
