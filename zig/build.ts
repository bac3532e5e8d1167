/**
 * Builds `confined-exec`, the one static binary that confines the machine, the holders and the tool processes.
 * Needs a Python that has the pinned `ziglang` package from PyPI, and nothing else of Zig on the host.
 */
import { existsSync, mkdirSync, renameSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';

/** The version of Zig that the sources are written for (PyPI package `ziglang`). */
export const zigVersion = '0.17.0';

export interface BuildConfinedExec {
  /** A Python interpreter for which `-m ziglang` works. */
  readonly pythonWithZiglang: string;
  /** Processor to build for; the one that runs the build when absent. */
  readonly architecture?: 'x64' | 'arm64';
  /** Where the compiler keeps what it may use again. */
  readonly cacheDirectory?: string;
}

const targets = { x64: 'x86_64-linux-none', arm64: 'aarch64-linux-none' } as const;

const sources = import.meta.dir;

async function run(command: readonly string[]): Promise<string> {
  const child = Bun.spawn([...command], { stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' });
  const [output, errors, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
  if (code !== 0) throw new Error(`${command.join(' ')} ended with ${code}:\n${errors}${output}`);
  return output;
}

/**
 * Compiles `zig/main.zig` to `outFile` (about 45 kB). The file appears at once and whole, so a running copy is not
 * disturbed. Throws with the compiler's own words.
 */
export async function buildConfinedExec(outFile: string, options: BuildConfinedExec): Promise<void> {
  const zig = [options.pythonWithZiglang, '-m', 'ziglang'];
  const version = (await run([...zig, 'version'])).trim();
  if (version !== zigVersion) throw new Error(`Zig ${version} found, ${zigVersion} is needed`);
  const architecture = options.architecture ?? (process.arch === 'arm64' ? 'arm64' : 'x64');
  const out = resolve(outFile);
  mkdirSync(dirname(out), { recursive: true });
  const unfinished = `${out}.${process.pid}.new`;
  await run([
    ...zig,
    'build-exe',
    join(sources, 'main.zig'),
    '-target',
    targets[architecture],
    '-O',
    'ReleaseSmall',
    '-fstrip',
    '-fsingle-threaded',
    '--cache-dir',
    options.cacheDirectory ?? join(dirname(out), 'zig-cache'),
    `-femit-bin=${unfinished}`,
  ]);
  renameSync(unfinished, out);
}

/** Runs the unit tests inside the Zig sources. Throws with their output when one fails. */
export async function testConfinedExec(options: BuildConfinedExec): Promise<string> {
  const zig = [options.pythonWithZiglang, '-m', 'ziglang'];
  const cache = options.cacheDirectory ?? join(sources, '..', 'build', 'zig-cache');
  return run([...zig, 'test', join(sources, 'tests.zig'), '-target', targets.x64, '--cache-dir', cache]);
}

/** The Python of `EDGE_ZIG_PYTHON`, or the first on the path that has ziglang; null when there is none. */
export async function findPythonWithZiglang(): Promise<string | null> {
  const named = process.env.EDGE_ZIG_PYTHON;
  const candidates = named === undefined ? ['python3', 'python'] : [named];
  for (const candidate of candidates) {
    const path = candidate.includes('/') && existsSync(candidate) ? candidate : Bun.which(candidate);
    if (path === null) continue;
    const probe = Bun.spawn([path, '-c', 'import ziglang'], { stdin: 'ignore', stdout: 'ignore', stderr: 'ignore' });
    if ((await probe.exited) === 0) return path;
  }
  return null;
}
