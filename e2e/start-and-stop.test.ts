/** Starting and stopping the executable: what stops a start says how to fix it, and nothing half started stays behind. */
import { afterEach, expect, test } from 'bun:test';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { builtExecutable, plainEnvironment } from './harness/executable.ts';
import { Gateway } from './harness/gateway.ts';
import { descendants, type ProcessInfo, waitForEnd } from './harness/processes.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';

const limitMs = 180_000;
const scratch: string[] = [];
afterEach(() => {
  for (const directory of scratch.splice(0)) removeScratch(directory);
});
function directory(): string {
  const made = scratchDirectory('start');
  scratch.push(made);
  return made;
}

interface Run {
  readonly code: number | null;
  readonly output: string;
  readonly errors: string;
}
async function run(argv: readonly string[], environment: Readonly<Record<string, string>> = {}): Promise<Run> {
  const child = Bun.spawn([builtExecutable(), ...argv], {
    env: plainEnvironment(environment),
    cwd: directory(),
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
    timeout: 60_000,
    killSignal: 'SIGKILL',
  });
  const [output, errors] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
  return { code: child.exitCode, output, errors };
}

test('wrong usage is exit code 2, and says what is right', async () => {
  expect(await run([])).toMatchObject({ code: 2, errors: expect.stringContaining('usage: edge-gateway') });
  expect(await run(['sevre'])).toMatchObject({ code: 2, errors: expect.stringContaining('unknown command sevre') });
  expect(await run(['serve', '--prot', '1'])).toMatchObject({ code: 2, errors: expect.stringContaining('--prot') });
  expect(await run(['demo', '--port', 'x'])).toMatchObject({ code: 2, errors: expect.stringContaining('--port') });
  expect(await run(['token', 'create', '--role', 'boss'])).toMatchObject({ code: 2 });
  const unknown = await run(['serve'], { EDGE_DATADIR: 'x' });
  expect(unknown).toMatchObject({ code: 2, errors: expect.stringContaining('did you mean EDGE_DATA_DIR?') });
  expect(await run(['help'])).toMatchObject({ code: 0, output: expect.stringContaining('serve') });
  expect(await run(['version'])).toMatchObject({ code: 0, output: expect.stringMatching(/^edge-gateway \d/) });
  const config = await run(['config'], { EDGE_MODEL_KEY: 'hunter2', EDGE_PORT: '9' });
  expect(config.code).toBe(0);
  expect(config.output).toContain('EDGE_MODEL_KEY');
  expect(config.output).not.toContain('hunter2');
});

test('a port in use is told before anything is made', async () => {
  const taken = Bun.serve({ port: 0, hostname: '127.0.0.1', fetch: () => new Response() });
  const data = join(directory(), 'data');
  const port = taken.port;
  const { code, errors } = await run(['demo', '--port', String(port), '--data', data]);
  await taken.stop(true);
  expect(code).toBe(1);
  expect(errors).toContain(`port ${port} on 127.0.0.1 is in use; stop what uses it or choose another`);
  expect(existsSync(data)).toBe(false);
});

test('a missing model or runtime is told before anything is made', async () => {
  const data = join(directory(), 'data');
  const settings = { EDGE_DATA_DIR: data, EDGE_PORT: '0' };
  expect((await run(['serve'], settings)).errors).toContain('No model is configured. Set one of OPENROUTER_API_KEY');
  const nowhere = join(directory(), 'runtime');
  const { code, errors } = await run(['demo', '--port', '0', '--data', data], { EDGE_HERMES_RUNTIME: nowhere });
  expect(code).toBe(1);
  expect(errors).toContain(`missing: Hermes runtime: ${nowhere} is not a Hermes runtime`);
  expect(existsSync(data)).toBe(false);
});

test('a foreign directory is refused and left as it is', async () => {
  const data = directory();
  writeFileSync(join(data, 'thesis.tex'), 'x');
  const { code, errors } = await run(['demo', '--port', '0', '--data', data]);
  expect(code).toBe(1);
  expect(errors).toContain('is not a data directory of edge-gateway');
  expect(readdirSync(data)).toEqual(['thesis.tex']);
});

test(
  'two processes on one data directory: the second is refused by the number of the first',
  async () => {
    await using gateway = await Gateway.start();
    const { code, errors } = await run(['demo', '--port', '0', '--data', gateway.dataDirectory]);
    expect(code).toBe(1);
    expect(errors).toContain(`is in use by process ${gateway.pid}`);
    expect((await gateway.api().get('/readyz')).status).toBe(200);
    const token = await run(['token', 'create', '--role', 'client'], { EDGE_DATA_DIR: gateway.dataDirectory });
    expect(token).toMatchObject({ code: 1, errors: expect.stringContaining(`process ${gateway.pid}`) });
  },
  limitMs,
);

