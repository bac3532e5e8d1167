/** The authority as a service of its own, and its online backup: through the real command. */

import { Database } from 'bun:sqlite';
import { afterEach, beforeEach, describe, expect, setDefaultTimeout, test } from 'bun:test';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { HranaDatabase } from '../../machine/agentfs/hrana.ts';
import { addressOf, serveAuthority, TOKENS } from './authority.fixture.ts';
import { backUp } from './backup.ts';
import { commandOf } from './main.ts';

setDefaultTimeout(60_000);

const entry = join(import.meta.dir, '../../edge-gateway.ts');
let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'authority-alone-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

function run(args: readonly string[], environment: Record<string, string> = {}) {
  return Bun.spawn([process.execPath, entry, 'authority', ...args], {
    env: { PATH: process.env.PATH ?? '', ...environment },
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
  });
}
const withTokens = {
  EDGE_AUTHORITY_AGENTFS_TOKEN: TOKENS.agentfs,
  EDGE_AUTHORITY_SESSIONDB_TOKEN: TOKENS.sessiondb,
};

describe('alone', () => {
  test('it says where its databases are, serves two hosts, and ends with SIGTERM', async () => {
    const child = run(['--data', join(directory, 'data'), '--listen', '127.0.0.1:0'], withTokens);
    const { value } = await child.stdout.getReader().read();
    const ready = JSON.parse(Buffer.from(value!).toString()) as { ready: true; agentfs: string; sessiondb: string };
    const database = (token: string) => new HranaDatabase({ url: ready.sessiondb, token, socket: null });
    await database(TOKENS.sessiondb).execute('CREATE TABLE t (x)');
    const other = database(TOKENS.sessiondb);
    expect((await other.execute("INSERT INTO t VALUES ('of both') RETURNING x")).rows).toEqual([['of both']]);
    expect(database(TOKENS.agentfs).execute('SELECT 1')).rejects.toThrow('token');
    child.kill('SIGTERM');
    expect(await child.exited).toBe(0);
  });

  test.each([
    ['no tokens', ['--listen', '127.0.0.1:0'], {}, 1, 'EDGE_AUTHORITY_AGENTFS_TOKEN'],
    ['a short token', ['--listen', '127.0.0.1:0'], { ...withTokens, EDGE_AUTHORITY_AGENTFS_TOKEN: 'short' }, 1, '16'],
    ['an open network without TLS', ['--listen', '0.0.0.0:0'], withTokens, 1, '--tls-cert'],
    ['nowhere to listen', [], withTokens, 2, '--listen'],
  ])('%s: it does not start and says why', async (_name, args, environment, code, words) => {
    const child = run(['--data', join(directory, 'data'), ...args], environment as Record<string, string>);
    expect(await child.exited).toBe(code);
    const said = await new Response(child.stderr).text();
    expect(said).toContain(words);
    expect(said).not.toContain(TOKENS.sessiondb);
  });

  test('its arguments', () => {
    const network = commandOf(['--data', 'd', '--listen', '[::1]:8089', '--tls-cert', 'c', '--tls-key', 'k']);
    const listen = { kind: 'network', hostname: '::1', port: 8089, tls: { cert: 'c', key: 'k' } };
    expect(network).toEqual({ do: 'serve', directory: 'd', listen } as never);
    for (const wrong of [
      ['--listen', '127.0.0.1:1'],
      ['--data', 'd', '--listen', 'nonsense'],
      ['--data', 'd', '--listen', 'host:70000'],
      ['--data', 'd', '--listen', 'h:1', '--socket', 's'],
      ['--data', 'd', '--listen', 'h:1', '--tls-cert', 'c'],
      ['--data', 'd', '--socket', 's', '--to', 't'],
      ['backup', '--data', 'd'],
      ['restore', '--data', 'd'],
      ['--data', 'd', '--unknown'],
    ]) {
      expect(() => commandOf(wrong)).toThrow();
    }
  });
});

describe('an online backup', () => {
  test('is a whole state while others write, keeps row ids, and waits for nobody', async () => {
    const authority = serveAuthority(directory);
    const agentfs = new HranaDatabase(addressOf(authority.socket, 'agentfs'));
    const sessiondb = new HranaDatabase(addressOf(authority.socket, 'sessiondb'));
    for (const database of [agentfs, sessiondb]) {
      await database.execute('CREATE TABLE pairs (name TEXT PRIMARY KEY, n, filling)');
      await database.execute("INSERT INTO pairs (rowid, name, n) VALUES (700, 'left', 0), (900, 'right', 0)");
    }
    let going = true;
    let writes = 0;
    const writing = (async () => {
      for (; going; writes++) {
        // Both rows always have the same number: a torn copy would show two.
        for (const database of [agentfs, sessiondb])
          await database.execute('UPDATE pairs SET n = n + 1, filling = randomblob(20000)');
      }
    })();
    try {
      for (let round = 0; round < 5; round++) {
        const before = writes;
        const child = run(['backup', '--data', join(directory, 'data'), '--to', join(directory, `backup-${round}`)]);
        expect(await child.exited).toBe(0);
        expect(writes).toBeGreaterThan(before);
        for (const name of ['agentfs', 'sessiondb']) {
          const copy = new Database(join(directory, `backup-${round}`, `${name}.db`), { readonly: true });
          const rows = copy.query<{ rowid: number; n: number }, []>('SELECT rowid, n FROM pairs ORDER BY rowid').all();
          copy.close();
          expect(rows.map(({ rowid }) => rowid)).toEqual([700, 900]);
          expect(rows[0]!.n).toBe(rows[1]!.n);
          expect(rows[0]!.n).toBeGreaterThanOrEqual(before);
        }
      }
    } finally {
      going = false;
      await writing;
      await authority.stop();
    }
  });

  test('of something else is refused, and leaves nothing', async () => {
    await expect(backUp(join(directory, 'nothing'), join(directory, 'to'))).rejects.toThrow('missing');
    for (const name of ['agentfs.db', 'sessiondb.db'])
      writeFileSync(join(directory, name), 'no database at all '.repeat(1000));
    await expect(backUp(directory, join(directory, 'to'))).rejects.toThrow();
    expect([...new Bun.Glob('**').scanSync({ cwd: join(directory, 'to'), dot: true })]).toEqual([]);
  });
});
