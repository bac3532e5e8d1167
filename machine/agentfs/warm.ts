/**
 * Brings the database's file into the host's page cache. The engine reads pages of 4 KiB one after the other, and those of a
 * large file lie between others', so that the host does not read ahead by itself: cold, that is 50 MB/s on a disk that gives
 * 1,400.
 */
import * as fs from 'node:fs';
import { promisify } from 'node:util';

const [open, close] = [promisify(fs.open), promisify(fs.close)];
/** Bytes of each file that are read at most: what memory could not keep is not worth reading. */
const maxBytes = 512 * 1024 ** 2;
const step = 1024 ** 2;

/** Reads what there is of these files, once, and forgets it. What cannot be read is left to the engine to complain about. */
export async function warm(paths: readonly string[]): Promise<void> {
  await Promise.all(paths.map((path) => warmFile(path).catch(() => undefined)));
}

async function warmFile(path: string): Promise<void> {
  const fd = await open(path, 'r');
  const buffer = new Uint8Array(step);
  try {
    for (let at = 0; at < maxBytes; at += step) if ((await readAt(fd, buffer, at)) < step) return;
  } finally {
    await close(fd);
  }
}

function readAt(fd: number, into: Uint8Array, position: number): Promise<number> {
  return new Promise((resolve, reject) => {
    fs.read(fd, into, 0, into.length, position, (error, count) => (error ? reject(error) : resolve(count)));
  });
}