test(
  'a part that cannot start stops what was started before it',
  async () => {
    const data = join(directory(), 'data');
    // The authority's database cannot be opened, Postgres beside it can.
    mkdirSync(join(data, 'authority'), { recursive: true });
    writeFileSync(join(data, 'edge-gateway.json'), '{"program":"edge-gateway","format":1}');
    for (const name of ['agentfs', 'sessiondb']) {
      for (const suffix of ['', '.db', '.sqlite'])
        mkdirSync(join(data, 'authority', `${name}${suffix}`, 'x'), { recursive: true });
    }
    const { code, errors } = await run(['demo', '--port', '0', '--data', data]);
    expect(code).toBe(1);
    expect(errors).toContain('the embedded authority did not start');
    expect(existsSync(join(data, 'run'))).toBe(false);
    expect(await processesWith(data)).toEqual([]);
  },
  limitMs,
);

test(
  'a signal during the start ends it in order',
  async () => {
    const data = join(directory(), 'data');
    const child = Bun.spawn([builtExecutable(), 'demo', '--port', '0', '--data', data], {
      env: plainEnvironment(),
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'inherit',
    });
    // From here on Postgres, the authority and the machine are started, which takes far longer than a signal.
    while (!existsSync(join(data, 'run'))) await Bun.sleep(5);
    child.kill('SIGTERM');
    expect(await child.exited).toBe(0);
    expect(await child.stdout.text()).toBe('');
    expect(existsSync(join(data, 'run'))).toBe(false);
    expect(await processesWith(data)).toEqual([]);
  },
  limitMs,
);

test.each(['postgres', 'authority', 'machine'])(
  'the death of the %s ends the gateway with exit code 1 and leaves no process',
  async (part) => {
    await using gateway = await Gateway.start();
    const tree = gateway.tree();
    const victim = tree.findLast(({ argv }) => argv.includes(part) && !argv.includes('supervise'));
    expect(victim).toBeDefined();
    process.kill(victim!.pid, 'SIGKILL');
    expect(await gateway.exited()).toBe(1);
    await waitForEnd(tree, 30_000);
    expect(gateway.log).toContain('stopping: a part was lost');
    expect(existsSync(join(gateway.dataDirectory, 'run'))).toBe(false);
  },
  limitMs,
);

test(
  'kill -9 of the gateway leaves no process; the next start goes on with new tokens',
  async () => {
    const data = directory();
    const first = await Gateway.start({ dataDirectory: data });
    const tree = first.tree();
    expect(tree.length).toBeGreaterThan(3);
    const old = first.token('client');
    first.signal('SIGKILL');
    await first.exited();
    await waitForEnd(tree, 30_000);

    await using second = await Gateway.start({ dataDirectory: data });
    expect(second.conversation).toBe(first.conversation);
    expect((await second.api({ token: old }).get('/v1/conversations')).status).toBe(401);
    const { text } = await second.api().get('/v1/conversations');
    expect(text).toContain(second.conversation);
  },
  limitMs,
);

test(
  'no secret is in a log, an argument, a child’s environment or a file name',
  async () => {
    const secret = 'hunter2hunter2hunter2';
    await using gateway = await Gateway.start({
      environment: { EDGE_MODEL_URL: 'http://127.0.0.1:9/v1', EDGE_MODEL: 'none', EDGE_MODEL_KEY: secret },
    });
    const secrets = [secret, gateway.token('client'), gateway.token('superadmin')];
    const seen: string[] = [gateway.log];
    for (const { pid, argv } of gateway.tree()) seen.push(argv.join(' '), readFileSync(`/proc/${pid}/environ`, 'utf8'));
    for (const text of secrets) expect(seen.some((place) => place.includes(text))).toBe(false);
  },
  limitMs,
);

test(
  'an orderly stop leaves nothing behind but what is durable',
  async () => {
    const data = directory();
    const gateway = await Gateway.start({ dataDirectory: data });
    expect(Object.keys(gateway.ready)).toEqual(['url', 'dataDir', 'conversation', 'tokens']);
    expect(await gateway.stop()).toBe(0);
    expect(readdirSync(data).toSorted()).toEqual(
      ['authority', 'demo.json', 'edge-gateway.json', 'lock', 'machine', 'postgres'].toSorted(),
    );
  },
  limitMs,
);

/** Processes that have this path in their arguments, except this one. */
async function processesWith(path: string): Promise<string[]> {
  // Processes that die with their parent are gone a moment after it.
  await waitForEnd(ours(path), 10_000);
  return ours(path).map(({ argv }) => argv.join(' '));
}
function ours(path: string): ProcessInfo[] {
  return descendants(1).filter(({ pid, argv }) => pid !== process.pid && argv.some((word) => word.startsWith(path)));
}
