/** Installs the programs that the chosen tests ask for with `requireProgram('…')` or `holderHas('…')`, where that is possible. */

import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { holderPath } from '../harness/holder-path.ts';

/** Where a package has another name than its program. Postgres' own programs are on no PATH. */
const packageOf: Readonly<Record<string, string>> = {
  postgres: 'postgresql',
  cp: 'coreutils',
  dd: 'coreutils',
  diff: 'diffutils',
  find: 'findutils',
  flock: 'util-linux',
  gcc: 'gcc libc6-dev',
  inotifywait: 'inotify-tools',
  node: 'nodejs',
  ps: 'procps',
  rg: 'ripgrep',
  script: 'bsdutils',
  sort: 'coreutils',
  'ssh-keygen': 'openssh-client',
};
/** Debian 12's own Rust is older than what the tests compile; it has a newer one beside it, Debian 13 has not. */
const newerPackageOf: Readonly<Record<string, string>> = { cargo: 'cargo-web' };
const aptTimeoutMs = 10 * 60_000;

/** The programs that these sources need and that are not on the PATH. */
export function missingPrograms(sources: readonly string[], isThere: (program: string) => boolean): string[] {
  const named = sources.flatMap((text) =>
    [...text.matchAll(/requireProgram\('([a-z0-9-]+)'\)|installedPostgres\(\)/g)].map(
      (found) => found[1] ?? 'postgres',
    ),
  );
  return [...new Set(named)].filter((program) => !isThere(program)).sort();
}

/** The programs that these sources test in a holder where it has them, and that it has not. */
export function missingInHolders(sources: readonly string[], isThere: (program: string) => boolean): string[] {
  const named = sources.flatMap((text) => [...text.matchAll(/holderHas\('([a-z0-9-]+)'\)/g)].map((found) => found[1]!));
  return [...new Set(named)].filter((program) => !isThere(program)).sort();
}

/** The contents of these files and of all that they import by relative path. */
export function sourcesReachableFrom(files: readonly string[]): string[] {
  const seen = new Map<string, string>();
  const open = [...files];
  for (let file = open.pop(); file !== undefined; file = open.pop()) {
    if (seen.has(file) || !existsSync(file)) continue;
    const text = readFileSync(file, 'utf8');
    seen.set(file, text);
    for (const found of text.matchAll(/\bfrom '(\.{1,2}\/[^']+\.ts)'/g)) open.push(join(dirname(file), found[1]!));
  }
  return [...seen.values()];
}

function apt(...words: readonly string[]): boolean {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  const options = { stdin: 'ignore', stdout: 'ignore', stderr: 'inherit', timeout: aptTimeoutMs, env } as const;
  return Bun.spawnSync(['apt-get', '-qq', '-y', ...words], options).success;
}

function isOffered(name: string): boolean {
  const { stdout } = Bun.spawnSync(['apt-cache', 'policy', name], { stdin: 'ignore', stderr: 'ignore' });
  return /Candidate: \d/.test(stdout.toString());
}

/** Installs what the tests of these files need, and what they use where it is there. @throws Error as `installNeeded` does */
export async function installPrograms(files: readonly string[]): Promise<void> {
  const sources = sourcesReachableFrom(files);
  installNeeded(sources);
  const missing = missingInHolders(sources, (program) => Bun.which(program, { PATH: holderPath }) !== null);
  if (missing.length === 0) return;
  const packages = missing.flatMap((program) => (packageOf[program] ?? program).split(' '));
  const mayInstall = process.getuid?.() === 0 && Bun.which('apt-get') !== null;
  if (mayInstall) console.log(`installing ${packages.join(' ')} …`);
  if (mayInstall && apt('update') && apt('install', '--no-install-recommends', ...packages)) return;
  console.log(`not there, and their tests are skipped: ${missing.join(', ')} (apt-get install ${packages.join(' ')})`);
}

/** @throws Error that names what to install by hand where we may not, or cannot */
function installNeeded(sources: readonly string[]): void {
  const isThere = (program: string) =>
    program === 'postgres' ? existsSync('/usr/lib/postgresql') : Bun.which(program) !== null;
  const missing = missingPrograms(sources, isThere);
  if (missing.length === 0) return;
  const packages = missing.map((program) => packageOf[program] ?? program);
  const byHand = `The tests need ${missing.join(', ')}. Install with: apt-get install ${packages.join(' ')}`;
  if (process.getuid?.() !== 0 || Bun.which('apt-get') === null) throw new Error(byHand);
  console.log(`installing ${packages.join(' ')} …`);
  if (!apt('update')) throw new Error(byHand);
  const chosen = missing.map((program, at) => {
    const newer = newerPackageOf[program];
    return newer !== undefined && isOffered(newer) ? newer : packages[at]!;
  });
  if (!apt('install', '--no-install-recommends', ...chosen)) throw new Error(byHand);
  const still = missingPrograms(sources, isThere);
  if (still.length > 0) throw new Error(byHand);
}
