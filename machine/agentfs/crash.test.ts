/**
 * What a machine that was killed leaves behind: the files of its replica as they were at that moment. Another one that
 * opens a copy of them finds a state that was, not older than the last sync.
 */
import { afterEach, expect, spyOn, test } from 'bun:test';
import { copyFileSync, existsSync, mkdtempSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { OrganizationFiles } from './files.ts';
import { rootIno } from './ids.ts';
import type { StoreLimits } from './limits.ts';
import { type LocalFiles, openFilesIn } from './local.fixture.ts';
import { seeded } from './model.fixture.ts';

const directories: string[] = [];
const opened: LocalFiles[] = [];
afterEach(async () => {
  for (const local of opened.splice(0)) await local.close();
  for (const directory of directories.splice(0)) rmSync(directory, { recursive: true, force: true });
});

function newDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), 'agentfs-crash-'));
  directories.push(directory);
  return directory;
}

async function open(directory: string, limits: Partial<StoreLimits> = {}): Promise<LocalFiles> {
  const local = await openFilesIn(directory, limits);
  opened.push(local);
  return local;
}

const spoolOf = (directory: string) => join(directory, 'organization.db-spool');

/** The replica as a kill would leave it. */
function copyOf({ path }: LocalFiles): string {
  const directory = newDirectory();
  for (const suffix of ['', '-wal', '-spool']) {
    if (existsSync(path + suffix)) copyFileSync(path + suffix, join(directory, `organization.db${suffix}`));
  }
  return directory;
}

async function create(files: OrganizationFiles, name: string): Promise<number> {
  return (await files.names.create({ parent: rootIno, name }, 0o100644)).ino;
}

async function contents(files: OrganizationFiles, name: string): Promise<Buffer> {
  const inode = await files.find(name);
  return Buffer.from(await files.data.read(inode!.ino, 0, inode!.size));
}

const random = (bytes: number) => Buffer.from(crypto.getRandomValues(new Uint8Array(bytes)));
const rows = async ({ files }: LocalFiles) =>
  Number((await files.store.sql.get('SELECT count(*) AS n FROM fs_data'))?.n);

/** Contents that are large enough for the spool, and not whole chunks. */
const large = 600_000;

test('what was synced is found, although the database has none of it', async () => {
  const local = await open(newDirectory());
  const bytes = random(large);
  await local.files.data.write(await create(local.files, 'a'), 0, bytes);
  await local.files.store.sync();
  expect(await rows(local)).toBe(0);
  const again = await open(copyOf(local));
  expect(await contents(again.files, 'a')).toEqual(bytes);
});

test('a machine that dies while the spool is moved', async () => {
  const local = await open(newDirectory());
  const bytes = random(large);
  await local.files.data.write(await create(local.files, 'a'), 0, bytes);
  // One slice may be all of it on a fast machine: then the second copy is one of an emptied spool.
  expect(await local.files.data.settleUpTo(await local.files.data.mark(), 1)).toBeBoolean();
  for (const step of ['in the middle', 'at the end']) {
    const again = await open(copyOf(local));
    expect([step, (await contents(again.files, 'a')).equals(bytes)]).toEqual([step, true]);
    await again.files.flush();
    expect(await rows(again)).toBe(Math.ceil(large / 65_536));
    expect(statSync(`${again.path}-spool`).size).toBe(0);
    expect((await contents(again.files, 'a')).equals(bytes)).toBe(true);
    await local.files.flush();
  }
});

test('what comes after the last whole record is not found, and never later either', async () => {
  const local = await open(newDirectory());
  const [first, second] = [random(large), random(large)];
  await local.files.data.write(await create(local.files, 'a'), 0, first);
  await local.files.store.sync();
  const whole = statSync(`${local.path}-spool`).size;
  await local.files.data.write(await create(local.files, 'b'), 0, second);
  await local.files.store.sync();
  const torn = copyOf(local);
  truncateSync(spoolOf(torn), whole + 1000);
  const again = await open(torn);
  expect((await contents(again.files, 'a')).equals(first)).toBe(true);
  expect((await contents(again.files, 'b')).equals(Buffer.alloc(large))).toBe(true);
  expect(statSync(spoolOf(torn)).size).toBe(whole);
});

