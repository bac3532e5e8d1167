/** The embedded authority as a child process, for tests of the relay. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { AuthorityAddress } from '../../launch.ts';

export interface TestAuthority {
  readonly address: AuthorityAddress;
  readonly directory: string;
  /** Starts it again on the same data. */
  restart(): Promise<void>;
  kill(): Promise<void>;
  stop(): Promise<void>;
}

const token = 'a-token-of-the-test-authority';
const main = join(import.meta.dir, '../../../gateway/authority/main.ts');

export async function startAuthority(): Promise<TestAuthority> {
  const directory = mkdtempSync(join(tmpdir(), 'edge-sql-'));
  const socket = join(directory, 's');
  const start = async () => {
    const argv = JSON.stringify(['--data', join(directory, 'data'), '--socket', socket]);
    const code = `process.exit(await (await import(${JSON.stringify(main)})).runAuthority(${argv}))`;
    const child = Bun.spawn([process.execPath, '-e', code], {
      stdin: 'pipe',
      stdout: 'pipe',
      stderr: 'inherit',
    });
    child.stdin.write(`${JSON.stringify({ tokens: { agentfs: token, sessiondb: token } })}\n`);
    await child.stdin.flush();
    const { value } = await child.stdout.getReader().read();
    if (!value || !new TextDecoder().decode(value).includes('"ready":true'))
      throw new Error('the authority did not start');
    return child;
  };
  let child = await start();
  const kill = async () => {
    child.kill('SIGKILL');
    await child.exited;
  };
  return {
    address: { url: 'http://authority/sessiondb', token, socket },
    directory,
    restart: async () => {
      child = await start();
    },
    kill,
    stop: async () => {
      await kill();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
