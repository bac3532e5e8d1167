import { Database } from 'bun:sqlite';
import { afterEach, beforeEach, describe, expect, setDefaultTimeout, test } from 'bun:test';
import { cpSync, existsSync, mkdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { connect } from '@tursodatabase/sync';
import { HranaDatabase } from '../../machine/agentfs/hrana.ts';
import {
  addressOf,
  fetchOn,
  type ServedAuthority,
  serveAuthority,
  startAuthority,
  TOKENS,
} from './authority.fixture.ts';
import { limits } from './limits.ts';
import { decodeMessage, encodeMessage } from './protobuf.ts';
import { Authority } from './server.ts';
import { PAGE_BYTES } from './wal.ts';

// Real disks, processes and engines, on whatever else the machine is doing.
setDefaultTimeout(60_000);

type Replica = Awaited<ReturnType<typeof connect>>;

let authority: ServedAuthority;
let cloud: HranaDatabase;
let replicas: Replica[] = [];
let replicaCount = 0;

beforeEach(() => {
  authority = serveAuthority();
  cloud = new HranaDatabase(addressOf(authority.socket, 'agentfs'));
});
afterEach(async () => {
  for (const replica of replicas) await replica.close();
  replicas = [];
  await authority.stop();
  rmSync(authority.directory, { recursive: true, force: true });
});

async function replica(token = TOKENS.agentfs): Promise<Replica> {
  const opened = await connect({
    path: join(authority.directory, `replica-${++replicaCount}.db`),
    url: 'http://localhost/agentfs',
    authToken: token,
    clientName: `client-${replicaCount}`,
    fetch: fetchOn(authority.socket),
  });
  replicas.push(opened);
  return opened;
}

async function rowsOf(database: Replica, sql = 'SELECT id, a, b FROM t ORDER BY id'): Promise<unknown[]> {
  const statement = await database.prepare(sql);
  return ((await statement.raw().all()) as unknown[][]).map((row) => [...row]);
}
const cloudRows = async (sql = 'SELECT id, a, b FROM t ORDER BY id') => (await cloud.execute(sql)).rows;

/** Ends the authority, lets `change` work on its files, and serves them again. */
async function restart(change: (data: string) => void = () => {}): Promise<void> {
  const { directory } = authority;
  await authority.stop();
  change(join(directory, 'data'));
  authority = serveAuthority(directory);
}

type Pulled = { status: number; revision: string; databasePages: number; pages: Map<number, Uint8Array> };

const numberOf = (revision: string): number => Number(revision.split('.')[1]);

/** A pull without the Turso client, to see what goes over the wire. */
async function rawPull(clientRevision: string, whileReading: () => Promise<void> = async () => {}): Promise<Pulled> {
  const response = await fetch('http://localhost/agentfs/pull-updates', {
    unix: authority.socket,
    method: 'POST',
    headers: { authorization: `Bearer ${TOKENS.agentfs}` },
    body: encodeMessage([[3, new TextEncoder().encode(clientRevision)]]),
  });
  const reader = response.body!.getReader();
  const chunks: Uint8Array[] = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    if (chunks.length === 0) await whileReading();
    chunks.push(value);
  }
  const bytes = Buffer.concat(chunks);
  let at = 0;
  const next = (): Uint8Array => {
    let length = 0;
    let factor = 1;
    for (let more = true; more; factor *= 128) {
      const byte = bytes[at++]!;
      length += (byte & 127) * factor;
      more = byte >= 128;
    }
    at += length;
    return bytes.subarray(at - length, at);
  };
  const head = decodeMessage(next());
  const pages = new Map<number, Uint8Array>();
  while (at < bytes.length) {
    const page = decodeMessage(next());
    pages.set(Number(page.get(1) ?? 0), page.get(2) as Uint8Array);
  }
  return {
    status: response.status,
    revision: new TextDecoder().decode(head.get(1) as Uint8Array),
    databasePages: Number(head.get(2) ?? 0),
    pages,
  };
}

