/**
 * The Hermes runtime: a Python environment that is installed once from pinned wheels, compiled, made read-only and named
 * after what it was made from. It is bound at `/opt/hermes` in every holder, so nothing in it may depend on where it lies.
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type HermesRuntime, runtimeFile } from '../runtime.ts';
import { run } from './command.ts';
import type { Python } from './prerequisites.ts';
import { pinnedInstall } from './python-tools.ts';

/** Raised when the way of installing changes, so that an old directory is not taken for a new one. */
const recipe = '1';
/** Where holders see the runtime; compiled files carry this path, so that tracebacks name files that exist there. */
const boundAt = '/opt/hermes';

export interface RuntimeRequest {
  /** `dist/runtime` */
  readonly directory: string;
  readonly lock: string;
  readonly python: Python;
  /** An interpreter with pip. */
  readonly toolsPython: string;
  readonly logs: string;
  readonly say: (line: string) => void;
}

/**
 * The name of the runtime that this lock and this interpreter give. The interpreter's place is part of it, because an
 * environment refers to it by path.
 */
function runtimeName(lock: string, python: Python): string {
  const parts = [recipe, lock, python.version, process.arch, python.interpreter, python.basePrefix];
  return createHash('sha256').update(parts.join('\0')).digest('hex');
}

function removeActivation(directory: string): void {
  for (const name of readdirSync(join(directory, 'bin'))) {
    if (/^activate|^Activate/.test(name)) rmSync(join(directory, 'bin', name)); // they name the temporary directory
  }
}

async function fill(directory: string, request: RuntimeRequest): Promise<void> {
  const { python, toolsPython, lock, logs } = request;
  const inside = join(directory, 'bin/python');
  await run(logs, 'hermes venv', [python.interpreter, '-m', 'venv', '--without-pip', directory]);
  const pip = [toolsPython, '-m', 'pip', '--python', inside];
  await run(logs, 'pip install hermes', [...pip, ...pinnedInstall, '--no-compile', '-r', lock]);
  const unchecked = ['--invalidation-mode', 'unchecked-hash']; // read-only, so never out of date: saves a stat an import
  const paths = ['-s', directory, '-p', boundAt, join(directory, 'lib')];
  await run(logs, 'compile hermes', [inside, '-m', 'compileall', '-q', '-j', '0', ...unchecked, ...paths]);
  removeActivation(directory);
}

/** Makes the runtime unless it is there, points `current` at it, and answers its directory. */
export async function makeHermesRuntime(request: RuntimeRequest): Promise<string> {
  const name = runtimeName(readFileSync(request.lock, 'utf8'), request.python);
  const finished = join(request.directory, name);
  if (!existsSync(join(finished, runtimeFile))) {
    const startMs = performance.now();
    request.say('hermes-runtime …');
    mkdirSync(request.directory, { recursive: true });
    for (const left of readdirSync(request.directory)) {
      // Under the build lock nobody else is filling one: a killed build left it.
      if (left.startsWith('.new-')) await removeReadOnly(join(request.directory, left), request.logs);
    }
    const temporary = join(request.directory, `.new-${process.pid}`);
    await fill(temporary, request);
    const described: HermesRuntime = {
      python: request.python.interpreter,
      basePrefix: request.python.basePrefix,
      version: request.python.version,
    };
    writeFileSync(join(temporary, runtimeFile), `${JSON.stringify(described, null, 2)}\n`);
    await run(request.logs, 'chmod hermes', ['chmod', '-R', 'a+rX,a-w', temporary]);
    renameSync(temporary, finished); // the same parent: moving a read-only directory elsewhere needs root
    request.say(`hermes-runtime: ${((performance.now() - startMs) / 1000).toFixed(1)} s`);
  }
  writeFileSync(join(request.directory, 'current.new'), name);
  renameSync(join(request.directory, 'current.new'), join(request.directory, 'current'));
  return finished;
}

async function removeReadOnly(directory: string, logs: string): Promise<void> {
  await run(logs, 'chmod leftover', ['chmod', '-R', 'u+w', directory]);
  rmSync(directory, { recursive: true, force: true });
}
