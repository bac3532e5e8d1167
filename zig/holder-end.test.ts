import { describe, expect, test } from 'bun:test';
import { allGone, appeared, type Child, descendants, holderTests } from './holder.fixture.ts';
import type { MachineStub } from './machine-stub.fixture.ts';

const { hold } = holderTests();

describe('the end', () => {
  test('the exit code is Hermes’ own', async () => {
    const { child } = await hold('exit 37');
    expect(await child.exited).toBe(37);
    expect(await child.stderr).toBe('');
  });

  test('so is the signal', async () => {
    const { child } = await hold('kill -SEGV $$');
    await child.exited;
    expect(child.signal()).toBe('SIGSEGV');
  });

  test('SIGTERM reaches Hermes', async () => {
    const { child } = await hold('trap "echo ending; exit 5" TERM; echo ready; while :; do read -r -t 1 line; done');
    await child.line();
    child.kill('SIGTERM');
    expect(await child.line()).toBe('ending');
    expect(await child.exited).toBe(5);
  });

  test('nothing that Hermes left behind outlives it', async () => {
    const { child } = await hold('setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo ready; read -r line; exit 4');
    await child.line();
    const all = ['bash', 'edge-init', 'edge-notify', 'edge-relay', 'sleep'];
    const below = (await appeared(child.pid, all)).keys();
    child.kill('SIGTERM');
    await child.exited;
    await allGone(below);
  });

  /** Hermes, a tool, and a daemon that left every session and parent behind. */
  const busy =
    '(setsid bash -c "sleep 1000 & exec sleep 1000" >/dev/null 2>&1 &); sleep 1000 & echo ready; read -r line';

  async function expectNothingLeft(end: (holder: { stub: MachineStub; child: Child }) => void): Promise<number> {
    const holder = await hold(busy);
    expect(await holder.child.line()).toBe('ready');
    const all = ['bash', 'edge-init', 'edge-notify', 'edge-relay', 'sleep', 'sleep', 'sleep'];
    const below = await appeared(holder.child.pid, all);
    end(holder);
    const code = await holder.child.exited;
    await allGone([holder.child.pid, ...below.keys()]);
    return code;
  }

  const killNamed = (child: Child, name: string): void => {
    const found = [...descendants(child.pid)].find(([, own]) => own === name);
    process.kill(found![0], 'SIGKILL');
  };

  test('kill -9 of the outer process leaves nothing', async () => {
    await expectNothingLeft(({ child }) => child.kill('SIGKILL'));
  });

  test.each(['edge-relay', 'edge-init'])('kill -9 of %s leaves nothing, and is an error', async (name) => {
    expect(await expectNothingLeft(({ child }) => killNamed(child, name))).toBe(126);
  });

  test('the end of the control stream leaves nothing', async () => {
    expect(await expectNothingLeft(({ stub }) => stub.control?.destroy())).toBe(126);
  });

  test('the end of the FUSE stream leaves nothing', async () => {
    expect(await expectNothingLeft(({ stub }) => stub.fuse?.destroy())).toBe(126);
  });

  /** A holder with a tool that waits for an answer that never comes. */
  async function stuck(): Promise<{ stub: MachineStub; child: Child; below: Map<number, string> }> {
    const { stub, child } = await hold('cat /workspace/hello.txt & echo ready; read -r line; exit 3');
    stub.silentOn = 'hello.txt';
    expect(await child.line()).toBe('ready');
    await stub.silenced.promise;
    return { stub, child, below: descendants(child.pid) };
  }

  test.each(['edge-holder', 'edge-relay', 'edge-init'])(
    'an unanswered request keeps nobody alive: kill -9 of %s',
    async (name) => {
      const { child, below } = await stuck();
      if (name === 'edge-holder') child.kill('SIGKILL');
      else killNamed(child, name);
      await child.exited;
      await allGone(below.keys());
    },
  );

  test('an unanswered request does not keep Hermes’ end back', async () => {
    const { child, below } = await stuck();
    child.closeInput();
    expect(await child.exited).toBe(3);
    expect(await child.stderr).toEndWith('the machine does not answer on the FUSE stream: ETIMEDOUT\n');
    await allGone(below.keys());
  });
});
