/**
 * The command `edge-gateway authority`: serves the embedded cloud authority. As a child of the gateway on a unix socket, until
 * the gateway ends it; by itself on an address of the network, so that several hosts share it; and its online backup.
 */
import { chmodSync, lstatSync, readFileSync, unlinkSync } from 'node:fs';
import { isIP } from 'node:net';
import { parseArgs } from 'node:util';
import * as v from 'valibot';
import { backUp } from './backup.ts';
import { limits } from './limits.ts';
import { Authority } from './server.ts';

const token = v.pipe(v.string(), v.minLength(16), v.maxLength(1024));
const tokensSchema = v.strictObject({ agentfs: token, sessiondb: token });
const launchSchema = v.strictObject({ tokens: tokensSchema });
type Tokens = v.InferOutput<typeof tokensSchema>;

/** Where the tokens of an authority that runs by itself are: never in arguments, which every user of the host can read. */
const tokenVariables = {
  agentfs: 'EDGE_AUTHORITY_AGENTFS_TOKEN',
  sessiondb: 'EDGE_AUTHORITY_SESSIONDB_TOKEN',
} as const;

const USAGE = `usage: edge-gateway authority --data DIR --listen HOST:PORT [--tls-cert FILE --tls-key FILE]
         (tokens of 16 characters or more in ${tokenVariables.agentfs} and ${tokenVariables.sessiondb})
       edge-gateway authority backup --data DIR --to DIR
       edge-gateway authority --data DIR --socket PATH   (one JSON line with the tokens on standard input)`;

type Listen =
  | { readonly kind: 'socket'; readonly path: string }
  | { readonly kind: 'network'; readonly hostname: string; readonly port: number; readonly tls: Tls | null };
type Tls = { readonly cert: string; readonly key: string };

type Command =
  | { readonly do: 'serve'; readonly directory: string; readonly listen: Listen }
  | { readonly do: 'backup'; readonly directory: string; readonly to: string };

/** @throws Error that says what is wrong with the arguments */
export function commandOf(argv: readonly string[]): Command {
  const { values, positionals } = parseArgs({
    args: [...argv],
    allowPositionals: true,
    options: {
      data: { type: 'string' },
      socket: { type: 'string' },
      listen: { type: 'string' },
      to: { type: 'string' },
      'tls-cert': { type: 'string' },
      'tls-key': { type: 'string' },
    },
  });
  const { data, socket, listen, to } = values;
  const [cert, key] = [values['tls-cert'], values['tls-key']];
  if (!data) throw new Error('--data is needed');
  if (positionals.length > 1 || (positionals.length === 1 && positionals[0] !== 'backup'))
    throw new Error(`unknown word: ${positionals.join(' ')}`);
  if (positionals.length === 1) {
    if (!to || socket || listen || cert || key) throw new Error('backup needs --data and --to, and nothing else');
    return { do: 'backup', directory: data, to };
  }
  if (to) throw new Error('--to belongs to backup');
  if ((socket === undefined) === (listen === undefined)) throw new Error('one of --listen and --socket is needed');
  if (socket !== undefined) {
    if (cert || key) throw new Error('TLS belongs to --listen');
    return { do: 'serve', directory: data, listen: { kind: 'socket', path: socket } };
  }
  if ((cert === undefined) !== (key === undefined)) throw new Error('--tls-cert and --tls-key belong together');
  const tls = cert !== undefined && key !== undefined ? { cert, key } : null;
  return { do: 'serve', directory: data, listen: { kind: 'network', ...addressOf(listen!), tls } };
}

function addressOf(text: string): { hostname: string; port: number } {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(text);
  const port = Number(match?.[3]);
  if (!match || port > 65_535) throw new Error(`--listen ${text} is not HOST:PORT`);
  return { hostname: (match[1] ?? match[2])!, port };
}

const isLoopback = (hostname: string): boolean =>
  hostname === 'localhost' || hostname === '::1' || (isIP(hostname) === 4 && hostname.startsWith('127.'));

/** The first line of standard input, and a promise of its end. @throws when it is missing or too long */
async function readLaunchLine(input: ReadableStream<Uint8Array>): Promise<{ line: string; ended: Promise<void> }> {
  const reader = input.getReader();
  const decoder = new TextDecoder();
  let text = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error('standard input ended before the line with the tokens');
    text += decoder.decode(value, { stream: true });
    const end = text.indexOf('\n');
    if (end >= 0) {
      text = text.slice(0, end);
      break;
    }
    if (text.length > limits.launchLineBytes) throw new Error('the line with the tokens is too long');
  }
  const drain = async (): Promise<void> => {
    while (!(await reader.read()).done);
  };
  return { line: text, ended: drain() };
}

