/** The built executable under test: started on a data directory of its own, stopped whatever the test does. */
import * as v from 'valibot';
import { EventClient } from './events.ts';
import { builtExecutable, plainEnvironment } from './executable.ts';
import { Api } from './http.ts';
import { linesOf } from './lines.ts';
import { descendants, type ProcessInfo, readProcess, waitForEnd } from './processes.ts';
import { removeScratch, scratchDirectory } from './scratch.ts';

const readySchema = v.looseObject({
  url: v.pipe(v.string(), v.url()),
  dataDir: v.string(),
  conversation: v.optional(v.string()),
  tokens: v.optional(v.object({ client: v.string(), expert: v.string(), superadmin: v.string() })),
});
export type ReadyLine = v.InferOutput<typeof readySchema>;
export type Role = 'client' | 'expert' | 'superadmin';

export interface GatewayOptions {
  readonly command?: 'demo' | 'serve';
  /** After the command and, for demo, `--port` and `--data`. */
  readonly arguments?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  /** Kept afterwards when given; otherwise a scratch directory that is removed. */
  readonly dataDirectory?: string;
  /** 0 (the default) lets the kernel choose. */
  readonly port?: number;
  readonly readyTimeoutMs?: number;
  /** What starts it in place of us: a command that becomes the one behind it. The executable has its own path then. */
  readonly through?: { readonly command: readonly string[]; readonly executable: string };
  /** Called with the process id before it is ready. */
  readonly onSpawn?: (pid: number) => void;
  /** Called with every line of its standard error. */
  readonly onLog?: (line: string) => void;
}

/** What a test keeps of a program's standard error. */
const maxLogCharacters = 4 * 1024 * 1024;
const stopTimeoutMs = 60_000;

export class Gateway {
  readonly ready: ReadyLine;
  readonly dataDirectory: string;
  readonly #child: Bun.Subprocess<'ignore', 'pipe', 'pipe'>;
  readonly #log: () => string;
  readonly #ownsData: boolean;

  private constructor(
    ready: ReadyLine,
    child: Bun.Subprocess<'ignore', 'pipe', 'pipe'>,
    log: () => string,
    data: string,
    owns: boolean,
  ) {
    this.ready = ready;
    this.#child = child;
    this.#log = log;
    this.dataDirectory = data;
    this.#ownsData = owns;
  }

  /** @throws Error with the program's standard error when it ends or stays silent instead of getting ready */
  static async start(options: GatewayOptions = {}): Promise<Gateway> {
    const owns = options.dataDirectory === undefined;
    const data = options.dataDirectory ?? scratchDirectory('data');
    const command = options.command ?? 'demo';
    const port = String(options.port ?? 0);
    const settings: Record<string, string> = command === 'serve' ? { EDGE_PORT: port, EDGE_DATA_DIR: data } : {};
    const flags = command === 'demo' ? ['--port', port, '--data', data] : [];
    const program =
      options.through === undefined ? [builtExecutable()] : [...options.through.command, options.through.executable];
    const child = Bun.spawn([...program, command, ...flags, ...(options.arguments ?? [])], {
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'pipe',
      env: plainEnvironment({ ...settings, ...options.environment }),
    });
    options.onSpawn?.(child.pid);
    let kept = '';
    const reading = (async () => {
      for await (const line of linesOf(child.stderr)) {
        kept = `${kept}${line}\n`.slice(-maxLogCharacters);
        options.onLog?.(line);
      }
    })();
    try {
      const ready = await firstLine(child, options.readyTimeoutMs ?? 120_000);
      return new Gateway(v.parse(readySchema, JSON.parse(ready)), child, () => kept, data, owns);
    } catch (error) {
      child.kill('SIGKILL');
      await child.exited;
      await reading;
      if (owns) removeScratch(data);
      throw new Error(`edge-gateway ${command} did not get ready: ${String(error)}\n${kept.slice(-8000)}`);
    }
  }

  get url(): string {
    return this.ready.url;
  }

  get pid(): number {
    return this.#child.pid;
  }

  /** Everything that it wrote to standard error, up to a limit from the end. */
  get log(): string {
    return this.#log();
  }

  /** The conversation that `demo` made. */
  get conversation(): string {
    if (this.ready.conversation === undefined) throw new Error('serve makes no conversation');
    return this.ready.conversation;
  }

  token(role: Role): string {
    if (this.ready.tokens === undefined) throw new Error('serve prints no tokens');
    return this.ready.tokens[role];
  }

  api(caller: Role | { readonly token: string | null } = 'client'): Api {
    return new Api(this.url, typeof caller === 'string' ? this.token(caller) : caller.token);
  }

  events(role: Role = 'client', query = ''): Promise<EventClient> {
    return EventClient.open(this.url, this.token(role), query);
  }

  /** Every process below the gateway, across namespaces. */
  tree(): ProcessInfo[] {
    return descendants(this.pid);
  }

  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** The end of the process: its exit code, or its signal's name. */
  async exited(timeoutMs = stopTimeoutMs): Promise<number | string> {
    const late = Bun.sleep(timeoutMs).then(() => 'late' as const);
    if ((await Promise.race([this.#child.exited, late])) === 'late')
      throw new Error(`still running after ${timeoutMs} ms`);
    return this.#child.signalCode ?? this.#child.exitCode ?? 'unknown';
  }

  /** Orderly stop: SIGTERM, then nothing of its tree may be left. */
  async stop(): Promise<number | string> {
    const tree = this.tree();
    this.signal('SIGTERM');
    const end = await this.exited();
    await waitForEnd(tree, stopTimeoutMs);
    return end;
  }

  /** `kill -9` of the whole tree at once, as when the power fails. */
  async killTree(): Promise<void> {
    const self = readProcess(this.pid);
    const tree = [...(self ? [self] : []), ...this.tree()];
    for (const { pid } of tree) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // it died with its parent a moment ago
      }
    }
    await waitForEnd(tree, stopTimeoutMs);
    await this.#child.exited;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) {
      const tree = this.tree();
      this.signal('SIGTERM');
      await Promise.race([this.#child.exited, Bun.sleep(stopTimeoutMs)]);
      if (this.#child.exitCode === null && this.#child.signalCode === null) await this.killTree();
      await waitForEnd(tree, stopTimeoutMs);
    }
    if (this.#ownsData) removeScratch(this.dataDirectory);
  }
}

async function firstLine(child: Bun.Subprocess<'ignore', 'pipe', 'pipe'>, timeoutMs: number): Promise<string> {
  const lines = linesOf(child.stdout);
  const first = lines.next().then((line) => {
    if (line.done) throw new Error('it ended');
    return line.value;
  });
  const late = Bun.sleep(timeoutMs).then(() => Promise.reject(new Error(`no ready line in ${timeoutMs} ms`)));
  const line = await Promise.race([first, late]);
  void (async () => {
    for await (const _ of lines); // keeps the pipe empty
  })();
  return line;
}
