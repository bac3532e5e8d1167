/** Files from outside, over a real authority: one inode each, verified, all or none, and nothing left of what failed. */
import { afterAll, beforeAll, beforeEach, expect, test } from 'bun:test';
import { startAuthority, type TestAuthority } from './authority.fixture.ts';
import { CloudFiles } from './cloud.ts';
import { contentsOf } from './cloud-contents.ts';
import { FileError } from './errors.ts';
import { HranaDatabase, type SqlStatement } from './hrana.ts';
import { IncomingFiles } from './incoming.ts';

let authority: TestAuthority;
let incoming: IncomingFiles;
beforeAll(async () => {
  authority = await startAuthority();
  incoming = new IncomingFiles(authority.sql, authority.cloud);
});
afterAll(() => authority.stop());
beforeEach(async () => {
  expect(await leftOver()).toEqual([0, 0, 0]);
});

const inbound = '/conversations/conv_a/artifacts/inbound';

async function* parts(...list: readonly (Uint8Array | string)[]): AsyncGenerator<Uint8Array> {
  for (const part of list) yield typeof part === 'string' ? Buffer.from(part) : part;
}
const sha256 = (bytes: Uint8Array | string) => new Bun.CryptoHasher('sha256').update(bytes).digest('hex');

/** Inodes and contents without a name, and notes of such. */
async function leftOver(): Promise<unknown> {
  const { rows } = await authority.sql.execute(
    'SELECT (SELECT count(*) FROM fs_inode WHERE nlink = 0), ' +
      '(SELECT count(*) FROM fs_data WHERE ino NOT IN (SELECT ino FROM fs_inode)), (SELECT count(*) FROM kv_store)',
  );
  return rows[0];
}

const errnoOf = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => 'ok',
    (error: unknown) => (error instanceof FileError ? error.errno : String(error)),
  );

async function read(path: string): Promise<Buffer> {
  const inode = (await authority.cloud.stat(path))!;
  const list: Uint8Array[] = [];
  for await (const part of contentsOf(authority.sql, inode, await authority.cloud.chunkSize())) list.push(part);
  return Buffer.concat(list);
}

test('contents of any length and cut are stored as they came and found under their name', async () => {
  const large = crypto.getRandomValues(new Uint8Array(65_536));
  const cuts: Record<string, Uint8Array[]> = {
    empty: [],
    byte: [Buffer.from('x')],
    chunk: [large],
    'chunk and a byte': [large, Buffer.from('y')],
    'odd pieces': Array.from({ length: 70 }, (_, index) => large.subarray(index, 40_000 + index * 31)),
  };
  for (const [name, list] of Object.entries(cuts)) {
    const whole = Buffer.concat(list);
    const file = await incoming.receive(parts(...list), 100_000_000);
    expect([file.size, file.sha256]).toEqual([whole.length, sha256(whole)]);
    expect(await authority.cloud.stat(`${inbound}/${name}`)).toBeNull();
    await incoming.name(inbound, [{ name, file }]);
    expect((await read(`${inbound}/${name}`)).equals(whole)).toBe(true);
    const inode = (await authority.cloud.stat(`${inbound}/${name}`))!;
    expect([inode.ino, inode.nlink, inode.mode]).toEqual([file.ino, 1, 0o100644]);
  }
});

test('too long, broken off, or stored wrongly: nothing is left', async () => {
  expect(await errnoOf(incoming.receive(parts('12345', '678901'), 10))).toBe('EFBIG');
  async function* breaking() {
    yield crypto.getRandomValues(new Uint8Array(65_536));
    for (let index = 0; index < 40; index++) yield new Uint8Array(65_536);
    throw new Error('the client has gone');
  }
  expect(await errnoOf(incoming.receive(breaking(), 1e9))).toContain('the client has gone');
  const lying = new IncomingFiles(
    {
      execute: (sql, args) => authority.sql.execute(sql, args),
      batch: (statements, options) =>
        authority.sql.batch(
          statements.map(({ sql, args = [] }) => ({
            sql,
            args: args.map((one) => (one instanceof Uint8Array ? one.map((byte) => byte ^ 1) : one)),
          })),
          options,
        ),
    },
    authority.cloud,
  );
  expect(await errnoOf(lying.receive(parts('abc'), 10))).toBe('EIO');
  expect(await leftOver()).toEqual([0, 0, 0]);
});

