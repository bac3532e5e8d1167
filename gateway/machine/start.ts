/** Starts the resident machine under its supervisor and knows when it is gone (ADR-046 §5, §7). */
import * as v from 'valibot';
import { type Launch, readySchema } from '../../machine/launch.ts';
import { type ChildProcess, startChild } from '../child-process.ts';

/** Its orderly end: holders end, pending changes are pushed, AgentFS is closed. */
export interface MachineProcess extends ChildProcess {
  /** Path of the hermes-run socket. */
  readonly socket: string;
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
  const child = await startChild({
    name: 'the machine',
    argv0: 'confined-exec',
    command: [options.confinedExec, 'supervise', '--', ...options.command],
    firstLine: JSON.stringify(options.launch),
    readyMs: options.readyMs,
    onLog: options.onLog,
  });
  const { hermesRunSocket } = v.parse(readySchema, child.ready);
  return { ...child, socket: hermesRunSocket };
}
