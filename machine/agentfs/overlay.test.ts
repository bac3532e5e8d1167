/** The base below the delta: what is seen, what a change writes, and that nobody can tell the merged tree from a plain one. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { BaseTree, emptyBase } from './base.ts';
import { FileError } from './errors.ts';
import { OrganizationFiles } from './files.ts';
import { directoryIno, rootIno } from './ids.ts';
import { defaultLimits } from './limits.ts';
import { type LocalFiles, openLocalFiles } from './local.fixture.ts';
import { seeded } from './model.fixture.ts';
import type { RenameMode } from './namespace.ts';
import { isDirectory } from './schema.ts';

const baseFiles = [
  { path: '/skills/a/SKILL.md', mode: 0o644, bytes: Buffer.from('the skill a') },
  { path: '/skills/a/scripts/run.py', mode: 0o755, bytes: Buffer.from('print(1)\n') },
  { path: '/skills/b/SKILL.md', mode: 0o644, bytes: Buffer.alloc(150_000, 'long text. ') },
];
const base = new BaseTree(baseFiles);

/** Tables whose rows are the delta. */
async function rowsOf({ driver }: LocalFiles): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const table of ['fs_inode', 'fs_dentry', 'fs_data', 'fs_whiteout', 'fs_origin']) {
    counts[table] = Number((await driver.get(`SELECT count(*) AS n FROM ${table}`))?.n);
  }
  return counts;
}
const whiteouts = async ({ driver }: LocalFiles) =>
  (await driver.all('SELECT path, parent_path FROM fs_whiteout ORDER BY path')).map(
    (row) => `${row.path} in ${row.parent_path}`,
  );

async function at(files: OrganizationFiles, path: string) {
  const inode = await files.find(path);
  if (!inode) throw new Error(`${path} is not there`);
  return inode;
}
const place = async (files: OrganizationFiles, path: string) => ({
  parent: (await at(files, path.slice(0, path.lastIndexOf('/')))).ino,
  name: path.slice(path.lastIndexOf('/') + 1),
});
async function text(files: OrganizationFiles, path: string): Promise<string> {
  const { ino, size } = await at(files, path);
  return Buffer.from(await files.data.read(ino, 0, size)).toString();
}
async function names(files: OrganizationFiles, path: string): Promise<string[]> {
  return (await files.names.list((await at(files, path)).ino)).map(({ name }) => name);
}

