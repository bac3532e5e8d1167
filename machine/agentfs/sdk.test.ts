/** agentfs-sdk 0.6.4 reads every file of a database that we wrote, and we read and change what it wrote. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { copyFileSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect } from '@tursodatabase/sync';
import { AgentFS } from 'agentfs-sdk';
import { SqlDriver } from './driver.ts';
import { OrganizationFiles } from './files.ts';
import { rootIno } from './ids.ts';
import { schemaStatements } from './schema.ts';

const directory = mkdtempSync(join(tmpdir(), 'agentfs-sdk-'));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

const binary = crypto.getRandomValues(new Uint8Array(65536 * 2 + 77));
const big = Buffer.alloc(5_000_000, 'all work and no play makes a dull file system\n');
const deep = Array.from({ length: 40 }, (_, level) => `level ${level}`);
const strangeNames = [
  'ünïcödé',
  '日本語',
  '👩‍🚀 emoji',
  'e\u0301 not composed',
  'a'.repeat(255),
  ' leading space',
  'new\nline',
  '"quotes\'',
  '-dash',
  '%_',
];

const sdkStat = async (sdk: AgentFS, path: string) => {
  const { size, nlink, mode, mtime } = await sdk.fs.lstat(path);
  return { size, nlink, mode: (mode & 0o177777).toString(8), mtime };
};

/**
 * A database that one after the other opens, each at a path of its own: the SDK's engine and ours keep what they have seen
 * of a path in this process, and do not see what the other one wrote there since.
 */
class Passed {
  #path = join(mkdtempSync(join(directory, 'passed-')), 'organization.db');

  /** For whoever comes next. */
  #moveOn(): string {
    const from = this.#path;
    this.#path = join(mkdtempSync(join(directory, 'passed-')), 'organization.db');
    for (const suffix of ['', '-wal']) {
      if (existsSync(from + suffix)) copyFileSync(from + suffix, this.#path + suffix);
    }
    return this.#path;
  }

  /** As the machine opens its replica, or as it makes one. */
  async ours(work: (files: OrganizationFiles, driver: SqlDriver) => Promise<void>): Promise<void> {
    const path = this.#moveOn();
    const database = await connect({ path });
    const driver = new SqlDriver(database, path);
    for (const { sql, args } of schemaStatements(1)) await driver.run(sql, ...args);
    const files = await OrganizationFiles.open(driver);
    await work(files, driver);
    await files.flush();
    await files.close();
    await driver.forget();
    await database.close();
  }

