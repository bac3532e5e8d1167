/** Kills parts of a running gateway at the moments of the plan, and starts it again whenever it ends. */
import { freePort } from '../harness/free-port.ts';
import { Gateway } from '../harness/gateway.ts';
import { hermesProcesses } from '../harness/holders.ts';
import type { ProcessInfo } from '../harness/processes.ts';
import type { Moment, Strike, Target } from './plan.ts';

/** A moment that does not come is not waited for any longer: the strike happens all the same. */
const momentMs = 8_000;
/** How long a whole turn may take after everything was started anew. */
export const turnMs = 60_000;
/** How long a gateway may take to be ready again. */
const readyMs = 60_000;

/** Somebody says that a step of a message's path was just reached. */
export class Moments {
  readonly #waiting = new Map<Moment, Set<() => void>>();

  reached(moment: Moment): void {
    for (const resolve of this.#waiting.get(moment) ?? []) resolve();
    this.#waiting.delete(moment);
  }

  async next(moment: Moment, limitMs = momentMs): Promise<void> {
    if (moment === 'any') return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const waiting = this.#waiting.get(moment) ?? new Set();
    this.#waiting.set(moment, waiting.add(resolve));
    const timer = setTimeout(resolve, limitMs);
    await promise;
    clearTimeout(timer);
    waiting.delete(resolve);
  }
}

/** The gateway as an init system keeps it: started again whenever it ends. */
export class KeptGateway {
  readonly url: string;
  readonly #start: () => Promise<Gateway>;
  #gateway: Gateway;
  #stopping = false;
  readonly #keeping: Promise<void>;
  restarts = 0;

  private constructor(gateway: Gateway, start: () => Promise<Gateway>) {
    this.#gateway = gateway;
    this.#start = start;
    this.url = gateway.url;
    this.#keeping = this.#keep();
  }

  static async start(environment: Readonly<Record<string, string>>, dataDirectory: string): Promise<KeptGateway> {
    const port = freePort();
    const start = () => Gateway.start({ command: 'serve', environment, dataDirectory, port });
    return new KeptGateway(await start(), start);
  }

  get current(): Gateway {
    return this.#gateway;
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    this.#gateway.signal('SIGTERM');
    await this.#keeping;
  }

  async #keep(): Promise<void> {
    for (;;) {
      await this.#gateway.exited(24 * 3_600_000);
      if (this.#stopping) return;
      this.restarts += 1;
      this.#gateway = await this.#start();
    }
  }
}

function victimsOf(gateway: Gateway, target: Target): readonly Pick<ProcessInfo, 'pid'>[] {
  const tree = gateway.tree();
  const command = (name: string) => tree.filter(({ argv }) => argv[0]?.endsWith('/edge-gateway') && argv[1] === name);
  switch (target) {
    case 'gateway':
      return [{ pid: gateway.pid }];
    case 'holder':
      return hermesProcesses(gateway.pid).slice(0, 1);
    default:
      return command(target);
  }
}

/** Waits for the strike's moment and kills. Answers whether there was anybody to kill. */
export async function strike(
  { target, moment, delayMs }: Strike,
  kept: KeptGateway,
  moments: Moments,
): Promise<boolean> {
  await moments.next(moment);
  if (delayMs > 0) await Bun.sleep(delayMs);
  let struck = false;
  for (const { pid } of victimsOf(kept.current, target)) {
    try {
      process.kill(pid, 'SIGKILL');
      struck = true;
    } catch {
      // It ended by itself just now.
    }
  }
  return struck;
}

/** Resolves when the gateway answers that it is ready. @throws Error when it is not after a minute */
export async function untilReady(kept: KeptGateway): Promise<void> {
  const deadline = performance.now() + readyMs;
  for (;;) {
    const isReady = await fetch(`${kept.url}/readyz`, { signal: AbortSignal.timeout(2_000) }).then(
      (answer) => answer.ok,
      () => false, // Not there yet.
    );
    if (isReady) return;
    if (performance.now() > deadline)
      throw new Error(`not ready after ${readyMs} ms:\n${kept.current.log.slice(-4000)}`);
    await Bun.sleep(100);
  }
}
