import { afterAll, beforeAll, expect, test } from 'bun:test';
import { startAuthority, type TestAuthority } from './authority.fixture.ts';
import { CloudFiles } from './cloud.ts';
import { type ByteRange, contentsOf } from './cloud-contents.ts';
import { FileError } from './errors.ts';
import { renumberForeignNames } from './foreign-names.ts';
import { dentryId } from './ids.ts';
import { isDirectory } from './schema.ts';

let authority: TestAuthority;
let cloud: CloudFiles;
beforeAll(async () => {
  authority = await startAuthority();
  cloud = authority.cloud;
});
afterAll(() => authority.stop());

async function errnoOf(work: Promise<unknown>): Promise<string> {
  return work.then(
    () => 'ok',
    (error: unknown) => (error instanceof FileError ? error.errno : String(error)),
  );
}

test('provisioning again changes nothing', async () => {
  await cloud.writeFileOnce('/SOUL.md', Buffer.from('persona'), 0o600);
  await cloud.provision();
  expect(Buffer.from(await cloud.readFile('/SOUL.md')).toString()).toBe('persona');
  const { rows } = await authority.sql.execute('SELECT key, value FROM fs_config ORDER BY key');
  expect(rows).toEqual([
    ['chunk_size', '65536'],
    ['schema_version', '0.4'],
  ]);
});

test('directories are made once, whoever makes them at the same time', async () => {
  const path = '/conversations/conv_x/artifacts/inbound';
  const made = await Promise.all([1, 2, 3, 4].map(() => new CloudFiles(authority.sql).ensureDirectory(path)));
  expect(new Set(made.map(({ ino }) => ino)).size).toBe(1);
  expect(isDirectory(made[0]!.mode)).toBe(true);
  expect((await cloud.list('/conversations/conv_x')).map(({ name }) => name)).toEqual(['artifacts']);
  expect((await cloud.stat(path))!.nlink).toBe(1);
});

test('a file larger than a request is written in several and named last; read whole and in parts', async () => {
  const bytes = crypto.getRandomValues(new Uint8Array(65_536));
  const large = new Uint8Array(5 * 1024 ** 2 + 17);
  for (let at = 0; at < large.length; at += bytes.length) large.set(bytes.subarray(0, large.length - at), at);
  expect((await cloud.writeFileOnce('/big/file', large)).outcome).toBe('written');
  expect(Buffer.from(await cloud.readFile('/big/file')).equals(large)).toBe(true);
  const inode = (await cloud.stat('/big/file'))!;
  const read = async (range?: ByteRange): Promise<Buffer> => {
    const parts: Uint8Array[] = [];
    for await (const part of contentsOf(authority.sql, inode, await cloud.chunkSize(), range)) parts.push(part);
    return Buffer.concat(parts);
  };
  expect((await read()).equals(large)).toBe(true);
  for (const [start, end] of [
    [0, 1],
    [65_535, 65_537],
    [1_048_575, 3_000_001],
    [5 * 1024 ** 2, 5 * 1024 ** 2 + 17],
    [7, 7],
  ] as const) {
    expect((await read({ start, end })).equals(large.subarray(start, end))).toBe(true);
  }
  expect(await errnoOf(cloud.readFile('/big/file', 1024))).toBe('EFBIG');
  // A second one of that name leaves nothing behind.
  expect((await cloud.writeFileOnce('/big/file', large.subarray(5))).outcome).toBe('exists');
  const { rows } = await authority.sql.execute('SELECT count(*) FROM fs_inode WHERE nlink = 0');
  expect(rows).toEqual([[0]]);
});

test('of two that write the same path at once, one has written it', async () => {
  const contents = ['one', 'two', 'three'].map((text) => Buffer.from(text));
  const outcomes = await Promise.all(contents.map((bytes) => cloud.writeFileOnce('/raced/file', bytes)));
  const winner = outcomes.findIndex(({ outcome }) => outcome === 'written');
  expect(outcomes.filter(({ outcome }) => outcome === 'written').length).toBe(1);
  expect(Buffer.from(await cloud.readFile('/raced/file'))).toEqual(contents[winner]!);
  expect(new Set(outcomes.map(({ inode }) => inode.ino)).size).toBe(1);
});

