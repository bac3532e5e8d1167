/** For tests: an authority behind a unix socket in this process, and one as the real command in its own. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { HranaError } from '../../machine/agentfs/hrana.ts';
import type { WirePipelineResponse, WireRequest } from '../../machine/agentfs/hrana-wire.ts';
import type { AuthorityAddress } from '../../machine/launch.ts';
import { limits } from './limits.ts';
import { Authority } from './server.ts';

export const TOKENS = { agentfs: 'agentfs-token-for-tests', sessiondb: 'sessiondb-token-for-tests' };

/** Where a database of the authority on `socket` is found. */
export function addressOf(socket: string, database: 'agentfs' | 'sessiondb'): AuthorityAddress {
  return { url: `http://localhost/${database}`, token: TOKENS[database], socket };
}

/** `fetch` for the Turso client, which cannot name a unix socket itself. */
export function fetchOn(socket: string): typeof fetch {
  const overSocket = (input: string | URL | Request, init?: RequestInit) => fetch(input, { ...init, unix: socket });
  return Object.assign(overSocket, { preconnect: fetch.preconnect });
}

/** A request as it is, to see what the client hides. */
export function postTo(socket: string, path: string, body: string | Uint8Array, token: string): Promise<Response> {
  return fetch(`http://localhost${path}`, {
    unix: socket,
    method: 'POST',
    headers: { authorization: `Bearer ${token}` },
    body,
  });
}

/** A pipeline on sessiondb, with its status and bare answer. */
export async function pipelineOn(
  socket: string,
  baton: string | null,
  requests: readonly WireRequest[],
): Promise<{ status: number; body: WirePipelineResponse & { code?: string } }> {
  const body = JSON.stringify({ baton, requests });
  const response = await postTo(socket, '/sessiondb/v2/pipeline', body, TOKENS.sessiondb);
  return { status: response.status, body: (await response.json()) as WirePipelineResponse & { code?: string } };
}

/** The HranaError that a call must fail with. @throws when it does not */
export async function failureOf(promise: Promise<unknown>): Promise<HranaError> {
  const error = await promise.then(
    () => null,
    (reason: unknown) => reason,
  );
  if (!(error instanceof HranaError)) throw new Error('it should have failed with a HranaError');
  return error;
}

export type ServedAuthority = {
  directory: string;
  socket: string;
  log: string[];
  stop: () => Promise<void>;
};

/** @param directory that of a former authority, to serve it again */
export function serveAuthority(directory = mkdtempSync(join(tmpdir(), 'authority-'))): ServedAuthority {
  const log: string[] = [];
  const authority = new Authority({
    directory: join(directory, 'data'),
    tokens: TOKENS,
    log: (line) => log.push(line),
  });
  const socket = join(directory, 's.sock');
  rmSync(socket, { force: true });
  const server = Bun.serve({
    unix: socket,
    maxRequestBodySize: limits.agentfsBodyBytes,
    fetch: (request) => authority.fetch(request),
  });
  return {
    directory,
    socket,
    log,
    stop: async () => {
      await authority.close();
      await server.stop(true);
    },
  };
}

export type AuthorityProcess = {
  socket: string;
  exited: Promise<number>;
  endInput: () => void;
  kill: (signal: NodeJS.Signals) => void;
};

/** Starts `edge-gateway authority` and waits until it says that it is ready. @throws when it does not */
export async function startAuthority(directory: string): Promise<AuthorityProcess> {
  const socket = join(directory, 's.sock');
  const entry = join(import.meta.dir, '../../edge-gateway.ts');
  const child = Bun.spawn(
    [process.execPath, entry, 'authority', '--data', join(directory, 'data'), '--socket', socket],
    {
      stdin: 'pipe',
      stdout: 'pipe',
      stderr: 'inherit',
    },
  );
  child.stdin.write(`${JSON.stringify({ tokens: TOKENS })}\n`);
  await child.stdin.flush();
  const { value } = await child.stdout.getReader().read();
  if (new TextDecoder().decode(value) !== '{"ready":true}\n') throw new Error('the authority did not become ready');
  return {
    socket,
    exited: child.exited,
    endInput: () => void child.stdin.end(),
    kill: (signal) => child.kill(signal),
  };
}
