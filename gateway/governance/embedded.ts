/** Starts the embedded Postgres as a child that dies with this process. */
import { join } from 'node:path';
import type { DatabaseAddress } from './connection.ts';

export interface EmbeddedPostgres {
  readonly address: DatabaseAddress;
  readonly pid: number;
  /** Resolves with a sentence when the process is gone, however that came. */
  readonly exited: Promise<string>;
  /** Closes the database; kills it after `graceMs`. */
  stop(graceMs: number): Promise<void>;
}

export interface EmbeddedPostgresOptions {
  /** The command that runs `edge-gateway`. */
  readonly command: readonly string[];
  /** Durable; made when missing. */
  readonly dataDirectory: string;
  /** For the socket; its path must fit a unix socket address. */
  readonly socketDirectory: string;
  /** How long it may take to become ready; the first start makes the cluster. */
  readonly readyMs: number;
  readonly onLog: (line: string) => void;
}

const maxLineBytes = 8192;

/** Throws with what went wrong when it does not become ready; no process is left then. */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const child = Bun.spawn(
    [...options.command, 'postgres', '--data', options.dataDirectory, '--socket-directory', options.socketDirectory],
    {
      // Nothing of the gateway's environment: it holds provider keys and tokens.
      env: { PATH: '/usr/local/bin:/usr/bin:/bin', LANG: 'C.UTF-8' },
      stdin: 'pipe',
      stdout: 'pipe',
      stderr: 'pipe',
    },
  );
  let said = '';
  const logged = forwardLines(child.stderr, (line) => {
    said = line;
    options.onLog(line);
  });
  const exited = child.exited.then(async () => {
    await logged;
    const how = child.signalCode ? `ended by ${child.signalCode}` : `exit code ${child.exitCode}`;
    return said ? `${how}: ${said}` : how;
  });
  const timeout = Promise.withResolvers<never>();
  const timer = setTimeout(() => timeout.reject(new Error(`not ready within ${options.readyMs} ms`)), options.readyMs);
  try {
    await Promise.race([ready(child.stdout), exited.then((how) => Promise.reject(new Error(how))), timeout.promise]);
  } catch (error) {
    child.kill('SIGKILL');
    const how = await exited;
    throw new Error(`the embedded Postgres did not start (${(error as Error).message || how})`, { cause: error });
  } finally {
    clearTimeout(timer);
  }
  return {
    address: { kind: 'socket', directory: options.socketDirectory },
    pid: child.pid,
    exited,
    async stop(graceMs) {
      child.stdin.end();
      const killer = setTimeout(() => child.kill('SIGKILL'), graceMs);
      await exited;
      clearTimeout(killer);
    },
  };
}

/** Resolves at the child's one line of standard output; never when that ends first (the exit tells why). */
async function ready(stream: ReadableStream<Uint8Array>): Promise<void> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const bytes of stream) {
    text += decoder.decode(bytes, { stream: true });
    if (text.includes('\n')) {
      const line = JSON.parse(text.slice(0, text.indexOf('\n'))) as { ready?: unknown };
      if (line.ready === true) return;
      throw new Error('its first line is not the ready line');
    }
    if (text.length > maxLineBytes) throw new Error('its first line has no end');
  }
  await new Promise<never>(() => undefined);
}

async function forwardLines(stream: ReadableStream<Uint8Array>, onLine: (line: string) => void): Promise<void> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const bytes of stream) {
    const lines = (text + decoder.decode(bytes, { stream: true })).split('\n');
    text = (lines.pop() ?? '').slice(-maxLineBytes);
    for (const line of lines) onLine(line);
  }
}

/** The socket's path, for a check of its length. */
export function postgresSocketPath(socketDirectory: string): string {
  return join(socketDirectory, '.s.PGSQL.5432');
}
