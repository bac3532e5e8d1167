/** Bounded waiting: every wait of a turn ends. */

/** A wait was longer than allowed. */
export class WaitedTooLong extends Error {
  constructor(what: string, limitMs: number) {
    super(`${what} took longer than ${limitMs} ms`);
    this.name = 'WaitedTooLong';
  }
}

/**
 * Settles as `work` does, or rejects with {@link WaitedTooLong} after `limitMs`, or with the signal's reason when it
 * aborts. The work itself goes on: the caller ends what it runs on.
 */
export function within<T>(limitMs: number, what: string, work: Promise<T>, signal?: AbortSignal): Promise<T> {
  // Nobody may be listening any more when it fails.
  work.catch(() => undefined);
  return new Promise<T>((resolve, reject) => {
    const aborted = () => settle(() => reject(signal?.reason));
    const timer = setTimeout(() => settle(() => reject(new WaitedTooLong(what, limitMs))), limitMs);
    const settle = (how: () => void) => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', aborted);
      how();
    };
    if (signal?.aborted) {
      aborted();
      return;
    }
    signal?.addEventListener('abort', aborted, { once: true });
    work.then(
      (value) => settle(() => resolve(value)),
      (error: unknown) => settle(() => reject(error)),
    );
  });
}
