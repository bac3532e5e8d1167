/** What was removed and whose rows the database still has: nobody sees it, and it goes with the group or comes back with it. */
import { afterEach, expect, spyOn, test } from 'bun:test';
import { copyFileSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { OrganizationFiles } from './files.ts';
import { rootIno } from './ids.ts';
import { defaultLimits, type StoreLimits } from './limits.ts';
import { type LocalFiles, openFilesIn } from './local.fixture.ts';
import { Quotas } from './quota.ts';
import { repairHere } from './repair.ts';

const directories: string[] = [];
const opened: LocalFiles[] = [];
afterEach(async () => {
  for (const local of opened.splice(0)) await local.close();
  for (const directory of directories.splice(0)) rmSync(directory, { recursive: true, force: true });
});

function newDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), 'agentfs-removals-'));
  directories.push(directory);
  return directory;
}

async function open(limits: Partial<StoreLimits> = {}, directory = newDirectory()): Promise<LocalFiles> {
  const local = await openFilesIn(directory, { commitAfterMs: 600_000, groupRows: 100_000, ...limits });
  opened.push(local);
  return local;
}

const mode = 0o100644;
const count = 100;
const nameOf = (number: number) => `f${String(number).padStart(3, '0')}`;
const textOf = (number: number) => Buffer.from(`contents ${number} `.repeat(1 + (number % 7) * 400));

async function directoryIn(files: OrganizationFiles, name: string, parent = rootIno): Promise<number> {
  return (await files.names.makeDirectory({ parent, name }, 0o755)).ino;
}

async function fileIn(files: OrganizationFiles, parent: number, name: string, bytes = Buffer.from(name)) {
  const { ino } = await files.names.create({ parent, name }, mode);
  await files.data.write(ino, 0, bytes);
  return ino;
}

/** A directory with files, all in rows. */
async function filled(files: OrganizationFiles): Promise<{ directory: number; inos: number[] }> {
  const directory = await directoryIn(files, 'd');
  const inos: number[] = [];
  for (let number = 0; number < count; number++)
    inos.push(await fileIn(files, directory, nameOf(number), textOf(number)));
  await files.flush();
  return { directory, inos };
}

/** Rows of each table, as the database has them now. */
async function rows({ files: { store } }: LocalFiles): Promise<number[]> {
  const counts: number[] = [];
  for (const table of ['fs_dentry', 'fs_inode', 'fs_data', 'fs_symlink'])
    counts.push(Number((await store.sql.get(`SELECT count(*) AS n FROM ${table}`))?.n));
  return counts;
}

const contents = async ({ data }: OrganizationFiles, ino: number) => Buffer.from(await data.read(ino, 0, 1_000_000));
const listed = async ({ names }: OrganizationFiles, ino: number) => (await names.list(ino)).map(({ name }) => name);

/** The replica as a kill would leave it. */
function copyOf({ path }: LocalFiles): string {
  const directory = newDirectory();
  for (const suffix of ['', '-wal', '-spool'])
    if (existsSync(path + suffix)) copyFileSync(path + suffix, join(directory, `organization.db${suffix}`));
  return directory;
}

for (const memory of [{}, { cachedNames: 8, cachedInodes: 8 }]) {
  test(`what has rows still is gone for everybody, and the rows go together ${JSON.stringify(memory)}`, async () => {
    const local = await open(memory);
    const { files } = local;
    const { directory, inos } = await filled(files);
    const before = await rows(local);
    for (let number = 1; number < count; number++)
      await files.names.unlink({ parent: directory, name: nameOf(number) });
    expect(await rows(local)).toEqual(before);
    for (let number = 1; number < count; number++) {
      expect(await files.names.lookup(directory, nameOf(number))).toBeNull();
      expect(await files.store.inode(inos[number]!)).toBeNull();
      await expect((async () => files.names.open(inos[number]!))()).rejects.toThrow('ESTALE');
      await expect((async () => files.data.read(inos[number]!, 0, 1))()).rejects.toThrow('ENOENT');
      await expect(files.data.write(inos[number]!, 0, Buffer.from('x'))).rejects.toThrow('ENOENT');
      await expect(files.names.setAttributes(inos[number]!, { mode: 0o600 })).rejects.toThrow('ENOENT');
      await expect(files.names.unlink({ parent: directory, name: nameOf(number) })).rejects.toThrow('ENOENT');
    }
    await expect(files.names.removeDirectory({ parent: rootIno, name: 'd' })).rejects.toThrow('ENOTEMPTY');
    expect(await listed(files, directory)).toEqual([nameOf(0)]);
    await files.names.unlink({ parent: directory, name: nameOf(0) });
    await files.names.removeDirectory({ parent: rootIno, name: 'd' });
    expect(await files.store.inode(directory)).toBeNull();
    await files.store.sync();
    expect(await rows(local)).toEqual([0, 1, 0, 0]);
  });
}

