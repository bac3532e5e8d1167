/** One large upload through the executable: the gateway hands it on piece by piece, and a cut one leaves nothing (file API). */
import { Database } from 'bun:sqlite';
import { expect } from 'bun:test';
import { truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Gateway } from './harness/gateway.ts';
import { forgetPeak, residentBytes } from './harness/memory.ts';
import { ScriptedModel } from './harness/model.ts';
import { requireProgram } from './harness/programs.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';

const mebibyte = 1024 * 1024;

/** Uploads a file of `bytes` where `limit` are allowed, and expects the gateway to take at most `memory` more meanwhile. */
export async function uploadLarge(sizes: { readonly bytes: number; readonly limit: number; readonly memory: number }) {
  const data = scratchDirectory('large');
  await using model = ScriptedModel.start();
  const file = join(data, 'large.bin');
  try {
    await using gateway = await Gateway.start({
      dataDirectory: join(data, 'data'),
      environment: {
        EDGE_MODEL_URL: model.url,
        EDGE_MODEL: 'scripted',
        EDGE_MODEL_KEY: 'none',
        EDGE_MAX_FILE_BYTES: String(sizes.limit),
      },
    });
    writeFileSync(file, 'begin');
    truncateSync(file, sizes.bytes);
    const url = `${gateway.url}/v1/conversations/${gateway.conversation}/messages`;
    const curl = (...more: string[]) =>
      Bun.spawn(
        [
          requireProgram('curl'),
          '-sS',
          '-o',
          '-',
          '-w',
          '\n%{http_code}',
          '-H',
          `Authorization: Bearer ${gateway.token('client')}`,
          ...more,
          url,
        ],
        { stdout: 'pipe', stderr: 'pipe' },
      );
    const small = curl('-F', 'text=warm up', '-F', `file=@${import.meta.filename}`);
    expect((await new Response(small.stdout).text()).slice(-3)).toBe('202');

    // A cut one first: it leaves nothing.
    const cut = curl('-F', 'text=cut', '-F', `file=@${file};filename=cut`, '--limit-rate', '64M');
    await Bun.sleep(1_500);
    cut.kill('SIGKILL');
    await cut.exited;
    const cloud = join(data, 'data/authority/agentfs.db');
    const count = (sql: string) => {
      using database = new Database(cloud, { readonly: true });
      return (database.query(sql).get() as { n: number }).n;
    };
    const nameless = () => count("SELECT count(*) AS n FROM kv_store WHERE key LIKE 'edge-gateway:upload:%'");
    for (let turn = 0; nameless() > 0 && turn < 1_200; turn += 1) await Bun.sleep(50);
    expect(nameless()).toBe(0);
    expect(count('SELECT count(*) AS n FROM fs_inode WHERE nlink = 0')).toBe(0);
    expect(count("SELECT count(*) AS n FROM fs_dentry WHERE name LIKE '%-cut'")).toBe(0);

    const before = residentBytes(gateway.pid, 'now');
    forgetPeak(gateway.pid);
    const began = performance.now();
    const upload = curl('-F', 'text=large', '-F', `file=@${file}`);
    const answer = await new Response(upload.stdout).text();
    const seconds = (performance.now() - began) / 1_000;
    const more = residentBytes(gateway.pid, 'peak') - before;
    console.error(
      `${Math.round(sizes.bytes / mebibyte)} MiB in ${seconds.toFixed(1)} s, ${Math.round(more / mebibyte)} MiB of memory more`,
    );
    expect([answer.slice(-3), answer.slice(0, 300)]).toEqual(['202', expect.stringContaining('accepted')]);
    expect(more).toBeLessThan(sizes.memory);
    expect(count(`SELECT count(*) AS n FROM fs_inode WHERE size = ${sizes.bytes} AND nlink = 1`)).toBe(1);

    // Storing and removing the whole limit takes as long again.
    if (sizes.limit > 512 * mebibyte) return;
    truncateSync(file, sizes.limit + 1);
    const tooLarge = curl('-F', 'text=too large', '-F', `file=@${file}`, '-H', 'Expect:');
    expect((await new Response(tooLarge.stdout).text()).slice(-3)).toBe('413');
    for (let turn = 0; nameless() > 0 && turn < 1_200; turn += 1) await Bun.sleep(50);
    expect(nameless()).toBe(0);
  } finally {
    removeScratch(data);
  }
}
