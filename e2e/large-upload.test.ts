import { test } from 'bun:test';
import { uploadLarge } from './large-upload.ts';

const mebibyte = 1024 * 1024;

test('128 MiB where 160 are allowed take less than 100 MiB of memory', async () => {
  await uploadLarge({ bytes: 128 * mebibyte, limit: 160 * mebibyte, memory: 100 * mebibyte });
}, 400_000);
