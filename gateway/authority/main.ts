/** The command `edge-gateway authority`: serves the embedded cloud authority on a unix socket until its parent ends it. */
import { chmodSync, lstatSync, unlinkSync } from 'node:fs';
import { parseArgs } from 'node:util';
import * as v from 'valibot';
import { limits } from './limits.ts';
import { Authority } from './server.ts';

const token = v.pipe(v.string(), v.minLength(16), v.maxLength(1024));
const launchSchema = v.strictObject({ tokens: v.strictObject({ agentfs: token, sessiondb: token }) });

const USAGE =
  'usage: edge-gateway authority --data DIR --socket PATH   (one JSON line with the tokens on standard input)';

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

/** A socket that a killed predecessor left behind. Anything else at this path is left alone, and listening fails. */
function removeStaleSocket(path: string): void {
  if (lstatSync(path, { throwIfNoEntry: false })?.isSocket()) unlinkSync(path);
}

const log = (line: string): void => {
  process.stderr.write(`authority: ${line}\n`);
};

/**
 * Runs the authority. Prints `{"ready":true}` once it listens; ends with the end of standard input or SIGTERM.
 * @returns the exit code: 0 orderly, 1 failure, 2 usage
 */
export async function runAuthority(argv: readonly string[]): Promise<number> {
  let directory: string;
  let socket: string;
  try {
    const { values } = parseArgs({
      args: [...argv],
      options: { data: { type: 'string' }, socket: { type: 'string' } },
    });
    if (!values.data || !values.socket) throw new Error('--data and --socket are needed');
    directory = values.data;
    socket = values.socket;
  } catch (error) {
    log(error instanceof Error ? error.message : 'bad arguments');
    log(USAGE);
    return 2;
  }
  process.umask(0o077);
  try {
    const terminated = new Promise<void>((resolve) => {
      process.once('SIGTERM', resolve);
      process.once('SIGINT', resolve);
    });
    const { line, ended } = await readLaunchLine(Bun.stdin.stream());
    const launch = v.safeParse(launchSchema, parseJson(line));
    // The line holds secrets: nothing of it is shown.
    if (!launch.success)
      throw new Error('the first line of standard input is not {"tokens":{"agentfs":…,"sessiondb":…}}');
    const authority = new Authority({ directory, tokens: launch.output.tokens, log });
    removeStaleSocket(socket);
    const server = Bun.serve({
      unix: socket,
      maxRequestBodySize: limits.agentfsBodyBytes,
      fetch: (request) => authority.fetch(request),
    });
    chmodSync(socket, 0o600);
    process.stdout.write(`${JSON.stringify({ ready: true })}\n`);
    await Promise.race([terminated, ended]);
    await authority.close();
    await server.stop(true);
    return 0;
  } catch (error) {
    log(error instanceof Error ? error.message : 'unknown failure');
    return 1;
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return null; // The schema refuses it; the parser's own words would quote the line.
  }
}
