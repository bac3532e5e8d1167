/** Names that have no row yet, and directories whose names are all in memory. */
import { afterEach, expect, test } from 'bun:test';
import { rootIno } from './ids.ts';
import type { StoreLimits } from './limits.ts';
import { type LocalFiles, openLocalFiles } from './local.fixture.ts';

const opened: LocalFiles[] = [];
afterEach(async () => {
  for (const local of opened.splice(0)) await local.close();
});

async function open(limits: Partial<StoreLimits> = {}): Promise<LocalFiles> {
  const local = await openLocalFiles({ commitAfterMs: 60_000, ...limits });
  opened.push(local);
  return local;
}

const mode = 0o100644;
const count = 100;
const namesOf = (length: number) => Array.from({ length }, (_, number) => `f${String(number).padStart(3, '0')}`);

/** Names that have a row. */
async function rows({ files }: LocalFiles): Promise<number> {
  return Number((await files.store.sql.get('SELECT count(*) AS n FROM fs_dentry'))?.n);
}

test('names that memory has forgotten are found before and after their rows are written', async () => {
  const { files } = await open({ cachedNames: 8, cachedInodes: 8, groupRows: 10_000 });
  const { names, store } = files;
  const directory = await names.makeDirectory({ parent: rootIno, name: 'd' }, 0o755);
  for (const name of namesOf(count)) await names.create({ parent: directory.ino, name }, mode);
  for (const isWritten of [false, true]) {
    if (isWritten) await store.sync();
    for (const name of namesOf(count)) expect((await names.lookup(directory.ino, name))?.mode).toBe(mode);
    expect(await names.lookup(directory.ino, 'none')).toBeNull();
    expect(names.create({ parent: directory.ino, name: 'f001' }, mode)).rejects.toThrow('f001');
    expect(names.removeDirectory({ parent: rootIno, name: 'd' })).rejects.toThrow('d');
  }
  expect((await names.list(directory.ino)).map(({ name }) => name)).toEqual(namesOf(count));
});

test('what has been made, moved and removed within a group is one row, or none', async () => {
  const local = await open();
  const { names, store } = local.files;
  const before = await rows(local);
  const { ino } = await names.create({ parent: rootIno, name: 'temporary' }, mode);
  await names.rename({ parent: rootIno, name: 'temporary' }, { parent: rootIno, name: 'final' }, 'replace');
  const second = await names.create({ parent: rootIno, name: 'temporary' }, mode);
  await names.rename({ parent: rootIno, name: 'temporary' }, { parent: rootIno, name: 'final' }, 'replace');
  await names.create({ parent: rootIno, name: 'gone' }, mode);
  await names.unlink({ parent: rootIno, name: 'gone' });
  expect(await rows(local)).toBe(before);
  await store.sync();
  expect(await rows(local)).toBe(before + 1);
  await store.exclusive(() => store.forget());
  expect((await names.lookup(rootIno, 'final'))?.ino).toBe(second.ino);
  expect(await store.inode(ino)).toBeNull();
  await names.unlink({ parent: rootIno, name: 'final' });
  await names.create({ parent: rootIno, name: 'final' }, mode);
  await store.sync();
  expect(await rows(local)).toBe(before + 1);
});

test('a list shows what has no row yet, and who asks for a parent finds it', async () => {
  const { files } = await open({ cachedNames: 2 });
  const { names, store } = files;
  const directory = await names.makeDirectory({ parent: rootIno, name: 'd' }, 0o755);
  const inner = await names.makeDirectory({ parent: directory.ino, name: 'inner' }, 0o755);
  expect(await store.exclusive(() => store.parentHere(inner.ino))).toBe(directory.ino);
  expect((await names.list(directory.ino)).map(({ name }) => name)).toEqual(['inner']);
});

test('in a directory whose names are all known, one that leads to nothing is still taken', async () => {
  const { files, driver } = await open();
  const { names, store } = files;
  const directory = await names.makeDirectory({ parent: rootIno, name: 'd' }, 0o755);
  await store.sync();
  await driver.run("INSERT INTO fs_dentry (id, name, parent_ino, ino) VALUES (5, 'lost', ?, 77)", directory.ino);
  await store.exclusive(() => store.forget());
  expect(await names.list(directory.ino)).toEqual([]);
  expect(names.create({ parent: directory.ino, name: 'lost' }, mode)).rejects.toThrow('lost');
  expect(names.lookup(directory.ino, 'other')).toBeNull();
});

test('after a pull no directory counts as known', async () => {
  const { files, driver } = await open();
  const { names, store } = files;
  const directory = await names.makeDirectory({ parent: rootIno, name: 'd' }, 0o755);
  expect(names.lookup(directory.ino, 'theirs')).toBeNull();
  await store.sync();
  await driver.run('INSERT INTO fs_inode (ino, mode, nlink, atime, mtime, ctime) VALUES (77, ?, 1, 0, 0, 0)', mode);
  await driver.run("INSERT INTO fs_dentry (id, name, parent_ino, ino) VALUES (5, 'theirs', ?, 77)", directory.ino);
  await store.exclusive(() => store.forget());
  expect((await names.lookup(directory.ino, 'theirs'))?.ino).toBe(77);
});
