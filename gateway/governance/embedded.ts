/** The embedded Postgres as a child that ends with this process. */
import { type ChildProcess, startChild } from '../child-process.ts';
import { selfCommand } from '../self.ts';
import type { DatabaseAddress } from './connection.ts';

export interface EmbeddedPostgres extends ChildProcess {
  readonly address: DatabaseAddress;
}

export interface EmbeddedPostgresOptions {
  /** Durable; made when missing. */
  readonly dataDirectory: string;
  /** For the socket `.s.PGSQL.5432`; its path must fit a unix socket address. */
  readonly socketDirectory: string;
  /** How long it may take to become ready; the first start makes the cluster. */
  readonly readyMs: number;
  readonly onLog: (line: string) => void;
}

/** Throws with what went wrong when it does not become ready; no process is left then. */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const child = await startChild({
    name: 'the embedded Postgres',
    command: [
      ...selfCommand(),
      'postgres',
      '--data',
      options.dataDirectory,
      '--socket-directory',
      options.socketDirectory,
    ],
    readyMs: options.readyMs,
    onLog: options.onLog,
  });
  return { ...child, address: { kind: 'socket', directory: options.socketDirectory } };
}