test('a record that is not what was written ends what is found', async () => {
  const local = await open(newDirectory());
  await local.files.data.write(await create(local.files, 'a'), 0, random(large));
  await local.files.store.sync();
  const damaged = copyOf(local);
  const bytes = Buffer.from(await Bun.file(spoolOf(damaged)).arrayBuffer());
  bytes[bytes.length >> 1]! ^= 1;
  writeFileSync(spoolOf(damaged), bytes);
  const again = await open(damaged);
  expect((await contents(again.files, 'a')).equals(Buffer.alloc(large))).toBe(true);
});

test('what was overwritten, cut or removed without a sync is as it was', async () => {
  const local = await open(newDirectory(), { commitAfterMs: 600_000 });
  const { names, data, store } = local.files;
  const kept = random(large);
  const inos = [await create(local.files, 'a'), await create(local.files, 'b'), await create(local.files, 'c')];
  for (const ino of inos) await data.write(ino, 0, kept);
  await store.sync();
  await data.write(inos[0]!, 0, random(large));
  await data.truncate(inos[1]!, 0);
  await data.write(inos[1]!, 0, random(large));
  await names.unlink({ parent: rootIno, name: 'c' });
  const again = await open(copyOf(local));
  for (const name of ['a', 'b', 'c'])
    expect([name, (await contents(again.files, name)).equals(kept)]).toEqual([name, true]);
  // What did not count must not count later, when the inode has a newer ctime.
  for (const ino of inos) await again.files.names.setAttributes(ino, { mode: 0o600 });
  await again.files.store.sync();
  const third = await open(copyOf(again));
  for (const name of ['a', 'b', 'c'])
    expect([name, (await contents(third.files, name)).equals(kept)]).toEqual([name, true]);
});

test('what was synced is found although the clock was set back before a later change', async () => {
  const local = await open(newDirectory());
  const { data, names, store } = local.files;
  const bytes = random(large);
  const ino = await create(local.files, 'a');
  await data.write(ino, 0, bytes);
  await store.sync();
  const clock = spyOn(Date, 'now').mockReturnValue(Date.now() - 60_000);
  await names.setAttributes(ino, { mode: 0o600 });
  clock.mockRestore();
  await store.sync();
  const again = await open(copyOf(local));
  expect((await contents(again.files, 'a')).equals(bytes)).toBe(true);
});

test('what was synced is found although the clock of the next machine is behind', async () => {
  const local = await open(newDirectory());
  const bytes = random(large);
  const clock = spyOn(Date, 'now').mockReturnValue(Date.now() + 60_000);
  await local.files.data.write(await create(local.files, 'a'), 0, bytes);
  clock.mockRestore();
  await local.files.store.sync();
  const directory = copyOf(local);
  // Another process: this one's clock has seen the future.
  const fixture = JSON.stringify(join(import.meta.dir, 'local.fixture.ts'));
  const next = `const { files } = await (await import(${fixture})).openFilesIn(${JSON.stringify(directory)});
    await files.names.setAttributes((await files.find('a')).ino, { mode: 0o600 });
    await files.store.sync();
    process.kill(process.pid, 'SIGKILL');`;
  expect(Bun.spawnSync([process.execPath, '-e', next], { stderr: 'inherit' }).signalCode).toBe('SIGKILL');
  const again = await open(directory);
  expect((await contents(again.files, 'a')).equals(bytes)).toBe(true);
  expect((await again.files.find('a'))!.mode & 0o777).toBe(0o600);
});

