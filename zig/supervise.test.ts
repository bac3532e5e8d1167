import { afterEach, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test';
import { join } from 'node:path';
import {
  allGone,
  appeared,
  type Child,
  callCommand,
  confinedExec,
  descendants,
  openDescriptors,
  spawnPlain,
  statusField,
} from './holder.fixture.ts';

setDefaultTimeout(60_000);
let binary: string;
let children: Omit<Child, 'channel'>[] = [];

beforeAll(async () => {
  binary = await confinedExec();
}, 600_000);

afterEach(async () => {
  for (const child of children) {
    child.kill('SIGKILL');
    await child.exited;
  }
  children = [];
});

function spawn(command: readonly string[]): Omit<Child, 'channel'> {
  const child = spawnPlain(command);
  children.push(child);
  return child;
}

const supervise = (...program: readonly string[]) => spawn([binary, 'supervise', '--', ...program]);
const superviseScript = (script: string) => supervise('/usr/bin/sh', '-c', script);

async function output(script: string): Promise<string> {
  const child = superviseScript(script);
  const text = await child.rest();
  expect({ code: await child.exited, errors: await child.stderr }).toEqual({ code: 0, errors: '' });
  return text;
}

describe('the machine', () => {
  test('is alone in its PID namespace, with a /proc of its own', async () => {
    expect(await output('echo $$; echo /proc/[0-9]*; cat /proc/1/comm')).toBe('2\n/proc/1 /proc/2\nedge-init\n');
  });

  test('keeps standard input and output and nothing else', async () => {
    const child = spawn([
      'bash',
      '-c',
      `exec ${binary} supervise -- /usr/bin/sh -c 'read -r a; echo "$a"; read -r b' 5</etc/hosts`,
    ]);
    const below = await appeared(child.pid, ['edge-init', 'sh']);
    const machine = [...below].find(([, name]) => name === 'sh')![0];
    expect(openDescriptors(machine)).toEqual([0, 1, 2]);
    expect(statusField(machine, 'NoNewPrivs')).toBe('1');
    expect(statusField(machine, 'Seccomp')).toBe('2');
  });

  test('has the environment of its parent', async () => {
    expect(await output('echo $PATH')).toBe(`${process.env.PATH}\n`);
  });

  test('may make namespaces and mounts, which no one else sees', async () => {
    const text = await output('mount -t tmpfs x /mnt && unshare -m true && grep -c " /mnt tmpfs" /proc/mounts');
    expect(text).toBe('1\n');
    expect(await Bun.file('/proc/mounts').text()).not.toContain(' /mnt tmpfs');
  });

  test.each([
    ['ptrace', callCommand('ptrace'), /Operation not permitted/],
    ['reboot', callCommand('reboot'), /Operation not permitted/],
    ['bpf', callCommand('bpf'), /Operation not permitted/],
    ['a call of the future', callCommand('unknown'), /Function not implemented/],
  ])('may not use %s', async (_name, script, refusal) => {
    expect(await output(script)).toMatch(refusal);
  });

  test('leaves no core file and has many descriptors', async () => {
    const [core, files] = (await output('ulimit -c; ulimit -n')).split('\n');
    expect(core).toBe('0');
    expect(Number(files)).toBeGreaterThanOrEqual(4096);
  });

  test('that cannot be executed is named', async () => {
    const missing = supervise('/nowhere/machine');
    expect(await missing.exited).toBe(127);
    expect(await missing.stderr).toBe('confined-exec supervise: exec /nowhere/machine: ENOENT\n');
    const forbidden = supervise('/etc/passwd');
    expect(await forbidden.exited).toBe(126);
  });

  test('holds conversations: the pid that a holder says is the one the machine sees', async () => {
    const child = supervise(process.execPath, join(import.meta.dir, 'machine-process.fixture.ts'), binary);
    const text = await child.rest();
    expect({ code: await child.exited, errors: await child.stderr }).toEqual({ code: 0, errors: '' });
    const said = JSON.parse(text) as { pid: number; command: string; uid: string; code: number; output: string };
    expect(said.code).toBe(6);
    expect(said.output).toBe('hello from the machine\n');
    expect(said.command).toStartWith('/usr/bin/bash');
    expect(said.pid).toBeLessThan(1000);
  });
});

describe('the end', () => {
  test('the exit code is the machine’s own', async () => {
    expect(await superviseScript('exit 37').exited).toBe(37);
  });

  test('so is the signal', async () => {
    const child = superviseScript('kill -KILL $$');
    await child.exited;
    expect(child.signal()).toBe('SIGKILL');
  });

  test.each(['SIGTERM', 'SIGINT'] as const)('%s reaches the machine', async (signal) => {
    const child = superviseScript(
      `trap "echo ending; exit 5" ${signal.slice(3)}; echo ready; while :; do sleep 0.05; done`,
    );
    await child.line();
    child.kill(signal);
    expect(await child.line()).toBe('ending');
    expect(await child.exited).toBe(5);
  });

  test('orphans are reaped while the machine lives', async () => {
    const script =
      'p=$(sh -c "sleep 0.01 >/dev/null & echo \\$!"); while [ -e /proc/$p ]; do sleep 0.01; done; echo reaped';
    expect(await output(script)).toBe('reaped\n');
  });

  const busy = '(setsid sh -c "sleep 1000 & exec sleep 1000" >/dev/null 2>&1 &); sleep 1000 & echo ready; wait';
  const names = ['edge-init', 'sh', 'sleep', 'sleep', 'sleep'];

  test('nothing that the machine left behind outlives it', async () => {
    const child = superviseScript(busy);
    const below = await appeared(child.pid, names);
    child.kill('SIGTERM');
    await child.exited;
    expect(child.signal()).toBe('SIGTERM');
    await allGone(below.keys());
  });

  test('kill -9 of the supervisor leaves nothing', async () => {
    const child = superviseScript(busy);
    const below = await appeared(child.pid, names);
    child.kill('SIGKILL');
    await child.exited;
    await allGone(below.keys());
  });

  test('kill -9 of init leaves nothing, and is told', async () => {
    const child = superviseScript(busy);
    const below = await appeared(child.pid, names);
    process.kill([...below].find(([, name]) => name === 'edge-init')![0], 'SIGKILL');
    await child.exited;
    expect(child.signal()).toBe('SIGKILL');
    await allGone(below.keys());
  });

  test('the death of the gateway is the death of all', async () => {
    const gateway = spawn(['bash', '-c', `${binary} supervise -- /usr/bin/sh -c '${busy}' & echo started; wait`]);
    await gateway.line();
    const below = await appeared(gateway.pid, ['edge-supervise', ...names].sort());
    gateway.kill('SIGKILL');
    await gateway.exited;
    await allGone(below.keys());
    expect(descendants(gateway.pid).size).toBe(0);
  });
});