/** The tokens, and what besides a signal ends the authority. @throws Error without a word of a secret */
async function tokensFor(listen: Listen): Promise<{ tokens: Tokens; ended: Promise<void> }> {
  if (listen.kind === 'network') {
    const given = { agentfs: process.env[tokenVariables.agentfs], sessiondb: process.env[tokenVariables.sessiondb] };
    const tokens = v.safeParse(tokensSchema, given);
    if (!tokens.success)
      throw new Error(`${Object.values(tokenVariables).join(' and ')} must hold 16 to 1024 characters each`);
    return { tokens: tokens.output, ended: new Promise(() => {}) };
  }
  const { line, ended } = await readLaunchLine(Bun.stdin.stream());
  const launch = v.safeParse(launchSchema, parseJson(line));
  // The line holds secrets: nothing of it is shown.
  if (!launch.success)
    throw new Error('the first line of standard input is not {"tokens":{"agentfs":…,"sessiondb":…}}');
  return { tokens: launch.output.tokens, ended };
}

/** A socket that a killed predecessor left behind. Anything else at this path is left alone, and listening fails. */
function removeStaleSocket(path: string): void {
  if (lstatSync(path, { throwIfNoEntry: false })?.isSocket()) unlinkSync(path);
}

const log = (line: string): void => {
  process.stderr.write(`authority: ${line}\n`);
};

/**
 * Runs the authority, or its backup. Prints `{"ready":true, …}` once it listens; ends with SIGTERM, and as a child with the
 * end of standard input.
 * @returns the exit code: 0 orderly, 1 failure, 2 usage
 */
export async function runAuthority(argv: readonly string[]): Promise<number> {
  let command: Command;
  try {
    command = commandOf(argv);
  } catch (error) {
    log(error instanceof Error ? error.message : 'bad arguments');
    log(USAGE);
    return 2;
  }
  process.umask(0o077);
  try {
    if (command.do === 'serve') await serve(command.directory, command.listen);
    else process.stdout.write(`${JSON.stringify({ copied: await backUp(command.directory, command.to) })}\n`);
    return 0;
  } catch (error) {
    log(error instanceof Error ? error.message : 'unknown failure');
    return 1;
  }
}

async function serve(directory: string, listen: Listen): Promise<void> {
  if (listen.kind === 'network' && !listen.tls && !isLoopback(listen.hostname))
    throw new Error(
      `${listen.hostname} can be reached from outside, and tokens must not cross a network in the clear: ` +
        'give --tls-cert and --tls-key, or listen on 127.0.0.1 behind a proxy that does TLS',
    );
  const terminated = new Promise<void>((resolve) => {
    process.once('SIGTERM', resolve);
    process.once('SIGINT', resolve);
  });
  const { tokens, ended } = await tokensFor(listen);
  const authority = new Authority({ directory, tokens, log });
  const handling = {
    maxRequestBodySize: limits.agentfsBodyBytes,
    fetch: (request: Request) => authority.fetch(request),
  };
  const server = listen.kind === 'socket' ? listenOnSocket(listen.path, handling) : listenOnNetwork(listen, handling);
  process.stdout.write(`${JSON.stringify({ ready: true, ...(listen.kind === 'network' && urlsOf(server.url)) })}\n`);
  await Promise.race([terminated, ended]);
  await authority.close();
  await server.stop(true);
}

type Handling = { maxRequestBodySize: number; fetch(request: Request): Promise<Response> };

function listenOnSocket(path: string, handling: Handling): Bun.Server<undefined> {
  removeStaleSocket(path);
  const server = Bun.serve({ unix: path, ...handling });
  chmodSync(path, 0o600);
  return server;
}

function listenOnNetwork(
  { hostname, port, tls }: Extract<Listen, { kind: 'network' }>,
  handling: Handling,
): Bun.Server<undefined> {
  const secured = tls && { tls: { cert: readFileSync(tls.cert, 'utf8'), key: readFileSync(tls.key, 'utf8') } };
  // A large push may be on its way for minutes; the limits inside count from its first byte.
  return Bun.serve({ hostname, port, idleTimeout: 255, ...secured, ...handling });
}

const urlsOf = (base: URL) => ({ agentfs: new URL('agentfs', base).href, sessiondb: new URL('sessiondb', base).href });

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return null; // The schema refuses it; the parser's own words would quote the line.
  }
}
