import { afterAll, beforeAll, expect, test } from 'bun:test';
import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect } from './connection.ts';
import { type EmbeddedPostgres, startEmbeddedPostgres } from './embedded.ts';

// One data directory for all: what one left is what the next one finds.
let root: string;
beforeAll(() => {
  root = mkdtempSync(join(tmpdir(), 'egw-emb-'));
  mkdirSync(join(root, 'run'));
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

const start = (readyMs = 60_000): Promise<EmbeddedPostgres> =>
  startEmbeddedPostgres({
    dataDirectory: join(root, 'postgres'),
    socketDirectory: join(root, 'run'),
    readyMs,
    onLog: (line) => console.error(line),
  });

test('it keeps what was committed over an orderly stop and over kill -9', async () => {
  let postgres = await start();
  let sql = await connect(postgres.address);
  await sql`create table kept (n integer)`;
  await sql`insert into kept values (1)`;
  await sql.end();
  await postgres.stop(10_000);
  expect(await postgres.exited).toBe('exit code 0');
  expect(existsSync(join(root, 'run', '.s.PGSQL.5432'))).toBe(false);

  postgres = await start();
  sql = await connect(postgres.address);
  for (let n = 2; n <= 50; n += 1) await sql`insert into kept values (${n})`;
  process.kill(postgres.pid, 'SIGKILL');
  expect(await postgres.exited).toBe('ended by SIGKILL');
  await sql.end({ timeout: 1 });

  postgres = await start();
  sql = await connect(postgres.address);
  expect((await sql<{ n: number }[]>`select count(*)::int as n from kept`)[0]?.n).toBe(50);
  await sql.end();
  await postgres.stop(10_000);
}, 120_000);

test('it ends with its parent, and a successor on the same data waits for that', async () => {
  const script = `
    const { startEmbeddedPostgres } = await import(${JSON.stringify(join(import.meta.dir, 'embedded.ts'))});
    const postgres = await startEmbeddedPostgres({ dataDirectory: ${JSON.stringify(join(root, 'postgres'))},
      socketDirectory: ${JSON.stringify(join(root, 'run'))}, readyMs: 60_000, onLog: () => {} });
    console.log(postgres.pid);
    await new Promise(() => setTimeout(() => {}, 100_000));`;
  const parent = Bun.spawn([process.execPath, '-e', script], { stdout: 'pipe', stderr: 'inherit' });
  const pid = Number(new TextDecoder().decode((await parent.stdout.getReader().read()).value));
  expect(pid).toBeGreaterThan(1);
  // Busy or stopped, it does not notice the end of its input.
  process.kill(pid, 'SIGSTOP');
  parent.kill('SIGKILL');
  const next = await start();
  expect(existsSync(`/proc/${pid}/exe`)).toBe(false);
  await next.stop(10_000);
}, 120_000);

test('two on the same data never run at the same time', async () => {
  const first = await start();
  await expect(start(3_000)).rejects.toThrow('not ready within 3000 ms');
  const sql = await connect(first.address);
  await sql`select 1`;
  await sql.end();
  await first.stop(10_000);
}, 120_000);

test('a failed start says why and leaves no process', async () => {
  rmSync(join(root, 'run'), { recursive: true });
  await expect(start()).rejects.toThrow('the embedded Postgres did not start: exit code 1');
}, 60_000);