test('a directory that holds names of which none has gone is not empty, and one is whose last names are going', async () => {
  const local = await open();
  const { files } = local;
  const { directory } = await filled(files);
  await files.names.unlink({ parent: directory, name: nameOf(0) });
  await expect(files.names.removeDirectory({ parent: rootIno, name: 'd' })).rejects.toThrow('ENOTEMPTY');
  for (let number = 1; number < count; number++) await files.names.unlink({ parent: directory, name: nameOf(number) });
  await fileIn(files, directory, 'new');
  await expect(files.names.removeDirectory({ parent: rootIno, name: 'd' })).rejects.toThrow('ENOTEMPTY');
  await files.names.unlink({ parent: directory, name: 'new' });
  const before = await rows(local);
  await files.names.removeDirectory({ parent: rootIno, name: 'd' });
  expect(await rows(local)).toEqual(before);
});

test('a name is given again before its row is gone: by a new file, by a move, by a link, and to a directory', async () => {
  const local = await open();
  const { files } = local;
  const { directory, inos } = await filled(files);
  const at = (number: number) => ({ parent: directory, name: nameOf(number) });
  for (let number = 0; number < 6; number++) await files.names.unlink(at(number));
  const made = await fileIn(files, directory, nameOf(0), Buffer.from('again'));
  await files.names.rename(at(10), at(1), 'replace');
  await files.names.link(inos[11]!, at(2));
  await files.names.makeDirectory(at(3), 0o755);
  // Over what has a row, over what was given again, and given, taken and given again.
  await files.names.rename(at(12), at(13), 'replace');
  await files.names.rename(at(14), at(1), 'replace');
  await fileIn(files, directory, nameOf(4));
  await files.names.unlink(at(4));
  const last = await fileIn(files, directory, nameOf(4), Buffer.from('last'));
  await fileIn(files, directory, nameOf(5));
  await files.names.unlink(at(5));
  for (const when of ['before', 'after', 'later'] as const) {
    expect((await files.names.lookup(directory, nameOf(0)))?.ino).toBe(made);
    expect((await contents(files, made)).toString()).toBe('again');
    expect([when, (await files.names.lookup(directory, nameOf(1)))?.ino]).toEqual([when, inos[14]!]);
    expect((await files.store.inode(inos[11]!))?.nlink).toBe(2);
    expect((await files.names.lookup(directory, nameOf(13)))?.ino).toBe(inos[12]!);
    expect((await contents(files, last)).toString()).toBe('last');
    for (const number of [5, 10, 12, 14]) expect(await files.names.lookup(directory, nameOf(number))).toBeNull();
    for (const number of [0, 1, 2, 3, 4, 5, 10, 13]) expect(await files.store.inode(inos[number]!)).toBeNull();
    await files.store.sync();
    if (when === 'after') await files.store.exclusive(() => files.store.forget());
  }
  const expected = [0, 1, 2, 3, 4, ...Array.from({ length: count - 6 }, (_, number) => number + 6)];
  expect(await listed(files, directory)).toEqual(
    expected.filter((number) => ![10, 12, 14].includes(number)).map(nameOf),
  );
  // 100 files less eight, two new ones; the root, two directories.
  expect((await rows(local))[1]).toBe(count - 8 + 2 + 3);
});