/** The database that the pages of a complete pull make. */
function assemble({ pages, databasePages }: Pulled): Database {
  const image = new Uint8Array(databasePages * PAGE_BYTES);
  for (const [page, content] of pages) image.set(content, page * PAGE_BYTES);
  image[18] = 1;
  image[19] = 1;
  return Database.deserialize(image);
}

const create = () => cloud.execute('CREATE TABLE t(id INTEGER PRIMARY KEY, a, b)');

describe('the Turso client', () => {
  test('starts from nothing, pushes, and another starts from that', async () => {
    const first = await replica();
    await first.exec(
      "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); INSERT INTO t VALUES (1, 1.0, x'00ff'), (9007199254740993, NULL, 'ü')",
    );
    await first.push();
    expect(await cloudRows('SELECT id, typeof(a), b FROM t ORDER BY id')).toEqual([
      [1, 'real', new Uint8Array([0, 255])],
      [9007199254740993n, 'null', 'ü'],
    ]);
    const second = await replica();
    expect(await rowsOf(second, 'SELECT cast(id AS TEXT), typeof(a), hex(b) FROM t ORDER BY id')).toEqual([
      ['1', 'real', '00FF'],
      ['9007199254740993', 'null', 'C3BC'],
    ]);
    expect(await second.pull()).toBe(false);
  });

  test('pulls what changed, and only that', async () => {
    await create();
    await cloud.execute(
      'INSERT INTO t SELECT value, randomblob(3000), 0 FROM (WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n LIMIT 300) SELECT value FROM n)',
    );
    const one = await replica();
    const { revision } = await rawPull('');
    await cloud.execute("UPDATE t SET b = 'changed' WHERE id = 150");
    const { pages, databasePages } = await rawPull(revision);
    expect(databasePages).toBeGreaterThan(250);
    expect(pages.size).toBeLessThan(5);
    expect(await one.pull()).toBe(true);
    expect(await rowsOf(one, "SELECT id FROM t WHERE b = 'changed'")).toEqual([[150]]);
    expect(await one.pull()).toBe(false);
    expect((await rawPull((await rawPull('')).revision)).pages.size).toBe(0);
  });

  test('keeps disjoint rows of two writers and of the cloud', async () => {
    await create();
    const [one, two] = [await replica(), await replica()];
    await one.exec("INSERT INTO t VALUES (1, 'one', 0)");
    await two.exec("INSERT INTO t VALUES (2, 'two', 0)");
    await cloud.execute("INSERT INTO t VALUES (3, 'cloud', 0)");
    await one.push();
    await two.pull();
    await two.push();
    await one.pull();
    const all = [
      [1, 'one', 0],
      [2, 'two', 0],
      [3, 'cloud', 0],
    ];
    expect(await rowsOf(one)).toEqual(all);
    expect(await rowsOf(two)).toEqual(all);
    expect(await cloudRows()).toEqual(all as never);
  });

  test('lets the last push of a row win, column by column', async () => {
    await create();
    await cloud.execute("INSERT INTO t VALUES (1, 'a', 'b')");
    const [one, two] = [await replica(), await replica()];
    await one.exec("UPDATE t SET a = 'one'");
    await two.exec("UPDATE t SET a = 'two', b = 'two'");
    await two.push();
    await one.push();
    await two.pull();
    expect(await rowsOf(two)).toEqual([[1, 'one', 'two']]);
    expect(await cloudRows()).toEqual([[1, 'one', 'two']]);
  });

  test('replays unpushed rows over what it pulls', async () => {
    await create();
    const one = await replica();
    await one.exec("INSERT INTO t VALUES (5, 'mine', 0)");
    await cloud.execute("INSERT INTO t VALUES (6, 'theirs', 0)");
    expect(await one.pull()).toBe(true);
    expect(await rowsOf(one)).toEqual([
      [5, 'mine', 0],
      [6, 'theirs', 0],
    ]);
    expect(await cloudRows()).toEqual([[6, 'theirs', 0]]);
    await one.push();
    expect(await cloudRows()).toHaveLength(2);
  });

  test('bootstraps and pushes more than is built in memory at once', async () => {
    await create();
    const one = await replica();
    const insert = await one.prepare('INSERT INTO t VALUES (?, ?, ?)');
    const content = Buffer.alloc(65_536, 'x');
    const count = Math.ceil((limits.pullPagesInMemory * PAGE_BYTES) / content.length) + 20;
    await one.exec('BEGIN');
    for (let id = 1; id <= count; id++) await insert.run(id, content, id);
    await one.exec('COMMIT');
    await one.push();
    const two = await replica();
    expect(await rowsOf(two, 'SELECT count(*), sum(b), sum(length(a)) FROM t')).toEqual([
      [count, (count * (count + 1)) / 2, count * content.length],
    ]);
    expect(await one.pull()).toBe(true);
    expect(await rowsOf(one, 'PRAGMA integrity_check')).toEqual([['ok']]);
  });

  test('is refused with another token', async () => {
    await expect(replica('not the token at all')).rejects.toThrow('401');
    const one = await replica();
    expect(await one.pull()).toBe(false);
  });
});

