/** Python environments that only tests have: made below build/ from a lock with hashes, once and again when that changes. */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { takeBuildLock } from '../../bunfs-assets/make/build-lock.ts';
import { run } from '../../bunfs-assets/make/command.ts';
import { pinnedInstall, toolsPython } from '../../bunfs-assets/make/python-tools.ts';
import { repository } from './executable.ts';

/** Its interpreter; made when it is missing or out of date. Needs a finished build. */
export async function pythonEnvironment(name: string, lock: string): Promise<string> {
  const directory = join(repository, `build/${name}-python`);
  const stamp = join(directory, 'stamp');
  const wanted = createHash('sha256').update(readFileSync(lock)).digest('hex');
  const release = takeBuildLock(join(repository, 'build/lock'), () => {});
  try {
    if (existsSync(stamp) && readFileSync(stamp, 'utf8') === wanted) return toolsPython(directory);
    rmSync(directory, { recursive: true, force: true });
    const logs = join(repository, 'build/logs');
    const tools = toolsPython(join(repository, 'build/python'));
    await run(logs, `${name} venv`, [tools, '-m', 'venv', '--without-pip', directory]);
    const pip = [tools, '-m', 'pip', '--python', toolsPython(directory)];
    await run(logs, `pip install ${name}`, [...pip, ...pinnedInstall, '-r', lock]);
    writeFileSync(stamp, wanted);
    return toolsPython(directory);
  } finally {
    release();
  }
}
