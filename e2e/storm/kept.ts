/** The gateway as an init system keeps it: started again whenever it ends. */
import { freePort } from '../harness/free-port.ts';
import { Gateway } from '../harness/gateway.ts';
import type { Journal } from './journal.ts';
import { untilReached } from './moments.ts';

/** How long a gateway may take to be ready again, over all starts that are struck in the middle. */
const readyMs = 120_000;
/** Starts that fail one after the other without having been struck: something is broken for good. */
const maxFailures = 5;

export class KeptGateway {
  readonly url: string;
  /** Starts that failed although nobody struck them. */
  readonly complaints: string[] = [];
  restarts = 0;
  readonly #options: { readonly environment: Readonly<Record<string, string>>; readonly dataDirectory: string };
  readonly #port: number;
  readonly #journal: Journal;
  #gateway: Gateway | null = null;
  #pid: number | null = null;
  #spawned: (() => void)[] = [];
  #ready: (() => void)[] = [];
  #wasStruck = false;
  #stopping = false;
  #keeping: Promise<void> = Promise.resolve();

  private constructor(environment: Readonly<Record<string, string>>, dataDirectory: string, journal: Journal) {
    this.#options = { environment, dataDirectory };
    this.#port = freePort();
    this.#journal = journal;
    this.url = `http://127.0.0.1:${this.#port}`;
  }

  static async start(
    environment: Readonly<Record<string, string>>,
    dataDirectory: string,
    journal: Journal,
  ): Promise<KeptGateway> {
    const kept = new KeptGateway(environment, dataDirectory, journal);
    const first = await kept.#start();
    kept.#keeping = kept.#keep(first);
    return kept;
  }

  /** Of the process that runs or starts now; null between two. */
  get pid(): number | null {
    return this.#pid;
  }

  /** Whether one runs that was ready once. */
  get isReady(): boolean {
    return this.#gateway !== null;
  }

  /** The next start of a process, or the end of the wait. */
  spawned(limitMs: number): Promise<boolean> {
    return untilReached(this.#spawned, limitMs);
  }

  /** Whoever is killed next is killed by us: the gateway may fail to start for that. */
  strikes(): void {
    this.#wasStruck = true;
  }

  /** Resolves when the gateway answers that it is ready. @throws Error when it does not, in time */
  async untilReady(): Promise<void> {
    const deadline = performance.now() + readyMs;
    while (performance.now() < deadline) {
      if (this.#gateway === null) await untilReached(this.#ready, deadline - performance.now());
      const isReady = await fetch(`${this.url}/readyz`, { signal: AbortSignal.timeout(2_000) }).then(
        (answer) => answer.ok,
        () => false, // Not there yet, or not any more.
      );
      if (isReady) return;
      await Bun.sleep(50);
    }
    throw new Error(`not ready after ${readyMs} ms; ${this.complaints.join('; ')}`);
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    if (this.#gateway === null) await untilReached(this.#ready, readyMs);
    this.#gateway?.signal('SIGTERM');
    await this.#keeping;
  }

  async #start(): Promise<Gateway> {
    this.#wasStruck = false;
    return Gateway.start({
      ...this.#options,
      command: 'serve',
      port: this.#port,
      onSpawn: (pid) => {
        this.#pid = pid;
        this.#journal.say('spawned', { pid });
        for (const resolve of this.#spawned.splice(0)) resolve();
      },
      onLog: (line) => this.#journal.heard(line),
    });
  }

  async #keep(first: Gateway): Promise<void> {
    let gateway: Gateway | null = first;
    let failures = 0;
    for (;;) {
      if (gateway !== null) {
        failures = 0;
        this.#gateway = gateway;
        this.#journal.say('ready', { pid: gateway.pid });
        for (const resolve of this.#ready.splice(0)) resolve();
        const how = await gateway.exited(24 * 3_600_000);
        this.#gateway = null;
        this.#pid = null;
        this.#journal.say('ended', { how });
        if (this.#stopping) return;
      }
      this.restarts += 1;
      try {
        gateway = await this.#start();
      } catch (error) {
        gateway = null;
        this.#pid = null;
        const { message } = error as Error;
        this.#journal.say('did not start', { struck: this.#wasStruck, error: message.slice(-2_000) });
        if (this.#wasStruck) continue;
        failures += 1;
        this.complaints.push(`a start failed by itself: ${message.slice(-1_000)}`);
        if (failures >= maxFailures || this.#stopping) return;
      }
    }
  }
}
