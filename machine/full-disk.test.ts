/** A disk that is full, under the replica and under the authority: clear errors, nothing lost, and on it goes when there is room. */

import { Database } from 'bun:sqlite';
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test';
import { copyFileSync, mkdirSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { startAuthority, type TestAuthority } from './agentfs/authority.fixture.ts';
import { type OpenedFiles, openOrganizationFiles } from './sync.ts';

setDefaultTimeout(120_000);
const isRoot = process.getuid?.() === 0;
if (!isRoot) console.error('SKIPPED: only root can mount a small disk; full disks are not tested');

let authority: TestAuthority;
let machine: OpenedFiles;
const log: string[] = [];
const mounted: string[] = [];
let count = 0;

function smallDisk(path: string, mebibytes: number): string {
  mkdirSync(path, { recursive: true });
  const mount = Bun.spawnSync(['mount', '-t', 'tmpfs', '-o', `size=${mebibytes}m`, 'tmpfs', path]);
  if (mount.exitCode !== 0) throw new Error(`mount: ${mount.stderr}`);
  mounted.push(path);
  return path;
}

/** Takes all room but so many KiB. */
function fill(disk: string, leave: number): void {
  const { bavail, bsize } = statfsSync(disk);
  writeFileSync(join(disk, 'filler'), new Uint8Array(Math.max(0, bavail * bsize - leave * 1024)));
}

beforeAll(async () => {
  if (!isRoot) return;
  authority = await startAuthority({ prepare: (data) => smallDisk(data, 40) });
  await authority.cloud.ensureDirectory('/conversations/conv/work');
  const replicaDirectory = smallDisk(join(authority.directory, 'replica'), 40);
  machine = await openOrganizationFiles(
    { agentfs: authority.address, replicaDirectory },
    { log: (line) => log.push(line) },
  );
  machine.boundary.begin('conv');
  await machine.boundary.firstTouch('conv');
});
afterAll(async () => {
  if (!isRoot) return;
  await machine.boundary.close();
  // Its directories are removed with the authority's.
  const disks = mounted.splice(0);
  await authority.stop(() => {
    for (const disk of disks) Bun.spawnSync(['umount', '-l', disk]);
  });
});

async function write(name: string, bytes: Uint8Array): Promise<void> {
  const { files } = machine;
  const path = `/conversations/conv/work/${name}`;
  const parent = (await files.find('/conversations/conv/work'))!.ino;
  const { ino } = (await files.find(path)) ?? (await files.names.create({ parent, name }, 0o100644));
  await files.data.write(ino, 0, bytes);
  await files.store.sync();
}

async function read(name: string): Promise<Buffer | null> {
  const inode = await machine.files.find(`/conversations/conv/work/${name}`);
  return inode ? Buffer.from(await machine.files.data.read(inode.ino, 0, inode.size)) : null;
}

function integrity(path: string): unknown {
  const directory = join(authority.directory, `copy${++count}`);
  mkdirSync(directory);
  for (const suffix of ['', '-wal']) copyFileSync(path + suffix, join(directory, `copy.db${suffix}`));
  const copy = new Database(join(directory, 'copy.db'));
  try {
    return copy.query('PRAGMA integrity_check').all();
  } finally {
    copy.close();
    rmSync(directory, { recursive: true });
  }
}

const random = (bytes: number) => crypto.getRandomValues(new Uint8Array(bytes));
const ok = [{ integrity_check: 'ok' }];

test.skipIf(!isRoot).each([
  ['small files', 20_000],
  ['files for the spool', 600_000],
])('the replica’s disk is full: %s', async (what, bytes) => {
  const disk = mounted[1]!;
  const kept = random(bytes);
  await write(`kept ${what}`, kept);
  expect(await machine.boundary.end('conv')).toEqual({ state: 'clean' });
  fill(disk, 300);
  const written = new Map<string, Uint8Array>();
  let refusal = '';
  for (let at = 0; at < 200 && refusal === ''; at++) {
    const contents = random(bytes);
    try {
      await write(`${what} ${at}`, contents);
      written.set(`${what} ${at}`, contents);
    } catch (error) {
      refusal = String(error);
    }
  }
  expect(refusal).toContain('ENOSPC');
  expect((await read(`kept ${what}`))?.equals(kept)).toBe(true);
  for (const [name, contents] of written) expect((await read(name))?.equals(contents)).toBe(true);
  const state = await machine.boundary.end('conv');
  expect(['failing', 'clean', 'pending']).toContain(state.state);

  rmSync(join(disk, 'filler'));
  machine.boundary.begin('conv');
  await write(`later ${what}`, kept);
  expect(await machine.boundary.end('conv')).toEqual({ state: 'clean' });
  for (const [name, contents] of [...written, [`later ${what}`, kept] as const])
    expect(Buffer.from(await authority.cloud.readFile(`/conversations/conv/work/${name}`)).equals(contents)).toBe(true);
  expect(integrity(machine.files.store.driver.path!)).toEqual(ok);
});

test.skipIf(!isRoot)('the authority’s disk is full: what was pushed waits, and reads go on', async () => {
  const disk = mounted[0]!;
  const [before, during] = [random(300_000), random(2_000_000)];
  await write('before', before);
  expect(await machine.boundary.end('conv')).toEqual({ state: 'clean' });
  fill(disk, 100);
  machine.boundary.begin('conv');
  await write('during', during);
  const state = await machine.boundary.end('conv');
  expect(state).toMatchObject({ state: 'failing' });
  expect(JSON.stringify(state)).toMatch(/full|no space|disk/i);
  expect(Buffer.from(await authority.cloud.readFile('/conversations/conv/work/before')).equals(before)).toBe(true);
  expect((await read('during'))?.equals(during)).toBe(true);

  rmSync(join(disk, 'filler'));
  machine.boundary.begin('conv');
  expect(await machine.boundary.end('conv')).toEqual({ state: 'clean' });
  expect(Buffer.from(await authority.cloud.readFile('/conversations/conv/work/during')).equals(during)).toBe(true);
  expect(integrity(join(disk, 'agentfs.db'))).toEqual(ok);
});
