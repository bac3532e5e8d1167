/** A machine for tests: the real hermes-run server in front of real child processes, one a conversation. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Admission, type Admissions, type RelayedChild, serveHermesRun } from '../../hermes-run/server.ts';

type Process = Bun.Subprocess<'pipe', 'pipe', 'inherit' | 'ignore'>;

class Child implements RelayedChild {
  readonly generation: number;
  readonly process: Process;
  attached = true;
  left = Promise.withResolvers<void>();
  condemned = false;
  readonly #output;
  #pending: Promise<Uint8Array | null> | null = null;

  constructor(process: Process, generation: number) {
    this.process = process;
    this.generation = generation;
    this.#output = process.stdout.getReader();
  }

  async write(bytes: Uint8Array): Promise<void> {
    if (this.process.exitCode !== null || this.process.signalCode !== null) throw new Error('the child has ended');
    this.process.stdin.write(bytes);
    await this.process.stdin.flush();
  }

  peek(): Promise<Uint8Array | null> {
    this.#pending ??= this.#output.read().then((next) => next.value ?? null);
    return this.#pending;
  }

  take(): void {
    this.#pending = null;
  }
}

export interface FixtureMachine {
  readonly socketPath: string;
  readonly token: string;
  /** Every admission: the session it was asked with, and how it ended. */
  readonly admissions: { readonly conversation: string; readonly session: string | null; readonly admission: string }[];
  readonly releases: string[];
  /** Set to refuse or to hold back the next admissions. */
  gate: () => Promise<void>;
  /** The running child of a conversation. */
  child(conversation: string): Process | undefined;
  stop(): Promise<void>;
}

/** `command` starts a child. One with an environment of its own is Hermes, whose log on standard error is not shown. */
export function startMachine(command: readonly string[], env?: Record<string, string>): FixtureMachine {
  const directory = mkdtempSync(join(tmpdir(), 'edge-machine-'));
  const socketPath = join(directory, 'run.sock');
  const token = 'b'.repeat(64);
  const children = new Map<string, Child>();
  let generation = 0;

  const machine: FixtureMachine = {
    socketPath,
    token,
    admissions: [],
    releases: [],
    gate: async () => undefined,
    child: (conversation) => children.get(conversation)?.process,
    async stop() {
      server.stop();
      for (const child of children.values()) child.process.kill('SIGKILL');
      await Promise.all([...children.values()].map((child) => child.process.exited));
      rmSync(directory, { recursive: true, force: true });
    },
  };
  /** The conversation's child, once nobody is attached to it. */
  const free = async (conversation: string): Promise<Child | undefined> => {
    for (let known = children.get(conversation); ; known = children.get(conversation)) {
      if (known?.attached !== true) return known;
      await known.left.promise;
    }
  };
  const admissions: Admissions = {
    async admit(conversation, session, fresh): Promise<Admission> {
      try {
        await machine.gate();
      } catch (error) {
        return { outcome: 'refused', refusal: 'full', detail: (error as Error).message };
      }
      const known = await free(conversation);
      if (fresh) known?.process.kill('SIGKILL');
      const ended =
        known !== undefined &&
        (fresh || known.condemned || known.process.exitCode !== null || known.process.signalCode !== null);
      if (ended) await known.process.exited;
      const admission = known === undefined || ended ? 'cold' : 'warm';
      machine.admissions.push({ conversation, session, admission });
      if (admission === 'warm' && known !== undefined) {
        known.attached = true;
        known.left = Promise.withResolvers();
        return { outcome: 'admitted', child: known, admission, admissionMs: 0 };
      }
      generation += 1;
      const options = {
        stdin: 'pipe',
        stdout: 'pipe',
        stderr: env ? 'ignore' : 'inherit',
        ...(env && { env }),
      } as const;
      const child = new Child(Bun.spawn([...command], options), generation);
      children.set(conversation, child);
      return { outcome: 'admitted', child, admission: 'cold', admissionMs: 1 };
    },
    release(child, how) {
      machine.releases.push(how);
      if (!(child instanceof Child)) throw new Error('not a child of this machine');
      child.attached = false;
      child.left.resolve();
      if (how === 'detached') return;
      child.condemned = true;
      child.process.kill('SIGKILL');
    },
  };
  const server = serveHermesRun({ socketPath, token, admissions, maxPeers: 64, onTrouble: () => undefined });
  return machine;
}