describe('revisions', () => {
  test('a restart keeps them: a client goes on from where it was', async () => {
    await create();
    const one = await replica();
    const { revision } = await rawPull('');
    await restart();
    expect((await rawPull(revision)).pages.size).toBe(0);
    await cloud.execute("INSERT INTO t VALUES (1, 'after', 0)");
    expect((await rawPull(revision)).pages.size).toBe(1);
    await one.pull();
    expect(await rowsOf(one)).toEqual([[1, 'after', 0]]);
  });

  /** Each leaves an older database in the place of the newer one that a client has seen. */
  const restores: [string, (data: string, backup: string) => void][] = [
    ['the whole directory', (data, backup) => cpSync(backup, data, { recursive: true, preserveTimestamps: true })],
    [
      'the database without its revisions',
      (data, backup) => cpSync(join(backup, 'agentfs.db'), join(data, 'agentfs.db')),
    ],
    [
      'the database beside newer revisions',
      (data, backup) => {
        cpSync(`${data}-newer/agentfs.db-revisions`, join(data, 'agentfs.db-revisions'));
        cpSync(join(backup, 'agentfs.db'), join(data, 'agentfs.db'), { preserveTimestamps: true });
      },
    ],
    ['nothing at all', () => {}],
  ];
  test.each(restores)('a backup restored as %s is never mixed with what a client has seen', async (_name, restore) => {
    await create();
    await cloud.execute("INSERT INTO t VALUES (1, 'before', 0)");
    const backup = join(authority.directory, 'backup');
    await restart((data) => cpSync(data, backup, { recursive: true, preserveTimestamps: true }));
    const one = await replica();
    // Each statement of a batch without a transaction is a commit, and so a revision, of its own.
    await cloud.batch(
      Array.from({ length: 60 }, (_, i) => ({
        sql: "INSERT INTO t VALUES (?, 'lost with the restore', randomblob(2000))",
        args: [10 + i],
      })),
      { transaction: false },
    );
    await one.pull();
    expect(await rowsOf(one, 'SELECT count(*) FROM t')).toEqual([[61]]);
    const seen = (await rawPull('')).revision;
    await restart((data) => {
      cpSync(data, `${data}-newer`, { recursive: true, preserveTimestamps: true });
      rmSync(data, { recursive: true });
      restore(data, backup);
    });
    if (!existsSync(join(authority.directory, 'data', 'agentfs.db'))) throw new Error('no database was opened');
    await cloud.execute('CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, a, b)');
    // So many commits that the numbers have caught up with what the client saw.
    await cloud.batch(
      Array.from({ length: 100 }, (_, i) => ({
        sql: "INSERT INTO t VALUES (2, 'after', ?) ON CONFLICT(id) DO UPDATE SET b = excluded.b",
        args: [i],
      })),
      { transaction: false },
    );
    expect(numberOf((await rawPull('')).revision)).toBeGreaterThan(numberOf(seen));
    const again = await rawPull(seen);
    expect(again.pages.size).toBe(again.databasePages);
    expect(await one.pull()).toBe(true);
    expect(await rowsOf(one)).toEqual((await cloudRows()) as never);
    expect(await rowsOf(one, 'PRAGMA integrity_check')).toEqual([['ok']]);
    await one.exec("INSERT INTO t VALUES (3, 'local', 0)");
    await one.push();
    expect(await cloudRows('SELECT a FROM t WHERE id = 3')).toEqual([['local']]);
    // From here on the client's pulls are small again.
    const now = await rawPull('');
    await cloud.execute("UPDATE t SET a = 'changed' WHERE id = 3");
    expect((await rawPull(now.revision)).pages.size).toBeLessThan(now.databasePages);
  });

  test('damaged or missing bookkeeping costs a complete pull, not the database', async () => {
    await create();
    await cloud.execute("INSERT INTO t VALUES (1, 'kept', 0)");
    const { revision, databasePages } = await rawPull('');
    for (const damage of [
      (file: string) => rmSync(file),
      (file: string) => writeFileSync(file, 'not a database '.repeat(1000)),
    ]) {
      await restart((data) => damage(join(data, 'agentfs.db-revisions')));
      expect(await cloudRows()).toEqual([[1, 'kept', 0]]);
      expect((await rawPull(revision)).pages.size).toBe(databasePages);
    }
  });

  test('a directory is served once', () => {
    const directory = join(authority.directory, 'data');
    expect(() => new Authority({ directory, tokens: TOKENS, log: () => {} })).toThrow('locked');
  });
});

