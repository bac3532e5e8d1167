/** The Python library of the Turso sync protocol, in an environment that only these tests have. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as v from 'valibot';
import { linesOf } from '../harness/lines.ts';
import { pythonEnvironment } from '../harness/python-environment.ts';
import type { Step } from './history.ts';

/** Its interpreter; made when it is missing or out of date. Needs a finished build. */
export function oraclePython(): Promise<string> {
  return pythonEnvironment('oracle', join(import.meta.dir, 'python.lock'));
}

const outcomeSchema = v.object({ steps: v.array(v.string()), rows: v.array(v.array(v.string())) });

/** One interpreter, which plays one history after the other: starting it takes longer than playing. */
export class PythonPlayer {
  readonly #child: Bun.Subprocess<'pipe', 'pipe', 'inherit'>;
  readonly #lines: AsyncGenerator<string>;

  constructor(python: string) {
    const argv = [python, join(import.meta.dir, 'play.py')];
    this.#child = Bun.spawn(argv, { stdin: 'pipe', stdout: 'pipe', stderr: 'inherit' });
    this.#lines = linesOf(this.#child.stdout);
  }

  /** Plays a history with two Python clients; one at a time. The server has the tables already. @throws when the script fails */
  async play(
    history: readonly Step[],
    server: { url: string; token: string },
  ): Promise<v.InferOutput<typeof outcomeSchema>> {
    const directory = mkdtempSync(join(tmpdir(), 'history-python-'));
    try {
      this.#child.stdin.write(`${JSON.stringify({ ...server, history, directory })}\n`);
      await this.#child.stdin.flush();
      const line = await this.#lines.next();
      if (line.done) throw new Error(`the Python client ended with ${await this.#child.exited}`);
      return v.parse(outcomeSchema, JSON.parse(line.value));
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#child.exited;
  }
}
