/**
 * Settings of Bun itself. It reads them from the environment once, as a process begins, so a process that wants them has to
 * begin anew with them.
 */
import { readFileSync } from 'node:fs';

/**
 * Bun collects garbage by a timer in processes that do nothing: each second at first, then twice a minute, and fully after 10,
 * 75 and 140 seconds. That takes more of the processor than an idle organization may, and the last two throw away compiled
 * code and pages of the executable, which the next turn then waits for. The engine's own collections go by what is
 * allocated, and stay. Its allocator has a thread that looks for pages to give back each time another thread begins to wait,
 * twice a second in a process that has a socket; without it they are given back by the threads that free them.
 */
export const runtimeSettings: Readonly<Record<string, string>> = {
  BUN_GC_TIMER_DISABLE: '1',
  MIMALLOC_SCAVENGER: '0',
};

/** Becomes this same program with {@link runtimeSettings}, where they are missing; all else of the process stays as it is. */
export function beginWithRuntimeSettings(): void {
  const missing = Object.keys(runtimeSettings).filter((name) => process.env[name] === undefined);
  if (!Bun.isStandaloneExecutable || missing.length === 0) return;
  const argv = readFileSync('/proc/self/cmdline', 'utf8').split('\0').slice(0, -1);
  process.execve!(process.execPath, argv, { ...runtimeSettings, ...process.env });
}
