/** For tests: a real mount of a view, in a mount namespace of this process' main thread and its children. */
import { test } from 'bun:test';
import { mkdtempSync, rmdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { FileView } from '../agentfs/views.ts';
import { canMount, leaveMountNamespace, type ServedMount, serveMount } from './device.fixture.ts';
import type { Gate } from './gate.ts';
import type { TouchBoundary } from './session.ts';

export { canMount } from './device.fixture.ts';
/** A test that needs a mount; skipped, and said so, where there can be none. */
export const mountTest = canMount ? test : test.skip;

let isUnshared = false;

export interface TestMount extends ServedMount {
  readonly path: string;
}

export function mountView(view: FileView, gate: Gate, boundary?: TouchBoundary): TestMount {
  if (!isUnshared) leaveMountNamespace();
  isUnshared = true;
  const path = mkdtempSync(join(tmpdir(), 'fuse-test-'));
  const served = serveMount(path, view, gate, boundary ? { boundary } : {});
  return {
    ...served,
    path,
    unmount: async () => {
      await served.unmount();
      rmdirSync(path);
    },
  };
}

/** Runs a program as the holder's user; its output and exit code. */
export async function run(
  cwd: string,
  command: string[],
  options: { input?: string } = {},
): Promise<{ code: number; output: string }> {
  const child = Bun.spawn(['setpriv', '--reuid', '1000', '--regid', '1000', '--clear-groups', '--', ...command], {
    stdin: options.input === undefined ? 'ignore' : Buffer.from(options.input),
    stdout: 'pipe',
    stderr: 'pipe',
    env: { PATH: '/usr/local/bin:/usr/bin:/bin', HOME: '/tmp', LC_ALL: 'C.UTF-8', PWD: cwd, DIRECTORY: cwd },
    cwd: '/',
  });
  const [out, err] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()]);
  return { code: await child.exited, output: out + err };
}

/** A shell script in a directory of the mount. `set -e` is on. */
export function shell(cwd: string, script: string): Promise<{ code: number; output: string }> {
  return run(cwd, ['bash', '-ec', `cd "$DIRECTORY"\n${script}`]);
}
