/** Installs the programs that the chosen tests ask for with `requireProgram('…')`, where that is possible. */
import { readFileSync } from 'node:fs';

/** Where a package has another name than its program. */
const packageOf: Readonly<Record<string, string>> = {};
const aptTimeoutMs = 10 * 60_000;

/** The programs that these sources need and that are not on the PATH. */
export function missingPrograms(sources: readonly string[], isThere: (program: string) => boolean): string[] {
  const named = sources.flatMap((text) =>
    [...text.matchAll(/requireProgram\('([a-z0-9-]+)'\)/g)].map((found) => found[1]!),
  );
  return [...new Set(named)].filter((program) => !isThere(program)).sort();
}

function apt(...words: readonly string[]): boolean {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  const options = { stdin: 'ignore', stdout: 'ignore', stderr: 'inherit', timeout: aptTimeoutMs, env } as const;
  return Bun.spawnSync(['apt-get', '-qq', '-y', ...words], options).success;
}

/** @throws Error that names what to install by hand where we may not, or cannot */
export async function installPrograms(files: readonly string[]): Promise<void> {
  const isThere = (program: string) => Bun.which(program) !== null;
  const sources = files.map((file) => readFileSync(file, 'utf8'));
  const missing = missingPrograms(sources, isThere);
  if (missing.length === 0) return;
  const packages = missing.map((program) => packageOf[program] ?? program);
  const byHand = `The tests need ${missing.join(', ')}. Install with: apt-get install ${packages.join(' ')}`;
  if (process.getuid?.() !== 0 || Bun.which('apt-get') === null) throw new Error(byHand);
  console.log(`installing ${packages.join(' ')} …`);
  if (!apt('update') || !apt('install', '--no-install-recommends', ...packages)) throw new Error(byHand);
  const still = missingPrograms(sources, isThere);
  if (still.length > 0) throw new Error(byHand);
}
