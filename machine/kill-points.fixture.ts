/** `kill -9` of a machine or of its authority at named steps and at random points under load, and what must be there afterwards. */
import { Database } from 'bun:sqlite';
import { expect } from 'bun:test';
import { copyFileSync, existsSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { startAuthority, type TestAuthority } from './agentfs/authority.fixture.ts';
import { seeded } from './agentfs/model.fixture.ts';
import { flawsOf, sqlOfCloud } from './conflicts.fixture.ts';
import { openOrganizationFiles } from './sync.ts';

/** What a machine of killed.fixture.ts is about to do, or has done, and what its authority gets of it. */
const steps = [
  ...(['create', 'write', 'sync', 'synced', 'end', 'pushed'] as const),
  ...(['pull arrived', 'pull answered', 'push arrived', 'push answered'] as const),
];
type Step = (typeof steps)[number];
/** A step that does not come is not waited for any longer: the kill is at a random moment then. */
const stepMs = 3_000;

interface Point {
  readonly seed: number;
  readonly victim: 'machine' | 'authority';
  /** Null: a random moment. */
  readonly step: Step | null;
}

/** Both in turn, every second time at a named step, each step in turn: 3 has no divisor in common with their number. */
const pointOf = (number: number, firstSeed: number): Point => ({
  seed: firstSeed + number,
  victim: number % 2 === 0 ? 'machine' : 'authority',
  step: Math.floor(number / 2) % 2 === 0 ? null : steps[(3 + 3 * Math.floor(number / 4)) % steps.length]!,
});

/** Kills at so many points. Throws, or fails an expectation, with the point. */
export async function killAtPoints(points: number, firstSeed: number): Promise<void> {
  const authority = await startAuthority();
  try {
    await authority.cloud.ensureDirectory('/conversations/conv/work');
    const launch = { agentfs: authority.address, replicaDirectory: join(authority.directory, 'replica') };
    const durable = new Map<string, number>();
    for (let number = 0; number < points; number++) {
      const point = pointOf(number, firstSeed);
      await killAt(point, authority, launch, durable);
      for (const path of [
        join(authority.directory, 'data', 'agentfs.db'),
        join(launch.replicaDirectory, 'organization.db'),
      ])
        expect({ ...point, path, says: integrityOf(authority.directory, path) }).toEqual({
          ...point,
          path,
          says: 'ok',
        });
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

type Launch = Parameters<typeof openOrganizationFiles>[0];

/** One machine's life. A killed authority is there again at its end. */
async function killAt(
  { seed, victim, step }: Point,
  authority: TestAuthority,
  launch: Launch,
  durable: Map<string, number>,
): Promise<void> {
  const next = seeded(seed);
  const killed = Promise.withResolvers<void>();
  const reached = Promise.withResolvers<void>();
  // It is held at this step until it, or its authority, is dead.
  const at = (now: string): Promise<void> | undefined => {
    if (now !== step) return undefined;
    reached.resolve();
    return killed.promise;
  };
  authority.onRequest(at);
  const argv = [process.execPath, join(import.meta.dir, 'killed.fixture.ts'), JSON.stringify(launch), String(seed)];
  const child = Bun.spawn(argv, { stdout: 'pipe', stderr: 'inherit' });
  const lines = heard(child.stdout, durable, at);
  await lines.begun;
  if (step === null) await Bun.sleep(next(400));
  else await Promise.race([reached.promise, Bun.sleep(stepMs)]);
  if (victim === 'authority') {
    await authority.kill();
    killed.resolve();
    await Bun.sleep(next(100));
  }
  child.kill('SIGKILL');
  await child.exited;
  killed.resolve();
  authority.onRequest(() => undefined);
  await lines.ended;
  if (victim === 'authority') await authority.again();
}

/** Notes what is durable, and tells each step. `begun` resolves with the first line. */
function heard(stdout: ReadableStream<Uint8Array>, durable: Map<string, number>, at: (step: string) => unknown) {
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
        at(what!);
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