test('what was moved before a pull is not found again over what the pull brought', async () => {
  const local = await open(newDirectory());
  const { data, store } = local.files;
  const [old, other, third] = [random(large), random(large), random(large)];
  const [moved, cut, waits] = [
    await create(local.files, 'moved'),
    await create(local.files, 'cut'),
    await create(local.files, 'waits'),
  ];
  await data.write(moved, 0, old);
  await data.write(cut, 0, other);
  const mark = await data.mark();
  await data.write(waits, 0, third);
  // Shorter by less than a chunk: its last one waits again, with its place in the file from before the mark.
  await data.truncate(cut, large - 10);
  await store.sync();
  expect(await data.settleUpTo(mark, Number.POSITIVE_INFINITY)).toBe(true);
  expect(statSync(spoolOf(dirname(local.path))).size).toBeGreaterThan(3 * large);
  await store.exclusive(() => data.commitBeforePullHere());
  // As a pull does.
  const fresh = Buffer.alloc(large, 'new');
  for (let at = 0; at * 65_536 < large; at++) {
    const chunk = fresh.subarray(at * 65_536, (at + 1) * 65_536);
    await local.driver.run('UPDATE fs_data SET data = ? WHERE ino = ? AND chunk_index = ?', chunk, moved, at);
  }
  data.forgetRead();
  await store.exclusive(() => store.forget());
  let last = local;
  for (const when of ['after a kill', 'after another']) {
    last = await open(copyOf(last));
    const [a, b, c] = [
      await contents(last.files, 'moved'),
      await contents(last.files, 'cut'),
      await contents(last.files, 'waits'),
    ];
    const found = [a.equals(fresh), b.equals(other.subarray(0, large - 10)), c.equals(third)];
    expect([when, ...found]).toEqual([when, true, true, true]);
    await last.files.store.exclusive(() => last.files.data.commitBeforePullHere());
  }
});

/** As a pull does that brings another host's change of the attributes. */
async function pullStamp({ files, driver }: LocalFiles, ino: number, seconds: number): Promise<void> {
  await files.store.exclusive(() => files.data.commitBeforePullHere());
  await driver.run('UPDATE fs_inode SET ctime = ctime + ?, mode = 33152 WHERE ino = ?', seconds, ino);
  files.data.forgetRead();
  await files.store.exclusive(() => files.store.forget());
}

test('what was synced is found although a pull brought the time of a host whose clock is behind', async () => {
  const local = await open(newDirectory());
  const bytes = random(large);
  const ino = await create(local.files, 'a');
  await local.files.data.write(ino, 0, bytes);
  await local.files.store.sync();
  await pullStamp(local, ino, -3600);
  const again = await open(copyOf(local));
  expect((await again.files.find('a'))!.mode & 0o777).toBe(0o600);
  expect((await contents(again.files, 'a')).equals(bytes)).toBe(true);
});

test('a pull brought the time of a host whose clock is ahead: what was synced later is found, the rest is not', async () => {
  const local = await open(newDirectory(), { commitAfterMs: 600_000 });
  const { data, names, store } = local.files;
  const [first, second, third] = [random(large), random(large), random(large)];
  const ino = await create(local.files, 'a');
  await data.write(ino, 0, first);
  await store.sync();
  await pullStamp(local, ino, 3600);
  await data.write(ino, 0, second);
  const before = await open(copyOf(local));
  expect((await contents(before.files, 'a')).equals(first)).toBe(true);
  await names.setAttributes(ino, { mode: 0o640 });
  await store.sync();
  await data.write(ino, 0, third);
  const again = await open(copyOf(local));
  expect((await contents(again.files, 'a')).equals(second)).toBe(true);
});

test('what was cut reads as zeros when the file grows again: at once, after a kill, and in the database', async () => {
  const local = await open(newDirectory());
  const { data, store } = local.files;
  const ino = await create(local.files, 'a');
  const bytes = random(large);
  await data.write(ino, 0, bytes);
  await data.truncate(ino, 100_000);
  await data.truncate(ino, large);
  await store.sync();
  const expected = Buffer.concat([bytes.subarray(0, 100_000), Buffer.alloc(large - 100_000)]);
  expect((await contents(local.files, 'a')).equals(expected)).toBe(true);
  const again = await open(copyOf(local));
  expect((await contents(again.files, 'a')).equals(expected)).toBe(true);
  await again.files.flush();
  again.files.data.forgetRead();
  expect((await contents(again.files, 'a')).equals(expected)).toBe(true);
});

