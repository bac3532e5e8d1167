/**
 * The one local replica of the organization's AgentFS, over @tursodatabase/sync: opening it, and the requests that it makes,
 * each with a limit on silence.
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { connect, type Database } from '@tursodatabase/sync';
import { SqlDriver } from './agentfs/driver.ts';
import { directStatements } from './agentfs/statements.ts';
import { CloudAnswer } from './cloud-answer.ts';
import type { AuthorityAddress } from './launch.ts';

/** How patient the machine is with the cloud. */
export interface CloudLimits {
  /** How long the cloud may send or take nothing before a request fails. */
  readonly silenceMs: number;
  /** What the organization's files may have: it bounds the answers. */
  readonly organizationBytes: number;
}
export const defaultSilenceMs = 15_000;
/**
 * Operations of one push request, at which it ends with its transaction: what a turn changed in small things goes together. Large
 * contents are few operations; the steps of a boundary's end keep those requests small.
 */
const pushOperations = 24;
/** A push goes on while others write. After this time it keeps the database for every second request, so that it gets ahead. */
const asideMs = 5_000;

export interface Replica {
  readonly database: Database;
  readonly driver: SqlDriver;
  readonly engine: EngineTurns;
}

/**
 * The sync engine and the store use one database: a pull or push fails inside an open transaction, so it must be alone. It
 * steps aside while it waits for the network, so that no file operation waits for the cloud.
 */
export class EngineTurns {
  #acquire: (() => Promise<() => void>) | null = null;
  #release: (() => void) | null = null;
  #beforeReturn: () => Promise<void> = async () => undefined;
  #asideUntil = 0;
  #requests = 0;

  /** Runs `work` of the engine alone; `beforeReturn` runs before it, and each time it comes back from the network. */
  async run<Result>(
    acquire: () => Promise<() => void>,
    beforeReturn: () => Promise<void>,
    work: () => Promise<Result>,
  ): Promise<Result> {
    this.#acquire = acquire;
    this.#beforeReturn = beforeReturn;
    this.#asideUntil = performance.now() + asideMs;
    this.#release = await acquire();
    try {
      await beforeReturn();
      return await work();
    } finally {
      this.#release?.();
      this.#release = null;
      this.#acquire = null;
    }
  }

  stepAside(): void {
    this.#requests += 1;
    if (performance.now() > this.#asideUntil && this.#requests % 2 === 0) return;
    this.#release?.();
    this.#release = null;
  }

  async comeBack(): Promise<void> {
    if (!this.#acquire || this.#release) return;
    this.#release = await this.#acquire();
    await this.#beforeReturn();
  }
}

/**
 * Opens the replica, and fills it from the cloud when it is new; an existing one makes no request. Throws with the reason
 * when the cloud cannot be reached then.
 */
export async function openReplica(address: AuthorityAddress, directory: string, limits: CloudLimits): Promise<Replica> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const path = join(directory, 'organization.db');
  const engine = new EngineTurns();
  const database = await connect({
    path,
    url: address.url,
    authToken: address.token,
    clientName: 'edge-gateway-machine',
    pushOperationsThreshold: pushOperations,
    fetch: fetchWithin(address.socket, limits, engine),
  });
  return { database, driver: new SqlDriver(directStatements(database), path), engine };
}

/** `fetch`, through a unix socket when there is one, that fails when nothing moves or too much comes, with the engine aside. */
function fetchWithin(socket: string | null, limits: CloudLimits, engine: EngineTurns): typeof fetch {
  const ms = limits.silenceMs;
  const limited = async (input: string | URL | Request, init?: RequestInit): Promise<Response> => {
    const abort = new AbortController();
    const silence = new Silence(ms, () => abort.abort(new Error(`the cloud was silent for ${ms} ms`)));
    // A large push takes its time to be sent and to be committed: one limit for every MiB.
    const size = init?.body instanceof Uint8Array ? init.body.length : 0;
    silence.extend(Math.ceil(size / 1024 ** 2));
    engine.stepAside();
    try {
      // A redirect is not followed: the token goes to the configured address only.
      const guarded: RequestInit = { ...init, signal: abort.signal, redirect: 'error' };
      const response = await fetch(input, socket === null ? guarded : { ...guarded, unix: socket });
      const answer = new CloudAnswer(new URL(urlOf(input)).pathname, response.status, limits.organizationBytes);
      return watched(response, answer, abort, silence, engine);
    } catch (error) {
      silence.end();
      await engine.comeBack();
      throw error;
    }
  };
  return Object.assign(limited, { preconnect: fetch.preconnect });
}

/** The same answer, whose every chunk is a sign of life, and at whose end the engine is alone again. */
async function watched(
  response: Response,
  answer: CloudAnswer,
  abort: AbortController,
  silence: Silence,
  engine: EngineTurns,
): Promise<Response> {
  silence.extend(1);
  const reader = (response.body ?? new Blob([]).stream()).getReader();
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        silence.extend(1);
        if (!done) {
          answer.take(value);
          controller.enqueue(value);
          return;
        }
      } catch (error) {
        silence.end();
        abort.abort(error);
        await engine.comeBack();
        throw error;
      }
      silence.end();
      await engine.comeBack();
      controller.close();
    },
    cancel: (reason) => reader.cancel(reason),
  });
  return new Response(body, { status: response.status, headers: response.headers });
}

function urlOf(input: string | URL | Request): string {
  return input instanceof Request ? input.url : String(input);
}

class Silence {
  readonly #ms: number;
  readonly #over: () => void;
  #timer: Timer | null = null;

  constructor(ms: number, over: () => void) {
    this.#ms = ms;
    this.#over = over;
  }

  extend(times: number): void {
    this.end();
    this.#timer = setTimeout(this.#over, this.#ms * Math.max(1, times));
  }

  end(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
  }
}
