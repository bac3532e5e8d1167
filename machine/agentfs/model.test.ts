/**
 * 100,000 random operations, on the store and on a model in memory: same results, same errors, same end; with crashes and
 * reopenings in between: what is left of a crash is what was there after some operation since all was last made sure.
 * `EDGE_MODEL_SEED` and `EDGE_MODEL_STEPS` repeat one walk.
 */
import { expect, test } from 'bun:test';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { type LocalFiles, openFilesIn } from './local.fixture.ts';
import { Walk } from './walk.fixture.ts';

/** Small, so that every bound is met. With every second seed nearly everything goes through the spool. */
const limitsOf = (seed: number) => ({
  spooledFrom: seed % 2 === 0 ? 5_000 : 256_000,
  groupRows: 60,
  spool: 3_000_000,
  quietMs: 1,
  unwritten: 400_000,
  unwrittenOfOneFile: 200_000,
  readCache: 500_000,
  cachedInodes: 20,
  cachedNames: 20,
});

/** What must have succeeded now and then, for a walk to have tried it. */
const kinds = [
  ...['make file', 'make directory', 'make symlink', 'nameless', 'link', 'unlink', 'rmdir', 'attributes'],
  ...['rename replace', 'rename no-replace', 'rename exchange', 'write', 'append', 'truncate', 'punch'],
];

const newDirectory = () => mkdtempSync(join(tmpdir(), 'agentfs-model-'));

/** What a killed process leaves: its files, as they are between two statements. The process itself is no more asked. */
async function crashed(local: LocalFiles): Promise<string> {
  const directory = newDirectory();
  await local.files.store.exclusive(async () => cpSync(dirname(local.path), directory, { recursive: true }));
  await local.close();
  rmSync(dirname(local.path), { recursive: true, force: true });
  return directory;
}

async function walk(seed: number, steps: number): Promise<void> {
  console.log(`EDGE_MODEL_SEED=${seed} EDGE_MODEL_STEPS=${steps}`);
  const limits = limitsOf(seed);
  let local = await openFilesIn(newDirectory(), limits);
  const walk = new Walk(local.files, seed);
  let crashes = 0;
  for (let step = 0; step < steps; step++) {
    await walk.step();
    const event = walk.random(1000);
    if (event === 0) {
      local = await openFilesIn(await crashed(local), limits);
      await walk.recover(local.files);
      crashes += 1;
    } else if (event === 1) {
      await walk.closeAll();
      await local.close();
      walk.history.sure();
      local = await openFilesIn(dirname(local.path), limits);
      walk.files = local.files;
      await walk.compare();
    } else if (event < 6) await walk.compare();
  }
  await walk.closeAll();
  await walk.compare();
  await local.files.flush();
  // Nothing is left of what was removed, beyond what was open in a crash.
  const reachable = [...walk.inos.keys()].filter((node) => node.nlink > 0).length;
  const row = await local.driver.get('SELECT count(*) AS n FROM fs_inode WHERE nlink > 0');
  expect(Number(row!.n)).toBe(reachable);
  const orphans = await local.driver.all('SELECT ino FROM fs_data WHERE ino NOT IN (SELECT ino FROM fs_inode)');
  expect(orphans).toEqual([]);
  await local.close();
  rmSync(dirname(local.path), { recursive: true, force: true });
  const never = kinds.filter((kind) => !walk.done.has(kind));
  if (steps > 10_000) expect({ crashes: crashes > 0, never }).toEqual({ crashes: true, never: [] });
}

const replayed = process.env.EDGE_MODEL_SEED;
const seeds = replayed === undefined ? [1, 2, 3, Date.now() % 1_000_000_000] : [Number(replayed)];
for (const [at, seed] of seeds.entries()) {
  const name = replayed === undefined && at === 3 ? 'a seed of its own' : `seed ${seed}`;
  test(`25,000 random operations, ${name}`, () => walk(seed, Number(process.env.EDGE_MODEL_STEPS ?? 25_000)), 600_000);
}
