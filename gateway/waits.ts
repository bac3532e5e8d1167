/** Bounded waiting: every wait ends. */

/** A wait was longer than allowed. */
export class WaitedTooLong extends Error {
  constructor(what: string, limitMs: number) {
    super(`${what} took longer than ${limitMs} ms`);
    this.name = 'WaitedTooLong';
  }
}

/** Settles as `work` does, or rejects with the signal's reason when it aborts first; the work itself goes on. */
export function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  // Nobody may be listening any more when it fails.
  work.catch(() => undefined);
  if (signal.aborted) return Promise.reject(signal.reason);
  return new Promise<T>((resolve, reject) => {
    const aborted = () => reject(signal.reason);
    signal.addEventListener('abort', aborted, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', aborted));
  });
}

/**
 * Settles as `work` does, or rejects with {@link WaitedTooLong} after `limitMs`, or with the signal's reason when it
 * aborts. The work itself goes on: the caller ends what it runs on.
 */
export function within<T>(limitMs: number, what: string, work: Promise<T>, signal?: AbortSignal): Promise<T> {
  const limited = new Promise<T>((resolve, reject) => {
    const timer = setTimeout(() => reject(new WaitedTooLong(what, limitMs)), limitMs);
    work.then(resolve, reject).finally(() => clearTimeout(timer));
  });
  return signal === undefined ? limited : unlessAborted(limited, signal);
}
