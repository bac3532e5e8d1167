/** Machines that are killed before any boundary ends: the next one begins with a short log, and has everything. */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test';
import { cpSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { startAuthority, type TestAuthority } from './agentfs/authority.fixture.ts';
import { flawsOf, sqlOfCloud } from './conflicts.fixture.ts';
import { integrityOf } from './kill-points.fixture.ts';
import { type OpenedFiles, openOrganizationFiles } from './sync.ts';

setDefaultTimeout(240_000);
let authority: TestAuthority;
const machines: OpenedFiles[] = [];

beforeAll(async () => {
  authority = await startAuthority();
  await authority.cloud.ensureDirectory('/conversations/conv/work');
});
afterAll(async () => {
  for (const { boundary } of machines) await boundary.close();
  await authority.stop();
});

async function open(name: string): Promise<OpenedFiles> {
  const replicaDirectory = join(authority.directory, name);
  const machine = await openOrganizationFiles(
    { agentfs: authority.address, replicaDirectory },
    { log: () => undefined },
  );
  machines.push(machine);
  machine.boundary.begin('conv');
  await machine.boundary.firstTouch('conv');
  return machine;
}

const logBytes = (name: string): number => statSync(join(authority.directory, name, 'organization.db-wal')).size;
const contents = (number: number): Buffer => Buffer.alloc(250_000, `file ${number} `);

test('a log of unpushed changes is folded when the next machine begins, and they are pushed all the same', async () => {
  const { files } = await open('first');
  const parent = (await files.find('/conversations/conv/work'))!.ino;
  let count = 0;
  for (; count < 60 || logBytes('first') < 80 * 1024 ** 2; count++) {
    const { ino } = await files.names.create({ parent, name: `file ${count}` }, 0o100644);
    await files.data.write(ino, 0, contents(count));
    await files.store.sync();
  }
  cpSync(join(authority.directory, 'first'), join(authority.directory, 'second'), { recursive: true });

  const second = await open('second');
  expect(logBytes('second')).toBeLessThan(64 * 1024 ** 2);
  expect(integrityOf(authority.directory, join(authority.directory, 'second/organization.db'))).toBe('ok');
  // Somebody else writes meanwhile, so that there is something to pull over what is not pushed.
  await authority.cloud.writeFileOnce('/conversations/conv/work/elsewhere', contents(1_000));
  const { ino } = await second.files.names.create({ parent, name: 'later' }, 0o100644);
  await second.files.data.write(ino, 0, contents(2_000));
  expect(await second.boundary.end('conv')).toEqual({ state: 'clean' });
  for (const number of [0, 1, Math.floor(count / 2), count - 1]) {
    const path = `/conversations/conv/work/file ${number}`;
    expect([number, contents(number).equals(await authority.cloud.readFile(path))]).toEqual([number, true]);
  }
  expect(contents(2_000).equals(await authority.cloud.readFile('/conversations/conv/work/later'))).toBe(true);
  const found = await second.files.find('/conversations/conv/work/elsewhere');
  expect(contents(1_000).equals(await second.files.data.read(found!.ino, 0, found!.size))).toBe(true);
  expect(await flawsOf(sqlOfCloud(authority))).toEqual([]);
});
