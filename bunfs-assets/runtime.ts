/** Where the Hermes runtime is and what it needs, for whoever starts Hermes. Written by the build. */
import { accessSync, constants, existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** The file in a runtime directory that describes it. It is written last: without it the directory is not a runtime. */
export const runtimeFile = 'edge-runtime.json';

export interface HermesRuntime {
  /** The real interpreter behind `bin/python`. */
  readonly python: string;
  /** `sys.base_prefix`: holders need it at the same path when it is not below /usr. */
  readonly basePrefix: string;
  /** `major.minor.patch` of Python. */
  readonly version: string;
}

/** @throws Error that says what to do when `directory` is not a finished runtime */
export function readRuntime(directory: string): HermesRuntime {
  const file = join(directory, runtimeFile);
  if (!existsSync(file))
    throw new Error(`${directory} is not a Hermes runtime (it has no ${runtimeFile}): run the build.`);
  const found: unknown = JSON.parse(readFileSync(file, 'utf8'));
  if (typeof found === 'object' && found !== null && 'python' in found && 'basePrefix' in found && 'version' in found) {
    const { python, basePrefix, version } = found;
    if (typeof python === 'string' && typeof basePrefix === 'string' && typeof version === 'string') {
      const lacking = lackOf(python);
      if (lacking !== null) throw new Error(`The Hermes runtime ${directory} was made from ${python}, ${lacking}`);
      if (/\s/.test(basePrefix))
        throw new Error(
          `The Hermes runtime ${directory} was made from a Python in ${JSON.stringify(basePrefix)}: holders need one without white space in its path; run the build with another Python.`,
        );
      return { python, basePrefix, version };
    }
  }
  throw new Error(`${file} is damaged: remove its directory and run the build.`);
}

/** What keeps this user from the interpreter, and what to do; null when nothing does. */
function lackOf(python: string): string | null {
  try {
    accessSync(python, constants.X_OK);
    return null;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EACCES'
      ? 'which this user may not execute: give it access, or run the build as this user with a Python that it can reach.'
      : 'which is gone: run the build again.';
  }
}

/**
 * The runtime that belongs to this program: `runtime/` beside the executable, or `dist/runtime/` when run from source.
 * @throws Error that says what to do when there is none
 */
export function currentRuntime(): string {
  const compiled = import.meta.dir.startsWith('/$bunfs/');
  const parent = compiled ? join(dirname(process.execPath), 'runtime') : join(import.meta.dir, '../dist/runtime');
  const pointer = join(parent, 'current');
  if (!existsSync(pointer))
    throw new Error(`There is no Hermes runtime in ${parent}: run the build, or copy dist/ as a whole.`);
  return join(parent, readFileSync(pointer, 'utf8').trim());
}
