/** Usage is exact after whatever happens, and what passes a quota fails without a trace. */
import { afterEach, describe, expect, test } from 'bun:test';
import { BaseTree } from './base.ts';
import { breathe } from './breathe.ts';
import { FileError } from './errors.ts';
import type { OrganizationFiles } from './files.ts';
import { rootIno } from './ids.ts';
import { defaultLimits, type StoreLimits } from './limits.ts';
import { type LocalFiles, openLocalFiles } from './local.fixture.ts';
import { seeded } from './model.fixture.ts';
import type { RenameMode } from './namespace.ts';
import { putFiles } from './put.ts';
import { Quotas } from './quota.ts';

const base = new BaseTree([{ path: '/skills/a/SKILL.md', mode: 0o644, bytes: Buffer.alloc(10_000, 'skill') }]);

interface Organization {
  readonly local: LocalFiles;
  readonly files: OrganizationFiles;
  /** The work directories of two conversations. */
  readonly work: readonly [number, number];
  readonly accounts: readonly [number, number];
}

const opened: LocalFiles[] = [];
afterEach(async () => {
  for (const local of opened.splice(0)) await local.close();
});

async function organization(limits: Partial<StoreLimits> = {}): Promise<Organization> {
  const local = await openLocalFiles(limits, base);
  opened.push(local);
  const { files } = local;
  const make = async (parent: number, name: string) => (await files.names.makeDirectory({ parent, name }, 0o755)).ino;
  const conversations = await make(rootIno, 'conversations');
  const accounts = [await make(conversations, 'conv_a'), await make(conversations, 'conv_b')] as const;
  const work = [await make(accounts[0], 'work'), await make(accounts[1], 'work')] as const;
  return { local, files, work, accounts };
}

const used = async (files: OrganizationFiles, account: number) => (await files.store.quotas.allowance(account)).used;
/** What somebody finds who counts it all anew. */
async function counted({ files: { store } }: Organization, account: number) {
  const anew = new Quotas(store, defaultLimits, 100);
  return (await anew.allowance(account)).used;
}
async function refusal(work: Promise<unknown>): Promise<string> {
  return work.then(
    () => 'done',
    (error: unknown) => {
      if (error instanceof FileError) return error.errno;
      throw error;
    },
  );
}

