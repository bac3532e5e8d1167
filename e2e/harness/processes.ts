/** Process trees as the kernel tells them: what a gateway started, and whether anything of it is left. */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

export interface ProcessInfo {
  readonly pid: number;
  readonly parent: number;
  /** One letter of /proc/PID/stat; Z is a zombie. */
  readonly state: string;
  readonly argv: readonly string[];
  /** Clock ticks since boot: with the pid it names one process for ever. */
  readonly startTicks: number;
}

export function readProcess(pid: number): ProcessInfo | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const argv = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').slice(0, -1);
    return { pid, parent: Number(fields[1]), state: fields[0]!, argv, startTicks: Number(fields[19]) };
  } catch {
    return null; // it ended between the listing and the reading
  }
}

function everyProcess(): ProcessInfo[] {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return pids.map((pid) => readProcess(Number(pid))).filter((found) => found !== null);
}

/** All descendants of `root`, parents first, without `root` itself. */
export function descendants(root: number): ProcessInfo[] {
  const all = everyProcess();
  const found: ProcessInfo[] = [];
  const parents = [root];
  for (let parent = parents.shift(); parent !== undefined; parent = parents.shift()) {
    for (const child of all.filter((one) => one.parent === parent)) {
      found.push(child);
      parents.push(child.pid);
    }
  }
  return found;
}

/** Whether this very process (not a later one with its pid) still runs. A zombie does not. */
export function isAlive(process: ProcessInfo): boolean {
  const now = readProcess(process.pid);
  return now !== null && now.startTicks === process.startTicks && now.state !== 'Z' && now.state !== 'X';
}

/** What the descriptors of a process lead to, by number. */
export function descriptorsOf(pid: number): Map<number, string> {
  const found = new Map<number, string>();
  for (const name of readdirSync(`/proc/${pid}/fd`)) {
    try {
      found.set(Number(name), readlinkSync(`/proc/${pid}/fd/${name}`));
    } catch {
      // closed between the listing and the reading
    }
  }
  return found;
}

/** Waits until none of them runs. @throws Error naming what is left after `timeoutMs` */
export async function waitForEnd(processes: readonly ProcessInfo[], timeoutMs: number): Promise<void> {
  const deadlineMs = performance.now() + timeoutMs;
  for (;;) {
    const left = processes.filter(isAlive);
    if (left.length === 0) return;
    if (performance.now() > deadlineMs) {
      throw new Error(`still running: ${left.map((one) => `${one.pid} ${one.argv.join(' ')}`).join('; ')}`);
    }
    await Bun.sleep(20);
  }
}