  async sdk(work: (sdk: AgentFS) => Promise<void>): Promise<void> {
    const sdk = await AgentFS.open({ path: this.#moveOn() });
    await work(sdk);
    await sdk.close();
  }
}

const inoOf = async (files: OrganizationFiles, path: string): Promise<number> => {
  const found = await files.find(path);
  if (!found) throw new Error(`no ${path}`);
  return found.ino;
};
const textOf = async (files: OrganizationFiles, path: string): Promise<string> =>
  Buffer.from(await files.data.read(await inoOf(files, path), 0, 1_000_000)).toString();
async function put(
  files: OrganizationFiles,
  parent: number,
  name: string,
  bytes: Uint8Array,
  mode = 0o100644,
): Promise<number> {
  const { ino } = await files.names.create({ parent, name }, mode);
  for (let at = 0; at < bytes.length; at += 100_000) await files.data.write(ino, at, bytes.subarray(at, at + 100_000));
  return ino;
}

describe('a database that we wrote', () => {
  const database = new Passed();
  beforeAll(() =>
    database.ours(async (files) => {
      const { names, data } = files;
      const work = (await names.makeDirectory({ parent: rootIno, name: 'work' }, 0o755)).ino;
      const text = await put(files, work, 'tëxt.txt', Buffer.from('héllo\0wörld'), 0o100640);
      await names.setAttributes(text, { mtime: { seconds: 1_000_000_000, nanoseconds: 5 } });
      const photo = await put(files, work, 'photo.bin', binary);
      await put(files, work, 'big', big);
      await put(files, work, 'empty', Buffer.alloc(0));
      await names.link(photo, { parent: work, name: 'second name' });
      await names.makeSymlink({ parent: work, name: 'link' }, 'photo.bin');
      await names.makeSymlink({ parent: work, name: 'dangling' }, '../nowhere/ünknown');
      let at = work;
      for (const name of deep) at = (await names.makeDirectory({ parent: at, name }, 0o755)).ino;
      await put(files, at, 'bottom', Buffer.from('bottom'));
      const strange = (await names.makeDirectory({ parent: rootIno, name: 'strange' }, 0o700)).ino;
      for (const name of strangeNames) await put(files, strange, name, Buffer.from(name));

      // What a life of a file system leaves: names that went, came again, moved, were replaced, exchanged and shortened.
      const life = (await names.makeDirectory({ parent: rootIno, name: 'life' }, 0o755)).ino;
      for (let number = 0; number < 50; number += 1)
        await put(files, life, `f${number}`, Buffer.from(`number ${number}`));
      for (let number = 0; number < 50; number += 2) await names.unlink({ parent: life, name: `f${number}` });
      await put(files, life, 'f0', Buffer.from('came again'));
      await names.rename({ parent: life, name: 'f1' }, { parent: life, name: 'f3' }, 'replace');
      await names.rename({ parent: life, name: 'f5' }, { parent: life, name: 'f7' }, 'exchange');
      await names.rename({ parent: life, name: 'f9' }, { parent: work, name: 'moved' }, 'no-replace');
      const short = await inoOf(files, '/life/f11');
      await data.write(short, 0, binary);
      await data.truncate(short, 70_000);
      await data.write(short, 10, Buffer.from('over'));
      const gone = await names.makeDirectory({ parent: life, name: 'gone' }, 0o755);
      await put(files, gone.ino, 'x', binary);
      await names.unlink({ parent: gone.ino, name: 'x' });
      await names.removeDirectory({ parent: life, name: 'gone' });
      // A hole of whole chunks, one within a chunk, and one at the end.
      const sparse = await put(files, work, 'sparse', Buffer.from('start'));
      await data.write(sparse, 300_000, Buffer.from('end'));
      const tail = await put(files, work, 'tail', Buffer.from('text'));
      await data.truncate(tail, 10_000);
    }),
  );

  test('has every directory, file and link for the SDK', async () => {
    await database.sdk(async ({ fs }) => {
      expect((await fs.readdir('/')).toSorted()).toEqual(['life', 'strange', 'work']);
      const work = [
        'big',
        'dangling',
        'empty',
        deep[0]!,
        'link',
        'moved',
        'photo.bin',
        'second name',
        'sparse',
        'tail',
        'tëxt.txt',
      ];
      expect((await fs.readdir('/work')).toSorted()).toEqual(work.toSorted());
      for (const name of ['photo.bin', 'second name'])
        expect((await fs.readFile(`/work/${name}`)).equals(binary)).toBe(true);
      expect((await fs.readFile('/work/big')).equals(big)).toBe(true);
      expect(await fs.readFile('/work/tëxt.txt', 'utf8')).toBe('héllo\0wörld');
      expect((await fs.readFile('/work/empty')).length).toBe(0);
      expect(await fs.readFile(`/work/${deep.join('/')}/bottom`, 'utf8')).toBe('bottom');
      expect([await fs.readlink('/work/link'), await fs.readlink('/work/dangling')]).toEqual([
        'photo.bin',
        '../nowhere/ünknown',
      ]);
      expect((await fs.readdir('/strange')).toSorted()).toEqual(strangeNames.toSorted());
      for (const name of strangeNames) expect(await fs.readFile(`/strange/${name}`, 'utf8')).toBe(name);
      const part = await (await fs.open('/work/big')).pread(4_321_098, 1000);
      expect(part.equals(big.subarray(4_321_098, 4_322_098))).toBe(true);
    });
  });

  test('has the attributes for the SDK', async () => {
    await database.sdk(async (sdk) => {
      expect(await sdkStat(sdk, '/work/photo.bin')).toMatchObject({ size: binary.length, nlink: 2, mode: '100644' });
      expect(await sdkStat(sdk, '/work/tëxt.txt')).toEqual({
        size: 13,
        nlink: 1,
        mode: '100640',
        mtime: 1_000_000_000,
      });
      expect(await sdkStat(sdk, '/strange')).toMatchObject({ mode: '40700' });
      expect(await sdkStat(sdk, '/work/link')).toMatchObject({ mode: '120777', size: 9 });
      // It follows no link, not even to read.
      expect(sdk.fs.readFile('/work/link')).rejects.toThrow('ENOSYS');
      for (const { name, stats } of await sdk.fs.readdirPlus('/life')) expect([name, stats.nlink]).toEqual([name, 1]);
    });
  });

  test('is after deletions, renames and truncations what it should be', async () => {
    await database.sdk(async ({ fs }) => {
      const names = Array.from({ length: 50 }, (_, number) => `f${number}`).filter((_, number) => number % 2 === 1);
      expect((await fs.readdir('/life')).toSorted()).toEqual(
        ['f0', ...names.filter((name) => !['f1', 'f9'].includes(name))].toSorted(),
      );
      const read = (name: string) => fs.readFile(`/life/${name}`, 'utf8');
      expect(await Promise.all(['f0', 'f3', 'f5', 'f7', 'f13'].map(read))).toEqual([
        'came again',
        'number 1',
        'number 7',
        'number 5',
        'number 13',
      ]);
      expect(await fs.readFile('/work/moved', 'utf8')).toBe('number 9');
      const expected = Buffer.from(binary.subarray(0, 70_000));
      expected.write('over', 10);
      expect((await fs.readFile('/life/f11')).equals(expected)).toBe(true);
      for (const name of ['gone', 'f1', 'f2']) expect(fs.stat(`/life/${name}`)).rejects.toThrow('ENOENT');
    });
  });

  test('has sparse files, of which the SDK knows sizes and what is written, and whose holes it skips', async () => {
    const whole = Buffer.concat([Buffer.from('start'), Buffer.alloc(299_995), Buffer.from('end')]);
    await database.sdk(async ({ fs }) => {
      expect((await fs.stat('/work/sparse')).size).toBe(whole.length);
      expect((await fs.stat('/work/tail')).size).toBe(10_000);
      const sparse = await fs.open('/work/sparse');
      expect((await sparse.pread(0, 5)).toString()).toBe('start');
      expect((await sparse.pread(300_000, 3)).toString()).toBe('end');
      // The SDK joins the rows that are there: it reads holes of its own files no better (`truncate`, then `readFile`).
      const own = await fs.open('/work/empty');
      await own.truncate(10_000);
      expect((await fs.readFile('/work/empty')).length).toBe(0);
      await own.truncate(0);
    });
    await database.ours(async (files) => {
      const ino = await inoOf(files, '/work/sparse');
      expect(Buffer.from(await files.data.read(ino, 0, 400_000)).equals(whole)).toBe(true);
    });
  });

  test('takes what the SDK writes into it, and the SDK sees what we then change', async () => {
    await database.sdk(async (sdk) => {
      await sdk.fs.writeFile('/work/by-sdk.txt', 'written by the SDK');
      await sdk.fs.writeFile('/work/tëxt.txt', 'replaced by the SDK');
      await sdk.fs.mkdir('/work/made by SDK');
      await sdk.fs.writeFile('/work/made by SDK/big', big);
      await sdk.fs.unlink('/work/moved');
      await sdk.fs.rename('/life/f13', '/work/renamed by SDK');
      await sdk.kv.set('key', { value: 1 });
      await sdk.tools.record('bash', 1, 2, { command: 'ls' }, 'ok');
    });
    await database.ours(async (files, driver) => {
      expect(await textOf(files, '/work/by-sdk.txt')).toBe('written by the SDK');
      expect(await textOf(files, '/work/tëxt.txt')).toBe('replaced by the SDK');
      expect(await textOf(files, '/work/renamed by SDK')).toBe('number 13');
      expect([await files.find('/work/moved'), await files.find('/life/f13')]).toEqual([null, null]);
      const made = await inoOf(files, '/work/made by SDK');
      const read = Buffer.from(await files.data.read(await inoOf(files, '/work/made by SDK/big'), 0, big.length));
      expect(read.equals(big)).toBe(true);
      expect(await driver.get('SELECT value FROM kv_store')).toMatchObject({ value: '{"value":1}' });
      expect(await driver.get('SELECT name, status FROM tool_calls')).toMatchObject({
        name: 'bash',
        status: 'success',
      });
      const bySdk = await inoOf(files, '/work/by-sdk.txt');
      await files.data.write(bySdk, 'end', Buffer.from(', and by us'));
      await files.names.rename({ parent: made, name: 'big' }, { parent: made, name: 'moved by us' }, 'replace');
      await put(files, made, 'ours', Buffer.from('ours'));
    });
    await database.sdk(async ({ fs }) => {
      expect(await fs.readFile('/work/by-sdk.txt', 'utf8')).toBe('written by the SDK, and by us');
      expect((await fs.readdir('/work/made by SDK')).toSorted()).toEqual(['moved by us', 'ours']);
      expect((await fs.readFile('/work/made by SDK/moved by us')).equals(big)).toBe(true);
    });
  });
});

test('a database that the SDK made is read and changed by us, and by the SDK again', async () => {
  const database = new Passed();
  await database.sdk(async ({ fs }) => {
    await fs.mkdir('/docs');
    await fs.mkdir('/docs/ünïcödé');
    await fs.writeFile('/docs/ünïcödé/big', big);
    await fs.writeFile('/docs/binary', Buffer.from(binary));
    await fs.writeFile('/docs/empty', '');
    await fs.writeFile('/docs/gone', 'gone');
    await fs.symlink('binary', '/docs/link');
    await fs.unlink('/docs/gone');
    await fs.rename('/docs/empty', '/docs/still empty');
    const file = await fs.open('/docs/binary');
    await file.pwrite(4094, Buffer.from('across chunks'));
  });
  const expected = Buffer.from(binary);
  expected.write('across chunks', 4094);
  await database.ours(async (files, driver) => {
    expect(await driver.get("SELECT value FROM fs_config WHERE key = 'chunk_size'")).toMatchObject({ value: '4096' });
    const listed = await files.names.list(await inoOf(files, '/docs'));
    expect(listed.map(({ name }) => name).toSorted()).toEqual(['binary', 'link', 'still empty', 'ünïcödé']);
    const ino = await inoOf(files, '/docs/binary');
    expect(Buffer.from(await files.data.read(ino, 0, binary.length)).equals(expected)).toBe(true);
    const read = Buffer.from(await files.data.read(await inoOf(files, '/docs/ünïcödé/big'), 0, big.length));
    expect(read.equals(big)).toBe(true);
    expect(await files.names.readSymlink(await inoOf(files, '/docs/link'))).toBe('binary');
    // In chunks of the size that this database has.
    await files.data.write(ino, 8190, Buffer.from('ours, across chunks'));
    await files.data.write(ino, 'end', Buffer.from('longer'));
    await files.data.truncate(await inoOf(files, '/docs/ünïcödé/big'), 4097);
    const docs = await inoOf(files, '/docs');
    await put(files, docs, 'ours', big);
    await files.names.unlink({ parent: docs, name: 'still empty' });
    await files.names.link(ino, { parent: docs, name: 'hard' });
  });
  expected.write('ours, across chunks', 8190);
  const longer = Buffer.concat([expected, Buffer.from('longer')]);
  await database.sdk(async ({ fs }) => {
    expect((await fs.readdir('/docs')).toSorted()).toEqual(['binary', 'hard', 'link', 'ours', 'ünïcödé']);
    for (const name of ['binary', 'hard']) expect((await fs.readFile(`/docs/${name}`)).equals(longer)).toBe(true);
    expect((await fs.readFile('/docs/ours')).equals(big)).toBe(true);
    expect((await fs.readFile('/docs/ünïcödé/big')).equals(big.subarray(0, 4097))).toBe(true);
    await fs.writeFile('/docs/ours', 'the SDK again');
    await fs.rm('/docs/hard');
  });
  await database.ours(async (files) => {
    expect(await textOf(files, '/docs/ours')).toBe('the SDK again');
    expect((await files.find('/docs/binary'))!.nlink).toBe(1);
  });
}, 60_000);
