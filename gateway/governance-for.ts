/** Opens governance where the configuration says: a Postgres server, or the embedded one as a child. */
import type { Configuration } from './config/configuration.ts';
import type { DataDirectory } from './datadir/data-directory.ts';
import { startEmbeddedPostgres } from './governance/embedded.ts';
import { type OpenedGovernance, openGovernance } from './governance/postgres.ts';
import type { Log } from './log.ts';
import type { StopStack } from './stop-stack.ts';

export interface ConfiguredGovernance extends OpenedGovernance {
  /** Resolves with a sentence when the database can no longer be relied on. */
  readonly lost: Promise<string>;
}

/** The first start of the embedded one makes its cluster. */
const readyMs = 60_000;
const stopMs = 10_000;
const closeMs = 6_000;

/** `data` is needed for the embedded database. What is started goes onto `stack`, also when this fails. */
export async function openGovernanceFor(
  configuration: Configuration,
  data: DataDirectory | null,
  stack: StopStack,
  log: Log,
): Promise<ConfiguredGovernance> {
  const lost: Promise<string>[] = [];
  let database: Parameters<typeof openGovernance>[0]['database'];
  if (configuration.databaseUrl !== null) {
    database = { kind: 'url', url: configuration.databaseUrl };
  } else {
    if (data === null) throw new Error('the embedded Postgres needs the data directory');
    const postgres = await startEmbeddedPostgres({
      dataDirectory: data.postgres,
      socketDirectory: data.run,
      readyMs,
      onLog: (line) => log.part('postgres').info('said', { line }),
    });
    stack.add({ name: 'postgres', limitMs: stopMs + 1_000, stop: () => postgres.stop(stopMs) });
    lost.push(postgres.exited.then((how) => `the embedded Postgres ended (${how})`));
    database = postgres.address;
  }
  const { organizationName, failedProseDays } = configuration;
  const governance = await openGovernance({ database, organizationName, failedProseDays });
  stack.add({ name: 'governance', limitMs: closeMs, stop: () => governance.close() });
  lost.push(governance.failed.then((error) => `governance failed: ${error.message}`));
  return { ...governance, lost: Promise.race(lost) };
}
