/** The public SDK opens and reads what we write: the schema, the configuration, whole files, links, the ledger. */
import { afterAll, beforeAll, expect, test } from 'bun:test';
import { copyFileSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect } from '@tursodatabase/sync';
import { AgentFS } from 'agentfs-sdk';
import { SqlDriver } from './driver.ts';
import { OrganizationFiles } from './files.ts';
import { rootIno } from './ids.ts';
import { openLocalFiles } from './local.fixture.ts';

const directory = mkdtempSync(join(tmpdir(), 'agentfs-sdk-'));
const binary = crypto.getRandomValues(new Uint8Array(65536 * 2 + 77));

beforeAll(async () => {
  const local = await openLocalFiles();
  const { names, data } = local.files;
  const parent = (await names.makeDirectory({ parent: rootIno, name: 'work' }, 0o755)).ino;
  const text = await names.create({ parent, name: 'tëxt.txt' }, 0o100640);
  await data.write(text.ino, 0, Buffer.from('héllo\0wörld'));
  const file = await names.create({ parent, name: 'photo.bin' }, 0o100644);
  for (let at = 0; at < binary.length; at += 10_000) await data.write(file.ino, at, binary.subarray(at, at + 10_000));
  await names.link(file.ino, { parent, name: 'second name' });
  await names.makeSymlink({ parent, name: 'link' }, 'photo.bin');
  await local.files.flush();
  for (const suffix of ['', '-wal']) {
    if (existsSync(local.path + suffix)) copyFileSync(local.path + suffix, join(directory, `x.db${suffix}`));
  }
  await local.close();
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

test('agentfs-sdk reads our files and we read its', async () => {
  const path = join(directory, 'x.db');
  const sdk = await AgentFS.open({ path });
  expect(await sdk.fs.readdir('/work')).toEqual(['link', 'photo.bin', 'second name', 'tëxt.txt']);
  expect((await sdk.fs.readFile('/work/photo.bin')).equals(binary)).toBe(true);
  expect((await sdk.fs.readFile('/work/second name')).equals(binary)).toBe(true);
  expect(await sdk.fs.readFile('/work/tëxt.txt', 'utf8')).toBe('héllo\0wörld');
  const stats = await sdk.fs.stat('/work/photo.bin');
  expect({ size: stats.size, nlink: stats.nlink, isFile: stats.isFile() }).toEqual({
    size: binary.length,
    nlink: 2,
    isFile: true,
  });
  expect((await sdk.fs.stat('/work/tëxt.txt')).mode & 0o7777).toBe(0o640);
  await sdk.fs.writeFile('/work/by-sdk.txt', 'written by the SDK');
  await sdk.kv.set('key', { value: 1 });
  await sdk.tools.record('bash', 1, 2, { command: 'ls' }, 'ok');
  await sdk.close();

  const database = await connect({ path });
  const driver = new SqlDriver(database, path);
  const files = await OrganizationFiles.open(driver);
  const found = await files.find('/work/by-sdk.txt');
  expect(Buffer.from(await files.data.read(found!.ino, 0, 100)).toString()).toBe('written by the SDK');
  expect(await driver.get('SELECT value FROM kv_store')).toMatchObject({ value: '{"value":1}' });
  expect(await driver.get('SELECT name, status FROM tool_calls')).toMatchObject({ name: 'bash', status: 'success' });
  await files.close();
  await driver.forget();
  await database.close();
});
