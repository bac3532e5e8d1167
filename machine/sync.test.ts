import { afterAll, beforeAll, expect, test } from 'bun:test';
import { copyFileSync, mkdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { startAuthority, type TestAuthority } from './agentfs/authority.fixture.ts';
import { openFilesIn } from './agentfs/local.fixture.ts';
import { Quotas } from './agentfs/quota.ts';
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

const ledgerRows = async () =>
  (await authority.sql.execute('SELECT parameters FROM tool_calls')).rows.map((row) => String(row[0]));
const listing = { name: 'shell', result: { exitCode: 0 }, error: null, startedAt: 1_000, endedAt: 2_000 } as const;

test('rows of the ledger alone make no request at the end of a turn: they go with the next push', async () => {
  const one = await replica();
  await authority.cloud.ensureDirectory('/conversations/conv_r');
  one.boundary.begin('conv_r');
  const before = authority.requests();
  await one.boundary.firstTouch('conv_r');
  expect(await one.files.find('/conversations/conv_r')).not.toBeNull();
  await one.ledger.record({ ...listing, conversation: 'conv_r', parameters: { command: 'ls' } });
  expect(await one.boundary.end('conv_r')).toEqual({ state: 'clean' });
  expect(authority.requests() - before).toBe(1);
  expect(await ledgerRows()).toEqual([]);

  one.boundary.begin('conv_r');
  await write(one, '/conversations/conv_r/a.txt', 'a');
  expect(await one.boundary.end('conv_r')).toEqual({ state: 'clean' });
  expect(await ledgerRows()).toEqual(['{"conversation":"conv_r","startedAtMs":1000,"command":"ls"}']);
});

test('settle sends them, once for all who ask at once, and makes no request when there is nothing', async () => {
  const one = await replica();
  const count = (await ledgerRows()).length;
  const before = authority.requests();
  expect(await one.boundary.settle()).toEqual({ state: 'clean' });
  expect(authority.requests()).toBe(before);
  void one.ledger.record({ ...listing, conversation: 'conv_s', parameters: { command: 'pwd' } });
  const settled = await Promise.all([one.boundary.settle(), one.boundary.settle(), one.boundary.settle()]);
  expect(settled).toEqual([{ state: 'clean' }, { state: 'clean' }, { state: 'clean' }]);
  const requests = authority.requests() - before;
  expect((await ledgerRows()).length).toBe(count + 1);
  void one.ledger.record({ ...listing, conversation: 'conv_s', parameters: { command: 'pwd' } });
  await one.boundary.settle();
  // The three together cost what one does.
  expect(authority.requests() - before).toBe(2 * requests);
  authority.setReachable(false);
  void one.ledger.record({ ...listing, conversation: 'conv_s', parameters: { command: 'kept' } });
  expect(await one.boundary.settle()).toMatchObject({ state: 'failing' });
  authority.setReachable(true);
  await opened.splice(opened.indexOf(one), 1)[0]!.boundary.close();
  expect((await ledgerRows()).length).toBe(count + 3);
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

test('file operations go on while the cloud is slow, and nothing of them is lost', async () => {
  const one = await replica();
  await authority.cloud.ensureDirectory('/conversations/conv_d');
  one.boundary.begin('conv_d');
  await one.boundary.firstTouch('conv_d');
  await write(one, '/conversations/conv_d/first.txt', 'first');
  const letGo = authority.hold();
  const before = authority.requests();
  const end = one.boundary.end('conv_d');
  while (authority.requests() === before) await Bun.sleep(1);
  let written = 0;
  for (; written < 60; written++) {
    await write(one, `/conversations/conv_d/f${written}.txt`, `text ${written}`);
    if (written % 3 === 0) await one.files.data.commitAll();
  }
  letGo();
  expect(await end).toEqual({ state: 'clean' });
  expect(await one.boundary.end('conv_d')).toEqual({ state: 'clean' });
  const names = (await authority.cloud.list('/conversations/conv_d')).map(({ name }) => name);
  expect(names.length).toBe(written + 1);
  for (let at = 0; at < written; at++) {
    expect(await read(one, `/conversations/conv_d/f${at}.txt`)).toBe(`text ${at}`);
  }
  expect(Buffer.from(await authority.cloud.readFile(`/conversations/conv_d/f${written - 1}.txt`)).toString()).toBe(
    `text ${written - 1}`,
  );
}, 30_000);

test('conflicts: one path made twice, one file renamed twice, a change of a removed file', async () => {
  const [one, two] = [await replica(), await replica()];
  await authority.cloud.ensureDirectory('/conversations/conv_e');
  await authority.cloud.writeFileOnce('/conversations/conv_e/moved', Buffer.from('moved'));
  await authority.cloud.writeFileOnce('/conversations/conv_e/removed', Buffer.from('removed'));
  for (const each of [one, two]) {
    each.boundary.begin('conv_e');
    await each.boundary.firstTouch('conv_e');
    await write(each, '/conversations/conv_e/made', each === one ? 'by one' : 'by two');
  }
  const parent = (await one.files.find('/conversations/conv_e'))!.ino;
  await one.files.names.rename({ parent, name: 'moved' }, { parent, name: 'moved by one' }, 'replace');
  await two.files.names.rename({ parent, name: 'moved' }, { parent, name: 'moved by two' }, 'replace');
  await one.files.names.unlink({ parent, name: 'removed' });
  await write(two, '/conversations/conv_e/removed', 'changed after all');
  expect(await one.boundary.end('conv_e')).toEqual({ state: 'clean' });
  expect(await two.boundary.end('conv_e')).toEqual({ state: 'clean' });
  one.boundary.begin('conv_e');
  await one.boundary.firstTouch('conv_e');
  for (const each of [one, two]) {
    expect((await each.files.names.list(parent)).map(({ name }) => name)).toEqual([
      'made',
      'moved by one',
      'moved by two',
    ]);
    expect(await read(each, '/conversations/conv_e/made')).toBe('by two');
    expect(await read(each, '/conversations/conv_e/moved by one')).toBe('moved');
    expect((await each.files.find('/conversations/conv_e/moved by two'))!.nlink).toBe(2);
    const { driver } = each.files.store;
    const nameless = 'SELECT count(*) AS n FROM fs_inode WHERE ino <> 1 AND ino NOT IN (SELECT ino FROM fs_dentry)';
    expect(await driver.get(nameless)).toMatchObject({ n: 0 });
  }
});

test('a name that somebody else wrote under another row id: the boundary recovers', async () => {
  const one = await replica();
  await authority.cloud.ensureDirectory('/conversations/conv_f');
  one.boundary.begin('conv_f');
  await one.boundary.firstTouch('conv_f');
  await write(one, '/conversations/conv_f/clash', 'ours');
  await write(one, '/conversations/conv_f/other', 'other');
  // As the public SDK would: the next free id.
  const parent = (await one.files.find('/conversations/conv_f'))!.ino;
  await authority.sql.execute(
    'INSERT INTO fs_inode (ino, mode, nlink, size, atime, mtime, ctime) VALUES (77, 33188, 1, 0, 1, 1, 1)',
  );
  await authority.sql.execute("INSERT INTO fs_dentry (id, name, parent_ino, ino) VALUES (77, 'clash', ?, 77)", [
    parent,
  ]);
  const state = await one.boundary.end('conv_f');
  expect(state).toEqual({ state: 'clean' });
  expect((await authority.cloud.list('/conversations/conv_f')).map(({ name }) => name)).toEqual(['clash', 'other']);
  expect(await read(one, '/conversations/conv_f/other')).toBe('other');
  expect(await one.files.find('/conversations/conv_f/clash')).not.toBeNull();
  expect(Buffer.from(await authority.cloud.readFile('/conversations/conv_f/other')).toString()).toBe('other');
});

test('a machine that was killed has its committed changes again, and sends them', async () => {
  await authority.cloud.ensureDirectory('/conversations/conv_g');
  const replicaDirectory = join(authority.directory, 'killed');
  const script = `
    import { openOrganizationFiles } from ${JSON.stringify(join(import.meta.dir, 'sync.ts'))};
    const { files, boundary } = await openOrganizationFiles(JSON.parse(process.argv[1]));
    boundary.begin('conv_g'); await boundary.firstTouch('conv_g');
    const parent = (await files.find('/conversations/conv_g')).ino;
    const { ino } = await files.names.create({ parent, name: 'survivor' }, 0o100644);
    await files.data.write(ino, 0, Buffer.from('survived')); await files.data.commit(ino);
    console.log('written'); await new Promise(() => {});`;
  const launch = { agentfs: authority.address, replicaDirectory };
  const child = Bun.spawn([process.execPath, '-e', script, '--', JSON.stringify(launch)], { stdout: 'pipe' });
  for await (const bytes of child.stdout) if (new TextDecoder().decode(bytes).includes('written')) break;
  child.kill('SIGKILL');
  await child.exited;
  const again = await openOrganizationFiles(launch, { log: quiet });
  opened.push(again);
  expect(await read(again, '/conversations/conv_g/survivor')).toBe('survived');
  expect(await again.boundary.end('conv_g')).toEqual({ state: 'clean' });
  expect(Buffer.from(await authority.cloud.readFile('/conversations/conv_g/survivor')).toString()).toBe('survived');
}, 30_000);

test('a machine says why it cannot start: nothing provisioned, or nobody there', async () => {
  const launch = (more: Partial<typeof authority.address>, name: string) => ({
    agentfs: { ...authority.address, ...more },
    replicaDirectory: join(authority.directory, name),
  });
  const empty = await startAuthority({ isProvisioned: false });
  await expect(openOrganizationFiles(launch(empty.address, 'u1'), { log: quiet })).rejects.toThrow(
    'not been provisioned',
  );
  await empty.stop();
  await expect(openOrganizationFiles(launch({ token: 'wrong' }, 'u2'), { log: quiet })).rejects.toThrow('401');
  authority.setReachable(false);
  await expect(openOrganizationFiles(launch({}, 'u3'), { log: quiet })).rejects.toThrow('503');
  authority.setReachable(true);
});

test('an existing replica opens without the cloud', async () => {
  await replica();
  const replicaDirectory = join(authority.directory, `r${count}`);
  await opened.pop()!.boundary.close();
  authority.setReachable(false);
  const before = authority.requests();
  const again = await openOrganizationFiles({ agentfs: authority.address, replicaDirectory }, { log: quiet });
  opened.push(again);
  expect(await again.files.find('/conversations')).not.toBeNull();
  expect(authority.requests()).toBe(before);
  authority.setReachable(true);
});

test('what two replicas change of the base merges: copies of one file, deletions, new files beside', async () => {
  const [one, two] = [await replica(), await replica()];
  const skill = '/skills/tabular-data/SKILL.md';
  expect(await read(one, skill)).toBe(await read(two, skill));
  const remove = async ({ files }: OpenedFiles, path: string) => {
    const parent = await files.find(path.slice(0, path.lastIndexOf('/')));
    await files.names.unlink({ parent: parent!.ino, name: path.slice(path.lastIndexOf('/') + 1) });
  };
  await write(one, skill, 'as one has it');
  await write(two, skill, 'as two has it');
  for (const each of [one, two]) await remove(each, '/skills/files-and-deliverables/SKILL.md');
  await write(one, '/skills/tabular-data/one.md', 'one');
  await write(two, '/skills/tabular-data/two.md', 'two');
  for (const each of [one, two, one]) {
    each.boundary.begin('conv_a');
    await each.boundary.firstTouch('conv_a');
    expect(await each.boundary.end('conv_a')).toEqual({ state: 'clean' });
  }
  for (const each of [one, two]) {
    expect(await read(each, skill)).toBe('as two has it');
    expect(await read(each, '/skills/tabular-data/one.md')).toBe('one');
    expect(await read(each, '/skills/tabular-data/two.md')).toBe('two');
    expect(await read(each, '/skills/files-and-deliverables/SKILL.md')).toBeNull();
    expect(await read(each, '/skills/tabular-data/scripts/profile_csv.py')).toStartWith('#!');
  }
  expect((await authority.sql.execute('SELECT path FROM fs_whiteout')).rows.flat()).toEqual([
    '/skills/files-and-deliverables/SKILL.md',
  ]);
});

test('usage is exact after pulls: what others added counts, and own pushes are not counted twice', async () => {
  const one = await replica();
  await authority.cloud.ensureDirectory('/conversations/conv_q/work');
  one.boundary.begin('conv_q');
  await one.boundary.firstTouch('conv_q');
  const { store } = one.files;
  const account = (await one.files.find('/conversations/conv_q'))!.ino;
  const used = async (quotas = store.quotas) => (await quotas.allowance(account)).used;
  const anew = () => used(new Quotas(store, store.limits, 100));
  await write(one, '/conversations/conv_q/work/own.txt', 'x'.repeat(1_000));
  expect(await used()).toEqual({ bytes: 1_000, inodes: 3 });
  expect(await one.boundary.end('conv_q')).toEqual({ state: 'clean' });
  for (const bytes of [0, 500]) {
    if (bytes > 0) await authority.cloud.writeFileOnce('/conversations/conv_q/work/sent.txt', new Uint8Array(bytes));
    one.boundary.begin('conv_q');
    await one.boundary.firstTouch('conv_q');
    expect(await used()).toEqual({ bytes: 1_000 + bytes, inodes: bytes > 0 ? 4 : 3 });
    expect(await anew()).toEqual(await used());
    await one.boundary.end('conv_q');
  }
});

test('a machine that dies finds what a pull brought, not what it had moved into the database before', async () => {
  const one = await replica();
  await authority.cloud.ensureDirectory('/conversations/conv_moved');
  one.boundary.begin('conv_moved');
  await one.boundary.firstTouch('conv_moved');
  const large = () => crypto.getRandomValues(new Uint8Array(65_536)).toHex().repeat(4);
  await write(one, '/conversations/conv_moved/mine', large());
  // More than one step of the boundary's end: the spool is not empty while the first one is in the network.
  await write(one, '/conversations/conv_moved/more', large().repeat(6));
  const letGo = authority.hold();
  const before = authority.requests();
  const end = one.boundary.end('conv_moved');
  while (authority.requests() === before) await Bun.sleep(1);
  // Another conversation writes meanwhile: the spool is not emptied.
  await write(one, '/conversations/conv_moved/other', large());
  await one.files.store.sync();
  letGo();
  await end;
  const { path } = one.files.store.driver;
  expect(statSync(`${path}-spool`).size).toBeGreaterThan(0);
  const { ino } = (await one.files.find('/conversations/conv_moved/mine'))!;
  const sql = "UPDATE fs_data SET data = CAST('theirs' AS BLOB) WHERE ino = ? AND chunk_index = 0";
  await authority.sql.batch(
    [
      { sql, args: [ino] },
      { sql: 'UPDATE fs_inode SET mtime = mtime + 1, ctime = ctime + 1 WHERE ino = ?', args: [ino] },
    ],
    { transaction: true },
  );
  one.boundary.begin('conv_moved');
  await one.boundary.firstTouch('conv_moved');
  const start = async (files: OpenedFiles['files']) => Buffer.from(await files.data.read(ino, 0, 6)).toString();
  expect(await start(one.files)).toBe('theirs');
  await one.files.store.sync();
  const directory = join(authority.directory, 'killed after a pull');
  mkdirSync(directory);
  for (const suffix of ['', '-wal', '-spool'])
    copyFileSync(path! + suffix, join(directory, `organization.db${suffix}`));
  const again = await openFilesIn(directory);
  expect(await start(again.files)).toBe('theirs');
  await again.close();
});

test('what another program renamed in the cloud stays where it is when its old name is given and removed here', async () => {
  const one = await replica();
  await authority.cloud.ensureDirectory('/conversations/conv_renamed');
  one.boundary.begin('conv_renamed');
  await one.boundary.firstTouch('conv_renamed');
  await write(one, '/conversations/conv_renamed/old', 'first');
  expect(await one.boundary.end('conv_renamed')).toEqual({ state: 'clean' });
  // The public SDK renames in the same row, which keeps its id.
  await authority.sql.execute("UPDATE fs_dentry SET name = 'new' WHERE name = 'old'");
  one.boundary.begin('conv_renamed');
  await one.boundary.firstTouch('conv_renamed');
  await write(one, '/conversations/conv_renamed/old', 'second');
  expect(await one.boundary.end('conv_renamed')).toEqual({ state: 'clean' });
  const inCloud = async (name: string) =>
    Buffer.from(await authority.cloud.readFile(`/conversations/conv_renamed/${name}`)).toString();
  expect([await inCloud('new'), await inCloud('old')]).toEqual(['first', 'second']);
  const two = await replica();
  two.boundary.begin('conv_renamed');
  await two.boundary.firstTouch('conv_renamed');
  const parent = (await two.files.find('/conversations/conv_renamed'))!.ino;
  await two.files.names.unlink({ parent, name: 'old' });
  expect(await two.boundary.end('conv_renamed')).toEqual({ state: 'clean' });
  expect(await inCloud('new')).toBe('first');
  expect(await read(two, '/conversations/conv_renamed/new')).toBe('first');
  expect(await read(two, '/conversations/conv_renamed/old')).toBeNull();
});

test('of a small file that two hosts have written, none has parts of both, whatever else one of them pushes', async () => {
  const [one, two] = [await replica(), await replica()];
  const path = '/conversations/conv_parts/file';
  await authority.cloud.ensureDirectory('/conversations/conv_parts');
  await authority.cloud.writeFileOnce(path, new Uint8Array(16 * 65_536));
  const versions = [one, two].map(() => crypto.getRandomValues(new Uint8Array(65_536)));
  const write = async ({ files }: OpenedFiles, version: Uint8Array) => {
    const { ino } = (await files.find(path))!;
    for (let at = 0; at < 16; at += 8) await files.data.write(ino, at * 65_536, Buffer.concat(Array(8).fill(version)));
  };
  for (const each of [one, two]) {
    each.boundary.begin('conv_parts');
    await each.boundary.firstTouch('conv_parts');
  }
  const parent = (await one.files.find('/conversations/conv_parts'))!.ino;
  // Few enough rows to leave a request room for some of the file's.
  for (let number = 0; number < 4; number++) {
    const { ino } = await one.files.names.create({ parent, name: `other ${number}` }, 0o100644);
    await one.files.data.write(ino, 0, Buffer.from('other'));
  }
  await write(one, versions[0]!);
  await write(two, versions[1]!);
  const inCloud = async () => {
    const bytes = await authority.cloud.readFile(path);
    return Array.from({ length: 16 }, (_, at) => {
      const part = Buffer.from(bytes.subarray(at * 65_536, (at + 1) * 65_536));
      return versions.findIndex((version) => part.equals(version));
    });
  };
  const found: number[][] = [];
  let isFirst = true;
  authority.onRequest(async (step) => {
    if (step !== 'push answered' || !isFirst) return;
    const parts = await inCloud();
    if (!parts.includes(0)) return;
    isFirst = false;
    found.push(parts);
    expect(await two.boundary.end('conv_parts')).toEqual({ state: 'clean' });
    found.push(await inCloud());
  });
  expect(await one.boundary.end('conv_parts')).toEqual({ state: 'clean' });
  authority.onRequest(() => undefined);
  found.push(await inCloud());
  expect(found.map((parts) => [...new Set(parts)])).toEqual([[0], [1], [1]]);
});

test('a name that is given in the cloud stays when a host then pushes the removal of one that has its row', async () => {
  const one = await replica();
  const directory = '/conversations/conv_given';
  await authority.cloud.ensureDirectory(directory);
  await authority.cloud.writeFileOnce(`${directory}/given`, Buffer.from('first'));
  // The public SDK renames in the same row, which keeps its id.
  await authority.sql.execute("UPDATE fs_dentry SET name = 'moved' WHERE name = 'given'");
  one.boundary.begin('conv_given');
  await one.boundary.firstTouch('conv_given');
  await one.files.names.unlink({ parent: (await one.files.find(directory))!.ino, name: 'moved' });
  await authority.cloud.writeFileOnce(`${directory}/given`, Buffer.from('second'));
  expect(await one.boundary.end('conv_given')).toEqual({ state: 'clean' });
  expect((await authority.cloud.list(directory)).map(({ name }) => name)).toEqual(['given']);
  expect(await read(one, `${directory}/given`)).toBe('second');
  // And it can be removed as any other.
  await one.files.names.unlink({ parent: (await one.files.find(directory))!.ino, name: 'given' });
  expect(await one.boundary.end('conv_given')).toEqual({ state: 'clean' });
  expect(await authority.cloud.list(directory)).toEqual([]);
});