test('a directory is made again where one goes whose row is there still, and goes again', async () => {
  const local = await open();
  const { files } = local;
  const first = await directoryIn(files, 'd');
  await files.store.sync();
  for (const end of ['there', 'gone'] as const) {
    await files.names.removeDirectory({ parent: rootIno, name: 'd' });
    expect(await files.store.inode(first)).toBeNull();
    expect(await directoryIn(files, 'd')).toBe(first);
    const inner = await fileIn(files, first, 'inner');
    expect(await listed(files, first)).toEqual(['inner']);
    await files.names.unlink({ parent: first, name: 'inner' });
    if (end === 'gone') await files.names.removeDirectory({ parent: rootIno, name: 'd' });
    await files.store.sync();
    expect(await files.store.inode(inner)).toBeNull();
    expect(await rows(local)).toEqual(end === 'there' ? [1, 2, 0, 0] : [0, 1, 0, 0]);
  }
});

test('a file with two names goes with the second, and one that is open with its last close', async () => {
  const local = await open({ cachedNames: 4 });
  const { files } = local;
  const { directory, inos } = await filled(files);
  await files.names.link(inos[1]!, { parent: rootIno, name: 'other' });
  await files.store.sync();
  await files.names.unlink({ parent: directory, name: nameOf(1) });
  expect((await files.store.inode(inos[1]!))?.nlink).toBe(1);
  for (const number of [10, 11, 12, 13, 14]) await files.names.lookup(directory, nameOf(number));
  expect(await files.names.lookup(directory, nameOf(1))).toBeNull();
  expect((await listed(files, directory)).length).toBe(count - 1);
  expect(await contents(files, inos[1]!)).toEqual(textOf(1));
  await files.names.open(inos[2]!);
  await files.names.unlink({ parent: directory, name: nameOf(2) });
  await files.store.sync();
  files.data.forgetRead();
  expect(await contents(files, inos[2]!)).toEqual(textOf(2));
  const before = await rows(local);
  await files.names.close(inos[2]!);
  await files.names.unlink({ parent: rootIno, name: 'other' });
  for (const number of [1, 2]) expect(await files.store.inode(inos[number]!)).toBeNull();
  expect(await rows(local)).toEqual(before);
  await files.store.sync();
  expect(await rows(local)).toEqual([count - 1, count, count - 2, 0]);
});

test('a symbolic link goes with its target, whether it had a row or not', async () => {
  const local = await open();
  const { files } = local;
  for (const [name, isWritten] of [
    ['written', true],
    ['new', false],
  ] as const) {
    const { ino } = await files.names.makeSymlink({ parent: rootIno, name }, '/somewhere');
    if (isWritten) await files.store.sync();
    await files.names.unlink({ parent: rootIno, name });
    await expect(files.names.readSymlink(ino)).rejects.toThrow('ENOENT');
  }
  await files.store.sync();
  expect(await rows(local)).toEqual([0, 1, 0, 0]);
});

for (const isCaptured of [false, true]) {
  test(`names that another program has given go too, ${isCaptured ? 'and a push hears of each row' : 'without pushes'}`, async () => {
    const local = await open();
    const { files, driver } = local;
    const { directory, inos } = await filled(files);
    await driver.run('UPDATE fs_dentry SET id = 7 WHERE name = ?', nameOf(20));
    await driver.run('UPDATE fs_dentry SET id = 8 WHERE name = ?', nameOf(21));
    await files.store.sync();
    // As the sync engine does.
    if (isCaptured) await driver.run("PRAGMA unstable_capture_data_changes_conn('full,turso_cdc')");
    for (let number = 0; number < 40; number++) await files.names.unlink({ parent: directory, name: nameOf(number) });
    await files.store.sync();
    await files.store.exclusive(() => files.store.forget());
    expect(await listed(files, directory)).toEqual(Array.from({ length: 60 }, (_, number) => nameOf(number + 40)));
    expect(await files.store.inode(inos[20]!)).toBeNull();
    expect((await rows(local))[0]).toBe(61);
    if (!isCaptured) return;
    const sql = 'SELECT table_name, count(*) AS n FROM turso_cdc WHERE change_type = -1 GROUP BY table_name ORDER BY 1';
    const captured = (await driver.all(sql)).map(({ table_name: table, n }) => [table, n]);
    expect(captured).toEqual([
      ['fs_data', 40],
      ['fs_dentry', 40],
      ['fs_inode', 40],
    ]);
  });
}