describe('a conversation beyond its quota', () => {
  test('gets EDQUOT for bytes, keeps what it has, may overwrite it, and gets back at once what it frees', async () => {
    const { files, work, accounts } = await organization({ conversation: { bytes: 100_000, inodes: 100 } });
    const { ino } = await files.names.create({ parent: work[0], name: 'file' }, 0o100644);
    const full = Buffer.alloc(90_000, 'a');
    await files.data.write(ino, 0, full);
    expect(await refusal(files.data.write(ino, 90_000, Buffer.alloc(10_001)))).toBe('EDQUOT');
    expect(await refusal(files.data.truncate(ino, 100_001))).toBe('EDQUOT');
    expect(await refusal(files.data.write(ino, 500_000, Buffer.from('far')))).toBe('EDQUOT');
    expect((await files.store.inode(ino))?.size).toBe(90_000);
    expect(Buffer.from(await files.data.read(ino, 0, 200_000)).equals(full)).toBe(true);
    expect(await refusal(files.data.write(ino, 0, Buffer.alloc(90_000, 'b')))).toBe('done');
    expect(await refusal(files.data.write(ino, 90_000, Buffer.alloc(10_000)))).toBe('done');
    expect(await used(files, accounts[0])).toEqual({ bytes: 100_000, inodes: 3 });

    const other = await files.names.create({ parent: work[1], name: 'file' }, 0o100644);
    expect(await refusal(files.data.write(other.ino, 0, full))).toBe('done');

    await files.data.truncate(ino, 50_000);
    expect(await refusal(files.data.write(ino, 50_000, Buffer.alloc(50_000)))).toBe('done');
    await files.names.unlink({ parent: work[0], name: 'file' });
    expect(await used(files, accounts[0])).toEqual({ bytes: 0, inodes: 2 });
  });

  test('gets EDQUOT for inodes, of every kind, and nothing is made', async () => {
    const { files, work, accounts, local } = await organization({ conversation: { bytes: 1e9, inodes: 3 } });
    const { ino } = await files.names.create({ parent: work[0], name: 'one' }, 0o100644);
    const place = { parent: work[0], name: 'two' };
    expect(await refusal(files.names.create(place, 0o100644, { open: true }))).toBe('EDQUOT');
    expect(await refusal(files.names.makeDirectory(place, 0o755))).toBe('EDQUOT');
    expect(await refusal(files.names.makeSymlink(place, 'one'))).toBe('EDQUOT');
    expect((await files.names.list(work[0])).map(({ name }) => name)).toEqual(['one']);
    expect(await local.driver.all('SELECT 1 AS one FROM fs_symlink')).toEqual([]);
    expect(await refusal(files.names.link(ino, place))).toBe('done');
    expect(await refusal(files.names.rename(place, { parent: work[0], name: 'three' }, 'replace'))).toBe('done');
    await files.names.unlink({ parent: work[0], name: 'one' });
    expect(await used(files, accounts[0])).toEqual({ bytes: 0, inodes: 3 });
    await files.names.unlink({ parent: work[0], name: 'three' });
    expect(await refusal(files.names.makeDirectory(place, 0o755))).toBe('done');
  });

  test('an open file without a name counts until it is closed', async () => {
    const { files, work, accounts } = await organization();
    const { ino } = await files.names.create({ parent: work[0], name: 'file' }, 0o100644, { open: true });
    await files.data.write(ino, 0, Buffer.alloc(5_000));
    await files.names.unlink({ parent: work[0], name: 'file' });
    await files.data.write(ino, 5_000, Buffer.alloc(5_000));
    expect(await used(files, accounts[0])).toEqual({ bytes: 10_000, inodes: 3 });
    // A pull makes memory count anew.
    await files.store.exclusive(() => files.store.forget());
    expect(await used(files, accounts[0])).toEqual({ bytes: 10_000, inodes: 3 });
    await files.names.close(ino);
    expect(await used(files, accounts[0])).toEqual({ bytes: 0, inodes: 2 });
  });

  test('the log says so once, and names no file', async () => {
    const { files, work } = await organization({ conversation: { bytes: 1_000, inodes: 10 } });
    await files.view('conv_a');
    const lines: string[] = [];
    files.store.quotas.onUsedUp((line) => lines.push(line));
    for (const name of ['secret-name', 'another']) {
      const { ino } = await files.names.create({ parent: work[0], name }, 0o100644);
      expect(await refusal(files.data.write(ino, 0, Buffer.alloc(2_000, 'content')))).toBe('EDQUOT');
    }
    expect(lines).toEqual([
      'agentfs: conversation conv_a: its quota of 1000 bytes is used up (EDQUOT); EDGE_CONVERSATION_BYTES sets it',
    ]);
  });
});

test('the organization beyond its quota gives ENOSPC, to shared files too; a copy from the base counts', async () => {
  const { files, work } = await organization({ organization: { bytes: 30_000, inodes: 1_000 } });
  const skill = (await files.find('/skills/a/SKILL.md'))!;
  expect(await used(files, 0)).toEqual({ bytes: 0, inodes: 6 });
  const { ino } = await files.names.create({ parent: work[0], name: 'file' }, 0o100644);
  expect(await refusal(files.data.write(ino, 0, Buffer.alloc(25_000)))).toBe('done');
  expect(await refusal(files.data.write(skill.ino, 0, Buffer.from('edited')))).toBe('ENOSPC');
  expect(await refusal(files.names.setAttributes(skill.ino, { mode: 0o600 }))).toBe('ENOSPC');
  expect(files.store.overlay.node(skill.ino)?.entry.path).toBe('/skills/a/SKILL.md');
  await files.data.truncate(ino, 10_000);
  expect(await refusal(files.data.write(skill.ino, 0, Buffer.from('edited')))).toBe('done');
  expect(await used(files, 0)).toEqual({ bytes: 20_000, inodes: 10 });
});

