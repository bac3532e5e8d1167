/** Small files that are read in the order of their directory's list come many at once, and always as they are now. */
import { afterEach, expect, spyOn, test } from 'bun:test';
import type { OrganizationFiles } from './files.ts';
import { rootIno } from './ids.ts';
import { type LocalFiles, openLocalFiles } from './local.fixture.ts';

const opened: LocalFiles[] = [];
afterEach(async () => {
  for (const local of opened.splice(0)) await local.close();
});

const count = 100;
const mode = 0o100644;
const nameOf = (number: number) => `f${String(number).padStart(3, '0')}`;
const textOf = (number: number) => `contents of ${number} `.repeat(1 + (number % 5) * 100);

/** A directory of files that memory has forgotten and a program has listed. */
async function listed(textOfFile = textOf): Promise<{ local: LocalFiles; directory: number; inos: number[] }> {
  const local = await openLocalFiles({ commitAfterMs: 600_000 });
  opened.push(local);
  const { names, data } = local.files;
  const directory = (await names.makeDirectory({ parent: rootIno, name: 'd' }, 0o755)).ino;
  const inos: number[] = [];
  for (let number = 0; number < count; number++) {
    const { ino } = await names.create({ parent: directory, name: nameOf(number) }, mode);
    await data.write(ino, 0, Buffer.from(textOfFile(number)));
    inos.push(ino);
  }
  await local.files.flush();
  await forget(local);
  await names.list(directory);
  return { local, directory, inos };
}

/** As a pull does. */
async function forget({ files }: LocalFiles): Promise<void> {
  files.data.forgetRead();
  await files.store.exclusive(() => files.store.forget());
}

const read = async ({ data }: OrganizationFiles, ino: number) =>
  Buffer.from(await data.read(ino, 0, 1_000_000)).toString();

/** Questions for contents that `work` asks. */
async function questions({ files }: LocalFiles, work: () => Promise<void>): Promise<number> {
  const spies = [spyOn(files.store.sql, 'all'), spyOn(files.store.sql, 'get')];
  await work();
  const asked = spies.flatMap((spy) => spy.mock.calls).filter(([sql]) => sql.includes('FROM fs_data'));
  for (const spy of spies) spy.mockRestore();
  return asked.length;
}

test('who reads in the order of the list asks seldom, and gets each file', async () => {
  const { local, inos } = await listed();
  const asked = await questions(local, async () => {
    for (const [number, ino] of inos.entries()) expect(await read(local.files, ino)).toBe(textOf(number));
  });
  expect(asked).toBeLessThan(20);
});

test('who leaves out some still asks seldom; who reads here and there gets no more than was asked for', async () => {
  const { local, inos } = await listed();
  const some = await questions(local, async () => {
    for (let number = 0; number < count; number += 3) await read(local.files, inos[number]!);
  });
  expect(some).toBeLessThan(20);
  await forget(local);
  await local.files.names.list((await local.files.names.lookup(rootIno, 'd'))!.ino);
  const hereAndThere = await questions(local, async () => {
    for (let step = 0; step < count; step++) await read(local.files, inos[(step * 37) % count]!);
  });
  expect(hereAndThere).toBe(count);
});

test('one look brings no more than a bounded part, and no large file', async () => {
  const { local, inos } = await listed((number) => 'x'.repeat(number === 5 ? 20_000 : 10_000));
  const { all } = local.files.store.sql;
  let most = 0;
  local.files.store.sql.all = async (sql, ...args) => {
    const rows = await all.call(local.files.store.sql, sql, ...args);
    const bytes = rows.reduce((sum, { data }) => sum + (data instanceof Uint8Array ? data.length : 0), 0);
    most = Math.max(most, bytes);
    return rows;
  };
  for (const [number, ino] of inos.entries())
    expect((await read(local.files, ino)).length).toBe(number === 5 ? 20_000 : 10_000);
  local.files.store.sql.all = all;
  expect(most).toBeGreaterThan(20_000);
  expect(most).toBeLessThanOrEqual(64 * 1024 + 10_000);
});

test('what was brought before it was read is read as it is then: written, cut, replaced, removed, pulled, lost', async () => {
  const { local, directory, inos } = await listed();
  const { files, driver } = local;
  const { names, data, store } = files;
  for (let number = 0; number < 3; number++) await read(files, inos[number]!);
  // Those behind are in memory now.
  expect(await questions(local, async () => void (await read(files, inos[3]!)))).toBe(0);
  await data.write(inos[4]!, 0, Buffer.from('written'));
  await data.truncate(inos[5]!, 3);
  await names.unlink({ parent: directory, name: nameOf(6) });
  const { ino: again } = await names.create({ parent: directory, name: nameOf(6) }, mode);
  await names.rename({ parent: directory, name: nameOf(7) }, { parent: directory, name: nameOf(8) }, 'replace');
  for (const when of ['at once', 'written out'] as const) {
    expect([when, await read(files, inos[4]!)]).toEqual([when, `written${textOf(4).slice(7)}`]);
    expect(await read(files, inos[5]!)).toBe(textOf(5).slice(0, 3));
    expect(await read(files, again)).toBe('');
    expect(read(files, inos[6]!)).rejects.toThrow('ENOENT');
    expect(read(files, inos[8]!)).rejects.toThrow('ENOENT');
    expect(await read(files, (await names.lookup(directory, nameOf(8)))!.ino)).toBe(textOf(7));
    await store.sync();
  }
  await driver.run("UPDATE fs_data SET data = 'pulled' WHERE ino = ?", inos[9]!);
  await driver.run('UPDATE fs_inode SET size = 6 WHERE ino = ?', inos[9]!);
  await forget(local);
  expect(await read(files, inos[9]!)).toBe('pulled');
});

test('what is ahead of its row is not taken from there: in memory, in a new file, in a hole', async () => {
  const { local, directory, inos } = await listed();
  const { names, data } = local.files;
  await data.write(inos[10]!, 0, Buffer.from('ahead'));
  const { ino } = await names.create({ parent: directory, name: `${nameOf(10)}-new` }, mode);
  await data.write(ino, 0, Buffer.from('new'));
  const { ino: hole } = await names.create({ parent: directory, name: `${nameOf(10)}-hole` }, mode);
  await data.truncate(hole, 100);
  await names.list(directory);
  for (const number of [8, 9]) await read(local.files, inos[number]!);
  expect(await read(local.files, inos[10]!)).toBe(`ahead${textOf(10).slice(5)}`);
  expect(await read(local.files, ino)).toBe('new');
  expect(await read(local.files, hole)).toBe('\0'.repeat(100));
  expect(await read(local.files, inos[11]!)).toBe(textOf(11));
});
