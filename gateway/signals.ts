/** SIGTERM and SIGINT: the first asks for an orderly end, at any moment of the run; the second ends the process at once. */
import type { RunningGateway } from './gateway.ts';
import type { Log } from './log.ts';

/** Installed before anything is started. The signal aborts with the first of them. */
export function watchSignals(log: Log): AbortSignal {
  const stopping = new AbortController();
  const onSignal = (signal: NodeJS.Signals) => {
    if (stopping.signal.aborted) {
      // The children end with this process: their input ends, and the kernel kills those that do not notice.
      log.error('ended at once by a second signal', { signal });
      process.exit(1);
    }
    log.info('stopping', { signal });
    stopping.abort(new Error(`ended by ${signal}`));
  };
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  return stopping.signal;
}

/** Waits for a signal or the loss of a part, then stops in order. Answers with the exit code: 0 or 1. */
export async function runUntilStopped(gateway: RunningGateway, stopping: AbortSignal, log: Log): Promise<number> {
  const signalled = new Promise<null>((resolve) => {
    if (stopping.aborted) resolve(null);
    stopping.addEventListener('abort', () => resolve(null), { once: true });
  });
  const reason = await Promise.race([signalled, gateway.lost]);
  if (reason !== null) log.error('stopping: a part was lost', { reason });
  await gateway.stop();
  log.info('stopped');
  return reason === null ? 0 : 1;
}