describe('one organization', () => {
  let local: LocalFiles;
  let files: OrganizationFiles;
  beforeAll(async () => {
    local = await openLocalFiles({}, base);
    files = local.files;
  });
  afterAll(() => local.close());

  test('the base is there, and looking at it writes nothing', async () => {
    const before = await rowsOf(local);
    expect(await names(files, '/skills')).toEqual(['a', 'b']);
    expect(await names(files, '/skills/a')).toEqual(['SKILL.md', 'scripts']);
    expect(await text(files, '/skills/a/SKILL.md')).toBe('the skill a');
    expect(await text(files, '/skills/b/SKILL.md')).toBe('long text. '.repeat(13_637).slice(0, 150_000));
    const script = await at(files, '/skills/a/scripts/run.py');
    expect(script.mode).toBe(0o100755);
    expect(script.ino).toBe((await at(files, '/skills/a/scripts/run.py')).ino);
    await files.names.open(script.ino);
    await files.names.close(script.ino);
    await files.flush();
    expect(await rowsOf(local)).toEqual(before);
  });

  test('a write copies up, with the directories above it, and the number stays', async () => {
    const { ino } = await at(files, '/skills/a/SKILL.md');
    await files.data.write(ino, 4, Buffer.from('SKILL'));
    expect(await text(files, '/skills/a/SKILL.md')).toBe('the SKILL a');
    await files.data.commit(ino);
    expect(await rowsOf(local)).toEqual({ fs_inode: 4, fs_dentry: 3, fs_data: 1, fs_whiteout: 0, fs_origin: 3 });
    expect((await at(files, '/skills/a/SKILL.md')).ino).toBe(ino);
    expect((await at(files, '/skills')).ino).toBe(directoryIno(rootIno, 'skills'));
    expect(await names(files, '/skills/a')).toEqual(['SKILL.md', 'scripts']);
    expect(
      await local.driver.all('SELECT 1 AS one FROM fs_origin WHERE delta_ino = ? AND base_ino = ?', ino, ino),
    ).toHaveLength(1);
  });

  test('a write into the middle of a long file keeps the rest', async () => {
    const { ino } = await at(files, '/skills/b/SKILL.md');
    await files.data.write(ino, 70_000, Buffer.from('HERE'));
    await files.data.commit(ino);
    const whole = await text(files, '/skills/b/SKILL.md');
    expect(whole.length).toBe(150_000);
    expect(whole.slice(70_000, 70_004)).toBe('HERE');
    expect(whole.slice(0, 70_000) + whole.slice(70_004)).toBe(
      Buffer.concat([baseFiles[2]!.bytes.subarray(0, 70_000), baseFiles[2]!.bytes.subarray(70_004)]).toString(),
    );
  });

  test('a deletion is a whiteout; what is made there again shows nothing of the base', async () => {
    await files.names.unlink(await place(files, '/skills/a/scripts/run.py'));
    expect(await whiteouts(local)).toEqual(['/skills/a/scripts/run.py in /skills/a/scripts']);
    await files.names.removeDirectory(await place(files, '/skills/a/scripts'));
    await files.names.unlink(await place(files, '/skills/a/SKILL.md'));
    await files.names.removeDirectory(await place(files, '/skills/a'));
    expect(await names(files, '/skills')).toEqual(['b']);
    await files.names.makeDirectory(await place(files, '/skills/a'), 0o755);
    expect(await names(files, '/skills/a')).toEqual([]);
    expect(await whiteouts(local)).toEqual([
      '/skills/a/SKILL.md in /skills/a',
      '/skills/a/scripts in /skills/a',
      '/skills/a/scripts/run.py in /skills/a/scripts',
    ]);
    await files.names.create(await place(files, '/skills/a/SKILL.md'), 0o100644);
    expect(await text(files, '/skills/a/SKILL.md')).toBe('');
    expect(await whiteouts(local)).not.toContain('/skills/a/SKILL.md in /skills/a');
  });

  test('another machine that opens the delta sees the same', async () => {
    await files.flush();
    const again = await OrganizationFiles.open(local.driver, defaultLimits, base);
    expect(await names(again, '/skills')).toEqual(['a', 'b']);
    expect(await names(again, '/skills/a')).toEqual(['SKILL.md']);
    expect(await text(again, '/skills/b/SKILL.md')).toBe(await text(files, '/skills/b/SKILL.md'));
  });
});

test('a directory of the base moves with its contents, and its old place shows nothing of it', async () => {
  const local = await openLocalFiles({}, base);
  const { files } = local;
  const { ino } = await at(files, '/skills/a/scripts/run.py');
  await files.names.rename(await place(files, '/skills/a'), await place(files, '/skills/z'), 'replace');
  expect(await names(files, '/skills')).toEqual(['b', 'z']);
  expect(await text(files, '/skills/z/scripts/run.py')).toBe('print(1)\n');
  expect((await at(files, '/skills/z/scripts/run.py')).ino).toBe(ino);
  await files.names.makeDirectory(await place(files, '/skills/a'), 0o755);
  expect(await names(files, '/skills/a')).toEqual([]);
  await local.close();
});

