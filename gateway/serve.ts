/** The command `edge-gateway serve`. */
import { parseArgs } from 'node:util';
import { type Configuration, readConfiguration } from './config/configuration.ts';
import { type RunningGateway, startGateway } from './gateway.ts';
import { createLog, type Log } from './log.ts';
import { runUntilStopped, watchSignals } from './signals.ts';
import { programVersion } from './version.ts';
import { within } from './waits.ts';

/** For what `ready` does: a few writes. */
const readyMs = 120_000;

/** Prints one JSON line `{"url","dataDir"}` when it can be used; logs go to standard error. Answers with the exit code. */
export async function runServe(argv: readonly string[]): Promise<number> {
  const { values } = parseArgs({ args: [...argv], options: { config: { type: 'string' } }, strict: true });
  const configuration = readConfiguration(process.env, values.config ?? null);
  return serve(configuration, createLog('gateway'), async ({ url, dataDirectory }) => ({
    url,
    dataDir: dataDirectory,
  }));
}

/** Runs the gateway until it is told to stop; prints what `ready` answers once everything can be used. */
export async function serve(
  configuration: Configuration,
  log: Log,
  ready: (gateway: RunningGateway) => Promise<Readonly<Record<string, unknown>>>,
): Promise<number> {
  const stopping = watchSignals(log);
  let gateway: RunningGateway;
  try {
    gateway = await startGateway(configuration, log, stopping);
  } catch (error) {
    if (stopping.aborted) return 0;
    throw error;
  }
  try {
    const line = JSON.stringify(await within(readyMs, 'the last step of the start', ready(gateway)));
    const { url, dataDirectory: dataDir } = gateway;
    log.info('ready', { url, dataDir, version: programVersion, model: configuration.model?.description });
    console.log(line);
  } catch (error) {
    await gateway.stop();
    throw error;
  }
  return runUntilStopped(gateway, stopping, log);
}
