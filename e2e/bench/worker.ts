/** One `work/files.py` that works for the benchmark: on a plain directory, or inside a holder. */
import { join } from 'node:path';
import * as v from 'valibot';
import { linesOf } from '../harness/lines.ts';

export const workDirectory = join(import.meta.dir, 'work');

const answerSchema = v.union([
  v.object({ ms: v.number(), cpuMs: v.number(), value: v.unknown() }),
  v.object({ error: v.string() }),
]);
export interface Done {
  readonly ms: number;
  /** Of the programs that did the work, not of a file server. */
  readonly cpuMs: number;
  readonly value: unknown;
}

export interface Worker {
  /** Does one piece of work below a directory that it sees. @throws Error with what it says when it fails */
  do(work: string, ...args: readonly unknown[]): Promise<Done>;
  stop(): Promise<void>;
}

/** @throws Error with what the worker said */
export function doneOf(work: string, line: string): Done {
  const answer = v.parse(answerSchema, JSON.parse(line));
  if ('error' in answer) throw new Error(`${work}: ${answer.error}`);
  return answer;
}

export function orderLine(work: string, root: string, args: readonly unknown[]): string {
  return `${JSON.stringify({ work, root, arguments: args })}\n`;
}

/** Works on a directory that this process can reach. */
export function localWorker(root: string): Worker {
  const child = Bun.spawn(['/usr/bin/python3', join(workDirectory, 'files.py')], {
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'inherit',
  });
  const lines = linesOf(child.stdout);
  return {
    async do(work, ...args) {
      child.stdin.write(orderLine(work, root, args));
      await child.stdin.flush();
      const { value } = await lines.next();
      if (value === undefined) throw new Error(`${work}: the worker ended`);
      return doneOf(work, value);
    },
    async stop() {
      child.stdin.end();
      await child.exited;
    },
  };
}
