/** What a power failure leaves of a write-ahead log: its last frames cut, half written or something else. */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test';
import { appendFileSync, cpSync, existsSync, statSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { startAuthority, type TestAuthority } from './agentfs/authority.fixture.ts';
import { seeded } from './agentfs/model.fixture.ts';
import { flawsOf, sqlOfCloud } from './conflicts.fixture.ts';
import { integrityOf } from './kill-points.fixture.ts';
import { type OpenedFiles, openOrganizationFiles } from './sync.ts';

setDefaultTimeout(60_000);
let authority: TestAuthority;
let machine: OpenedFiles;
const quiet = { log: () => undefined };

beforeAll(async () => {
  authority = await startAuthority();
  await authority.cloud.ensureDirectory('/conversations/conv/work');
  const replicaDirectory = join(authority.directory, 'replica');
  machine = await openOrganizationFiles({ agentfs: authority.address, replicaDirectory }, quiet);
  await begin(machine);
});
afterAll(async () => {
  await machine.boundary.close();
  await authority.stop();
});

const random = (bytes: number) => Buffer.from(crypto.getRandomValues(new Uint8Array(bytes)));

async function begin({ boundary }: OpenedFiles): Promise<void> {
  boundary.begin('conv');
  await boundary.firstTouch('conv');
}

async function write({ files }: OpenedFiles, name: string, bytes: Buffer): Promise<void> {
  const parent = (await files.find('/conversations/conv/work'))!.ino;
  const { ino } = await files.names.create({ parent, name }, 0o100644);
  await files.data.write(ino, 0, bytes);
}

async function read({ files }: OpenedFiles, name: string): Promise<Buffer | null> {
  const inode = await files.find(`/conversations/conv/work/${name}`);
  return inode && Buffer.from(await files.data.read(inode.ino, 0, inode.size));
}

const inCloud = async (name: string) => Buffer.from(await authority.cloud.readFile(`/conversations/conv/work/${name}`));

test.each([1, 2, 3, 4, 5, 6])('the replica’s: what was synced is there, and goes on, seed %d', async (seed) => {
  const next = seeded(seed);
  const [synced, late] = [random(20_000), random(20_000)];
  await write(machine, `synced ${seed}`, synced);
  await machine.files.store.sync();
  const { path } = machine.files.store.driver;
  const durable = statSync(`${path}-wal`).size;
  await write(machine, `late ${seed}`, late);
  await machine.files.data.commitAll();
  const whole = statSync(`${path}-wal`).size;
  expect(whole).toBeGreaterThan(durable);
  const replicaDirectory = join(authority.directory, `torn ${seed}`);
  cpSync(join(authority.directory, 'replica'), replicaDirectory, { recursive: true });
  const torn = join(replicaDirectory, 'organization.db-wal');
  truncateSync(torn, durable + next(whole - durable));
  // The disk gave room for more than it wrote.
  if (seed % 2 === 0) appendFileSync(torn, seed % 4 === 0 ? random(9_000) : new Uint8Array(9_000));

  const again = await openOrganizationFiles({ agentfs: authority.address, replicaDirectory }, quiet);
  expect((await read(again, `synced ${seed}`))?.equals(synced)).toBe(true);
  await begin(again);
  await write(again, `after ${seed}`, late);
  expect(await again.boundary.end('conv')).toEqual({ state: 'clean' });
  await again.boundary.close();
  expect(integrityOf(authority.directory, join(replicaDirectory, 'organization.db'))).toBe('ok');
  expect((await inCloud(`synced ${seed}`)).equals(synced)).toBe(true);
  expect((await inCloud(`after ${seed}`)).equals(late)).toBe(true);
  expect(await machine.boundary.end('conv')).toEqual({ state: 'clean' });
  await begin(machine);
  expect((await read(machine, `after ${seed}`))?.equals(late)).toBe(true);
  expect(await flawsOf(sqlOfCloud(authority))).toEqual([]);
});

test.each([1, 2, 3, 4])('the authority’s: what it has answered is there, and replicas go on, seed %d', async (seed) => {
  const next = seeded(seed);
  const pushed = random(100_000);
  await write(machine, `pushed ${seed}`, pushed);
  expect(await machine.boundary.end('conv')).toEqual({ state: 'clean' });
  await authority.kill();
  const wal = join(authority.directory, 'data', 'agentfs.db-wal');
  expect(existsSync(wal)).toBe(true);
  // A transaction was being written that nobody was told of.
  appendFileSync(wal, seed % 2 === 0 ? random(1 + next(20_000)) : new Uint8Array(1 + next(20_000)));
  await authority.again();
  expect((await inCloud(`pushed ${seed}`)).equals(pushed)).toBe(true);
  await begin(machine);
  await write(machine, `then ${seed}`, pushed);
  expect(await machine.boundary.end('conv')).toEqual({ state: 'clean' });
  expect((await inCloud(`then ${seed}`)).equals(pushed)).toBe(true);
  expect(integrityOf(authority.directory, join(authority.directory, 'data', 'agentfs.db'))).toBe('ok');
  await begin(machine);
  expect((await read(machine, `pushed ${seed}`))?.equals(pushed)).toBe(true);
});
