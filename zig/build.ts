/**
 * Builds `confined-exec`, the one static binary that confines the machine, the holders and the tool processes.
 * Needs a Python that has the pinned `ziglang` package from PyPI, and nothing else of Zig on the host.
 */
import { mkdirSync, renameSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';

/** The version of Zig that the sources are written for (PyPI package `ziglang`). */
const zigVersion = '0.17.0';

export interface BuildConfinedExec {
  /** A Python interpreter for which `-m ziglang` works. */
  readonly pythonWithZiglang: string;
  /** Processor to build for; the one that runs the build when absent. */
  readonly architecture?: 'x64' | 'arm64';
}

const targets = { x64: 'x86_64-linux-none', arm64: 'aarch64-linux-none' } as const;

/** With every safety check: 20 kB more than the smallest, for a program that stands between a model and the host. */
const flags = ['-O', 'ReleaseSafe', '-fstrip', '-fsingle-threaded'] as const;

/** Zig's caches stay in the checkout: nothing is left in the home directory. */
export function zigEnvironment(): Record<string, string | undefined> {
  const cache = join(import.meta.dir, '../build/zig-cache');
  return { ...process.env, ZIG_GLOBAL_CACHE_DIR: cache, ZIG_LOCAL_CACHE_DIR: cache };
}

async function run(command: readonly string[]): Promise<string> {
  const child = Bun.spawn([...command], { stdin: 'ignore', stdout: 'pipe', stderr: 'pipe', env: zigEnvironment() });
  const [output, errors, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
  if (code !== 0) throw new Error(`${command.join(' ')} ended with ${code}:\n${errors}${output}`);
  return output;
}

/**
 * Compiles `zig/main.zig` to `outFile` (about 65 kB). The file appears at once and whole, so a running copy is not
 * disturbed. Throws with the compiler's own words.
 */
export async function buildConfinedExec(outFile: string, options: BuildConfinedExec): Promise<void> {
  const zig = [options.pythonWithZiglang, '-m', 'ziglang'];
  const version = (await run([...zig, 'version'])).trim();
  if (version !== zigVersion) throw new Error(`Zig ${version} found, ${zigVersion} is needed`);
  const target = targets[options.architecture ?? (process.arch === 'arm64' ? 'arm64' : 'x64')];
  const out = resolve(outFile);
  mkdirSync(dirname(out), { recursive: true });
  const unfinished = `${out}.${process.pid}.new`;
  const source = join(import.meta.dir, 'main.zig');
  await run([...zig, 'build-exe', source, '-target', target, ...flags, `-femit-bin=${unfinished}`]);
  renameSync(unfinished, out);
}
