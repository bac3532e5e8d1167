/**
 * What one conversation may use up, and what that means for others: nothing. The limits are set low here, so that reaching
 * them takes a moment.
 */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { call, say } from '../harness/model.ts';
import { waitForEnd } from '../harness/processes.ts';
import { Cell, limitMs } from './cell.fixture.ts';

const memoryMib = 768;
const processes = 192;
/** As the gateway finds them: root, and the controllers in one of the two versions. */
const limited =
  process.getuid?.() === 0 &&
  (existsSync('/sys/fs/cgroup/memory') ||
    (existsSync('/sys/fs/cgroup/cgroup.subtree_control') &&
      readFileSync('/sys/fs/cgroup/cgroup.subtree_control', 'utf8').includes('memory')));

let cell: Cell;

beforeAll(async () => {
  cell = await Cell.start({
    environment: { EDGE_HOLDER_MEMORY_MIB: String(memoryMib), EDGE_HOLDER_PROCESSES: String(processes) },
  });
}, limitMs);
afterAll(async () => {
  await cell?.stop();
}, limitMs);

async function expectNeighbourWell(): Promise<void> {
  const { output, code } = await cell.shell(
    'echo well > /workspace/well.txt; cat private.txt well.txt; rm well.txt',
    cell.neighbour,
  );
  expect({ output, code }).toEqual({ output: `${cell.markers.neighbour}\nwell`, code: 0 });
}

describe.skipIf(!limited)('memory', () => {
  test('a tool that takes too much is ended; Hermes goes on, and tells the model', async () => {
    const before = cell.hermes().map(({ pid }) => pid);
    const { output } = await cell.shell(`python3 -c "
b = []
while True: b.append(bytearray(64 << 20)); print(len(b) * 64, flush=True)
"; echo "ended with $?"`);
    expect(output).toEndWith('ended with 137');
    const taken = [...output.matchAll(/^(\d+)$/gm)].map(([, number]) => Number(number));
    expect(Math.max(...taken)).toBeLessThanOrEqual(memoryMib);
    expect(Math.max(...taken)).toBeGreaterThan(memoryMib / 2);
    expect(cell.hermes().map(({ pid }) => pid)).toEqual(before);
    await expectNeighbourWell();
  });

  test('/tmp and /dev/shm count, so that files do not take what the host needs', async () => {
    const { output } = await cell.shell(
      'head -c 900m /dev/zero > /tmp/big; ls -s --block-size=1M /tmp/big | cut -d" " -f1; head -c 900m /dev/zero > /dev/shm/big; rm -f /tmp/big /dev/shm/big',
    );
    expect(output).toContain('No space left on device');
    expect(Number(/^(\d+)$/m.exec(output)?.[1])).toBeLessThanOrEqual(512);
  });

  test('a turn whose Hermes is killed for memory fails and says why; the next one works', async () => {
    // Of the two ends this one is certain: the kernel has ended a tool before, and Hermes ends by the same signal.
    await cell.shell('python3 -c "b = bytearray(2 << 30); b[::4096] = b[::4096]"; true');
    const words = 'wait to be killed';
    cell.model.on(words, call('terminal', { command: 'sleep 60' }), say('done'));
    const answer = cell.gateway
      .api()
      .post(`/v1/conversations/${cell.conversation}/messages`, { text: words }, { prefer: 'wait=60' });
    await cell.model.waitForTurn(words);
    const own = cell.hermes();
    // The one whose cgroup has counted.
    const victim = own.find(({ pid }) => outOfMemoryKills(pid) > 0);
    expect(victim).toBeDefined();
    process.kill(victim!.pid, 'SIGKILL');
    const said = (await answer).text;
    expect(said).toContain('out of memory');
    expect(said).toContain('EDGE_HOLDER_MEMORY_MIB');
    await waitForEnd([victim!], 30_000);
    expect((await cell.shell('echo again')).output).toBe('again');
    await expectNeighbourWell();
  });
});

function outOfMemoryKills(pid: number): number {
  const own = readFileSync(`/proc/${pid}/cgroup`, 'utf8').split('\n');
  const paths = own.flatMap((line) => {
    const [, controllers, path] = line.split(':');
    if (path === undefined) return [];
    return controllers === ''
      ? [join('/sys/fs/cgroup', path, 'memory.events'), join('/sys/fs/cgroup/unified', path, 'memory.events')]
      : [join('/sys/fs/cgroup', controllers!, path, 'memory.oom_control')];
  });
  const texts = paths.filter((path) => existsSync(path)).map((path) => readFileSync(path, 'utf8'));
  return Math.max(0, ...texts.map((text) => Number(/^oom_kill (\d+)$/m.exec(text)?.[1] ?? 0)));
}

describe('processes', () => {
  test('a chain of forks reaches its end and takes nothing from the neighbour', async () => {
    const { output } = await cell.shell(`python3 - <<'E'
import os, time
n = 0
try:
    while n < 4000:
        if os.fork() == 0: time.sleep(60); os._exit(0)
        n += 1
except OSError as e: print(n, e.errno, flush=True)
os.system('true') if n < 0 else None
import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.killpg(0, signal.SIGTERM)
E`);
    const [count, code] = output.split('\n')[0]!.split(' ').map(Number);
    expect(code).toBe(11);
    expect(count).toBeLessThan(limited ? processes : 2048);
    await expectNeighbourWell();
  });
});

describe('descriptors', () => {
  test('a process has its share of them', async () => {
    const said = await cell.python(`
fds = []
try:
    while True: fds.append(os.open('/dev/null', os.O_RDONLY))
except OSError as e: print(len(fds) < 4096, errno.errorcode[e.errno])`);
    expect(said).toBe('True EMFILE');
    await expectNeighbourWell();
  });

  test('thousands of open files of the view take nothing from the neighbour', async () => {
    const said = await cell.python(`
fds = []
open('/workspace/many', 'w').close()
try:
    for n in range(5000): fds.append(os.open('/workspace/many', os.O_RDONLY))
except OSError as e: print(errno.errorcode[e.errno])`);
    expect(said).toBe('EMFILE');
    await expectNeighbourWell();
  });
});

describe('time', () => {
  test('a busy holder leaves the neighbour and the gateway their turn', async () => {
    const busy = cell.shell('for i in 1 2 3 4; do timeout 8 bash -c "while :; do :; done" & done; wait; echo rested');
    await expectNeighbourWell();
    expect((await fetch(`${cell.gateway.url}/healthz`)).status).toBe(200);
    expect((await busy).output).toBe('rested');
  });
});

test('cgroups go with their holders', async () => {
  if (!limited) return;
  const places = ['/sys/fs/cgroup', '/sys/fs/cgroup/unified', '/sys/fs/cgroup/pids'].filter((place) =>
    existsSync(place),
  );
  const own = () =>
    places.flatMap((place) =>
      (readdirSync(place, { withFileTypes: true }) as { name: string; isDirectory(): boolean }[])
        .filter((entry) => entry.isDirectory() && entry.name.startsWith(`edge-gateway.${cell.gateway.pid}.`))
        .flatMap(({ name }) => readdirSync(join(place, name)).filter((child) => child.startsWith('holder.'))),
    );
  const alive = cell.hermes().length;
  // Each hierarchy has as many as there are holders, and not those of the ones that have ended.
  const count = own().length;
  expect(count % Math.max(1, alive)).toBe(0);
});

test('after all that no secret is anywhere', async () => expect(await cell.leaks()).toEqual([]));
