/**
 * The oracle: hermes-acp from the same runtime, with plain directories at the paths that a holder has (/workspace,
 * /artifacts, /hermes), in a mount namespace of its own and without one line of ours. Needs root.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { readRuntime } from '../../bunfs-assets/runtime.ts';
import { builtRuntime } from './executable.ts';
import { linesOf } from './lines.ts';
import { RawAcp } from './raw-acp.ts';

export interface BareHermesOptions {
  /** Gets (or has) `workspace`, `artifacts` and `home`; put config.yaml, .env and SOUL.md into `home`. */
  readonly directory: string;
  readonly environment?: Readonly<Record<string, string>>;
  /** The uid and gid that it runs as; 1000 is what it sees in a holder. */
  readonly uid?: number;
  /** A program and its arguments to put in front, such as strace. */
  readonly wrapper?: readonly string[];
}

/** The same private root as a holder's, made with nothing but mount(8). Arguments: directory, runtime, base, uid, then the command. */
const enter = `
set -eu
directory=$1 runtime=$2 base=$3 uid=$4
shift 4
root=$directory/root
mkdir -p "$root"
mount -t tmpfs -o mode=755 bare "$root"
for path in /bin /lib /lib32 /lib64 /libx32 /sbin; do
  if [ -L "$path" ]; then cp -P "$path" "$root$path"
  elif [ -d "$path" ]; then mkdir "$root$path"; mount --rbind "$path" "$root$path"; fi
done
mkdir "$root/tmp" "$root/opt"
for path in /usr /etc /dev /proc /sys; do mkdir "$root$path"; mount --rbind "$path" "$root$path"; done
mount -t tmpfs -o mode=1777 bare "$root/tmp"
mkdir -m 700 "$root/tmp/home"
place() { mkdir -p "$root$2"; mount --bind "$1" "$root$2"; }
place "$runtime" /opt/hermes
case "$base" in /usr) ;; *) place "$base" "$base" ;; esac
place "$directory/workspace" /workspace
place "$directory/artifacts" /artifacts
place "$directory/home" /hermes
chown -R "$uid:$uid" "$directory/workspace" "$directory/artifacts" "$directory/home" "$root/tmp/home"
exec chroot --groups= --userspec="$uid:$uid" "$root" /bin/sh -c 'cd /workspace && exec "$@"' sh "$@"
`;

/** What a holder gives to Hermes. */
const holderEnvironment: Readonly<Record<string, string>> = {
  PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
  HOME: '/tmp/home',
  TMPDIR: '/tmp',
  HERMES_HOME: '/hermes',
  LANG: 'C.UTF-8',
};

export class BareHermes {
  readonly acp: RawAcp;
  readonly spawnedMs: number;
  readonly #child: Bun.Subprocess<'pipe', 'pipe', 'pipe'>;
  #log = '';

  private constructor(child: Bun.Subprocess<'pipe', 'pipe', 'pipe'>) {
    this.spawnedMs = performance.timeOrigin + performance.now();
    this.#child = child;
    this.acp = new RawAcp(child.stdout, (line) => {
      child.stdin.write(line);
      void child.stdin.flush();
    });
    void (async () => {
      for await (const line of linesOf(child.stderr)) this.#log = `${this.#log}${line}\n`.slice(-1_000_000);
    })();
  }

  static start(options: BareHermesOptions): BareHermes {
    const runtime = builtRuntime();
    for (const name of ['workspace', 'artifacts', 'home'])
      mkdirSync(join(options.directory, name), { recursive: true });
    const { basePrefix } = readRuntime(runtime);
    const uid = String(options.uid ?? 1000);
    const command = [...(options.wrapper ?? []), '/opt/hermes/bin/python', '/opt/hermes/bin/hermes-acp'];
    const unshare = ['unshare', '--mount', '--propagation', 'private', '/bin/sh', '-c', enter, 'sh'];
    return new BareHermes(
      Bun.spawn([...unshare, options.directory, runtime, basePrefix, uid, ...command], {
        stdin: 'pipe',
        stdout: 'pipe',
        stderr: 'pipe',
        env: { ...holderEnvironment, ...options.environment },
      }),
    );
  }

  get pid(): number {
    return this.#child.pid;
  }

  /** Its standard error, up to a limit from the end. */
  get log(): string {
    return this.#log;
  }

  async stop(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#child.exited;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}