test('a name of nothing, which a merge has left, is not found in place of what goes', async () => {
  const local = await open();
  const { files, driver } = local;
  const { directory, inos } = await filled(files);
  // Two names, of which the count of links says one.
  await driver.run(
    'INSERT INTO fs_dentry (id, name, parent_ino, ino) VALUES (9, ?, ?, ?)',
    'second',
    rootIno,
    inos[3]!,
  );
  await files.store.exclusive(() => files.store.forget());
  await files.names.unlink({ parent: directory, name: nameOf(3) });
  expect(await listed(files, rootIno)).toEqual(['d']);
  expect(await files.names.lookup(rootIno, 'second')).toBeNull();
});

test('a machine that is killed has removed all of a group or nothing', async () => {
  const local = await open();
  const { files } = local;
  const { directory, inos } = await filled(files);
  for (let number = 0; number < 50; number++) await files.names.unlink({ parent: directory, name: nameOf(number) });
  // In the middle of writing: a list asks for the names.
  await files.names.list(directory);
  const killed = (await open({}, copyOf(local))).files;
  expect((await listed(killed, directory)).length).toBe(count);
  for (const number of [0, 49]) expect(await contents(killed, inos[number]!)).toEqual(textOf(number));
  await files.store.sync();
  const synced = await open({}, copyOf(local));
  expect((await listed(synced.files, directory)).length).toBe(50);
  expect(await rows(synced)).toEqual([51, 52, 50, 0]);
});

test('a group that is lost gives back what was removed in it', async () => {
  const local = await open();
  const { files } = local;
  const { directory, inos } = await filled(files);
  const { run } = files.store.sql;
  for (const failing of ['COMMIT', 'DELETE FROM fs_data', 'DELETE FROM fs_dentry'] as const) {
    // Counting writes out what there is.
    await files.store.quotas.allowance(0);
    for (let number = 0; number < 50; number++) await files.names.unlink({ parent: directory, name: nameOf(number) });
    await fileIn(files, directory, nameOf(3), Buffer.from('instead'));
    files.store.sql.run = (sql, ...args) =>
      sql.startsWith(failing) ? Promise.reject(new Error('disk is full')) : run.call(files.store.sql, sql, ...args);
    // A list asks for the names, whoever ends the group for all.
    const end = failing === 'DELETE FROM fs_dentry' ? files.names.list(directory) : files.store.sync();
    await expect(end).rejects.toThrow('full');
    files.store.sql.run = run;
    expect((await listed(files, directory)).length).toBe(count);
    for (const number of [0, 3, 49]) expect(await contents(files, inos[number]!)).toEqual(textOf(number));
  }
  await files.names.unlink({ parent: directory, name: nameOf(3) });
  await files.store.sync();
  expect(await rows(local)).toEqual([count, count + 1, count - 1, 0]);
});

test('what was removed before a pull stays away, and what the pull brings in its place is there', async () => {
  const local = await open();
  const { files, driver } = local;
  const { directory } = await filled(files);
  for (let number = 0; number < 10; number++) await files.names.unlink({ parent: directory, name: nameOf(number) });
  await files.store.exclusive(() => files.data.commitBeforePullHere());
  await driver.run('INSERT INTO fs_inode (ino, mode, nlink, atime, mtime, ctime) VALUES (77, ?, 1, 0, 0, 0)', mode);
  await driver.run('INSERT INTO fs_dentry (id, name, parent_ino, ino) VALUES (5, ?, ?, 77)', nameOf(2), directory);
  files.data.forgetRead();
  await files.store.exclusive(() => files.store.forget());
  expect((await files.names.lookup(directory, nameOf(2)))?.ino).toBe(77);
  expect(await files.names.lookup(directory, nameOf(1))).toBeNull();
  expect((await listed(files, directory)).length).toBe(count - 9);
});

