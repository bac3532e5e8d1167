/**
 * The one local replica of the organization's AgentFS, over @tursodatabase/sync: opening it, and the requests that it makes,
 * each with a limit on silence.
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { connect, type Database } from '@tursodatabase/sync';
import { SqlDriver } from './agentfs/driver.ts';
import type { AuthorityAddress } from './launch.ts';

/** How long the cloud may send or take nothing before a request fails. */
const silenceMs = 15_000;
/** Operations of one push request; a transaction is never split. A file's commit has at most 64 rows of 64 KiB. */
const pushOperations = 256;

export interface Replica {
  readonly database: Database;
  readonly driver: SqlDriver;
}

/**
 * Opens the replica, and fills it from the cloud when it is new; an existing one makes no request. Throws with the reason
 * when the cloud cannot be reached then.
 */
export async function openReplica(address: AuthorityAddress, directory: string): Promise<Replica> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const path = join(directory, 'organization.db');
  const database = await connect({
    path,
    url: address.url,
    authToken: address.token,
    clientName: 'edge-gateway-machine',
    pushOperationsThreshold: pushOperations,
    fetch: fetchWithin(address.socket, silenceMs),
  });
  return { database, driver: new SqlDriver(database, path) };
}

/** `fetch`, through a unix socket when there is one, that fails when nothing moves for `ms`. */
export function fetchWithin(socket: string | null, ms: number): typeof fetch {
  const limited = async (input: string | URL | Request, init?: RequestInit): Promise<Response> => {
    const abort = new AbortController();
    const silence = new Silence(ms, () => abort.abort(new Error(`the cloud was silent for ${ms} ms`)));
    // A large push takes its time to be sent and to be committed: one limit for every MiB.
    const size = init?.body instanceof Uint8Array ? init.body.length : 0;
    silence.extend(Math.ceil(size / 1024 ** 2));
    try {
      const response = await fetch(input, {
        ...init,
        signal: abort.signal,
        ...(socket === null ? {} : { unix: socket }),
      });
      return watched(response, silence);
    } catch (error) {
      silence.end();
      throw error;
    }
  };
  return Object.assign(limited, { preconnect: fetch.preconnect });
}

/** The same answer, whose every chunk is a sign of life. */
function watched(response: Response, silence: Silence): Response {
  if (!response.body) {
    silence.end();
    return response;
  }
  silence.extend(1);
  const body = response.body.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        silence.extend(1);
        controller.enqueue(chunk);
      },
      flush: () => silence.end(),
    }),
  );
  return new Response(body, { status: response.status, headers: response.headers });
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
