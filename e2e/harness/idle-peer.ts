/**
 * What Bun itself takes of the processor while nothing happens: processes that hold one idle connection and do nothing else,
 * with the settings of ours. Run as a program it is one of them; its argument is the unix socket that it listens on.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { runtimeSettings } from '../../gateway/runtime-settings.ts';
import { processSeconds } from './cpu.ts';
import { until } from './waiting.ts';

export class IdlePeer {
  readonly #child: Bun.Subprocess;
  readonly #connection: Bun.Socket;

  private constructor(child: Bun.Subprocess, connection: Bun.Socket) {
    this.#child = child;
    this.#connection = connection;
  }

  /** @param directory where its socket may be */
  static async start(directory: string, name: string): Promise<IdlePeer> {
    const unix = join(directory, name);
    const child = Bun.spawn([process.execPath, import.meta.path, unix], {
      env: { ...process.env, ...runtimeSettings },
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    await until('an idle process listens', async () => existsSync(unix), 10_000);
    const greeted = Promise.withResolvers<void>();
    const connection = await Bun.connect({ unix, socket: { data: () => greeted.resolve() } });
    await greeted.promise;
    return new IdlePeer(child, connection);
  }

  /** Seconds on a processor since it began. */
  get seconds(): number {
    return processSeconds(this.#child.pid);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#connection.end();
    this.#child.kill('SIGKILL');
    await this.#child.exited;
  }
}

if (import.meta.main) {
  Bun.listen({ unix: process.argv[2]!, socket: { open: (socket) => void socket.write('.'), data: () => undefined } });
}