test('a file of the base that is deleted while it is open can be read and written until it is closed', async () => {
  const local = await openLocalFiles({}, base);
  const { files } = local;
  const { ino } = await at(files, '/skills/a/SKILL.md');
  await files.names.open(ino);
  await files.names.unlink(await place(files, '/skills/a/SKILL.md'));
  expect(Buffer.from(await files.data.read(ino, 0, 100)).toString()).toBe('the skill a');
  expect((await files.store.inode(ino))?.nlink).toBe(0);
  expect(await local.driver.all('SELECT 1 AS one FROM fs_dentry WHERE ino = ?', ino)).toEqual([]);
  await files.data.write(ino, 0, Buffer.from('THE'));
  await files.names.close(ino);
  expect(await files.find('/skills/a/SKILL.md')).toBeNull();
  expect(await local.driver.all('SELECT 1 AS one FROM fs_inode WHERE ino = ?', ino)).toEqual([]);
  await local.close();
});

test('a delta in which the directory has a number of its own shows the base in it all the same', async () => {
  const local = await openLocalFiles({}, emptyBase);
  await local.driver.run('INSERT INTO fs_inode (ino, mode, nlink, atime, mtime, ctime) VALUES (7, 16877, 2, 1, 1, 1)');
  await local.driver.run("INSERT INTO fs_dentry (id, name, parent_ino, ino) VALUES (5, 'skills', 1, 7)");
  const files = await OrganizationFiles.open(local.driver, defaultLimits, base);
  expect(await names(files, '/skills')).toEqual(['a', 'b']);
  await files.names.create({ parent: (await at(files, '/skills/a')).ino, name: 'new.md' }, 0o100644);
  expect(await names(files, '/skills/a')).toEqual(['SKILL.md', 'new.md', 'scripts']);
  await local.close();
});

test('what fails changes nothing of the overlay', async () => {
  const local = await openLocalFiles({}, base);
  const { files } = local;
  const before = await rowsOf(local);
  await expect(files.names.removeDirectory(await place(files, '/skills/a'))).rejects.toThrow('ENOTEMPTY');
  await expect(
    files.names.rename(await place(files, '/skills/a'), await place(files, '/skills/b'), 'replace'),
  ).rejects.toThrow('ENOTEMPTY');
  await expect(files.names.create(await place(files, '/skills/a'), 0o100644)).rejects.toThrow('EEXIST');
  expect(await rowsOf(local)).toEqual(before);
  expect(await text(files, '/skills/a/SKILL.md')).toBe('the skill a');
  await local.close();
});

/** The same tree twice: merged of base and delta, and all in the delta. */
async function twins(): Promise<{ merged: LocalFiles; plain: LocalFiles }> {
  const [merged, plain] = [await openLocalFiles({}, base), await openLocalFiles()];
  for (const { path, mode, bytes } of base.entries()) {
    const where = await place(plain.files, path);
    if (isDirectory(mode)) await plain.files.names.makeDirectory(where, 0o755);
    else await plain.files.data.write((await plain.files.names.create(where, mode)).ino, 0, bytes);
  }
  return { merged, plain };
}

async function snapshot(files: OrganizationFiles, path: string): Promise<string[]> {
  const lines: string[] = [];
  for (const { name, inode } of await files.names.list((await at(files, path === '' ? '/' : path)).ino)) {
    const own = `${path}/${name}`;
    const isHere = isDirectory(inode.mode);
    const content = isHere ? '' : Bun.hash(await files.data.read(inode.ino, 0, inode.size)).toString(36);
    lines.push(`${own} ${inode.mode.toString(8)} ${inode.nlink} ${isHere ? '' : inode.size} ${content}`);
    if (isHere) lines.push(...(await snapshot(files, own)));
  }
  return lines;
}

const parts = ['a', 'b', 'c', 'SKILL.md', 'scripts', 'run.py'];

