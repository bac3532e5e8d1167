/** What used to pass the start and fail every turn: each stops the start, or works, in the built executable. */
import { afterEach, expect, test } from 'bun:test';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { builtExecutable, plainEnvironment } from './harness/executable.ts';
import { Gateway } from './harness/gateway.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';

const limitMs = 120_000;
const isRoot = process.getuid?.() === 0;
const scratch: string[] = [];
afterEach(() => {
  for (const directory of scratch.splice(0)) removeScratch(directory);
});
function directory(): string {
  const made = scratchDirectory('refusal');
  scratch.push(made);
  return made;
}

async function errorsOf(argv: readonly string[], environment: Readonly<Record<string, string>> = {}): Promise<string> {
  const child = Bun.spawn([...argv], {
    env: plainEnvironment(environment),
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
    timeout: 60_000,
    killSignal: 'SIGKILL',
  });
  const [output, errors] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
  expect({ code: child.exitCode, output }).toEqual({ code: 1, output: '' });
  return errors;
}

/** The demo behind a change of its own mounts. */
const behind = (change: string, data: string) => [
  ...['unshare', '-m', 'sh', '-c', `${change} && exec "$0" "$@"`],
  ...[builtExecutable(), 'demo', '--port', '0', '--data', data],
];

test.skipIf(!isRoot)('something else in the place of /dev/fuse is missing, not there', async () => {
  const data = join(directory(), 'data');
  expect(await errorsOf(behind('mount --bind /dev/null /dev/fuse', data))).toContain('missing: /dev/fuse: load the');
  expect(existsSync(data)).toBe(false);
});

test.skipIf(!isRoot)('a disk without room is told before a database is made on it', async () => {
  const disk = directory();
  const errors = await errorsOf(behind(`mount -t tmpfs -o size=16m tmpfs ${disk}`, join(disk, 'data')));
  expect(errors).toContain('make room for at least 64 MiB');
});

test(
  'an authority that refuses its token is named',
  async () => {
    const refusing = Bun.serve({ port: 0, hostname: '127.0.0.1', fetch: () => new Response('no', { status: 401 }) });
    try {
      for (const name of ['AGENTFS', 'SESSIONDB']) {
        const data = join(directory(), 'data');
        const errors = await errorsOf([builtExecutable(), 'serve'], {
          EDGE_PORT: '0',
          EDGE_DATA_DIR: data,
          EDGE_MODEL_URL: 'http://127.0.0.1:9/v1',
          EDGE_MODEL: 'none',
          [`${name}_URL`]: `http://127.0.0.1:${refusing.port}`,
          [`${name}_TOKEN`]: 'wrong-token-4711',
        });
        expect(errors).toContain(`The database of ${name}_URL cannot be used: the database refused the token`);
        expect(errors).not.toContain('wrong-token-4711');
        expect(existsSync(join(data, 'run'))).toBe(false);
      }
    } finally {
      await refusing.stop(true);
    }
  },
  limitMs,
);

test(
  'white space in the path of the data directory works',
  async () => {
    const temporary = directory();
    {
      await using gateway = await Gateway.start({
        dataDirectory: join(directory(), "my 'data'"),
        environment: { TMPDIR: temporary },
      });
      expect(readdirSync(temporary)).toEqual([expect.stringMatching(/^egw-[A-Za-z0-9]{6}$/)]);
      expect((await gateway.api().say(gateway.conversation, 'hello')).message.state).toBe('delivered');
    }
    // The sockets had to be elsewhere, and are gone.
    expect(readdirSync(temporary)).toEqual([]);
  },
  limitMs,
);
