import { afterAll, beforeAll, expect, test } from 'bun:test';
import { join } from 'node:path';
import { startAuthority, type TestAuthority } from './agentfs/authority.fixture.ts';
import { type OpenedFiles, openOrganizationFiles } from './sync.ts';

let authority: TestAuthority;
let count = 0;
const opened: OpenedFiles[] = [];
const quiet = () => undefined;

beforeAll(async () => {
  authority = await startAuthority();
});
afterAll(async () => {
  for (const { boundary } of opened) await boundary.close();
  await authority.stop();
});

async function replica(): Promise<OpenedFiles> {
  count += 1;
  const one = await openOrganizationFiles(
    { agentfs: authority.address, replicaDirectory: join(authority.directory, `r${count}`) },
    { log: quiet },
  );
  opened.push(one);
  return one;
}

async function write({ files }: OpenedFiles, path: string, text: string): Promise<void> {
  const at = path.lastIndexOf('/');
  const parent = await files.find(path.slice(0, at));
  const place = { parent: parent!.ino, name: path.slice(at + 1) };
  const inode = (await files.find(path)) ?? (await files.names.create(place, 0o100644));
  await files.data.truncate(inode.ino, 0);
  await files.data.write(inode.ino, 0, Buffer.from(text));
}

async function read({ files }: OpenedFiles, path: string): Promise<string | null> {
  const inode = await files.find(path);
  return inode ? Buffer.from(await files.data.read(inode.ino, 0, inode.size)).toString() : null;
}

test('what the gateway writes in the cloud is there after the first touch of a boundary, with one request', async () => {
  const one = await replica();
  await authority.cloud.ensureDirectory('/conversations/conv_a/work');
  const bytes = crypto.getRandomValues(new Uint8Array(65536 + 300));
  const { outcome, inode } = await authority.cloud.writeFileOnce(
    '/conversations/conv_a/work/in/photo.bin',
    bytes,
    0o600,
  );
  expect(outcome).toBe('written');
  expect((await authority.cloud.writeFileOnce('/conversations/conv_a/work/in/photo.bin', bytes)).outcome).toBe(
    'exists',
  );
  expect(await authority.cloud.readFile('/conversations/conv_a/work/in/photo.bin')).toEqual(bytes);

  expect(await one.files.find('/conversations')).toBeNull();
  one.boundary.begin('conv_a');
  const before = authority.requests();
  await Promise.all([one.boundary.firstTouch('conv_a'), one.boundary.firstTouch('conv_a')]);
  expect(one.boundary.firstTouch('conv_a')).toBeNull();
  expect(authority.requests() - before).toBe(1);
  const found = await one.files.find('/conversations/conv_a/work/in/photo.bin');
  expect(found).toEqual(inode);
  expect(Buffer.from(await one.files.data.read(found!.ino, 0, 1e6)).equals(bytes)).toBe(true);
  expect(await one.boundary.end('conv_a')).toEqual({ state: 'clean' });
  expect(authority.requests() - before).toBe(1);
});

test('a turn that touches nothing, and idle time, make no request', async () => {
  const one = await replica();
  const before = authority.requests();
  one.boundary.begin('conv_a');
  expect(await one.boundary.end('conv_a')).toEqual({ state: 'clean' });
  expect(authority.requests()).toBe(before);
});

test('changes of two replicas both reach the cloud and each other; same-named directories merge', async () => {
  const [one, two] = [await replica(), await replica()];
  await authority.cloud.ensureDirectory('/conversations/conv_b');
  for (const each of [one, two]) {
    each.boundary.begin('conv_b');
    await each.boundary.firstTouch('conv_b');
    const parent = (await each.files.find('/conversations/conv_b'))!.ino;
    await each.files.names.makeDirectory({ parent, name: 'work' }, 0o755);
  }
  await write(one, '/conversations/conv_b/work/a.txt', 'from one');
  await write(two, '/conversations/conv_b/work/b.txt', 'from two');
  await write(one, '/conversations/conv_b/same.txt', 'first');
  await write(two, '/conversations/conv_b/same.txt', 'second');
  expect(await one.boundary.end('conv_b')).toEqual({ state: 'clean' });
  expect(await two.boundary.end('conv_b')).toEqual({ state: 'clean' });
  one.boundary.begin('conv_b');
  await one.boundary.firstTouch('conv_b');
  for (const each of [one, two]) {
    expect(await read(each, '/conversations/conv_b/work/a.txt')).toBe('from one');
    expect(await read(each, '/conversations/conv_b/work/b.txt')).toBe('from two');
    expect(await read(each, '/conversations/conv_b/same.txt')).toBe('second');
  }
  expect(Buffer.from(await authority.cloud.readFile('/conversations/conv_b/work/b.txt')).toString()).toBe('from two');
});

test('an unreachable cloud leaves changes pending and blocks no turn; the next boundary sends them', async () => {
  const one = await replica();
  await authority.cloud.ensureDirectory('/conversations/conv_c');
  one.boundary.begin('conv_c');
  await one.boundary.firstTouch('conv_c');
  authority.setReachable(false);
  await write(one, '/conversations/conv_c/kept.txt', 'kept');
  expect(await one.boundary.end('conv_c')).toMatchObject({ state: 'failing' });
  one.boundary.begin('conv_c');
  await one.boundary.firstTouch('conv_c');
  expect(await read(one, '/conversations/conv_c/kept.txt')).toBe('kept');
  authority.setReachable(true);
  expect(await one.boundary.end('conv_c')).toEqual({ state: 'clean' });
  expect(Buffer.from(await authority.cloud.readFile('/conversations/conv_c/kept.txt')).toString()).toBe('kept');
});

test('a pull that began after two boundaries serves both', async () => {
  const one = await replica();
  one.boundary.begin('conv_a');
  one.boundary.begin('conv_b');
  const before = authority.requests();
  await Promise.all([one.boundary.firstTouch('conv_a'), one.boundary.firstTouch('conv_b')]);
  expect(authority.requests() - before).toBe(1);
  await Promise.all([one.boundary.end('conv_a'), one.boundary.end('conv_b')]);
});
