/** How much memory a process takes, as Linux counts it. */
import { readFileSync, writeFileSync } from 'node:fs';

/** Bytes in memory now, or at the most since `forgetPeak`. */
export function residentBytes(pid: number, which: 'now' | 'peak'): number {
  const name = which === 'now' ? 'VmRSS' : 'VmHWM';
  const found = new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
  if (!found) throw new Error(`process ${pid} has no ${name}`);
  return Number(found[1]) * 1024;
}

/** Needs root. */
export function forgetPeak(pid: number): void {
  writeFileSync(`/proc/${pid}/clear_refs`, '5');
}
