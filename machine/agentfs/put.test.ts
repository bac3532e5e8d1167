import { afterAll, beforeAll, expect, test } from 'bun:test';
import { rootIno } from './ids.ts';
import { type LocalFiles, openLocalFiles } from './local.fixture.ts';
import { putFiles } from './put.ts';

let local: LocalFiles;
beforeAll(async () => {
  local = await openLocalFiles();
});
afterAll(() => local.close());

const at = (name: string) => ({ parent: rootIno, name });
const bytes = (text: string) => Buffer.from(text);
async function text(path: string): Promise<string | null> {
  const inode = await local.files.find(path);
  return inode ? Buffer.from(await local.files.data.read(inode.ino, 0, inode.size)).toString() : null;
}

test('puts many files at once, in place of those that have their names', async () => {
  await putFiles(local.files, [
    { place: at('a'), permissions: 0o644, bytes: bytes('one') },
    { place: at('b'), permissions: 0o755, bytes: bytes('') },
  ]);
  const before = (await local.files.find('/a'))!;
  await local.files.names.open(before.ino);
  await putFiles(local.files, [{ place: at('a'), permissions: 0o600, bytes: bytes('two') }]);
  const after = (await local.files.find('/a'))!;
  expect(await text('/a')).toBe('two');
  expect([after.mode & 0o7777, after.nlink]).toEqual([0o600, 1]);
  expect((await local.files.find('/b'))!.mode & 0o7777).toBe(0o755);
  // Who has the old one open still reads it.
  expect(Buffer.from(await local.files.data.read(before.ino, 0, 10)).toString()).toBe('one');
  await local.files.names.close(before.ino);
  expect(await local.files.store.inode(before.ino)).toBeNull();
});

test('none has its name where one cannot have it, and nothing is left', async () => {
  await local.files.names.makeDirectory(at('directory'), 0o755);
  const put = putFiles(local.files, [
    { place: at('new'), permissions: 0o644, bytes: bytes('x') },
    { place: at('directory'), permissions: 0o644, bytes: bytes('y') },
  ]);
  expect(put).rejects.toThrow('EISDIR');
  await put.catch(() => undefined);
  expect(await text('/new')).toBeNull();
  await local.files.flush();
  expect(await local.driver.get('SELECT count(*) AS n FROM fs_inode WHERE nlink = 0')).toEqual({ n: 0 });
});
