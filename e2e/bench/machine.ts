/** The machine of `files-machine.ts` and the embedded authority behind it, each a process of its own as in the gateway. */
import { randomBytes } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import { CloudFiles } from '../../machine/agentfs/cloud.ts';
import { HranaDatabase } from '../../machine/agentfs/hrana.ts';
import type { AuthorityAddress } from '../../machine/launch.ts';
import { builtExecutable, plainEnvironment } from '../harness/executable.ts';
import { linesOf } from '../harness/lines.ts';
import { answerSchema, memorySchema } from './files-protocol.ts';
import { type Done, doneOf, type Worker } from './worker.ts';

export class BenchAuthority {
  readonly address: AuthorityAddress;
  readonly #child: Bun.Subprocess<'pipe', 'pipe', 'inherit'>;

  private constructor(address: AuthorityAddress, child: Bun.Subprocess<'pipe', 'pipe', 'inherit'>) {
    this.address = address;
    this.#child = child;
  }

  /** With an organization that has these conversations. */
  static async start(directory: string, conversations: readonly string[]): Promise<BenchAuthority> {
    mkdirSync(directory, { recursive: true });
    const token = randomBytes(24).toString('hex');
    const socket = join(directory, 'authority.sock');
    const child = Bun.spawn([builtExecutable(), 'authority', '--data', join(directory, 'cloud'), '--socket', socket], {
      stdin: 'pipe',
      stdout: 'pipe',
      stderr: 'inherit',
      env: plainEnvironment(),
    });
    child.stdin.write(`${JSON.stringify({ tokens: { agentfs: token, sessiondb: token } })}\n`);
    await child.stdin.flush();
    if ((await linesOf(child.stdout).next()).value === undefined) throw new Error('the authority did not start');
    const address = { url: 'http://localhost/agentfs', token, socket };
    const cloud = new CloudFiles(new HranaDatabase(address));
    await cloud.provision();
    for (const name of ['memory', 'skills']) await cloud.ensureDirectory(name);
    for (const conversation of conversations) {
      for (const name of ['work', 'artifacts', 'state', 'logs']) {
        await cloud.ensureDirectory(`conversations/${conversation}/${name}`);
      }
    }
    return new BenchAuthority(address, child);
  }

  async stop(): Promise<void> {
    this.#child.stdin.end();
    await this.#child.exited;
  }
}

type Waiting = { resolve(answer: unknown): void; reject(error: Error): void };

export class BenchMachine {
  readonly #child: Bun.Subprocess<'pipe', 'pipe', 'inherit'>;
  readonly #waiting = new Map<number, Waiting>();
  readonly #ready = Promise.withResolvers<void>();
  #orders = 0;

  private constructor(child: Bun.Subprocess<'pipe', 'pipe', 'inherit'>) {
    this.#child = child;
    void this.#listen();
  }

  static async start(directory: string, agentfs: AuthorityAddress): Promise<BenchMachine> {
    const child = Bun.spawn([process.execPath, join(import.meta.dir, 'files-machine.ts')], {
      stdin: 'pipe',
      stdout: 'pipe',
      stderr: 'inherit',
      env: plainEnvironment(),
    });
    const machine = new BenchMachine(child);
    child.stdin.write(`${JSON.stringify({ directory, agentfs })}\n`);
    await child.stdin.flush();
    await machine.#ready.promise;
    return machine;
  }

  /** What works inside the holder of a conversation; the holder is started at the first piece of work. */
  worker(conversation: string): Worker {
    return {
      do: async (work, ...args): Promise<Done> =>
        doneOf(work, JSON.stringify(await this.#order({ kind: 'work', conversation, work, arguments: args }))),
      stop: async () => undefined,
    };
  }

  begin(conversation: string): Promise<unknown> {
    return this.#order({ kind: 'begin', conversation });
  }

  /** The end of a work boundary: everything is pushed, or the answer says why not. */
  async end(conversation: string): Promise<string> {
    return v.parse(v.object({ state: v.string() }), await this.#order({ kind: 'end', conversation })).state;
  }

  async memory(): Promise<v.InferOutput<typeof memorySchema>> {
    return v.parse(memorySchema, await this.#order({ kind: 'memory' }));
  }

  /** Ends holders and machine in order; everything is pushed. */
  async stop(): Promise<void> {
    this.#child.stdin.end();
    await this.#child.exited;
  }

  /** Ends it as a crash does. */
  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#child.exited;
  }

  async #order(order: object): Promise<unknown> {
    const id = ++this.#orders;
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    this.#waiting.set(id, { resolve, reject });
    this.#child.stdin.write(`${JSON.stringify({ id, ...order })}\n`);
    await this.#child.stdin.flush();
    return promise;
  }

  async #listen(): Promise<void> {
    for await (const line of linesOf(this.#child.stdout)) {
      const said = v.parse(answerSchema, JSON.parse(line));
      if ('ready' in said) {
        this.#ready.resolve();
        continue;
      }
      const waiting = this.#waiting.get(said.id);
      this.#waiting.delete(said.id);
      if ('failure' in said) waiting?.reject(new Error(said.failure));
      else waiting?.resolve(said.answer);
    }
    const error = new Error('the machine of the benchmark ended');
    this.#ready.reject(error);
    for (const waiting of this.#waiting.values()) waiting.reject(error);
  }
}
