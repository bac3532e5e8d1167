/**
 * The resident machine: one for the organization, started by the gateway under confined-exec. It opens the organization's
 * AgentFS once and gives each conversation's Hermes its own view of it (ADR-046 §5).
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import { serveHermesRun } from '../hermes-run/server.ts';
import { defaultLimits } from './agentfs/limits.ts';
import { listenForHolders } from './holders/holder-socket.ts';
import { Holders } from './holders/holders.ts';
import { prepareInputs } from './holders/inputs.ts';
import { createStartHolder } from './holders/start.ts';
import { HostUids } from './holders/uids.ts';
import { InputLines } from './input-lines.ts';
import {
  type ChildFate,
  type HoldersDone,
  type HoldersRequest,
  holdersSchema,
  type Launch,
  launchSchema,
  type Ready,
  type Said,
  settleSchema,
} from './launch.ts';
import { openOrganizationFiles, type SyncState } from './sync.ts';

/** The launch line holds tokens, addresses and the organization's variables. */
const maxLaunchBytes = 256 * 1024;
/** Every later line of the gateway: the longest names conversations. */
const maxRequestBytes = 64 * 1024;
const requestSchema = v.union([settleSchema, holdersSchema]);
/** hermes-run peers beyond the attached ones: those being refused, and those in their preface. */
const sparePeers = 64;

/** Runs until the end of standard input or SIGTERM; answers with the exit code. */
export async function runMachine(_argv: readonly string[]): Promise<number> {
  const input = new InputLines(Bun.stdin.stream());
  const launchLine = await input.next(maxLaunchBytes);
  if (launchLine === null) throw new Error('the gateway ended before it said what to run');
  const launch = v.parse(launchSchema, JSON.parse(launchLine));
  const stopped = Promise.withResolvers<string>();
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => stopped.resolve(signal));
  const machine = await startMachine(launch);
  serve(input, machine).then(
    () => stopped.resolve('its input has ended'),
    (error: Error) => stopped.resolve(`its input cannot be understood: ${error.message}`),
  );
  const ready: Ready = { ready: true, hermesRunSocket: machine.socket };
  say(ready);
  await machine.tellStates();
  log(`stopping: ${await stopped.promise}`);
  await machine.close();
  return 0;
}

interface Machine {
  readonly socket: string;
  /** Brings everything that was changed or recorded until now into the cloud. Never rejects. */
  settle(): Promise<SyncState>;
  /** Replaces or ends the children of conversations. Never rejects. */
  holders(request: HoldersRequest['holders']): Promise<HoldersDone['holdersDone']>;
  /** From now on the gateway is told how the files stand with their cloud. */
  tellStates(): Promise<void>;
  /** Ends the holders, pushes what is pending, closes AgentFS. */
  close(): Promise<void>;
}

async function startMachine(launch: Launch): Promise<Machine> {
  mkdirSync(launch.runDirectory, { recursive: true, mode: 0o700 });
  const inputs = prepareInputs(launch);
  const { files, ledger, boundary } = await openOrganizationFiles(launch, {
    log,
    limits: { ...defaultLimits, ...launch.fileLimits },
    onUnusable: () => {
      log('agentfs: ends, so that the replica is opened anew');
      process.exit(1);
    },
  });
  const holderSocket = listenForHolders(join(launch.runDirectory, 'fuse.sock'));
  const start = createStartHolder({
    inputs,
    socket: holderSocket,
    uids: new HostUids(),
    cgroups: launch.cgroups,
    sessiondb: launch.sessiondb,
    files,
    ledger,
    boundary,
    onEnd: (ended) => say({ ended }),
    onSessiondb: (sessiondb) => say({ sessiondb }),
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
    settle: () => boundary.settle(),
    async holders({ id, what, conversations }) {
      if (what === 'replace') {
        // First: a child that starts from here on reads what was changed in the cloud before.
        if (!(await boundary.refresh())) return { id, ...failing(boundary.state) };
        return { id, state: 'done', fates: conversations.map((conversation) => holders.replace(conversation)) };
      }
      const fates: ChildFate[] = await Promise.all(conversations.map((conversation) => holders.end(conversation)));
      const state = await boundary.settle();
      if (state.state === 'failing') return { id, ...failing(state) };
      return { id, state: 'done', fates };
    },
    tellStates: () => boundary.onFilesState((files) => say({ files })),
    async close() {
      server.stop();
      await holders.close();
      holderSocket.stop();
      const state = await boundary.close();
      if (state.state !== 'clean') log(`agentfs: changes stay in the replica: ${JSON.stringify(state)}`);
    },
  };
}

/** Answers the gateway's requests until its input ends. Throws at what is none: the two are of different versions. */
async function serve(input: InputLines, machine: Machine): Promise<void> {
  for (let line = await input.next(maxRequestBytes); line !== null; line = await input.next(maxRequestBytes)) {
    const request = v.parse(requestSchema, JSON.parse(line));
    if ('settle' in request) {
      const { id } = request.settle;
      void machine.settle().then((state) => say({ settled: { id, ...bounded(state) } }));
    } else {
      void machine.holders(request.holders).then((holdersDone) => say({ holdersDone }));
    }
  }
}

function bounded(state: SyncState): SyncState {
  return state.state === 'failing' ? failing(state) : state;
}

function failing(state: SyncState): { readonly state: 'failing'; readonly reason: string } {
  const reason = state.state === 'failing' ? state.reason : 'the cloud could not be reached';
  return { state: 'failing', reason: reason.slice(0, 1000) };
}

/** One line to the gateway. */
function say(line: Ready | Said): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

/** One line; no secret, no prose. The gateway puts it into its log. */
function log(line: string): void {
  process.stderr.write(`${line.replaceAll('\n', ' ')}\n`);
}
