/** `bun run bench [NAME …] [--json]`: measures the built executable beside its peers in the same run. */
import { benchEvents } from './events.ts';
import { benchFairness } from './fairness.ts';
import { benchFiles } from './files.ts';
import { benchGit } from './git.ts';
import { benchRoundTrips } from './rtt.ts';
import { benchSync } from './sync.ts';
import { benchTurn } from './turn.ts';

const benchmarks: Readonly<Record<string, () => Promise<unknown>>> = {
  events: benchEvents,
  fairness: benchFairness,
  files: benchFiles,
  git: benchGit,
  rtt: benchRoundTrips,
  sync: benchSync,
  turn: benchTurn,
};

const words = process.argv.slice(2);
const names = words.filter((word) => !word.startsWith('--'));
const unknown = [
  ...names.filter((name) => !Object.hasOwn(benchmarks, name)),
  ...words.filter((word) => word.startsWith('--') && word !== '--json'),
];
if (unknown.length > 0) {
  console.error(`unknown: ${unknown.join(' ')}\nusage: bun run bench [${Object.keys(benchmarks).join('|')}] [--json]`);
  process.exit(2);
}
const results: Record<string, unknown> = {};
for (const name of names.length > 0 ? names : Object.keys(benchmarks)) results[name] = await benchmarks[name]?.();
if (words.includes('--json')) console.log(JSON.stringify(names.length === 1 ? results[names[0]!] : results));
process.exit(0);
