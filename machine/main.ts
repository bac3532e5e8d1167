/**
 * The resident machine: one for the organization, started by the gateway under confined-exec. It opens the organization's
 * AgentFS once and gives each conversation's Hermes its own view of it (ADR-046 §5).
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import { serveHermesRun } from '../hermes-run/server.ts';
import { listenForHolders } from './holders/holder-socket.ts';
import { Holders } from './holders/holders.ts';
import { prepareInputs } from './holders/inputs.ts';
import { createStartHolder } from './holders/start.ts';
import { HostUids } from './holders/uids.ts';
import { type Ended, type Launch, launchSchema, type Ready } from './launch.ts';
import { openOrganizationFiles } from './sync.ts';

/** The launch line holds tokens, addresses and the organization's variables. */
const maxLaunchBytes = 256 * 1024;
/** hermes-run peers beyond the attached ones: those being refused, and those in their preface. */
const sparePeers = 64;

/** Runs until the end of standard input or SIGTERM; answers with the exit code. */
export async function runMachine(_argv: readonly string[]): Promise<number> {
  const input = Bun.stdin.stream().getReader();
  const launch = v.parse(launchSchema, JSON.parse(await readLaunchLine(input)));
  const stopped = Promise.withResolvers<string>();
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => stopped.resolve(signal));
  const machine = await startMachine(launch);
  untilEnd(input).then(() => stopped.resolve('its input has ended'));
  const ready: Ready = { ready: true, hermesRunSocket: machine.socket };
  say(ready);
  log(`stopping: ${await stopped.promise}`);
  await machine.close();
  return 0;
}

interface Machine {
  readonly socket: string;
  /** Ends the holders, pushes what is pending, closes AgentFS. */
  close(): Promise<void>;
}

async function startMachine(launch: Launch): Promise<Machine> {
  mkdirSync(launch.runDirectory, { recursive: true, mode: 0o700 });
  const inputs = prepareInputs(launch);
  const { files, boundary } = await openOrganizationFiles(launch, { log });
  const holderSocket = listenForHolders(join(launch.runDirectory, 'fuse.sock'));
  const start = createStartHolder({
    inputs,
    socket: holderSocket,
    uids: new HostUids(),
    sessiondb: launch.sessiondb,
    files,
    boundary,
    onEnd: (ended) => say({ ended }),
    log,
  });
  const holders = new Holders(start, launch.maxHolders);
  const socket = join(launch.runDirectory, 'hermes-run.sock');
  const server = serveHermesRun({
    socketPath: socket,
    token: launch.token,
    admissions: holders,
    maxPeers: launch.maxHolders + sparePeers,
    onTrouble: (reason) => log(`hermes-run: ${reason}`),
  });
  return {
    socket,
    async close() {
      server.stop();
      await holders.close();
      holderSocket.stop();
      const state = await boundary.close();
      if (state.state !== 'clean') log(`agentfs: changes stay in the replica: ${JSON.stringify(state)}`);
    },
  };
}

/** One line to the gateway. */
function say(line: Ready | Ended): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

/** One line; no secret, no prose. The gateway puts it into its log. */
function log(line: string): void {
  process.stderr.write(`${line.replaceAll('\n', ' ')}\n`);
}

type Input = { read(): Promise<{ done: boolean; value?: Uint8Array | undefined }> };

async function readLaunchLine(input: Input): Promise<string> {
  const chunks: Uint8Array[] = [];
  for (let size = 0; size <= maxLaunchBytes; ) {
    const { value } = await input.read();
    if (!value) throw new Error('the gateway ended before it said what to run');
    const end = value.indexOf(0x0a);
    chunks.push(end < 0 ? value : value.subarray(0, end));
    if (end >= 0) return Buffer.concat(chunks).toString('utf8');
    size += value.length;
  }
  throw new Error('the launch line is too long');
}

async function untilEnd(input: Input): Promise<void> {
  while (!(await input.read()).done);
}
