/** `kill -9` of a machine or of its authority at random points under load, and what must be there afterwards. */
import { Database } from 'bun:sqlite';
import { expect } from 'bun:test';
import { copyFileSync, existsSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { startAuthority } from './agentfs/authority.fixture.ts';
import { seeded } from './agentfs/model.fixture.ts';
import { flawsOf, sqlOfCloud } from './conflicts.fixture.ts';
import { openOrganizationFiles } from './sync.ts';

/** Kills at so many points. Throws, or fails an expectation, with the seed of the point. */
export async function killAtPoints(points: number, firstSeed: number): Promise<void> {
  const authority = await startAuthority();
  try {
    await authority.cloud.ensureDirectory('/conversations/conv/work');
    const launch = { agentfs: authority.address, replicaDirectory: join(authority.directory, 'replica') };
    const durable = new Map<string, number>();
    for (let point = 0; point < points; point++) {
      const seed = firstSeed + point;
      const next = seeded(seed);
      const child = Bun.spawn(
        [process.execPath, join(import.meta.dir, 'killed.fixture.ts'), JSON.stringify(launch), String(seed)],
        {
          stdout: 'pipe',
          stderr: 'inherit',
        },
      );
      const lines = heard(child.stdout, durable);
      await lines.begun;
      const kills = next(2) === 0 ? 'machine' : 'authority';
      await Bun.sleep(next(400));
      if (kills === 'authority') {
        await authority.kill();
        await Bun.sleep(next(100));
      }
      child.kill('SIGKILL');
      await child.exited;
      await lines.ended;
      if (kills === 'authority') await authority.again();
      for (const path of [
        join(authority.directory, 'data', 'agentfs.db'),
        join(launch.replicaDirectory, 'organization.db'),
      ])
        expect([seed, kills, path.slice(-15), integrityOf(authority.directory, path)]).toEqual([
          seed,
          kills,
          path.slice(-15),
          'ok',
        ]);
    }
    const { files, boundary } = await openOrganizationFiles(launch, { log: () => undefined });
    boundary.begin('conv');
    await boundary.firstTouch('conv');
    expect(await boundary.end('conv')).toEqual({ state: 'clean' });
    expect(durable.size).toBeGreaterThan(points);
    for (const [name, size] of durable) {
      const path = `/conversations/conv/work/${name}`;
      const wanted = Buffer.alloc(size, name);
      const inode = await files.find(path);
      const here = inode && Buffer.from(await files.data.read(inode.ino, 0, inode.size));
      expect([name, here?.equals(wanted)]).toEqual([name, true]);
      expect([name, Buffer.from(await authority.cloud.readFile(path)).equals(wanted)]).toEqual([name, true]);
    }
    expect(await flawsOf(sqlOfCloud(authority))).toEqual([]);
    await boundary.close();
  } finally {
    await authority.stop();
  }
}

/** Notes what is durable. `begun` resolves with the first of it. */
function heard(stdout: ReadableStream<Uint8Array>, durable: Map<string, number>) {
  const begun = Promise.withResolvers<void>();
  const ended = (async () => {
    const decoder = new TextDecoder();
    let text = '';
    for await (const bytes of stdout) {
      const lines = (text + decoder.decode(bytes, { stream: true })).split('\n');
      text = lines.pop() ?? '';
      for (const line of lines) {
        const [what, name, size] = line.split(' ');
        if (what === 'synced') durable.set(name!, Number(size));
        begun.resolve();
      }
    }
    begun.reject(new Error('the machine ended before it had done anything'));
  })();
  return { begun: begun.promise, ended };
}

/** What `PRAGMA integrity_check` says of a copy of a database that others have open. */
export function integrityOf(directory: string, path: string): unknown {
  const copy = join(directory, 'copy');
  mkdirSync(copy);
  for (const suffix of ['', '-wal'])
    if (existsSync(path + suffix)) copyFileSync(path + suffix, join(copy, `copy.db${suffix}`));
  const database = new Database(join(copy, 'copy.db'));
  try {
    const [row] = database.query('PRAGMA integrity_check').all() as { integrity_check: unknown }[];
    return row?.integrity_check;
  } finally {
    database.close();
    rmSync(copy, { recursive: true });
  }
}
