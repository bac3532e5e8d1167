/** What a reader sees that waits for nobody, while what was written is on its way from memory to where it stays. */
import { afterEach, beforeEach, expect, setDefaultTimeout, test } from 'bun:test';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { rootIno } from './ids.ts';
import { type LocalFiles, openFilesIn } from './local.fixture.ts';

setDefaultTimeout(60_000);

const chunk = 65_536;
const chunks = 12;

let directory: string;
let local: LocalFiles;
beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'agentfs-reading-'));
  local = await openFilesIn(directory);
});
afterEach(async () => {
  await local.close();
  rmSync(directory, { recursive: true, force: true });
});

/** Random bytes: these are the ones whose way takes long. */
const random = () => crypto.getRandomValues(new Uint8Array(chunk));

for (const [how, end] of [
  ['goes into the spool', () => local.files.store.sync()],
  ['goes into rows', () => local.files.data.commitAll()],
] as const) {
  test(`never what was there before, when memory ${how}`, async () => {
    const { data, names } = local.files;
    const { ino } = await names.create({ parent: rootIno, name: 'a' }, 0o100644);
    for (let index = 0; index < chunks; index++) await data.write(ino, index * chunk, random());
    await data.settle();
    // Now memory knows the rows.
    for (let index = 0; index < chunks; index++) await data.read(ino, index * chunk, chunk);
    for (let round = 0; round < 4; round++) {
      // Few enough to stay in memory until the end, or many enough to leave by themselves.
      const written = Array.from({ length: how === 'goes into rows' ? 3 : chunks }, random);
      let isOver = false;
      let done = -1;
      const writing = (async () => {
        for (const [index, bytes] of written.entries()) {
          await data.write(ino, index * chunk, bytes.subarray(0, 60_000));
          done = index;
        }
        await end();
        isOver = true;
      })();
      const waiting = new Set<number>();
      while (!isOver) {
        for (let index = 0; index <= done; index++) {
          // One that waits for the writer must not be followed by more and more of its kind.
          if (waiting.has(index)) continue;
          const read = data.read(ino, index * chunk, 60_000);
          if (read instanceof Promise) {
            waiting.add(index);
            void read.then(() => waiting.delete(index));
            continue;
          }
          const isRight = Buffer.compare(read, written[index]!.subarray(0, 60_000)) === 0;
          if (!isRight) throw new Error(`round ${round}: chunk ${index} was written, and the old one was read`);
        }
        await new Promise(setImmediate);
      }
      await writing;
    }
    expect(Buffer.from(await data.read(ino, 0, 1)).length).toBe(1);
  });
}