describe('nobody can tell the merged tree from a plain one', () => {
  for (const seed of [1, 2, 3, 4]) {
    test(`400 random operations, seed ${seed}`, async () => {
      const next = seeded(seed);
      const { merged, plain } = await twins();
      const sides = [merged.files, plain.files];
      const name = () => parts[next(parts.length)]!;
      const path = () => `/skills/${Array.from({ length: 1 + next(3) }, name).join('/')}`;
      const steps = Array.from({ length: 400 }, () => step(next, path));
      for (const [number, { what, act }] of steps.entries()) {
        const [ours, theirs] = [await outcome(act(sides[0]!)), await outcome(act(sides[1]!))];
        expect(ours, `step ${number}: ${what}`).toBe(theirs);
        if (number % 20 === 19)
          expect(await snapshot(sides[0]!, ''), `after ${what}`).toEqual(await snapshot(sides[1]!, ''));
        if (number % 100 === 99) {
          await sides[0]!.flush();
          sides[0] = await OrganizationFiles.open(merged.driver, defaultLimits, base);
        }
      }
      for (const files of sides) {
        files.data.stop();
        await files.data.commitAll();
      }
      expect(
        await merged.driver.all("SELECT path FROM fs_whiteout WHERE path NOT LIKE '/skills/%' AND path <> '/skills'"),
      ).toEqual([]);
      for (const local of [merged, plain]) await local.close();
    }, 60_000);
  }
});

async function outcome(act: Promise<unknown>): Promise<string> {
  try {
    return String((await act) ?? 'done');
  } catch (error) {
    if (error instanceof FileError) return error.errno;
    throw error;
  }
}

interface Step {
  readonly what: string;
  act(files: OrganizationFiles): Promise<unknown>;
}

function step(next: (below: number) => number, path: () => string): Step {
  const [one, two] = [path(), path()];
  const spot = async (files: OrganizationFiles, where: string) => {
    const parent = await files.find(where.slice(0, where.lastIndexOf('/')));
    if (!parent) throw new FileError('ENOENT', where);
    return { parent: parent.ino, name: where.slice(where.lastIndexOf('/') + 1) };
  };
  const on = (act: (files: OrganizationFiles, ino: number) => Promise<unknown>) => async (files: OrganizationFiles) => {
    const inode = await files.find(one);
    if (!inode) throw new FileError('ENOENT', one);
    await act(files, inode.ino);
  };
  const amount = next(140_000);
  const mode = (['replace', 'no-replace', 'exchange'] as RenameMode[])[next(3)]!;
  const steps: Step[] = [
    { what: `create ${one}`, act: async (files) => void (await files.names.create(await spot(files, one), 0o100640)) },
    {
      what: `mkdir ${one}`,
      act: async (files) => void (await files.names.makeDirectory(await spot(files, one), 0o750)),
    },
    { what: `unlink ${one}`, act: async (files) => files.names.unlink(await spot(files, one)) },
    { what: `rmdir ${one}`, act: async (files) => files.names.removeDirectory(await spot(files, one)) },
    {
      what: `rename ${one} ${two} ${mode}`,
      act: async (files) => files.names.rename(await spot(files, one), await spot(files, two), mode),
    },
    {
      what: `link ${one} ${two}`,
      act: async (files) => {
        const inode = await files.find(one);
        if (!inode) throw new FileError('ENOENT', one);
        await files.names.link(inode.ino, await spot(files, two));
      },
    },
    { what: `write ${one} ${amount}`, act: on((files, ino) => files.data.write(ino, amount, Buffer.from('written'))) },
    { what: `truncate ${one} ${amount}`, act: on((files, ino) => files.data.truncate(ino, amount)) },
    { what: `punch ${one} ${amount}`, act: on((files, ino) => files.data.punch(ino, amount, 1000)) },
    { what: `chmod ${one}`, act: on((files, ino) => files.names.setAttributes(ino, { mode: amount & 0o777 })) },
    {
      what: `unlink ${one} while open`,
      act: on(async (files, ino) => {
        await files.names.open(ino);
        try {
          await files.names.unlink(await spot(files, one));
          await files.data.write(ino, 1, Buffer.from('gone'));
        } finally {
          await files.names.close(ino);
        }
      }),
    },
  ];
  return steps[next(steps.length)]!;
}
