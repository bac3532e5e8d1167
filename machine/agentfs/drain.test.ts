/** In which steps the spool goes into the database: no group that is committed has a part of a small file alone. */
import { afterEach, beforeEach, expect, spyOn, test } from 'bun:test';
import { rootIno } from './ids.ts';
import { type LocalFiles, openLocalFiles } from './local.fixture.ts';

const chunk = 65_536;
const bytesOfStep = 3 * chunk;

let local: LocalFiles;
beforeEach(async () => {
  local = await openLocalFiles({ commitAfterMs: 600_000 });
});
afterEach(() => local.close());

const random = (chunks: number) => crypto.getRandomValues(new Uint8Array(chunks * chunk));

async function create(count: number): Promise<number[]> {
  const inos: number[] = [];
  for (let number = 0; number < count; number++)
    inos.push((await local.files.names.create({ parent: rootIno, name: `f${number}` }, 0o100644)).ino);
  return inos;
}

/** Rows of each file's contents behind each commit, and the number of steps. */
async function moved(inos: readonly number[]): Promise<{ commits: number[][]; steps: number }> {
  const { store, data } = local.files;
  const commits: number[][] = [];
  const { run } = store.sql;
  store.sql.run = async (sql, ...args) => {
    const done = await run.call(store.sql, sql, ...args);
    if (sql !== 'COMMIT') return done;
    const counts: number[] = [];
    for (const ino of inos)
      counts.push(Number((await store.sql.get('SELECT count(*) AS n FROM fs_data WHERE ino = ?', ino))?.n));
    commits.push(counts);
    return done;
  };
  const mark = await data.mark();
  // Two rows are a slice then, whatever the machine does.
  let now = 0;
  const clock = spyOn(performance, 'now').mockImplementation(() => (now += 3));
  let steps = 1;
  try {
    for (; !(await data.settleUpTo(mark, bytesOfStep)); steps++) await store.sync();
    await store.sync();
  } finally {
    clock.mockRestore();
    store.sql.run = run;
  }
  return { commits, steps };
}

for (const chunks of [3, 5, 16]) {
  test(`small files of ${chunks} rows, one behind the other, come whole, few in a step`, async () => {
    const inos = await create(6);
    for (const ino of inos) {
      // So that a shorter one goes to the spool, too.
      await local.files.data.write(ino, 0, random(5));
      await local.files.data.write(ino, 0, random(chunks));
      await local.files.data.truncate(ino, chunks * chunk);
    }
    const { commits, steps } = await moved(inos);
    const inPart = commits.flat().filter((rows) => rows !== 0 && rows !== chunks);
    expect(inPart).toEqual([]);
    expect(steps).toBe(6);
    expect(commits.at(-1)).toEqual(Array(6).fill(chunks));
  });
}

test('small files that were written by turns come whole', async () => {
  const inos = await create(2);
  for (const at of [0, 5]) for (const ino of inos) await local.files.data.write(ino, at * chunk, random(5));
  const { commits } = await moved(inos);
  expect(commits.flat().filter((rows) => rows !== 0 && rows !== 10)).toEqual([]);
  expect(commits.at(-1)).toEqual([10, 10]);
});

test('many that were written by turns, and large ones, do not make a step endless', async () => {
  const inos = await create(20);
  for (const at of [0, 5]) for (const ino of inos) await local.files.data.write(ino, at * chunk, random(5));
  const { ino: large } = await local.files.names.create({ parent: rootIno, name: 'large' }, 0o100644);
  await local.files.data.write(large, 0, random(64));
  const { commits, steps } = await moved([...inos, large]);
  expect(commits.at(-1)).toEqual([...Array(20).fill(10), 64]);
  expect(steps).toBeGreaterThan(15);
});