test('a group that cannot be committed is lost as a whole, and whoever syncs is told', async () => {
  const local = await open(newDirectory(), { commitAfterMs: 600_000 });
  const { files } = local;
  const kept = random(large);
  const ino = await create(files, 'a');
  await files.data.write(ino, 0, kept);
  await files.store.sync();
  const { run } = files.store.sql;
  files.store.sql.run = (sql, ...args) =>
    sql === 'COMMIT' ? Promise.reject(new Error('database or disk is full')) : run.call(files.store.sql, sql, ...args);
  let told = 0;
  files.store.onLost(() => (told += 1));
  await files.data.write(ino, 0, random(large));
  await files.data.truncate(ino, 1000);
  await create(files, 'b');
  await expect(files.store.sync()).rejects.toThrow('ENOSPC');
  expect([told, files.store.failures]).toEqual([1, 1]);
  files.store.sql.run = run;
  expect(await files.find('b')).toBeNull();
  expect((await contents(files, 'a')).equals(kept)).toBe(true);
  await create(files, 'b');
  await files.flush();
  expect((await contents(files, 'a')).equals(kept)).toBe(true);
});

test('a large file that is removed is gone at once, and its rows soon', async () => {
  const local = await open(newDirectory());
  const { files } = local;
  const ino = await create(files, 'a');
  for (let at = 0; at < 4; at++) await files.data.write(ino, at * 2 ** 20, random(2 ** 20));
  await files.flush();
  expect(await rows(local)).toBe(64);
  await files.names.unlink({ parent: rootIno, name: 'a' });
  expect(await files.find('a')).toBeNull();
  await expect(files.names.open(ino)).rejects.toThrow('ESTALE');
  await files.flush();
  expect(await rows(local)).toBe(0);
  expect(await files.store.sql.get('SELECT 1 AS one FROM fs_inode WHERE ino = ?', ino)).toBeUndefined();
});

for (const seed of [1, 2, 3, 4]) {
  test(`250 random operations and a kill between any two, seed ${seed}`, async () => {
    const next = seeded(seed);
    const local = await open(newDirectory(), { groupRows: 1 + next(40), unwritten: 300_000, commitAfterMs: 600_000 });
    const { files } = local;
    const names = ['a', 'b', 'c'];
    /** Fingerprints of what was since the last sync. */
    let states = [await fingerprint(files, names)];
    for (let step = 0; step < 250; step++) {
      const what = await act(files, names, next);
      const state = await fingerprint(files, names);
      if (what === 'sync') states = [];
      states.push(state);
      if (next(10) > 0) continue;
      const again = await open(copyOf(local));
      expect(states, `step ${step}`).toContain(await fingerprint(again.files, names));
      if (next(2) === 0) await again.files.flush();
      expect(states, `step ${step}, moved`).toContain(await fingerprint(again.files, names));
      await opened.pop()!.close();
    }
  }, 120_000);
}

async function act(
  files: OrganizationFiles,
  names: readonly string[],
  next: (below: number) => number,
): Promise<string> {
  const name = names[next(names.length)]!;
  const inode = await files.find(name);
  if (!inode) {
    await create(files, name);
    return 'create';
  }
  const place = { parent: rootIno, name };
  switch (next(9)) {
    case 0:
      await files.store.sync();
      return 'sync';
    case 1:
      await files.names.unlink(place);
      return 'unlink';
    case 2: {
      const to = names[next(names.length)]!;
      await files.names.rename(place, { parent: rootIno, name: to }, 'replace');
      return 'rename';
    }
    case 3:
      await files.data.truncate(inode.ino, next(Math.min(inode.size + 100_000, 1_000_000)));
      return 'truncate';
    case 4:
      await files.data.settleUpTo(await files.data.mark(), 100_000);
      return 'move';
    case 5:
      await files.data.punch(inode.ino, next(inode.size + 1), next(200_000));
      return 'punch';
    default:
      await files.data.write(
        inode.ino,
        next(Math.min(inode.size, 300_000) + 70_000),
        random(1 + next(next(2) === 0 ? 2_000 : 600_000)),
      );
      return 'write';
  }
}

async function fingerprint(files: OrganizationFiles, names: readonly string[]): Promise<string> {
  const parts: string[] = [];
  for (const name of names) {
    const inode = await files.find(name);
    parts.push(inode ? `${inode.size}:${Bun.hash(await files.data.read(inode.ino, 0, inode.size)).toString(36)}` : '-');
  }
  return parts.join(' ');
}
