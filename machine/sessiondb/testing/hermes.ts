/** Real Hermes as a child of a test: started with start.py, its descriptor 3 served by a relay, spoken to over ACP. */
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { startScript } from '../../../bunfs-assets/start-script.ts';
import { channelOf } from '../channel.ts';
import type { ChannelEnd, SessionRelay } from '../relay.ts';

const root = join(import.meta.dir, '../../..');

/** A Python with the pinned Hermes: $EDGE_TEST_PYTHON, or what the build made; null when there is none. */
export function hermesPython(): string | null {
  if (process.env.EDGE_TEST_PYTHON) return process.env.EDGE_TEST_PYTHON;
  const runtimes = join(root, 'dist/runtime');
  if (!existsSync(runtimes)) return null;
  const found = readdirSync(runtimes).map((name) => join(runtimes, name, 'bin/python'));
  return found.find((path) => existsSync(path)) ?? null;
}

export const noHermes = 'no Hermes: set EDGE_TEST_PYTHON or run the build';

/** Where {@link makeHome} puts the start script. */
export const scriptIn = (directory: string): string => join(directory, 'start.py');

/** Makes HOME, HERMES_HOME, a work directory and the start script below `directory`. */
export function makeHome(directory: string, config: string): void {
  for (const name of ['home', 'hermes', 'work', 'tmp']) mkdirSync(join(directory, name), { recursive: true });
  writeFileSync(join(directory, 'hermes/config.yaml'), config);
  writeFileSync(scriptIn(directory), startScript());
}

export const hermesEnvironment = (directory: string, more: Record<string, string> = {}): Record<string, string> => ({
  PATH: '/usr/local/bin:/usr/bin:/bin',
  HOME: join(directory, 'home'),
  TMPDIR: join(directory, 'tmp'),
  HERMES_HOME: join(directory, 'hermes'),
  LANG: 'C.UTF-8',
  ...more,
});

/** Runs Python with `arguments_` and its descriptor 3 served by `relay`. */
export async function spawnServed(
  relay: SessionRelay,
  command: readonly string[],
  directory: string,
  environment: Record<string, string>,
) {
  const child = Bun.spawn([...command], {
    cwd: join(directory, 'work'),
    env: environment,
    stdio: ['pipe', 'pipe', Bun.file(join(directory, 'stderr')), 'socket-fd'],
  });
  const served = relay.serve(await channelOf(child.stdio[3] as number));
  return { child, served };
}

interface Answer {
  readonly result?: Record<string, unknown>;
  readonly error?: { readonly message: string };
}

export class AcpChild {
  readonly child: Awaited<ReturnType<typeof spawnServed>>['child'];
  readonly served: Promise<ChannelEnd>;
  readonly updates: { readonly update: { readonly sessionUpdate: string; readonly content?: unknown } }[] = [];
  readonly permissions: unknown[] = [];
  readonly #waiting = new Map<number, (answer: Answer) => void>();
  #last = 0;

  private constructor(spawned: Awaited<ReturnType<typeof spawnServed>>) {
    this.child = spawned.child;
    this.served = spawned.served;
    void this.#read();
  }

  static async start(relay: SessionRelay, python: string, directory: string, more: Record<string, string> = {}) {
    const command = [python, '-I', scriptIn(directory)];
    const acp = new AcpChild(await spawnServed(relay, command, directory, hermesEnvironment(directory, more)));
    await acp.call('initialize', { protocolVersion: 1, clientCapabilities: {} });
    return acp;
  }

  async newSession(cwd: string): Promise<string> {
    const { result } = await this.call('session/new', { cwd, mcpServers: [] });
    return String(result?.sessionId);
  }

  prompt(sessionId: string, text: string): Promise<Answer> {
    return this.call('session/prompt', { sessionId, prompt: [{ type: 'text', text }] });
  }

  /** Text that the client saw, all turns joined. */
  said(): string {
    return this.updates
      .filter(({ update }) => update.sessionUpdate === 'agent_message_chunk')
      .map(({ update }) => (update.content as { text: string }).text)
      .join('');
  }

  call(method: string, params: object): Promise<Answer> {
    const id = ++this.#last;
    return new Promise((resolve) => {
      this.#waiting.set(id, resolve);
      this.#send({ jsonrpc: '2.0', id, method, params });
    });
  }

  async kill(): Promise<ChannelEnd> {
    this.child.kill('SIGKILL');
    await this.child.exited;
    return this.served;
  }

  #send(message: object): void {
    this.child.stdin.write(`${JSON.stringify(message)}\n`);
    this.child.stdin.flush();
  }

  async #read(): Promise<void> {
    const decoder = new TextDecoder();
    let text = '';
    for await (const bytes of this.child.stdout) {
      text += decoder.decode(bytes, { stream: true });
      const lines = text.split('\n');
      text = lines.pop()!;
      for (const line of lines) this.#received(JSON.parse(line));
    }
    for (const resolve of this.#waiting.values()) resolve({ error: { message: 'the child has ended' } });
  }

  #received(message: { id?: number; method?: string; params?: never } & Answer): void {
    if (message.method === undefined) {
      this.#waiting.get(message.id!)?.(message);
      this.#waiting.delete(message.id!);
    } else if (message.id === undefined) this.updates.push(message.params!);
    else {
      this.permissions.push(message.params);
      const result = { outcome: { outcome: 'selected', optionId: 'allow_once' } };
      this.#send({ jsonrpc: '2.0', id: message.id, result });
    }
  }
}
