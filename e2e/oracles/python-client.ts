/** The Python library of the Turso sync protocol, in an environment that only these tests have. */
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as v from 'valibot';
import { takeBuildLock } from '../../bunfs-assets/make/build-lock.ts';
import { run } from '../../bunfs-assets/make/command.ts';
import { pinnedInstall, toolsPython } from '../../bunfs-assets/make/python-tools.ts';
import { repository } from '../harness/executable.ts';
import type { Step } from './history.ts';

/** Its interpreter; made when it is missing or out of date. Needs a finished build. */
export async function oraclePython(): Promise<string> {
  const lock = join(import.meta.dir, 'python.lock');
  const directory = join(repository, 'build/oracle-python');
  const stamp = join(directory, 'stamp');
  const wanted = createHash('sha256').update(readFileSync(lock)).digest('hex');
  const release = takeBuildLock(join(repository, 'build/lock'), () => {});
  try {
    if (existsSync(stamp) && readFileSync(stamp, 'utf8') === wanted) return toolsPython(directory);
    rmSync(directory, { recursive: true, force: true });
    const logs = join(repository, 'build/logs');
    const tools = toolsPython(join(repository, 'build/python'));
    await run(logs, 'oracle venv', [tools, '-m', 'venv', '--without-pip', directory]);
    const pip = [tools, '-m', 'pip', '--python', toolsPython(directory)];
    await run(logs, 'pip install oracle', [...pip, ...pinnedInstall, '-r', lock]);
    writeFileSync(stamp, wanted);
    return toolsPython(directory);
  } finally {
    release();
  }
}

const outcomeSchema = v.object({ steps: v.array(v.string()), rows: v.array(v.array(v.string())) });

/** Plays a history with two Python clients. The server has the tables already. @throws when the script fails */
export async function playInPython(
  python: string,
  history: readonly Step[],
  server: { url: string; token: string },
): Promise<v.InferOutput<typeof outcomeSchema>> {
  const directory = mkdtempSync(join(tmpdir(), 'history-python-'));
  try {
    const child = Bun.spawn([python, join(import.meta.dir, 'play.py')], {
      stdin: Buffer.from(JSON.stringify({ ...server, history, directory })),
      stdout: 'pipe',
      stderr: 'inherit',
      timeout: 120_000,
    });
    return v.parse(outcomeSchema, JSON.parse(await new Response(child.stdout).text()));
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}
