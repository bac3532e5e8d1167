/**
 * The mount of the public Rust program `agentfs` (github.com/tursodatabase/agentfs), for comparison. By its manual:
 * `agentfs init ID` makes `.agentfs/ID.db` in the working directory, `agentfs mount -f ID MOUNT_POINT` serves it until it is
 * ended. It mounts through fusermount3.
 */
import { mkdirSync, statSync } from 'node:fs';
import { join } from 'node:path';

const mountTimeoutMs = 20_000;
const id = 'bench';

export interface RustMount {
  readonly path: string;
  /** Ends the server and mounts the same database again. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

export async function rustMount(program: string, directory: string): Promise<RustMount> {
  const path = join(directory, 'mount');
  mkdirSync(path, { recursive: true });
  const init = Bun.spawnSync([program, 'init', id], { cwd: directory, stdout: 'ignore', stderr: 'inherit' });
  if (!init.success) throw new Error(`${program} init failed`);
  const outside = statSync(path).dev;
  let server = await serve();

  async function serve() {
    const child = Bun.spawn([program, 'mount', '-f', id, path], {
      cwd: directory,
      stdout: 'ignore',
      stderr: 'inherit',
    });
    const giveUpAt = performance.now() + mountTimeoutMs;
    while (statSync(path).dev === outside) {
      if (child.exitCode !== null || performance.now() > giveUpAt) throw new Error(`${program} mount did not mount`);
      await Bun.sleep(20);
    }
    return child;
  }

  async function stop(): Promise<void> {
    Bun.spawnSync(['fusermount3', '-u', path]);
    server.kill();
    await server.exited;
  }

  return {
    path,
    async restart() {
      await stop();
      server = await serve();
    },
    stop,
  };
}
