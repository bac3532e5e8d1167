/** A server of a tree as a process of its own, on one or more mount points, that can be killed and started again. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';

/** Each mount's reader occupies a thread of the pool that every other file operation of the server needs too. */
const serverEnvironment = { ...process.env, UV_THREADPOOL_SIZE: '8' };

export class TreeServer {
  readonly #database: string;
  readonly #mounts: readonly string[];
  #process: Bun.Subprocess<'pipe', 'pipe', 'inherit'> | null = null;

  constructor(scratch: string, mounts: number) {
    this.#database = join(scratch, 'database');
    this.#mounts = Array.from({ length: mounts }, (_, at) => join(scratch, `tree${at}`));
    for (const mount of this.#mounts) mkdirSync(mount, { recursive: true });
  }

  /** The first mount, or a random one. */
  mount(random: (below: number) => number = () => 0): string {
    return this.#mounts[random(this.#mounts.length)]!;
  }

  /** The same file as `path` through the mount of `like`: the kernel renames and links within one mount. */
  sameMount(like: string, path: string): string {
    const mountOf = (one: string) => this.#mounts.find((mount) => one.startsWith(`${mount}/`))!;
    return mountOf(like) + path.slice(mountOf(path).length);
  }

  async start(): Promise<void> {
    const argv = [process.execPath, join(import.meta.dir, 'tree-server.ts'), this.#database, ...this.#mounts];
    const child = Bun.spawn(argv, { stdin: 'pipe', stdout: 'pipe', stderr: 'inherit', env: serverEnvironment });
    this.#process = child;
    const first = await child.stdout.getReader().read();
    if (!first.value || !new TextDecoder().decode(first.value).includes('ready')) throw new Error('no server');
  }

  /** Lets it end in order. */
  async stop(): Promise<void> {
    this.#process?.stdin.end();
    const code = await this.#process?.exited;
    if (code !== 0) throw new Error(`the server ended with ${code}`);
  }

  /** Kills it, and takes away the mounts that nobody serves any more. */
  async kill(): Promise<void> {
    this.#process?.kill('SIGKILL');
    await this.#process?.exited;
    for (const mount of this.#mounts) Bun.spawnSync(['umount', '--lazy', mount]);
  }
}
