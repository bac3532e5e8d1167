/**
 * The organization's two cloud databases as somebody else's service on TCP: the embedded authority behind a door that counts
 * what passes, takes its time, and breaks on demand.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { builtExecutable, plainEnvironment } from './executable.ts';
import { Arrivals } from './waiting.ts';

export type CloudDatabase = 'agentfs' | 'sessiondb';

export interface CloudRequest {
  readonly database: CloudDatabase;
  /** `pull` for the sync protocol's pull; a push is a pipeline on agentfs that writes. */
  readonly kind: 'pull' | 'push' | 'pipeline';
  /** Statements of a pipeline, as they came. */
  readonly sql: readonly string[];
  readonly atMs: number;
}

/** What happens to a request instead of its answer; undefined lets it pass. */
export type Trouble = (request: CloudRequest, pass: () => Promise<Response>) => Promise<Response> | undefined;

const tokens = { agentfs: 'a'.repeat(32), sessiondb: 's'.repeat(32) };

export class Cloud {
  readonly requests = new Arrivals<CloudRequest>();
  /** Milliseconds before a request goes in: a round trip takes so much longer. */
  roundTripMs = 0;
  trouble: Trouble = () => undefined;
  readonly #socket: string;
  readonly #data: string;
  #child: Bun.Subprocess<'pipe', 'pipe', 'inherit'> | null = null;
  readonly #server: Bun.Server<undefined>;

  private constructor(directory: string) {
    this.#data = join(directory, 'authority');
    this.#socket = join(directory, 'authority.sock');
    mkdirSync(this.#data, { recursive: true });
    this.#server = Bun.serve({
      hostname: '127.0.0.1',
      port: 0,
      idleTimeout: 120,
      maxRequestBodySize: 512 * 1024 * 1024,
      fetch: (request) => this.#pass(request),
    });
  }

  /** @param directory that of a former cloud, to go on with its data */
  static async start(directory: string): Promise<Cloud> {
    const cloud = new Cloud(directory);
    await cloud.startAuthority();
    return cloud;
  }

  /** What a gateway needs to use it. */
  get environment(): Record<string, string> {
    const url = `http://127.0.0.1:${this.#server.port}`;
    return {
      AGENTFS_URL: `${url}/agentfs`,
      AGENTFS_TOKEN: tokens.agentfs,
      SESSIONDB_URL: `${url}/sessiondb`,
      SESSIONDB_TOKEN: tokens.sessiondb,
    };
  }

  /** One database as a client of its own reaches it. */
  address(database: CloudDatabase): { readonly url: string; readonly token: string } {
    return { url: `http://127.0.0.1:${this.#server.port}/${database}`, token: tokens[database] };
  }

  /** Requests of one database since `from` of `requests.all`. */
  since(from: number, database?: CloudDatabase): readonly CloudRequest[] {
    return this.requests.all.slice(from).filter((request) => database === undefined || request.database === database);
  }

  /** Where the authority keeps its databases. */
  get dataDirectory(): string {
    return this.#data;
  }

  /** The authority's process. @throws Error while there is none */
  get authorityPid(): number {
    if (!this.#child) throw new Error('there is no authority');
    return this.#child.pid;
  }

  /** Starts the authority's process behind the door; the first time, and after `kill`. */
  async startAuthority(): Promise<void> {
    const argv = [builtExecutable(), 'authority', '--data', this.#data, '--socket', this.#socket];
    const child = Bun.spawn(argv, { env: plainEnvironment(), stdin: 'pipe', stdout: 'pipe', stderr: 'inherit' });
    child.stdin.write(`${JSON.stringify({ tokens })}\n`);
    await child.stdin.flush();
    const reader = child.stdout.getReader();
    const { value } = await reader.read();
    if (value === undefined) throw new Error('the authority did not start');
    this.#child = child;
  }

  /** Ends the authority's process, at once or in order; the door stays and answers 502. */
  async endAuthority(how: 'SIGKILL' | 'orderly'): Promise<void> {
    const child = this.#child;
    this.#child = null;
    if (!child) return;
    if (how === 'SIGKILL') child.kill('SIGKILL');
    else child.stdin.end();
    await child.exited;
  }

  async stop(): Promise<void> {
    await this.#server.stop(true);
    await this.endAuthority('orderly');
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #pass(request: Request): Promise<Response> {
    const { pathname } = new URL(request.url);
    const [, database, ...rest] = pathname.split('/');
    const body = await request.arrayBuffer();
    const sql = rest.includes('pipeline') ? statementsOf(body) : [];
    const kind = rest[0] === 'pull-updates' ? 'pull' : database === 'agentfs' && writes(sql) ? 'push' : 'pipeline';
    const arrived: CloudRequest = { database: database as CloudDatabase, kind, sql, atMs: performance.now() };
    this.requests.add(arrived);
    if (this.roundTripMs > 0) await Bun.sleep(this.roundTripMs);
    const pass = async () => {
      const gone = () => new Response('no authority', { status: 502 });
      if (!this.#child) return gone();
      const { method, headers } = request;
      // It may be killed meanwhile.
      return fetch(`http://localhost${pathname}`, { method, headers, body, unix: this.#socket }).catch(gone);
    };
    return (await this.trouble(arrived, pass)) ?? pass();
  }
}

const writes = (sql: readonly string[]) => sql.some((one) => /^\s*(INSERT|UPDATE|DELETE|REPLACE)/i.test(one));

function statementsOf(body: ArrayBuffer): string[] {
  const found: string[] = [];
  const collect = (value: unknown): void => {
    if (Array.isArray(value)) for (const inner of value) collect(inner);
    else if (typeof value === 'object' && value !== null) {
      for (const [name, inner] of Object.entries(value)) {
        if (name === 'sql' && typeof inner === 'string') found.push(inner);
        else collect(inner);
      }
    }
  };
  collect(JSON.parse(Buffer.from(body).toString('utf8')));
  return found;
}
