/** One holder's cgroups: made with their limits before it starts, asked how it ended, and removed. */
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Launch } from '../launch.ts';

type Settings = NonNullable<Launch['cgroups']>;

/** The files that set a limit, in cgroups of version 2 and 1; a hierarchy has some of them. */
const memoryFiles = ['memory.max', 'memory.limit_in_bytes'];
/** With swap on top, memory would have no limit that anybody could count on. */
const swapFiles = [
  { file: 'memory.swap.max', value: () => '0' },
  { file: 'memory.memsw.limit_in_bytes', value: (bytes: number) => String(bytes) },
];
const countFiles = ['memory.events', 'memory.oom_control'];

export class HolderCgroup {
  /** One directory a hierarchy, for the launch manifest. */
  readonly directories: readonly string[];

  private constructor(directories: readonly string[]) {
    this.directories = directories;
  }

  /** Throws when a limit that was promised cannot be set: nothing starts without it. */
  static make(settings: Settings, name: string): HolderCgroup {
    const cgroup = new HolderCgroup(settings.directories.map((parent) => join(parent, name)));
    try {
      for (const directory of cgroup.directories) mkdirSync(directory);
      if (settings.memoryBytes !== null) cgroup.#limitMemory(settings.memoryBytes);
      if (settings.processes !== null) cgroup.#set(['pids.max'], String(settings.processes));
    } catch (error) {
      cgroup.remove();
      throw new Error(`the holder's cgroup cannot be made: ${(error as Error).message}`, { cause: error });
    }
    return cgroup;
  }

  /** Whether the kernel has ended a process in it because its memory was full. */
  ranOutOfMemory(): boolean {
    return this.directories.some((directory) =>
      countFiles.some((file) => Number(/^oom_kill (\d+)$/m.exec(read(join(directory, file)))?.[1] ?? 0) > 0),
    );
  }

  /** Answers whether nothing is left: a process that is still dying keeps its cgroup. */
  remove(): boolean {
    return this.directories.map(removed).every((gone) => gone);
  }

  #limitMemory(bytes: number): void {
    this.#set(memoryFiles, String(bytes));
    for (const directory of this.directories) {
      for (const { file, value } of swapFiles) {
        const path = join(directory, file);
        // Kernels without swap accounting do not have it.
        if (existsSync(path)) writeFileSync(path, value(bytes));
      }
    }
  }

  #set(files: readonly string[], value: string): void {
    const paths = this.directories.flatMap((directory) => files.map((file) => join(directory, file)));
    const there = paths.filter((path) => existsSync(path));
    if (there.length === 0) throw new Error(`no ${files.join(' and no ')} in ${this.directories.join(' and ')}`);
    for (const path of there) writeFileSync(path, value);
  }
}

/** The cgroups of holders that have ended, until each is removed. */
export class LeftCgroups {
  readonly #left = new Set<HolderCgroup>();

  /** Removes it and whatever an earlier call could not remove yet. */
  leave(cgroup: HolderCgroup): void {
    this.#left.add(cgroup);
    for (const one of this.#left) if (one.remove()) this.#left.delete(one);
  }
}

function removed(directory: string): boolean {
  try {
    rmdirSync(directory);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOENT';
  }
}

function read(path: string): string {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return ''; // The other version's file, or the cgroup has gone.
  }
}
