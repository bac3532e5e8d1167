/** A gateway on one port and one data directory, that is killed and started again, and what its death must leave. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { integrityOf } from '../../machine/kill-points.fixture.ts';
import type { Cloud } from '../harness/cloud.ts';
import { builtExecutable, plainEnvironment } from '../harness/executable.ts';
import { freePort } from '../harness/free-port.ts';
import { Gateway } from '../harness/gateway.ts';
import { residentBytes } from '../harness/memory.ts';
import { descendants, waitForEnd } from '../harness/processes.ts';
import { until } from '../harness/waiting.ts';
import type { Moment, Victim } from './plan.ts';

/** For everything of a process tree to be gone, and for a gateway that lost its machine to end. */
const endMs = 60_000;
const readyMs = 60_000;

export class Host {
  readonly url: string;
  readonly #directory: string;
  readonly #cloud: Cloud;
  readonly #settings: Readonly<Record<string, string>>;
  #gateway: Gateway | null = null;
  /** Of those that have ended. */
  readonly #logs: string[] = [];
  restarts = 0;

  constructor(directory: string, cloud: Cloud, environment: Readonly<Record<string, string>>) {
    this.#directory = directory;
    this.#cloud = cloud;
    const port = freePort();
    this.url = `http://127.0.0.1:${port}`;
    this.#settings = { ...environment, EDGE_PORT: String(port), EDGE_DATA_DIR: join(directory, 'data') };
  }

  async start(): Promise<void> {
    this.#gateway = await this.#start();
    await this.#ready();
  }

  /** Lines of the logs of all gateways so far that have the text in them. */
  logged(text: string): readonly string[] {
    const logs = [...this.#logs, this.#gateway?.log ?? ''];
    return logs.flatMap((log) => log.split('\n').filter((line) => line.includes(text)));
  }

  /** Bytes in memory of the processes that live on. */
  memory(): Readonly<Record<Victim, number>> {
    const { pid } = this.#running;
    const machine = this.#machine();
    return {
      gateway: residentBytes(pid, 'now'),
      machine: machine === undefined ? 0 : residentBytes(machine, 'now'),
      authority: residentBytes(this.#cloud.authorityPid, 'now'),
    };
  }

  /** Kills, looks at what lies on the disk, and has everything running again. Gives what is wrong, in words. */
  async strike(victim: Victim, moment: Moment): Promise<readonly string[]> {
    let flaws: readonly string[];
    if (victim === 'authority') {
      await this.#cloud.endAuthority('SIGKILL');
      flaws = await this.#flawsOf(this.#cloudFiles);
      await this.#cloud.startAuthority();
    } else {
      await this.#end(victim);
      flaws = await this.#flawsOf([...this.#cloudFiles, this.#replica]);
      if (moment.at === 'its start') await this.#killStart(moment.delayMs);
      this.#gateway = await this.#start();
      this.restarts += 1;
    }
    await this.#ready();
    return flaws;
  }

  async stop(): Promise<void> {
    await this.#gateway?.[Symbol.asyncDispose]();
  }

  #start(): Promise<Gateway> {
    const [dataDirectory, port] = [this.#settings.EDGE_DATA_DIR!, Number(this.#settings.EDGE_PORT)];
    return Gateway.start({ command: 'serve', environment: this.#settings, dataDirectory, port });
  }

  get #running(): Gateway {
    if (!this.#gateway) throw new Error('the gateway does not run');
    return this.#gateway;
  }

  get #cloudFiles(): readonly string[] {
    return ['agentfs.db', 'sessiondb.db'].map((name) => join(this.#cloud.dataDirectory, name));
  }

  get #replica(): string {
    return join(this.#directory, 'data/machine/organization.db');
  }

  #machine(): number | undefined {
    return this.#running.tree().find(({ argv }) => argv[0]?.endsWith('/edge-gateway') && argv[1] === 'machine')?.pid;
  }

  async #end(victim: 'gateway' | 'machine'): Promise<void> {
    const gateway = this.#running;
    const tree = gateway.tree();
    const pid = victim === 'gateway' ? gateway.pid : this.#machine();
    if (pid === undefined) throw new Error('there is no machine');
    process.kill(pid, 'SIGKILL');
    // A gateway without its machine ends by itself.
    await gateway.exited(endMs);
    await waitForEnd(tree, endMs);
    this.#logs.push(gateway.log);
  }

  /** One more start that is killed, ready by then or not. */
  async #killStart(delayMs: number): Promise<void> {
    const env = plainEnvironment(this.#settings);
    const child = Bun.spawn([builtExecutable(), 'serve'], { env, stdio: ['ignore', 'ignore', 'ignore'] });
    await Bun.sleep(delayMs);
    const tree = descendants(child.pid);
    child.kill('SIGKILL');
    await child.exited;
    await waitForEnd(tree, endMs);
  }

  async #flawsOf(paths: readonly string[]): Promise<readonly string[]> {
    const found = this.#look(paths);
    if (found.length === 0) return [];
    // A request that was under way may have been written while this copied; what is broken stays broken.
    await Bun.sleep(1_000);
    return this.#look(paths);
  }

  #look(paths: readonly string[]): readonly string[] {
    return paths
      .filter((path) => existsSync(path))
      .map((path) => ({ path, says: integrityOf(this.#directory, path) }))
      .filter(({ says }) => says !== 'ok')
      .map(({ path, says }) => `${path}: ${says}`);
  }

  #ready(): Promise<void> {
    const isReady = () =>
      fetch(`${this.url}/readyz`, { signal: AbortSignal.timeout(3_000) }).then(
        ({ status }) => status === 200,
        () => false, // Nobody there yet.
      );
    return until('the gateway is ready', isReady, readyMs);
  }
}
