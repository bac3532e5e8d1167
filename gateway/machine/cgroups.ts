/**
 * The cgroups under which the machine makes one for each holder: in the unified hierarchy for the guard of the network, and
 * where their controllers are for the limits of memory and processes.
 */
import { mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type CgroupPlaces, cgroupPlaces } from './cgroup-places.ts';

export interface HolderCgroups {
  /** In the unified hierarchy; null where there is none that this process may use. */
  readonly unified: string | null;
  /** One a hierarchy, without repetition. */
  readonly directories: readonly string[];
  readonly limitsMemory: boolean;
  readonly limitsProcesses: boolean;
  /** Removes them; what is still in use stays and is removed by a later start. */
  remove(): void;
}

const prefix = 'edge-gateway.';

/** Makes them. Whatever cannot be had is null or false in the answer, and needs no handling by itself; never throws. */
export function openCgroups(): HolderCgroups {
  const none: HolderCgroups = {
    unified: null,
    directories: [],
    limitsMemory: false,
    limitsProcesses: false,
    remove: () => undefined,
  };
  // Others than root may have been given a cgroup, but no bpf(2), and they may not move a holder of another user there.
  if (process.getuid?.() !== 0) return none;
  let places: CgroupPlaces;
  try {
    places = cgroupPlaces(readFileSync('/proc/self/mountinfo', 'utf8'), readFileSync('/proc/self/cgroup', 'utf8'));
  } catch {
    return none; // No cgroups in this kernel.
  }
  const enabled = places.unified === null ? [] : enableControllers(places.unified, ['memory', 'pids']);
  const name = `${prefix}${process.pid}.${startTicks('self')}`;
  const make = (parent: string | null): string | null => (parent === null ? null : makeBelow(parent, name));
  const unified = make(places.unified);
  if (unified !== null && enabled.length > 0) enable(unified, enabled);
  const memory = enabled.includes('memory') ? unified : make(places.memory);
  const pids = enabled.includes('pids') ? unified : make(places.pids);
  const directories = [...new Set([unified, memory, pids])].filter((directory) => directory !== null);
  return {
    unified,
    directories,
    limitsMemory: memory !== null,
    limitsProcesses: pids !== null,
    remove: () => {
      for (const directory of directories) removeTree(directory);
    },
  };
}

function makeBelow(parent: string, name: string): string | null {
  try {
    for (const old of readdirSync(parent).filter(isStale)) removeTree(join(parent, old));
    mkdirSync(join(parent, name));
    return join(parent, name);
  } catch {
    return null; // Not ours to write, or no room: as good as not being there.
  }
}

/** Whether a directory was made by a gateway that has ended: pid and start time name one process for ever. */
function isStale(name: string): boolean {
  const [, pid, ticks] = /^edge-gateway\.(\d+)\.(\d+)$/.exec(name) ?? [];
  return pid !== undefined && startTicks(pid) !== ticks;
}

function startTicks(pid: string): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? null;
  } catch {
    return null; // There is no such process.
  }
}

/** A cgroup can be removed when it has neither processes nor cgroups; others stay as they are. */
function removeTree(directory: string): void {
  try {
    for (const entry of readdirSync(directory, { withFileTypes: true })) {
      if (entry.isDirectory()) removeTree(join(directory, entry.name));
    }
    rmdirSync(directory);
  } catch {
    // In use, or gone: a later start looks again.
  }
}

/**
 * Gives the cgroups below `unified` these controllers, as far as they are there; answers with those that they have. The
 * kernel wants no process in a cgroup that hands on controllers: where all in it belong to this gateway, they move into one of
 * their own, as in a service to which systemd delegates (`Delegate=yes`) or in a container with a writable cgroup.
 */
function enableControllers(unified: string, wanted: readonly string[]): readonly string[] {
  const list = (file: string): string[] => readFileSync(join(unified, file), 'latin1').trim().split(/\s+/);
  try {
    const there = wanted.filter((name) => list('cgroup.controllers').includes(name));
    const missing = there.filter((name) => !list('cgroup.subtree_control').includes(name));
    if (missing.length === 0 || enable(unified, missing)) return there;
    if (moveOwnProcesses(unified) && enable(unified, missing)) return there;
    return there.filter((name) => !missing.includes(name));
  } catch {
    return []; // Nothing that this process may read.
  }
}

function enable(directory: string, controllers: readonly string[]): boolean {
  try {
    writeFileSync(join(directory, 'cgroup.subtree_control'), controllers.map((name) => `+${name}`).join(' '));
    return true;
  } catch {
    return false; // Processes in it, or not ours to write.
  }
}

function moveOwnProcesses(unified: string): boolean {
  const pids = readFileSync(join(unified, 'cgroup.procs'), 'latin1').trim().split('\n').map(Number);
  if (!pids.every(isOwn)) return false;
  const leaf = join(unified, `${prefix}main`);
  mkdirSync(leaf, { recursive: true });
  for (const pid of pids) writeFileSync(join(leaf, 'cgroup.procs'), String(pid));
  return true;
}

/** This process or one below it. */
function isOwn(pid: number): boolean {
  for (let at = pid; at > 0; at = parentOf(at)) if (at === process.pid) return true;
  return false;
}

function parentOf(pid: number): number {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
  } catch {
    return 0; // It has ended: then nobody minds.
  }
}
