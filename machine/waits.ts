/** Bounded waiting. */

/** Resolves when `work` does, or after `ms`: the work itself goes on. Rejects as `work` does. */
export async function atMost(ms: number, work: Promise<unknown>): Promise<void> {
  const { promise: over, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, ms);
  try {
    await Promise.race([work, over]);
  } finally {
    clearTimeout(timer);
  }
}