test('an empty file, and names that are hard', async () => {
  for (const name of [
    'empty',
    'naïve.txt',
    'e\u0301',
    '日本',
    'quo\'te "x"',
    '%_\\',
    ' spaces ',
    '\u{1F600}'.repeat(60),
  ]) {
    const bytes = name === 'empty' ? new Uint8Array(0) : Buffer.from(name);
    await cloud.writeFileOnce(`/names/${name}`, bytes);
    expect(Buffer.from(await cloud.readFile(`/names/${name}`)).equals(bytes)).toBe(true);
  }
  expect((await cloud.list('/names')).length).toBe(8);
});

test('a file beyond the limit is EFBIG, and nothing of it is written', async () => {
  const limited = new CloudFiles(authority.sql, 10);
  expect(await errnoOf(limited.writeFileOnce('/limited/file', new Uint8Array(11)))).toBe('EFBIG');
  expect(await cloud.stat('/limited')).toBeNull();
  expect((await limited.writeFileOnce('/limited/file', new Uint8Array(10))).outcome).toBe('written');
});

test('what cannot be is refused', async () => {
  await cloud.writeFileOnce('/a/file', Buffer.from('x'));
  expect(await cloud.stat('/a/nothing')).toBeNull();
  expect(await cloud.stat('/a/file/below')).toBeNull();
  expect(await errnoOf(cloud.readFile('/a/nothing'))).toBe('ENOENT');
  expect(await errnoOf(cloud.readFile('/a'))).toBe('EISDIR');
  expect(await errnoOf(cloud.list('/a/file'))).toBe('ENOTDIR');
  expect(await errnoOf(cloud.list('/nothing'))).toBe('ENOENT');
  expect(await errnoOf(cloud.ensureDirectory('/a/file'))).toBe('ENOTDIR');
  expect(await errnoOf(cloud.ensureDirectory('/a/file/below'))).toBe('ENOTDIR');
  expect(await errnoOf(cloud.writeFileOnce('/a/../b', Buffer.from('x')))).toBe('EINVAL');
  expect(await errnoOf(cloud.writeFileOnce(`/a/${'n'.repeat(256)}`, Buffer.from('x')))).toBe('ENAMETOOLONG');
  expect(await errnoOf(cloud.writeFileOnce('/', Buffer.from('x')))).toBe('EISDIR');
  expect((await cloud.writeFileOnce('/a', Buffer.from('x'))).outcome).toBe('exists');
});

test('files and directories are made where another program has taken the row of the name elsewhere', async () => {
  await cloud.writeFileOnce('/taken/file', Buffer.from('first'));
  await authority.sql.execute("UPDATE fs_dentry SET name = 'other file' WHERE name = 'file'");
  await authority.sql.execute("UPDATE fs_dentry SET name = 'other' WHERE name = 'taken'");
  await cloud.writeFileOnce('/taken/file', Buffer.from('second'));
  await cloud.writeFileOnce('/other/file', Buffer.from('third'));
  const read = async (path: string) => Buffer.from(await cloud.readFile(path)).toString();
  expect(await Promise.all(['/other/other file', '/taken/file', '/other/file'].map(read))).toEqual([
    'first',
    'second',
    'third',
  ]);
});

test('names under the row ids of each other get their own', async () => {
  for (const name of ['one', 'two', 'three']) await cloud.writeFileOnce(`/swapped/${name}`, Buffer.from(name));
  const rename = (from: string, to: string) =>
    authority.sql.execute('UPDATE fs_dentry SET name = ? WHERE name = ?', [to, from]);
  for (const [from, to] of [
    ['one', 'free'],
    ['two', 'one'],
    ['three', 'two'],
    ['free', 'three'],
  ] as const)
    await rename(from, to);
  expect(await renumberForeignNames(authority.sql)).toBeGreaterThanOrEqual(3);
  const parent = (await cloud.stat('/swapped'))!.ino;
  for (const [name, was] of [
    ['one', 'two'],
    ['two', 'three'],
    ['three', 'one'],
  ] as const) {
    const { rows } = await authority.sql.execute('SELECT name FROM fs_dentry WHERE id = ?', [dentryId(parent, name)]);
    expect(rows).toEqual([[name]]);
    expect(Buffer.from(await cloud.readFile(`/swapped/${name}`)).toString()).toBe(was);
  }
  expect(await renumberForeignNames(authority.sql)).toBe(0);
});
