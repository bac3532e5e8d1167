/** The process tree as a whole: it ends in order, and whatever dies takes with it all that is below (acceptance 8). */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { Gateway } from './harness/gateway.ts';
import { call, ScriptedModel, say } from './harness/model.ts';
import { descendants, isAlive, type ProcessInfo, readProcess, waitForEnd } from './harness/processes.ts';
import { endsOutOfOrder, type Part, parts, partsBelow } from './harness/tree.ts';

const limitMs = 240_000;
/** The kernel needs milliseconds; a loaded machine may not run us for seconds. */
const endMs = 20_000;

/** A daemon: forked twice, in a session of its own, without a descriptor of whoever started it. */
const daemon = [
  "python3 - <<'EOF'",
  'import os',
  'if os.fork() == 0:',
  '    os.setsid()',
  '    if os.fork() == 0:',
  '        null = os.open("/dev/null", os.O_RDWR)',
  '        for fd in (0, 1, 2): os.dup2(null, fd)',
  '        os.execvp("sleep", ["sleep", "4242"])',
  '    os._exit(0)',
  'EOF',
].join('\n');

function startModel(): ScriptedModel {
  const model = ScriptedModel.start();
  model.on(
    'work',
    call('terminal', { command: daemon }),
    call('terminal', { command: 'sleep 4343; echo over', timeout: 170 }),
    say('worked'),
  );
  return model;
}

const settings = (model: ScriptedModel) => ({
  environment: { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: 'none' },
});

/** Sends a message whose turn runs until something ends it; resolves when its tool shell and its daemon are running. */
async function atWork(gateway: Gateway, conversation: string) {
  const path = `/v1/conversations/${conversation}/messages`;
  const answer = gateway.api('expert').post(path, { text: 'work' }, { prefer: 'wait=120' });
  // Where the gateway is killed nobody listens any more.
  answer.catch(() => undefined);
  const deadlineMs = performance.now() + 90_000;
  for (;;) {
    const found = partsBelow(gateway.pid);
    const sleeping = found.get('tool')!.filter(({ argv }) => argv[0] === 'sleep');
    if (sleeping.some(({ argv }) => argv[1] === '4242') && sleeping.some(({ argv }) => argv[1] === '4343')) {
      return { answer, found };
    }
    if (performance.now() > deadlineMs) throw new Error(`no tool is running: ${(await answer).text}\n${gateway.log}`);
    await Bun.sleep(20);
  }
}

const only = (found: ReadonlyMap<Part, readonly ProcessInfo[]>, part: Part): ProcessInfo => {
  const [first, ...others] = found.get(part)!;
  if (first === undefined || others.length > 0) throw new Error(`${others.length + 1} processes are the ${part}`);
  return first;
};