describe('pulls', () => {
  test('a large one is of one moment, whatever is written meanwhile', async () => {
    await create();
    const fill =
      'INSERT INTO t SELECT value, ?, zeroblob(3000) FROM (WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n LIMIT 2500) SELECT value FROM n)';
    await cloud.execute(fill, ['old']);
    const pulled = await rawPull('', async () => {
      // More frames than are kept in the log, twice: without the snapshot they would be folded under the reader.
      for (const word of ['new', 'newer']) await cloud.execute('UPDATE t SET a = ?', [word]);
      expect(statSync(join(authority.directory, 'data', 'agentfs.db-wal')).size).toBeGreaterThan(
        2 * limits.walFrames * PAGE_BYTES,
      );
    });
    const copy = assemble(pulled);
    expect(copy.query('PRAGMA integrity_check').values()).toEqual([['ok']]);
    expect(copy.query('SELECT a, count(*) FROM t GROUP BY a').values()).toEqual([['old', 2500]]);
    const later = assemble(await rawPull(''));
    expect(later.query('SELECT a, count(*) FROM t GROUP BY a').values()).toEqual([['newer', 2500]]);
    // With the snapshot gone the log is folded and started over.
    await cloud.execute("UPDATE t SET a = 'newest' WHERE id < 2400");
    await cloud.execute("UPDATE t SET a = 'newest' WHERE id < 2400");
    const last = await rawPull(pulled.revision);
    expect(last.pages.size).toBeGreaterThan(2000);
    for (const [page, content] of last.pages) pulled.pages.set(page, content);
    expect(assemble(pulled).query('SELECT a, count(*) FROM t GROUP BY a ORDER BY a').values()).toEqual([
      ['newer', 101],
      ['newest', 2399],
    ]);
  });

  test('stays right when another program has folded the log', async () => {
    await create();
    await cloud.execute("INSERT INTO t VALUES (1, 'old', zeroblob(20000))");
    const before = await rawPull('');
    const other = new Database(join(authority.directory, 'data', 'agentfs.db'));
    expect(other.query('PRAGMA wal_checkpoint(PASSIVE)').values()[0]![0]).toBe(0);
    other.close();
    await cloud.execute('CREATE TABLE u(a)');
    await cloud.execute("UPDATE t SET a = 'new'");
    const all = await rawPull('');
    expect(assemble(all).query('PRAGMA integrity_check').values()).toEqual([['ok']]);
    for (const [page, content] of (await rawPull(before.revision)).pages) before.pages.set(page, content);
    const grown = { ...before, databasePages: all.databasePages };
    expect(assemble(grown).query('SELECT a, length(b) FROM t, sqlite_schema').values()).toEqual([
      ['new', 20_000],
      ['new', 20_000],
    ]);
  });

  test('one that is cut off does not look complete', async () => {
    await create();
    await cloud.execute('INSERT INTO t VALUES (1, 0, zeroblob(40000000))');
    const cut = rawPull('', async () => {
      await authority.stop();
    });
    await expect(cut).rejects.toThrow();
  });

  test.each([
    ['no protobuf', [0xff, 0xff, 0xff]],
    ['compressed pages', [0x08, 0x01]],
    ['a bitmap that is none', [0x2a, 0x03, 1, 2, 3]],
    ['a number for a revision', [0x18, 0x01]],
  ])('%s is 400', async (_name, body) => {
    const response = await fetch('http://localhost/agentfs/pull-updates', {
      unix: authority.socket,
      method: 'POST',
      headers: { authorization: `Bearer ${TOKENS.agentfs}` },
      body: Uint8Array.from(body),
    });
    expect(response.status).toBe(400);
    expect(authority.log).toEqual([]);
  });

  test('a pinned revision that has gone by is 409', async () => {
    await create();
    const response = await fetch('http://localhost/agentfs/pull-updates', {
      unix: authority.socket,
      method: 'POST',
      headers: { authorization: `Bearer ${TOKENS.agentfs}` },
      body: encodeMessage([[2, new TextEncoder().encode('0123456789abcdef.1')]]),
    });
    expect(response.status).toBe(409);
  });
});

