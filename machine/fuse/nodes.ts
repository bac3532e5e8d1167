/**
 * The kernel's node numbers. One says zone and inode by itself (8 and 52 bits), so that the server need remember no node:
 * FORGET has nothing to do, and the same inode in two zones is two nodes with caches of their own.
 */
import { maxIno, rootIno } from '../agentfs/ids.ts';
import { rootNode, type ViewNode, type Zone } from '../agentfs/views.ts';

export interface NodeNumber {
  readonly high: number;
  readonly low: number;
}

const zones: readonly Zone[] = [
  'root',
  'workspace',
  'artifacts',
  'inbound',
  'home',
  'private',
  'secret',
  'sessions',
  'memories',
  'skills',
  'tree',
  'shared-tree',
];
const numbers = new Map(zones.map((zone, number) => [zone, number]));

export function numberOfNode(zone: Zone, ino: number): NodeNumber {
  if (zone === 'root' || ((zone === 'tree' || zone === 'shared-tree') && ino === rootIno)) return { high: 0, low: 1 };
  return { high: (numbers.get(zone)! << 24) | Math.floor(ino / 2 ** 32), low: ino >>> 0 };
}

/** Null for a number that was never given out. The mount's own root is `rootNode`, whatever the view has there. */
export function nodeOfNumber({ high, low }: NodeNumber): ViewNode | null {
  const zone = zones[high >>> 24];
  if (zone === 'root') return high === 0 && low === 1 ? rootNode : null;
  const ino = (high & 0xff_ffff) * 2 ** 32 + low;
  return zone && ino <= maxIno ? { zone, ino } : null;
}
