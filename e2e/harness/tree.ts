/** The parts of a running gateway by what they are, and the order in which processes end. */
import { readFileSync } from 'node:fs';
import { descendants, isAlive, type ProcessInfo } from './processes.ts';

/** The processes of the design; `tool` is everything that Hermes started and that its holder still has. */
export const parts = [
  ...(['postgres', 'authority', 'supervisor', 'supervisor’s init', 'machine'] as const),
  ...(['holder', 'relay', 'notifier', 'holder’s init', 'Hermes', 'tool'] as const),
] as const;
export type Part = (typeof parts)[number];

/** What a process calls itself; empty once it has ended. */
export function nameOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
  } catch {
    return '';
  }
}

function partOf({ pid, argv }: ProcessInfo): Part {
  const inSupervisor = argv[1] === 'supervise';
  switch (nameOf(pid)) {
    case 'edge-supervise':
      return 'supervisor';
    case 'edge-init':
      return inSupervisor ? 'supervisor’s init' : 'holder’s init';
    case 'edge-holder':
      return 'holder';
    case 'edge-relay':
      return 'relay';
    case 'edge-notify':
      return 'notifier';
  }
  if (argv.includes('/opt/edge/start.py')) return 'Hermes';
  const own = parts.find((part) => part === argv[1] && ['postgres', 'authority', 'machine'].includes(part));
  return own ?? 'tool';
}

/** Everything below a process, by part, in the order of `descendants`. */
export function partsBelow(root: number): ReadonlyMap<Part, readonly ProcessInfo[]> {
  const found = new Map<Part, ProcessInfo[]>(parts.map((part) => [part, []]));
  for (const process of descendants(root)) found.get(partOf(process))!.push(process);
  return found;
}

export interface Group {
  readonly name: string;
  readonly processes: readonly ProcessInfo[];
}

/**
 * Watches until none of them runs, and answers what ended out of order: a group that still ran after one of a later group
 * had ended. In each look the later group comes first, so that what is reported has happened. @throws Error after `timeoutMs`
 */
export async function endsOutOfOrder(groups: readonly Group[], timeoutMs: number): Promise<string[]> {
  const found = new Set<string>();
  const deadlineMs = performance.now() + timeoutMs;
  for (;;) {
    for (let later = groups.length - 1; later > 0; later -= 1) {
      const ended = groups[later]!.processes.some((process) => !isAlive(process));
      if (!ended) continue;
      for (const earlier of groups.slice(0, later)) {
        if (earlier.processes.some(isAlive)) found.add(`${groups[later]!.name} before ${earlier.name}`);
      }
    }
    if (groups.every(({ processes }) => !processes.some(isAlive))) return [...found];
    if (performance.now() > deadlineMs) throw new Error(`still running after ${timeoutMs} ms`);
    await Bun.sleep(1);
  }
}
