/** The Python library of the Turso sync protocol, in an environment that only these tests have. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as v from 'valibot';
import { pythonEnvironment } from '../harness/python-environment.ts';
import type { Step } from './history.ts';

/** Its interpreter; made when it is missing or out of date. Needs a finished build. */
export function oraclePython(): Promise<string> {
  return pythonEnvironment('oracle', join(import.meta.dir, 'python.lock'));
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