test('many files that are put at once are refused as one, and take nothing of others with them', async () => {
  const { files, work, accounts, local } = await organization({ conversation: { bytes: 100_000, inodes: 100 } });
  const { ino } = await files.names.create({ parent: work[0], name: 'before' }, 0o100644);
  await files.data.write(ino, 0, Buffer.from('written before'));
  const list = ['one', 'two', 'three'].map((name) => ({
    place: { parent: work[0], name },
    permissions: 0o644,
    bytes: Buffer.alloc(40_000, name),
  }));
  expect(await refusal(putFiles(files, list))).toBe('EDQUOT');
  expect(await refusal(putFiles(files, list.slice(1)))).toBe('done');
  expect(await used(files, accounts[0])).toEqual({ bytes: 80_014, inodes: 5 });
  await files.flush();
  const names = await local.driver.all(
    'SELECT d.name AS name, i.size AS size FROM fs_dentry d JOIN fs_inode i ON i.ino = d.ino WHERE d.parent_ino = ? ORDER BY d.name',
    work[0],
  );
  expect(names.map(({ name, size }) => `${name} ${size}`)).toEqual(['before 14', 'three 40000', 'two 40000']);
});

test('a count is exact whatever is done while it goes on, and keeps nobody waiting for all of it', async () => {
  const one = await organization({ conversation: { bytes: 1e9, inodes: 1_000_000 }, countSliceMs: 0 });
  const { files, work, accounts } = one;
  const { store } = files;
  const directories: number[] = [];
  for (let at = 0; at < 20; at++) {
    const { ino } = await files.names.makeDirectory({ parent: work[0], name: `d${at}` }, 0o755);
    directories.push(ino);
    await putFiles(
      files,
      Array.from({ length: 60 }, (_, name) => ({
        place: { parent: ino, name: `f${name}` },
        permissions: 0o644,
        bytes: Buffer.alloc(1 + name),
      })),
    );
  }
  const below = seeded(7);
  const held: number[] = [];
  for (let round = 0; round < 3; round++) {
    // As a pull does that brings something: then each conversation is counted anew, too.
    const row = 'INSERT INTO fs_inode (ino, mode, nlink, size, atime, mtime, ctime) VALUES (?, 33188, 1, 5, 1, 1, 1)';
    await store.exclusive(() => store.driver.run(row, 100 + round));
    await store.exclusive(() => store.forget());
    let isCounted = false;
    const counting = Promise.all([0, ...accounts].map((account) => store.quotas.allowance(account))).finally(() => {
      isCounted = true;
    });
    let changes = 0;
    for (; !isCounted; changes++) {
      // As requests come from outside.
      await breathe();
      await refusal(step({ ...one, work: [directories[below(20)]!, directories[below(20)]!] }, below, held));
      const [from, to] = [directories[below(20)]!, directories[below(20)]!];
      const name = `f${below(60)}`;
      await refusal(files.names.rename({ parent: from, name }, { parent: to, name: `${name}-${changes}` }, 'replace'));
      if (changes % 7 === 0) {
        const moved = { parent: work[0], name: `d${below(20)}` };
        await refusal(
          files.names.rename(moved, { parent: directories[below(20)]!, name: `moved${round}-${changes}` }, 'replace'),
        );
      }
    }
    await counting;
    expect(changes).toBeGreaterThan(10);
    for (const ino of held.splice(0)) await files.names.close(ino);
    for (const account of [0, ...accounts]) {
      expect(await used(files, account), `account ${account} in round ${round}`).toEqual(await counted(one, account));
    }
  }
}, 60_000);

test('nothing moves from one conversation to another', async () => {
  const { files, work } = await organization();
  await files.names.makeDirectory({ parent: work[0], name: 'directory' }, 0o755);
  const { ino } = await files.names.create({ parent: work[0], name: 'file' }, 0o100644);
  for (const name of ['directory', 'file']) {
    const to = { parent: work[1], name };
    expect(await refusal(files.names.rename({ parent: work[0], name }, to, 'replace'))).toBe('EXDEV');
  }
  expect(await refusal(files.names.link(ino, { parent: work[1], name: 'link' }))).toBe('EXDEV');
  expect((await files.names.list(work[1])).length).toBe(0);
});

