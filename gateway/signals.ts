/** SIGTERM and SIGINT: the first asks for an orderly end, at any moment of the run; a later one ends the process at once. */
import type { RunningGateway } from './gateway.ts';
import type { Log } from './log.ts';

/** One Ctrl-C comes twice under `bun run`: from the terminal, and a moment later from `bun run`, which forwards it. */
const sameRequestMs = 500;

/** What a signal asks for, at `nowMs`, when the first one came at `firstMs` (null: this is the first). */
export function signalAsksFor(firstMs: number | null, nowMs: number): 'orderly-end' | 'nothing-new' | 'end-at-once' {
  if (firstMs === null) return 'orderly-end';
  return nowMs - firstMs < sameRequestMs ? 'nothing-new' : 'end-at-once';
}

/** Installed before anything is started. The signal aborts with the first of them. */
export function watchSignals(log: Log): AbortSignal {
  const stopping = new AbortController();
  let firstMs: number | null = null;
  const onSignal = (signal: NodeJS.Signals) => {
    const asked = signalAsksFor(firstMs, performance.now());
    if (asked === 'nothing-new') return;
    if (asked === 'end-at-once') {
      // The children end with this process: their input ends, and the kernel kills those that do not notice.
      log.error('ended at once by a second signal', { signal });
      process.exit(1);
    }
    firstMs = performance.now();
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
