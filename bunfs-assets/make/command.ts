/** Runs the programs of the build quietly: their output goes to a log, and its end into the error when one fails. */
import { closeSync, mkdirSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pythonEnvironment } from './prerequisites.ts';

/** A single program of the build may take this long, downloads included. */
const commandTimeoutMs = 20 * 60_000;
const shownLines = 25;

export class CommandError extends Error {
  constructor(what: string, reason: string, log: string, text: string) {
    const lines = text.trimEnd().split('\n').slice(-shownLines);
    super(
      [`${what} failed (${reason}). The end of ${log}:`, ...lines.map((l) => `  | ${l}`), hintFor(text)].join('\n'),
    );
    this.name = 'CommandError';
  }
}

/** What a person should do about an output like this one, in a sentence; empty when nothing is known. */
function hintFor(output: string): string {
  if (
    /NameResolutionError|NewConnectionError|ConnectTimeout|ProxyError|Temporary failure in name resolution|ECONNREFUSED|ENOTFOUND|from versions: none/.test(
      output,
    )
  )
    return 'A package registry could not be reached. The first build needs the network; later ones do not.';
  if (/No space left on device/.test(output)) return 'The disk is full: a build needs about 2 GB.';
  if (/THESE PACKAGES DO NOT MATCH THE HASHES/.test(output))
    return 'A downloaded package is not the one that was pinned. Do not work around this: find out who changed it.';
  return '';
}

/**
 * Runs one program to its end.
 * @param what names it in errors and is the name of its log file
 * @throws CommandError with the end of its output
 */
export async function run(logDirectory: string, what: string, argv: readonly string[]): Promise<void> {
  mkdirSync(logDirectory, { recursive: true });
  const log = join(logDirectory, `${what.replaceAll(/[^a-z0-9]+/gi, '-')}.log`);
  const fd = openSync(log, 'w');
  try {
    const child = Bun.spawn([...argv], {
      stdin: 'ignore',
      stdout: fd,
      stderr: fd,
      env: pythonEnvironment(),
      timeout: commandTimeoutMs,
      killSignal: 'SIGKILL',
    });
    const code = await child.exited;
    if (code === 0) return;
    throw new CommandError(
      what,
      child.signalCode === null ? `exit code ${code}` : String(child.signalCode),
      log,
      readFileSync(log, 'utf8'),
    );
  } finally {
    closeSync(fd);
  }
}
