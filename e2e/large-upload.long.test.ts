import { test } from 'bun:test';
import { uploadLarge } from './large-upload.ts';

const mebibyte = 1024 * 1024;

test('1 GiB where 2 are allowed take less than 150 MB of memory', async () => {
  await uploadLarge({ bytes: 1024 * mebibyte, limit: 2048 * mebibyte, memory: 150e6 });
}, 1_800_000);
