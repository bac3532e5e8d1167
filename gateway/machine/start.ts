/** Starts the resident machine under its supervisor and knows when it is gone (ADR-046 §5, §7). */
import * as v from 'valibot';
import { type ChildEnd, type FilesState, type Launch, readySchema, saidSchema } from '../../machine/launch.ts';
import { type ChildProcess, startChild } from '../child-process.ts';
import { ChildEnds } from './child-ends.ts';
import { HolderCalls, type HolderControl } from './holder-calls.ts';
import { SessiondbAnswers } from './sessiondb-answers.ts';
import { type SettleFiles, Settling } from './settling.ts';

/** Its orderly end: holders end, pending changes are pushed, AgentFS is closed. */
export interface MachineProcess extends ChildProcess {
  /** Path of the hermes-run socket. */
  readonly socket: string;
  /** How that child of the machine ended; null when the machine does not say it in time. Never rejects. */
  childEnd(generation: number): Promise<ChildEnd | null>;
  /** Brings what the conversations changed and executed into the cloud, for somebody who wants to read it there now. */
  readonly settleFiles: SettleFiles;
  readonly holders: HolderControl;
  /** How the replica of AgentFS stands with its cloud, as the machine last said. */
  files(): FilesState;
  /** Whether SessionDB has failed to answer that child since then (`performance.now()`). */
  sessiondbFailedSince(generation: number, since: number): boolean;
}

export interface StartMachineOptions {
  readonly launch: Launch;
  /** Path that executes confined-exec. */
  readonly confinedExec: string;
  /** The command that runs the machine: this executable and `machine`. */
  readonly command: readonly string[];
  /** How long the machine may take until it can be used. */
  readonly readyMs: number;
  /** Receives the machine's log lines. */
  readonly onLog: (line: string) => void;
}

/** Throws with what went wrong when the machine does not become ready; nothing of it is left then. */
export async function startMachine(options: StartMachineOptions): Promise<MachineProcess> {
  const ends = new ChildEnds();
  const answers = new SessiondbAnswers();
  let files: FilesState = { trouble: null, pending: false };
  const settling = new Settling((line) => child.tell(JSON.stringify(line)));
  const holders = new HolderCalls((line) => child.tell(JSON.stringify(line)));
  const child = await startChild({
    name: 'the machine',
    argv0: 'confined-exec',
    command: [options.confinedExec, 'supervise', '--', ...options.command],
    firstLine: JSON.stringify(options.launch),
    readyMs: options.readyMs,
    onLog: options.onLog,
    onLine: (line) => {
      const said = v.safeParse(saidSchema, parseJson(line));
      if (!said.success) options.onLog('the machine said something that is not known');
      else if ('ended' in said.output) ends.add(said.output.ended);
      else if ('files' in said.output) files = said.output.files;
      else if ('sessiondb' in said.output) answers.heard(said.output.sessiondb);
      else if ('settled' in said.output) settling.heard(said.output);
      else holders.heard(said.output);
    },
  });
  child.exited.then(() => {
    ends.close();
    settling.close();
    holders.close();
  });
  const { hermesRunSocket } = v.parse(readySchema, child.ready);
  return {
    ...child,
    socket: hermesRunSocket,
    childEnd: (generation) => ends.of(generation),
    settleFiles: (limitMs) => settling.settle(limitMs),
    holders,
    files: () => files,
    sessiondbFailedSince: (generation, since) => answers.failedSince(generation, since),
  };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null; // Reported like every other line that is not known.
  }
}
