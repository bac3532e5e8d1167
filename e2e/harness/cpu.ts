/** What a process takes of the processor, to the nanosecond: for what is almost nothing. */
import { dlopen } from 'bun:ffi';
import { readdirSync, readFileSync } from 'node:fs';

const { symbols: libc } = dlopen('libc.so.6', { clock_gettime: { args: ['i32', 'ptr'], returns: 'i32' } });
/** `CPUCLOCK_SCHED` of linux/posix-timers.h: time on a processor, of a whole process. */
const processClock = 2;

/** Seconds on a processor since the process began, of all its threads, those that have ended too. @throws Error when it is gone */
export function processSeconds(pid: number): number {
  const time = new BigInt64Array(2);
  if (libc.clock_gettime((~pid << 3) | processClock, time) !== 0) throw new Error(`process ${pid} has no clock`);
  return Number(time[0]) + Number(time[1]) / 1e9;
}

/** What one thread has done, since it began or between two readings. */
export interface ThreadWork {
  readonly name: string;
  readonly milliseconds: number;
  /** How often it woke up after it had waited for something. */
  readonly wakes: number;
}

/** The threads of a process by their numbers. */
export type Threads = ReadonlyMap<number, ThreadWork>;

export function threadsOf(pid: number): Threads {
  const threads = new Map<number, ThreadWork>();
  for (const task of readdirSync(`/proc/${pid}/task`)) {
    try {
      const read = (name: string) => readFileSync(`/proc/${pid}/task/${task}/${name}`, 'latin1');
      const [nanoseconds] = read('schedstat').split(' ').map(Number);
      const wakes = Number(/^voluntary_ctxt_switches:\s*(\d+)$/m.exec(read('status'))?.[1]);
      threads.set(Number(task), { name: read('comm').trim(), milliseconds: nanoseconds! / 1e6, wakes });
    } catch {
      // It ended between the listing and the reading.
    }
  }
  return threads;
}

/** Those threads that did something between two readings, most first. */
export function workBetween(before: Threads, after: Threads): readonly ThreadWork[] {
  return [...after]
    .map(([task, { name, milliseconds, wakes }]) => {
      const was = before.get(task);
      return { name, milliseconds: milliseconds - (was?.milliseconds ?? 0), wakes: wakes - (was?.wakes ?? 0) };
    })
    .filter(({ milliseconds, wakes }) => milliseconds > 0 || wakes > 0)
    .toSorted((a, b) => b.milliseconds - a.milliseconds);
}

/** As people read it. */
export function describeWork({ name, milliseconds, wakes }: ThreadWork): string {
  const each = wakes === 0 ? '' : `, ${((milliseconds * 1e3) / wakes).toFixed(0)} µs each`;
  return `${name}: ${milliseconds.toFixed(2)} ms, woke ${wakes} times${each}`;
}
