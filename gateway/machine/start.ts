/** Starts the resident machine under its supervisor and knows when it is gone (ADR-046 §5, §7). */
import * as v from 'valibot';
import { type Launch, readySchema } from '../../machine/launch.ts';

export interface MachineProcess {
  readonly pid: number;
  /** Path of the hermes-run socket. */
  readonly socket: string;
  /** Resolves with a sentence when the whole machine tree is gone, however that came. */
  readonly exited: Promise<string>;
  /** Orderly end: holders end, pending changes are pushed, AgentFS is closed. Killed after `graceMs`. */
  stop(graceMs: number): Promise<void>;
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

/** The machine and all below it get this and nothing of the gateway's own environment. */
const environment = { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', LANG: 'C.UTF-8' };
const maxReadyBytes = 4096;

/** Throws with what went wrong when the machine does not become ready; nothing of it is left then. */
export async function startMachine(options: StartMachineOptions): Promise<MachineProcess> {
  const process = Bun.spawn([options.confinedExec, 'supervise', '--', ...options.command], {
    argv0: 'confined-exec',
    env: environment,
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'pipe',
  });
  let said = '';
  forwardLines(process.stderr, (line) => {
    said = line;
    options.onLog(line);
  });
  const exited = process.exited.then(() => describeExit(process.exitCode, process.signalCode, said));
  try {
    process.stdin.write(`${JSON.stringify(options.launch)}\n`);
    await process.stdin.flush();
    const line = await Promise.race([
      readLine(process.stdout),
      exited.then((how) => Promise.reject(new Error(how))),
      deadline(options.readyMs),
    ]);
    const ready = v.parse(readySchema, JSON.parse(line));
    return {
      pid: process.pid,
      socket: ready.hermesRunSocket,
      exited,
      async stop(graceMs) {
        // The end of its input is the machine's signal to end; a supervisor that hangs is killed with all below it.
        process.stdin.end();
        const killer = setTimeout(() => process.kill('SIGKILL'), graceMs);
        await exited;
        clearTimeout(killer);
      },
    };
  } catch (error) {
    process.kill('SIGKILL');
    await exited;
    throw new Error(`the machine did not start: ${(error as Error).message}`);
  }
}

function describeExit(code: number | null, signal: string | null, said: string): string {
  const how = signal ? `ended by ${signal}` : `exit code ${code}`;
  return said ? `${how}: ${said}` : how;
}

function deadline(ms: number): Promise<never> {
  return new Promise((_, reject) => {
    const timer = setTimeout(() => reject(new Error(`not ready within ${ms} ms`)), ms);
    timer.unref();
  });
}

async function readLine(stream: ReadableStream<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder();
  const reader = stream.getReader();
  let text = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error('it closed its output before it was ready');
    text += decoder.decode(value, { stream: true });
    const end = text.indexOf('\n');
    if (end >= 0) return text.slice(0, end);
    if (text.length > maxReadyBytes) throw new Error('its first line has no end');
  }
}

async function forwardLines(stream: ReadableStream<Uint8Array>, onLine: (line: string) => void): Promise<void> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const bytes of stream) {
    const lines = (text + decoder.decode(bytes, { stream: true })).split('\n');
    text = (lines.pop() ?? '').slice(-maxReadyBytes);
    for (const line of lines) onLine(line);
  }
}