describe('the process', () => {
  test('killed while clients push, it has lost nothing that it acknowledged', async () => {
    await authority.stop();
    const { directory } = authority;
    const acknowledged = new Set<string>();
    let round = 0;
    for (; round < 3; round++) {
      const child = await startAuthority(directory);
      const database = new HranaDatabase(addressOf(child.socket, 'agentfs'));
      const sessions = new HranaDatabase(addressOf(child.socket, 'sessiondb'));
      const pusher = await connect({
        path: join(directory, 'pusher.db'),
        url: 'http://localhost/agentfs',
        authToken: TOKENS.agentfs,
        clientName: 'pusher',
        fetch: fetchOn(child.socket),
      });
      if (round === 0) {
        await pusher.exec('CREATE TABLE pushed(id TEXT PRIMARY KEY, fill BLOB)');
        await pusher.push();
        await database.execute('CREATE TABLE written(id TEXT PRIMARY KEY, fill BLOB)');
        await sessions.execute('CREATE TABLE said(id TEXT PRIMARY KEY)');
      }
      await pusher.pull();
      const enough = Promise.withResolvers<void>();
      let done = 0;
      const count = (key: string): void => {
        acknowledged.add(key);
        if (++done === 60) enough.resolve();
      };
      const untilKilled = async (work: (id: string) => Promise<string>): Promise<void> => {
        try {
          for (let i = 0; ; i++) count(await work(`${round}-${i}`));
        } catch {
          // The kill is what ends the loop; what was acknowledged before is checked below.
        }
      };
      const loops = [
        untilKilled(async (id) => {
          await pusher.exec(`INSERT INTO pushed VALUES ('${id}', zeroblob(9000))`);
          await pusher.push();
          return `pushed ${id}`;
        }),
        untilKilled(async (id) => {
          await database.execute('INSERT INTO written VALUES (?, zeroblob(5000))', [id]);
          return `written ${id}`;
        }),
        untilKilled(async (id) => {
          await sessions.execute('INSERT INTO said VALUES (?)', [id]);
          return `said ${id}`;
        }),
      ];
      await enough.promise;
      child.kill('SIGKILL');
      await child.exited;
      await Promise.all(loops);
      await pusher.close();
    }
    authority = serveAuthority(directory);
    const sessiondb = new HranaDatabase(addressOf(authority.socket, 'sessiondb'));
    const found = new Set([
      ...(await cloudRows('SELECT id FROM pushed')).map(([id]) => `pushed ${id}`),
      ...(await cloudRows('SELECT id FROM written')).map(([id]) => `written ${id}`),
      ...(await sessiondb.execute('SELECT id FROM said')).rows.map(([id]) => `said ${id}`),
    ]);
    expect([...acknowledged].filter((key) => !found.has(key))).toEqual([]);
    expect(acknowledged.size).toBeGreaterThanOrEqual(3 * 60);
    expect(await cloudRows('PRAGMA integrity_check')).toEqual([['ok']]);
    expect((await sessiondb.execute('PRAGMA integrity_check')).rows).toEqual([['ok']]);
    // A replica that lived through the kills ends up the same as one that starts now.
    const survivor = await connect({
      path: join(directory, 'pusher.db'),
      url: 'http://localhost/agentfs',
      authToken: TOKENS.agentfs,
      clientName: 'pusher',
      fetch: fetchOn(authority.socket),
    });
    replicas.push(survivor);
    await survivor.pull();
    await survivor.push();
    await survivor.pull();
    const fresh = await replica();
    for (const table of ['pushed', 'written'])
      expect(await rowsOf(survivor, `SELECT id, length(fill) FROM ${table} ORDER BY id`)).toEqual(
        await rowsOf(fresh, `SELECT id, length(fill) FROM ${table} ORDER BY id`),
      );
    expect(await rowsOf(survivor, 'PRAGMA integrity_check')).toEqual([['ok']]);
  });

  test.each([
    ['the end of its input', (child: { endInput: () => void }) => child.endInput()],
    ['SIGTERM', (child: { kill: (signal: NodeJS.Signals) => void }) => child.kill('SIGTERM')],
  ])('ends in order with %s, and leaves plain closed files', async (_name, end) => {
    const directory = join(authority.directory, 'process');
    mkdirSync(directory);
    const child = await startAuthority(directory);
    const database = new HranaDatabase(addressOf(child.socket, 'agentfs'));
    await database.execute('CREATE TABLE kept(a)');
    const open = database.stream();
    await open.execute('BEGIN IMMEDIATE');
    await open.execute('CREATE TABLE dropped(a)');
    expect(statSync(child.socket).mode & 0o777).toBe(0o600);
    end(child as never);
    expect(await child.exited).toBe(0);
    const data = join(directory, 'data');
    expect(existsSync(join(data, 'agentfs.db-wal'))).toBe(false);
    expect(statSync(join(data, 'agentfs.db')).mode & 0o077).toBe(0);
    const file = new Database(join(data, 'agentfs.db'), { readonly: true });
    expect(file.query('SELECT name FROM sqlite_schema').values()).toEqual([['kept']]);
    file.close();
    // The next one takes over the directory, also after a kill that leaves the socket behind.
    const next = await startAuthority(directory);
    expect((await database.execute('SELECT * FROM kept')).rows).toEqual([]);
    next.kill('SIGKILL');
    await next.exited;
    const last = await startAuthority(directory);
    expect((await database.execute('SELECT * FROM kept')).rows).toEqual([]);
    last.endInput();
    expect(await last.exited).toBe(0);
  });
});
