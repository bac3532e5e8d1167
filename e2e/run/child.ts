/** Runs one program with its output kept apart, and in temporary directories of its own. */
import { chmodSync, closeSync, mkdirSync, mkdtempSync, openSync, readdirSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';

export interface Run {
  readonly succeeded: boolean;
  readonly output: string;
  readonly processorS: number;
  /** Names of what it left in its temporary directory. */
  readonly left: readonly string[];
}

export interface RunOptions {
  readonly argv: readonly string[];
  readonly directory: string;
  readonly environment: Readonly<Record<string, string>>;
  /** The kernel ends it after that many milliseconds. */
  readonly timeoutMs: number;
  /** Where its output goes; null: to whoever reads ours, as it comes. */
  readonly log: string | null;
}

/** Of a longer output the end is told: the beginning is in the file. */
const maxToldBytes = 4 * 1024 * 1024;

/**
 * A place for temporary files; short, because unix sockets below it must fit in 107 bytes, and open to other users as /tmp is:
 * some tests run a part as somebody else.
 */
function temporaryDirectory(): string {
  const path = mkdtempSync('/tmp/eg-');
  chmodSync(path, 0o1777);
  return path;
}

/**
 * tursodb's own temporary tables are files that only an orderly end removes, and tests kill it. Bun and Node cache what they
 * compile.
 */
const leftByOthers = /^(tursodb-ephemeral-|bun-|node-compile-cache)/;

/** What runs now, with its temporary directory. */
const running = new Map<Bun.Subprocess, string>();

/** A signal that ends us ends what runs, and takes its temporary directories with it. */
export function endWithUs(): void {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.once(signal, () => {
      for (const [child, temporary] of running) {
        child.kill('SIGKILL');
        remove(temporary);
      }
      process.exit(1);
    });
  }
}

/** Runs it to its end; whatever it leaves in its temporary directory is removed. */
export async function runApart({ argv, directory, environment, timeoutMs, log }: RunOptions): Promise<Run> {
  const temporary = temporaryDirectory();
  if (log !== null) mkdirSync(dirname(log), { recursive: true });
  const output = log === null ? null : openSync(log, 'w');
  try {
    const child = Bun.spawn([...argv], {
      cwd: directory,
      env: { ...process.env, ...environment, TMPDIR: temporary },
      stdin: 'ignore',
      stdout: output ?? 'inherit',
      stderr: output ?? 'inherit',
      timeout: timeoutMs,
      killSignal: 'SIGKILL',
    });
    running.set(child, temporary);
    const code = await child.exited;
    running.delete(child);
    return {
      succeeded: code === 0,
      output: log === null ? '' : await endOf(log),
      processorS: Number(child.resourceUsage()?.cpuTime.total ?? 0n) / 1e6,
      left: readdirSync(temporary).filter((name) => !leftByOthers.test(name)),
    };
  } finally {
    if (output !== null) closeSync(output);
    remove(temporary);
  }
}

function remove(directory: string): void {
  try {
    rmSync(directory, { recursive: true, force: true, maxRetries: 3 });
  } catch (error) {
    // A file of another user where we are not root, or of a process that outlives its test: the result stands all the same.
    console.error(`${directory} cannot be removed: ${String(error)}`);
  }
}

async function endOf(path: string): Promise<string> {
  const file = Bun.file(path);
  if (file.size <= maxToldBytes) return file.text();
  return `… (the whole is in ${path})\n${await file.slice(file.size - maxToldBytes).text()}`;
}