describe('holders', () => {
  let model: ScriptedModel;
  let gateway: Gateway;
  beforeAll(async () => {
    model = startModel();
    gateway = await Gateway.start(settings(model));
  }, limitMs);
  afterAll(async () => {
    await gateway?.[Symbol.asyncDispose]();
    await model?.stop();
  }, limitMs);

  /** How the failure of the message names what was killed. */
  const victims: readonly (readonly [Part, RegExp])[] = [
    ['Hermes', /\(SIGKILL\)/],
    ['holder', /\(SIGKILL\)/],
    ['relay', /\(exit code 126: .*the relay ended/],
    ['notifier', /\(exit code 126: .*the notifier ended/],
    ['holder’s init', /\(exit code 126: .*init was killed/],
  ];

  test.each(victims)(
    'kill -9 of the %s during a turn: nothing of the holder is left, the message fails, the next one works',
    async (victim, detail) => {
      const { answer, found } = await atWork(gateway, gateway.conversation);
      // Below the victim and around it: a holder is of no use without one of its processes.
      const holder = [only(found, 'holder'), ...descendants(only(found, 'holder').pid)];
      expect(holder.length).toBeGreaterThanOrEqual(8);
      const around = gateway.tree().filter(({ pid }) => !holder.some((one) => one.pid === pid));
      process.kill(only(found, victim).pid, 'SIGKILL');
      await waitForEnd(holder, endMs);
      const failed = await answer;
      expect(failed.status).toBe(502);
      expect(failed.json()).toMatchObject({
        type: 'urn:edge-gateway:problem:agent-failed',
        detail: expect.stringMatching(detail),
      });
      // At once, while the machine may still be clearing up.
      expect((await gateway.api().say(gateway.conversation, 'hello')).reply.text).toBe('ok');
      expect(around.every(isAlive)).toBe(true);
    },
    limitMs,
  );

  test(
    'a message sent the moment after its idle Hermes was killed works',
    async () => {
      await gateway.api().say(gateway.conversation, 'hello');
      const hermes = only(partsBelow(gateway.pid), 'Hermes');
      process.kill(hermes.pid, 'SIGKILL');
      // Reaped: every thread is gone, and so its descriptors are closed. Its holder is still being cleared.
      while (readProcess(hermes.pid) !== null) await Bun.sleep(1);
      expect((await gateway.api().say(gateway.conversation, 'hello')).reply.text).toBe('ok');
    },
    limitMs,
  );

  test(
    'kill -9 of a tool shell is told to the agent, whose turn goes on; what the shell left ends with the holder',
    async () => {
      const { answer, found } = await atWork(gateway, gateway.conversation);
      const tools = found.get('tool')!;
      const shell = tools.find(({ pid }) => tools.some(({ parent, argv }) => parent === pid && argv[1] === '4343'))!;
      process.kill(shell.pid, 'SIGKILL');
      const { status, text } = await answer;
      expect(status, text).toBe(200);
      const result = String(model.turns.at(-1)!.body.messages.at(-1)!.content);
      expect(JSON.parse(result)).toMatchObject({ exit_code: expect.any(Number) });
      expect(result).not.toContain('"exit_code": 0');
      // Its orphans are processes of the holder like every daemon of a tool: Hermes alone does not end them.
      const hermes = only(partsBelow(gateway.pid), 'Hermes');
      const left = partsBelow(gateway.pid).get('tool')!;
      expect(left.map(({ argv }) => argv.join(' '))).toContain('sleep 4242');
      process.kill(hermes.pid, 'SIGKILL');
      await waitForEnd([...left, ...tools], endMs);
    },
    limitMs,
  );
});

test.each(['postgres', 'authority', 'supervisor', 'supervisor’s init', 'machine'] as const)(
  'kill -9 of the %s: nothing is left below it, and the gateway ends with exit code 1, says why and leaves nothing',
  async (victim) => {
    await using model = startModel();
    await using gateway = await Gateway.start(settings(model));
    const { found } = await atWork(gateway, gateway.conversation);
    const tree = gateway.tree();
    const { pid } = only(found, victim);
    const below = descendants(pid);
    process.kill(pid, 'SIGKILL');
    await waitForEnd(below, endMs);
    expect(await gateway.exited(90_000)).toBe(1);
    await waitForEnd(tree, endMs);
    const names = { postgres: 'the embedded Postgres', authority: 'the embedded authority' } as const;
    const name = victim in names ? names[victim as keyof typeof names] : 'the machine';
    expect(gateway.log).toMatch(new RegExp(`stopping: a part was lost","reason":"[^"]*${name} ended \\(`));
    expect(gateway.log).toContain('"what":"stopped"');
    // The kernel ends what is below a supervisor; an orderly end of the machine would be somebody's who lived on.
    if (name === 'the machine') expect(gateway.log).not.toContain('stopping: its input has ended');
    expect(existsSync(join(gateway.dataDirectory, 'run'))).toBe(false);
  },
  limitMs,
);

test(
  'kill -9 of the gateway: nothing of the tree is left',
  async () => {
    await using model = startModel();
    await using gateway = await Gateway.start(settings(model));
    const { found } = await atWork(gateway, gateway.conversation);
    for (const part of parts) expect(found.get(part)!.length, part).toBeGreaterThan(0);
    const tree = gateway.tree();
    gateway.signal('SIGKILL');
    expect(await gateway.exited()).toBe('SIGKILL');
    await waitForEnd(tree, endMs);
  },
  limitMs,
);

test(
  'SIGTERM ends idle and working holders, then the machine, its supervisor, the databases, the gateway; nothing is left',
  async () => {
    await using model = startModel();
    await using gateway = await Gateway.start(settings(model));
    const idle = await gateway.api('expert').createConversation('Eleanora');
    await gateway.api('expert').say(idle, 'hello');
    const { answer, found } = await atWork(gateway, gateway.conversation);
    expect(found.get('Hermes')!.length).toBe(2);
    const of = (...names: Part[]) => names.flatMap((name) => found.get(name)!);
    const tree = gateway.tree();
    const ends = endsOutOfOrder(
      [
        { name: 'holders', processes: of('holder', 'relay', 'notifier', 'holder’s init', 'Hermes', 'tool') },
        { name: 'machine', processes: of('machine') },
        { name: 'supervisor', processes: of('supervisor') },
        { name: 'databases', processes: of('authority', 'postgres') },
      ],
      90_000,
    );
    gateway.signal('SIGTERM');
    expect(await gateway.exited(90_000)).toBe(0);
    expect(await ends).toEqual([]);
    await waitForEnd(tree, 0);
    expect(existsSync(join(gateway.dataDirectory, 'run'))).toBe(false);
    // Whoever waits is told where the message stands: it is settled at the next start.
    const { status, text } = await answer;
    expect([status, text]).toEqual([202, expect.stringContaining('"state":"dispatched"')]);
    expect(gateway.log).not.toContain('not stopped in order');
  },
  limitMs,
);

test('the order check would notice a later part that ends first', async () => {
  const start = (seconds: string) => Bun.spawn(['sleep', seconds]);
  const [first, second] = [start('0.6'), start('0.1')];
  const info = (pid: number) => descendants(process.pid).find((one) => one.pid === pid)!;
  const group = (name: string, pid: number) => ({ name, processes: [info(pid)] });
  const order = [group('first', first.pid), group('second', second.pid)];
  expect(await endsOutOfOrder(order, 10_000)).toEqual(['second before first']);
});
