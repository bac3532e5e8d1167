/** Values that arrive one by one and that tests wait for. */

/** Collects values; a test asks for the first one, past or future, that it is interested in. */
export class Arrivals<T> {
  readonly all: T[] = [];
  #waiting: { wants: (value: T) => boolean; resolve: (value: T) => void; reject: (error: Error) => void }[] = [];
  #ended: Error | null = null;

  #listener: ((value: T) => void) | null = null;

  /** Calls back for every value from now on. */
  onAdd(listener: (value: T) => void): void {
    this.#listener = listener;
  }

  add(value: T): void {
    this.all.push(value);
    this.#listener?.(value);
    const served = this.#waiting.filter(({ wants }) => wants(value));
    this.#waiting = this.#waiting.filter((one) => !served.includes(one));
    for (const { resolve } of served) resolve(value);
  }

  /** Nothing more will come: everyone who still waits gets `reason`. */
  end(reason: Error): void {
    this.#ended = reason;
    for (const { reject } of this.#waiting) reject(reason);
    this.#waiting = [];
  }

  /** The first value from index `from` on that `wants` accepts. @throws Error after `timeoutMs` or at the end */
  async wait(what: string, wants: (value: T) => boolean, timeoutMs = 60_000, from = 0): Promise<T> {
    const already = this.all.slice(from).find(wants);
    if (already !== undefined) return already;
    if (this.#ended) throw this.#ended;
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const waiter = { wants, resolve, reject };
    this.#waiting.push(waiter);
    const timer = setTimeout(() => {
      this.#waiting = this.#waiting.filter((one) => one !== waiter);
      reject(new Error(`waited ${timeoutMs} ms for ${what}; ${this.all.length} other values came`));
    }, timeoutMs);
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
    }
  }
}

/**
 * Until `count` has not changed for `quietMs`: whatever was on its way has come, however busy the machine is.
 * @throws Error after `timeoutMs`
 */
export async function untilQuiet(count: () => number, quietMs: number, timeoutMs = 60_000): Promise<void> {
  let [last, since] = [count(), performance.now()];
  await until(
    `nothing has come for ${quietMs} ms`,
    async () => {
      const now = count();
      if (now !== last) [last, since] = [now, performance.now()];
      return performance.now() - since >= quietMs;
    },
    timeoutMs,
  );
}

/** Asks again and again until it is so. For what nobody tells a test. @throws Error after `timeoutMs` */
export async function until(what: string, is: () => Promise<boolean>, timeoutMs: number): Promise<void> {
  const end = performance.now() + timeoutMs;
  while (!(await is())) {
    if (performance.now() > end) throw new Error(`waited ${timeoutMs} ms until ${what}`);
    await Bun.sleep(100);
  }
}
