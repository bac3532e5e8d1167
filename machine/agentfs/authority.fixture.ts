/** For tests: the embedded authority as a process of its own, and an organization's files over it. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { AuthorityAddress } from '../launch.ts';
import { CloudFiles } from './cloud.ts';
import { HranaDatabase } from './hrana.ts';

const token = 'a-token-for-the-tests-of-agentfs';

export interface TestAuthority {
  readonly directory: string;
  readonly address: AuthorityAddress;
  readonly cloud: CloudFiles;
  /** How many requests it has answered to replicas; set by a proxy in front of it. */
  requests(): number;
  /** Calls back with every request of a replica before it goes in and when it is answered, and waits for what that returns. */
  onRequest(listener: (step: RequestStep) => Promise<void> | void): void;
  /** Stops answering, as if the network were gone, or answers again. */
  setReachable(reachable: boolean): void;
  /** Keeps every answer back until the call that it returns. */
  hold(): () => void;
  /** SQL straight in the cloud. */
  readonly sql: HranaDatabase;
  /** `kill -9` of its process, and another one with the same data. */
  kill(): Promise<void>;
  again(): Promise<void>;
  /** `before` runs when its process has ended, before its files are removed. */
  stop(before?: () => void): Promise<void>;
}

/** A pull, or a pipeline as a push is one. */
export type RequestStep = `${'pull' | 'push'} ${'arrived' | 'answered'}`;

/** An authority with an empty organization, provisioned unless told otherwise. */
export async function startAuthority({
  isProvisioned = true,
  prepare = (_data: string): unknown => undefined,
} = {}): Promise<TestAuthority> {
  const directory = mkdtempSync(join(tmpdir(), 'agentfs-test-'));
  prepare(join(directory, 'data'));
  const behind = join(directory, 'a.sock');
  const main = join(import.meta.dir, '../../gateway/authority/main.ts');
  const script = `import { runAuthority } from ${JSON.stringify(main)}; process.exit(await runAuthority(process.argv.slice(1)));`;
  const start = async () => {
    const started = Bun.spawn(
      [process.execPath, '-e', script, '--', '--data', join(directory, 'data'), '--socket', behind],
      { stdin: 'pipe', stdout: 'pipe', stderr: 'inherit' },
    );
    started.stdin.write(`${JSON.stringify({ tokens: { agentfs: token, sessiondb: token } })}\n`);
    await started.stdin.flush();
    const first = await started.stdout.getReader().read();
    if (!first.value || !new TextDecoder().decode(first.value).includes('ready')) throw new Error('no authority');
    return started;
  };
  let child = await start();
  let count = 0;
  let reachable = true;
  let held = Promise.resolve();
  let heard: (step: RequestStep) => Promise<void> | void = () => undefined;
  const socket = join(directory, 'p.sock');
  const proxy = Bun.serve({
    unix: socket,
    maxRequestBodySize: 512 * 1024 ** 2,
    development: false,
    fetch: async (request) => {
      count += 1;
      if (!reachable) return new Response('gone', { status: 503 });
      const { pathname } = new URL(request.url);
      const { method, headers } = request;
      const body = await request.arrayBuffer();
      await held;
      const kind = pathname.endsWith('pull-updates') ? 'pull' : 'push';
      await heard(`${kind} arrived`);
      const passed = { method, headers, body, unix: behind, decompress: false };
      // It may have been killed.
      const answer = await fetch(`http://localhost${pathname}`, passed).catch(
        () => new Response('gone', { status: 502 }),
      );
      await heard(`${kind} answered`);
      return answer;
    },
  });
  const address = { url: 'http://localhost/agentfs', token, socket };
  const sql = new HranaDatabase({ ...address, socket: behind });
  const cloud = new CloudFiles(sql);
  if (isProvisioned) await cloud.provision();
  return {
    directory,
    address,
    cloud,
    sql,
    hold: () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      held = promise;
      return resolve;
    },
    requests: () => count,
    onRequest: (listener) => {
      heard = listener;
    },
    kill: async () => {
      child.kill('SIGKILL');
      await child.exited;
    },
    again: async () => {
      child = await start();
    },
    setReachable: (is) => {
      reachable = is;
    },
    stop: async (before = () => undefined) => {
      await proxy.stop(true);
      child.stdin.end();
      await child.exited;
      before();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
