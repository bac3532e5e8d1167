/** Where the organization's two cloud databases are: remote by configuration, or the embedded authority as a child. */
import { join } from 'node:path';
import type { AuthorityAddress } from '../machine/launch.ts';
import { startChild } from './child-process.ts';
import type { Configuration } from './config/configuration.ts';
import type { DataDirectory } from './datadir/data-directory.ts';
import type { Log } from './log.ts';
import { selfCommand } from './self.ts';
import type { StopStack } from './stop-stack.ts';

export interface Authorities {
  readonly agentfs: AuthorityAddress;
  readonly sessiondb: AuthorityAddress;
  /** Resolves with a sentence when the embedded one is gone; never for remote ones. */
  readonly lost: Promise<string>;
}

const readyMs = 30_000;
const stopMs = 10_000;

/** Starts the embedded authority where one of the two is not remote. */
export async function openAuthorities(
  configuration: Configuration,
  data: DataDirectory,
  stack: StopStack,
  log: Log,
): Promise<Authorities> {
  const { agentfs, sessiondb } = configuration;
  if (agentfs !== null && sessiondb !== null) {
    const never = new Promise<never>(() => undefined);
    return { agentfs: { ...agentfs, socket: null }, sessiondb: { ...sessiondb, socket: null }, lost: never };
  }
  const socket = join(data.run, 'authority.sock');
  // New at each start: they are of use for this run's processes only, and stand in no file.
  const tokens = { agentfs: randomToken(), sessiondb: randomToken() };
  const child = await startChild({
    name: 'the embedded authority',
    command: [...selfCommand(), 'authority', '--data', data.authority, '--socket', socket],
    firstLine: JSON.stringify({ tokens }),
    readyMs,
    onLog: (line) => log.part('authority').info('said', { line }),
  });
  stack.add({ name: 'authority', limitMs: stopMs + 1_000, stop: () => child.stop(stopMs) });
  const embedded = (name: 'agentfs' | 'sessiondb'): AuthorityAddress => ({
    url: `http://localhost/${name}`,
    token: tokens[name],
    socket,
  });
  return {
    agentfs: agentfs === null ? embedded('agentfs') : { ...agentfs, socket: null },
    sessiondb: sessiondb === null ? embedded('sessiondb') : { ...sessiondb, socket: null },
    lost: child.exited.then((how) => `the embedded authority ended (${how})`),
  };
}

export function randomToken(): string {
  return Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString('hex');
}