test('an account that is not known any more is found again', async () => {
  const { files, work, accounts } = await organization({ cachedNames: 8, cachedInodes: 8 });
  const deep = (await files.names.makeDirectory({ parent: work[0], name: 'deep' }, 0o755)).ino;
  const { ino } = await files.names.create({ parent: deep, name: 'file' }, 0o100644, { open: true });
  for (let at = 0; at < 40; at++) await files.names.create({ parent: work[1], name: `other${at}` }, 0o100644);
  await files.data.write(ino, 0, Buffer.alloc(1_234));
  await files.names.unlink({ parent: deep, name: 'file' });
  for (let at = 40; at < 80; at++) await files.names.create({ parent: work[1], name: `other${at}` }, 0o100644);
  expect(await used(files, accounts[0])).toEqual({ bytes: 1_234, inodes: 4 });
  await files.names.close(ino);
  expect(await used(files, accounts[0])).toEqual({ bytes: 0, inodes: 3 });
});

describe('usage is what a fresh count finds', () => {
  const refusals = new Map<string, number>();
  for (const seed of [1, 2, 3, 4]) {
    test(`600 random operations, seed ${seed}`, async () => {
      const one = await organization({
        conversation: { bytes: 300_000, inodes: 12 },
        organization: { bytes: 400_000, inodes: 20 },
        cachedNames: 40,
      });
      const next = seeded(seed);
      const held: number[] = [];
      for (let number = 0; number < 600; number++) {
        const said = await refusal(step(one, next, held));
        refusals.set(said, (refusals.get(said) ?? 0) + 1);
        if (number % 40 !== 39) continue;
        if (number % 80 === 79) {
          await one.files.data.commitAll();
          await one.files.store.exclusive(() => one.files.store.forget());
        }
        // A fresh count does not know what is open here.
        for (const ino of held.splice(0)) await one.files.names.close(ino);
        for (const account of [0, ...one.accounts]) {
          expect(await used(one.files, account), `account ${account} after ${number}`).toEqual(
            await counted(one, account),
          );
        }
      }
    }, 60_000);
  }

  test('and each kind of refusal was among them', () => {
    for (const errno of ['done', 'EDQUOT', 'ENOSPC', 'EXDEV'])
      expect(refusals.get(errno) ?? 0, errno).toBeGreaterThan(0);
  });
});

async function step({ files, work }: Organization, below: (limit: number) => number, held: number[]): Promise<unknown> {
  const names = ['a', 'b', 'c', 'd'];
  const directory = async () => {
    const top = work[below(2)]!;
    const inner = below(2) === 0 ? await files.names.lookup(top, names[below(4)]!) : null;
    return inner && (inner.mode & 0o170000) === 0o040000 ? inner.ino : top;
  };
  const place = async () => ({ parent: await directory(), name: names[below(4)]! });
  const on = async (act: (ino: number) => Promise<unknown>) => {
    const { parent, name } = await place();
    const inode = await files.names.lookup(parent, name);
    if (!inode) throw new FileError('ENOENT', name);
    await act(inode.ino);
  };
  switch (below(12)) {
    case 0:
    case 1:
      return files.names.create(await place(), 0o100644);
    case 2:
      return files.names.makeDirectory(await place(), 0o755);
    case 3:
      return files.names.makeSymlink(await place(), 'x'.repeat(1 + below(100)));
    case 4:
      return files.names.unlink(await place());
    case 5:
      return files.names.removeDirectory(await place());
    case 6:
      return files.names.rename(
        await place(),
        await place(),
        (['replace', 'exchange', 'no-replace'] as RenameMode[])[below(3)]!,
      );
    case 7:
      return on(async (ino) => files.names.link(ino, await place()));
    case 8:
      return on((ino) => files.data.truncate(ino, below(200_000)));
    case 9:
      return on(async (ino) => {
        await files.names.open(ino);
        held.push(ino);
      });
    case 10:
      return held.length > 0
        ? files.data.write(held[below(held.length)]!, below(100_000), Buffer.alloc(1 + below(50_000)))
        : null;
    default:
      return on((ino) => files.data.write(ino, below(100_000), Buffer.alloc(1 + below(50_000))));
  }
}