test('usage is right at once, and when it is counted anew', async () => {
  const local = await open();
  const { files } = local;
  const conversations = await directoryIn(files, 'conversations');
  const account = await directoryIn(files, 'conv_a', conversations);
  for (let number = 0; number < 20; number++) await fileIn(files, account, nameOf(number), textOf(number));
  await files.flush();
  await files.store.exclusive(() => files.store.forget());
  const used = async () => (await files.store.quotas.allowance(account)).used;
  let bytes = (await used()).bytes;
  for (let number = 0; number < 20; number++) {
    await files.names.unlink({ parent: account, name: nameOf(number) });
    bytes -= textOf(number).length;
    expect(await used()).toEqual({ bytes, inodes: 20 - number });
  }
  const anew = new Quotas(files.store, defaultLimits, 100);
  expect((await anew.allowance(account)).used).toEqual({ bytes: 0, inodes: 1 });
});

test('nothing is looked for among all names: not for what is removed, and not where it was', async () => {
  const local = await open();
  const { files } = local;
  const { directory } = await filled(files);
  for (const look of ['listed', 'looked up'] as const) {
    await files.store.exclusive(() => files.store.forget());
    // A mount knows whose its directories are.
    await listed(files, rootIno);
    if (look === 'listed') await listed(files, directory);
    const get = spyOn(files.store.sql, 'get');
    const from = look === 'listed' ? 0 : 50;
    for (let number = from; number < from + 50; number++)
      await files.names.unlink({ parent: directory, name: nameOf(number) });
    await files.store.sync();
    const looks = get.mock.calls.filter(([sql]) => sql.includes('FROM fs_dentry WHERE ino'));
    get.mockRestore();
    expect([look, looks.length]).toEqual([look, 0]);
  }
});

test('a name whose row id is another name of its place is not taken along: another program has renamed that', async () => {
  const local = await open();
  const { files, driver } = local;
  const { directory, inos } = await filled(files);
  // The public SDK renames by a new name in the same row, and what it makes gets a number of its own.
  await driver.run('UPDATE fs_dentry SET name = ? WHERE name = ?', 'renamed', nameOf(1));
  await driver.run(
    'INSERT INTO fs_dentry (id, name, parent_ino, ino) VALUES (9, ?, ?, ?)',
    nameOf(1),
    directory,
    inos[2]!,
  );
  await driver.run('DELETE FROM fs_dentry WHERE name = ?', nameOf(2));
  await files.store.exclusive(() => files.store.forget());
  await files.names.unlink({ parent: directory, name: nameOf(1) });
  await files.store.sync();
  await files.store.exclusive(() => files.store.forget());
  expect((await files.names.lookup(directory, 'renamed'))?.ino).toBe(inos[1]!);
  expect(await files.names.lookup(directory, nameOf(1))).toBeNull();
  // And its old name can be given.
  const again = await fileIn(files, directory, nameOf(1), Buffer.from('again'));
  await files.store.sync();
  await files.store.exclusive(() => files.store.forget());
  expect((await files.names.lookup(directory, 'renamed'))?.ino).toBe(inos[1]!);
  expect((await files.names.lookup(directory, nameOf(1)))?.ino).toBe(again);
});

test('what lost its name is back at its place although another name has the row id of that', async () => {
  const { files, driver } = await open();
  const { directory, inos } = await filled(files);
  await listed(files, directory);
  for (const number of [1, 2]) await files.names.lookup(directory, nameOf(number));
  // As a merge leaves it: the row is another's by now, under another name.
  await driver.run('DELETE FROM fs_dentry WHERE name = ?', nameOf(2));
  await driver.run('UPDATE fs_dentry SET name = ?, ino = ? WHERE name = ?', 'renamed', inos[2]!, nameOf(1));
  files.data.forgetRead();
  await files.store.exclusive(async () => {
    await files.store.forget();
    expect(await repairHere(files.store)).toMatchObject({ found: 1 });
    await files.store.forget();
  });
  expect((await files.names.lookup(directory, nameOf(1)))?.ino).toBe(inos[1]!);
  expect((await files.names.lookup(directory, 'renamed'))?.ino).toBe(inos[2]!);
});