test('all get their names or none; what was given can be taken back, what was there before stays', async () => {
  const first = await incoming.receive(parts('first'), 10);
  await incoming.name(inbound, [{ name: 'taken', file: first }]);
  const [same, other, third] = await Promise.all(
    ['first', 'other', 'third'].map((text) => incoming.receive(parts(text), 10)),
  );
  const collision = incoming.name(inbound, [
    { name: 'new', file: third! },
    { name: 'taken', file: other! },
  ]);
  expect(await errnoOf(collision)).toBe('EEXIST');
  expect(await authority.cloud.stat(`${inbound}/new`)).toBeNull();

  const named = await incoming.name(inbound, [
    { name: 'taken', file: same! },
    { name: 'new', file: third! },
    { name: 'new', file: third! },
  ]);
  expect(named.names).toEqual([{ name: 'new', ino: third!.ino }]);
  for (const { ino } of [same!, other!]) await incoming.discard(ino);
  // What has a name cannot be discarded.
  await incoming.discard(third!.ino);
  expect((await read(`${inbound}/new`)).toString()).toBe('third');
  await incoming.unname(named);
  await incoming.discard(third!.ino);
  expect(await authority.cloud.stat(`${inbound}/new`)).toBeNull();
  expect((await authority.cloud.stat(`${inbound}/taken`))!.ino).toBe(first.ino);
});

test('of the same file that comes twice at once, one inode has the name', async () => {
  const files = await Promise.all([1, 2, 3, 4].map(() => incoming.receive(parts('twin'), 10)));
  const named = await Promise.all(files.map((file) => incoming.name(inbound, [{ name: 'twin', file }])));
  const [winner] = named.flatMap(({ names }) => names);
  expect(named.flatMap(({ names }) => names)).toHaveLength(1);
  for (const { ino } of files) await incoming.discard(ino);
  expect((await authority.cloud.stat(`${inbound}/twin`))!.ino).toBe(winner!.ino);
});

test('a file that was removed while it came in fails, and late requests of it leave nothing', async () => {
  let sent: readonly SqlStatement[] = [];
  const recording = new IncomingFiles(
    {
      execute: (sql, args) => authority.sql.execute(sql, args),
      batch: (statements, options) => {
        if (statements.some(({ sql }) => sql.includes('INTO fs_data'))) sent = statements;
        return authority.sql.batch(statements, options);
      },
    },
    authority.cloud,
  );
  async function* reaped() {
    yield new Uint8Array(2 * 1024 * 1024 + 1);
    await authority.sql.execute('DELETE FROM fs_data WHERE ino IN (SELECT ino FROM fs_inode WHERE nlink = 0)');
    await authority.sql.execute('DELETE FROM fs_inode WHERE nlink = 0');
  }
  expect(await errnoOf(recording.receive(reaped(), 1e9))).toBe('EIO');
  await authority.sql.batch(sent, { transaction: true });
  expect(await leftOver()).toEqual([0, 0, 0]);
});

test('what a killed process left is found by the next one and removed, and nothing else', async () => {
  const kept = await incoming.receive(parts('kept'), 10);
  await incoming.name(inbound, [{ name: 'kept', file: kept }]);
  const lost = await incoming.receive(parts(new Uint8Array(20 * 1024 * 1024)), 1e9);
  const next = new IncomingFiles(authority.sql, new CloudFiles(authority.sql));
  const { count, remove } = await next.leftOvers();
  expect(count).toBe(1);
  const running = await next.receive(parts('now'), 10);
  await remove();
  expect(await errnoOf(next.name(inbound, [{ name: 'lost', file: lost }]))).toContain('NOT NULL');
  await next.name(inbound, [{ name: 'running', file: running }]);
  expect((await read(`${inbound}/kept`)).toString()).toBe('kept');
}, 30_000);

test('a database that is away fails the upload, and what is left is found later', async () => {
  const away = new IncomingFiles(new HranaDatabase(authority.address), authority.cloud);
  async function* loses() {
    yield new Uint8Array(2 * 1024 * 1024);
    authority.setReachable(false);
    yield new Uint8Array(1024 * 1024);
  }
  expect(await errnoOf(away.receive(loses(), 1e9))).toContain('HranaError');
  authority.setReachable(true);
  const { count, remove } = await incoming.leftOvers();
  expect(count).toBe(1);
  await remove();
  expect(await leftOver()).toEqual([0, 0, 0]);
}, 30_000);

test('a name is given whose row id another name has taken along: another program has renamed in the same row', async () => {
  const [first, second] = [await incoming.receive(parts('first'), 10), await incoming.receive(parts('second'), 10)];
  await incoming.name(inbound, [{ name: 'same', file: first }]);
  await authority.sql.execute("UPDATE fs_dentry SET name = 'renamed' WHERE name = 'same'");
  await incoming.name(inbound, [{ name: 'same', file: second }]);
  expect((await read(`${inbound}/renamed`)).toString()).toBe('first');
  expect((await read(`${inbound}/same`)).toString()).toBe('second');
});
