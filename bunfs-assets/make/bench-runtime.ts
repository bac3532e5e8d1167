/**
 * A Python environment for benchmarks only: everything of the Hermes runtime, and beside it what Hermes' own API server
 * needs. The runtime itself stays as it is.
 */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { currentRuntime, readRuntime } from '../runtime.ts';
import { takeBuildLock } from './build-lock.ts';
import { run } from './command.ts';
import { pinnedInstall, toolsPython } from './python-tools.ts';

const root = join(import.meta.dir, '../..');

/** The interpreter of that environment, made when it is missing or out of date. Needs a finished build. */
export async function benchPython(): Promise<string> {
  const runtime = currentRuntime();
  const { python, version } = readRuntime(runtime);
  const lock = join(root, 'bunfs-assets/bench.lock');
  const directory = join(root, 'build/bench-python');
  const inside = toolsPython(directory);
  const stamp = join(directory, 'stamp');
  const wanted = createHash('sha256')
    .update(`${runtime}\0${readFileSync(lock, 'utf8')}`)
    .digest('hex');
  const release = takeBuildLock(join(root, 'build/lock'), () => {});
  try {
    if (existsSync(stamp) && readFileSync(stamp, 'utf8') === wanted) return inside;
    rmSync(directory, { recursive: true, force: true });
    const logs = join(root, 'build/logs');
    await run(logs, 'bench venv', [python, '-m', 'venv', '--without-pip', directory]);
    const pip = [toolsPython(join(root, 'build/python')), '-m', 'pip', '--python', inside];
    await run(logs, 'pip install bench', [...pip, ...pinnedInstall, '-r', lock]);
    const packages = `lib/python${version.split('.').slice(0, 2).join('.')}/site-packages`;
    writeFileSync(join(directory, packages, 'hermes-runtime.pth'), `${join(runtime, packages)}\n`);
    writeFileSync(stamp, wanted);
    return inside;
  } finally {
    release();
  }
}

if (import.meta.main) console.log(await benchPython());
