/** Files without a name that are still open: nobody who comes later reads them, and they must not fill the memory. */
import { expect, test } from 'bun:test';
import { rootIno } from './ids.ts';
import { openLocalFiles } from './local.fixture.ts';

const kibibyte = 1024;

test('the contents of many wait in memory only up to the limit of all, and go with the last that has them open', async () => {
  const local = await openLocalFiles({ unwritten: 256 * kibibyte, spooledFrom: 128 * kibibyte });
  const { names, data, store } = local.files;
  const rows = async () => Number((await store.sql.get('SELECT count(*) AS n FROM fs_data'))?.n);
  const files: { ino: number; bytes: Buffer }[] = [];
  try {
    for (let at = 0; at < 16; at++) {
      const place = { parent: rootIno, name: `file ${at}` };
      const { ino } = await names.create(place, 0o100644, { open: true });
      await names.unlink(place);
      const bytes = Buffer.alloc(100 * kibibyte, `contents ${at} `);
      await data.write(ino, 0, bytes);
      files.push({ ino, bytes });
    }
    // Two rows each; what is left in memory are at most two files.
    expect(await rows()).toBeGreaterThanOrEqual(24);
    for (const { ino, bytes } of files)
      expect(Buffer.from(await data.read(ino, 0, bytes.length)).equals(bytes)).toBe(true);
    for (const { ino } of files) await names.close(ino);
    await local.files.flush();
    expect(await rows()).toBe(0);
  } finally {
    await local.close();
  }
});
