/** What a running holder is given and what it keeps to itself: descriptors, seals, private environment, its end (acceptance 8). */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { ExecStops } from './harness/exec-stops.ts';
import { Gateway } from './harness/gateway.ts';
import { call, type ModelRequest, ScriptedModel, say } from './harness/model.ts';
import { descendants, descriptorsOf, type ProcessInfo } from './harness/processes.ts';
import { refusalOfWrite, sealsOf } from './harness/seals.ts';
import { type Part, partsBelow } from './harness/tree.ts';

const limitMs = 180_000;
const key = `sk-test-${crypto.randomUUID()}${crypto.randomUUID()}`;
const allSeals = ['SEAL', 'SHRINK', 'GROW', 'WRITE'];

let model: ScriptedModel;
let gateway: Gateway;

beforeAll(async () => {
  model = ScriptedModel.start();
  gateway = await Gateway.start({
    environment: { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: key },
  });
}, limitMs);

afterAll(async () => {
  await gateway?.[Symbol.asyncDispose]();
  await model?.stop();
}, limitMs);

const messages = () => `/v1/conversations/${gateway.conversation}/messages`;
const resultOf = ({ body }: ModelRequest) => String(body.messages.at(-1)!.content);
const only = (part: Part): ProcessInfo => {
  const found = partsBelow(gateway.pid).get(part)!;
  if (found.length !== 1) throw new Error(`${found.length} processes are the ${part}`);
  return found[0]!;
};

/** What a descriptor is, whatever its number. */
function kindOf(target: string): string {
  if (target.startsWith('/memfd:')) return target.replace(' (deleted)', '').slice(1);
  return /^(socket|pipe):/.exec(target)?.[1] ?? /^anon_inode:\[(\w+)\]/.exec(target)?.[1] ?? target;
}
const kindsOf = (pid: number): Map<number, string> =>
  new Map([...descriptorsOf(pid)].map(([fd, target]) => [fd, kindOf(target)]));

/** Runs `work` while a tool of a turn is running. */
async function whileToolRuns(work: (tools: readonly ProcessInfo[]) => void): Promise<void> {
  model.on('wait a while', call('terminal', { command: 'sleep 31415' }), say('ok'));
  const answer = gateway.api().post(messages(), { text: 'wait a while' }, { prefer: 'wait=120' });
  const deadlineMs = performance.now() + 60_000;
  let sleeping: ProcessInfo | undefined;
  while (sleeping === undefined) {
    sleeping = descendants(gateway.pid).find(({ argv }) => argv[0] === 'sleep' && argv[1] === '31415');
    if (performance.now() > deadlineMs) throw new Error('no tool is running');
    await Bun.sleep(20);
  }
  try {
    work(partsBelow(gateway.pid).get('tool')!);
  } finally {
    process.kill(sleeping.pid, 'SIGKILL');
    await answer;
  }
}

describe('descriptors', () => {
  test(
    'confined-exec starts with 0–8, sealed inputs on 4–7, and Hermes with 0–3 of them',
    async () => {
      const machine = only('machine');
      await using stops = await ExecStops.attach(machine.pid);
      const reply = gateway.api().say(gateway.conversation, 'hello');

      const outer = await stops.stopped((argv) => argv[1] === 'holder');
      const given = descriptorsOf(outer.pid);
      expect([...kindsOf(outer.pid)]).toEqual([
        [0, 'socket'],
        [1, 'socket'],
        [2, 'socket'],
        [3, 'socket'],
        [4, 'memfd:manifest'],
        [5, 'memfd:ca-bundle'],
        [6, 'memfd:environment'],
        [7, 'memfd:start-script'],
        [8, 'socket'],
      ]);
      for (const fd of [4, 5, 6, 7]) {
        expect(sealsOf(outer.pid, fd), `seals of ${fd}`).toEqual(allSeals);
        expect(refusalOfWrite(outer.pid, fd)).toBe('EPERM');
      }
      const text = (fd: number) => readFileSync(`/proc/${outer.pid}/fd/${fd}`, 'utf8');
      expect(text(4)).toMatch(/^edge-holder 1\nuid \d+\n/);
      expect(text(5)).toContain('-----BEGIN CERTIFICATE-----');
      expect(text(6)).toContain(`EDGE_MODEL_KEY=${key}\0`);
      expect(text(7)).toContain('def replace_connect(');
      // Nothing else of the machine or the gateway comes along.
      expect(readFileSync(`/proc/${outer.pid}/environ`, 'utf8')).toBe('');
      stops.go(outer);

      const hermes = await stops.stopped((argv) => argv.includes('/opt/edge/start.py'));
      expect([...descriptorsOf(hermes.pid)]).toEqual([...given].slice(0, 4));
      await stops.detach();
      expect((await reply).reply.text).toBe('ok');
    },
    limitMs,
  );

  test('the machine keeps sealed memory files, and no manifest', () => {
    const { pid } = only('machine');
    const files = [...kindsOf(pid)].filter(([, kind]) => kind.startsWith('memfd:') && kind !== 'memfd:turso-sync');
    expect(files.map(([, kind]) => kind).toSorted()).toEqual(
      ['memfd:ca-bundle', 'memfd:confined-exec', 'memfd:environment', 'memfd:start-script'].toSorted(),
    );
    for (const [fd, kind] of files) {
      expect(sealsOf(pid, fd), kind).toEqual(allSeals);
      if (kind !== 'memfd:confined-exec') expect(refusalOfWrite(pid, fd), kind).toBe('EPERM');
    }
  });

  test('a running Hermes has 0–3 and what it opened itself, in its own places', () => {
    const { pid } = only('Hermes');
    const fds = kindsOf(pid);
    expect([0, 1, 2, 3].map((fd) => fds.get(fd))).toEqual(['socket', 'socket', 'socket', 'socket']);
    // asyncio's poll and its wake-up pair, connections to the model, pipes of tools; logs, databases, certificates.
    const own = /^(eventpoll|eventfd|socket|pipe|\/(hermes|workspace|artifacts|tmp|dev)\/.*|\/opt\/(hermes|edge)\/.*)$/;
    expect([...fds].filter(([fd, kind]) => fd > 3 && !own.test(kind))).toEqual([]);
    // Its input, its output and the machine channel are nobody else's.
    const targets = descriptorsOf(pid);
    const others = gateway.tree().filter((process) => process.pid !== pid);
    for (const fd of [0, 1, 3]) {
      const sharing = others.filter((process) => [...descriptorsOf(process.pid).values()].includes(targets.get(fd)!));
      expect(sharing, `descriptor ${fd}`).toEqual([]);
    }
  });

  test('the processes of confined-exec have the descriptors of the design', () => {
    const kinds = (part: Part) => [...kindsOf(only(part).pid).values()].toSorted();
    const null_ = '/dev/null';
    const design: Partial<Record<Part, readonly string[]>> = {
      // Standard error, how the machine ended, and the signals that it waits for.
      supervisor: [null_, null_, null_, 'socket', 'pipe', 'signalfd'],
      'supervisor’s init': [null_, null_, null_, 'socket', 'pipe'],
      // Standard error, the words with the machine, those with the init, Hermes itself, signals.
      holder: [null_, null_, null_, 'socket', 'socket', 'socket', 'pidfd', 'signalfd'],
      // Standard error, the FUSE stream to the machine, the pair with the holder, the device, to and from the notifier.
      relay: [null_, null_, 'socket', 'socket', 'socket', '/fuse', 'pipe', 'pipe'],
      notifier: [null_, null_, 'socket', '/fuse', 'pipe', 'pipe'],
      'holder’s init': [null_, null_, null_, 'socket', 'socket'],
    };
    for (const [part, expected] of Object.entries(design)) {
      expect(kinds(part as Part), part).toEqual([...expected].toSorted());
    }
  });

  test(
    'a tool shell and what it starts have 0–2',
    async () => {
      const listing = 'ls /proc/self/fd; echo shell; ls /proc/$$/fd';
      model.on('list them', call('terminal', { command: listing }), say('ok'));
      await gateway.api().say(gateway.conversation, 'list them');
      // The fourth one of ls is the directory that it reads.
      expect(resultOf(model.turns.at(-1)!)).toContain('0\\n1\\n2\\n3\\nshell\\n0\\n1\\n2');
      await whileToolRuns((tools) => {
        expect(tools.length).toBeGreaterThanOrEqual(2);
        for (const { pid, argv } of tools) {
          expect([...kindsOf(pid)], argv.join(' ').slice(0, 80)).toEqual([
            [0, '/dev/null'],
            [1, 'pipe'],
            [2, 'pipe'],
          ]);
        }
      });
    },
    limitMs,
  );
});

describe('the private environment', () => {
  /** Everything that a tool can read of variables, in hex: nothing on the way would recognize and hide a key. */
  const spy = [
    'import glob, os',
    'def show(name, read):',
    '    try:',
    '        print(name, read().hex() or "-")',
    '    except OSError as error:',
    '        print(name, error.strerror)',
    'def show_file(path, size=-1):',
    '    show(path, lambda: open(path, "rb").read(size))',
    'show("own", lambda: repr(dict(os.environ)).encode())',
    'for path in sorted(glob.glob("/proc/[0-9]*/environ")):',
    '    show_file(path)',
    'for path in sorted(glob.glob("/tmp/**", recursive=True, include_hidden=True)):',
    '    if os.path.isfile(path): show_file(path)',
    'for name in (".env", "config.yaml", "state.db", "logs/agent.log"):',
    '    show_file("/hermes/" + name)',
    'hermes = [pid for pid in os.listdir("/proc") if pid.isdigit() and b"start.py" in open(f"/proc/{pid}/cmdline", "rb").read()]',
    'assert len(hermes) == 1',
    'for name in ("mem", "maps", "environ", "fd/0", "root/hermes/.env", "cwd"):',
    '    show_file(f"/proc/{hermes[0]}/{name}", 1)',
  ].join('\n');

  /** The text with every hex run in it decoded. */
  const decoded = (text: string): string =>
    text.replaceAll(/\b(?:[0-9a-f]{2}){8,}\b/g, (hex) => Buffer.from(hex, 'hex').toString('latin1'));

  test(
    'reaches Hermes, and no tool in any way',
    async () => {
      model.on(
        'spy',
        call('write_file', { path: 'spy.py', content: spy }),
        call('terminal', { command: 'python3 spy.py' }),
        call('execute_code', { code: spy }),
        call('terminal', {
          command: 'python3 spy.py > spied.txt 2>&1; echo > spied',
          background: true,
          notify_on_complete: true,
        }),
        call('terminal', { command: 'until [ -e spied ]; do sleep 0.1; done; cat spied.txt', timeout: 60 }),
        say('ok'),
      );
      const from = model.turns.length;
      await gateway.api().say(gateway.conversation, 'spy');
      const requests = model.turns.slice(from);
      expect(requests.length).toBe(6);
      expect(new Set(requests.map(({ authorization }) => authorization))).toEqual(new Set([`Bearer ${key}`]));
      const seen = [2, 3, 5].map((index) => decoded(resultOf(requests[index]!)));
      for (const [index, text] of seen.entries()) {
        expect(text, `look ${index}`).toContain('HERMES_HOME');
        expect(text).toContain('/opt/edge/ca.pem');
        expect(text).not.toContain(key);
        expect(text).not.toContain('EDGE_MODEL');
        // Its own variables, and those of the other tool processes, could be read.
        expect(text.match(/\/proc\/\d+\/environ [^P]/g)?.length ?? 0).toBeGreaterThan(0);
        for (const name of ['/hermes/.env', '/hermes/config.yaml', '/hermes/logs/agent.log'])
          expect(text).toContain(`${name} Permission denied`);
        for (const name of ['mem', 'maps', 'environ', 'fd/0', 'root/hermes/.env', 'cwd'])
          expect(text).toMatch(new RegExp(`/proc/\\d+/${name} Permission denied`));
      }
    },
    limitMs,
  );

  test(
    'is in no environment but that of Hermes, in no argument, log, transcript or file',
    async () => {
      await whileToolRuns(() => {
        const hermes = only('Hermes').pid;
        for (const { pid, argv } of gateway.tree()) {
          expect(argv.join(' ').includes(key), `arguments of ${pid}`).toBe(false);
          const holdsKey = readFileSync(`/proc/${pid}/environ`, 'latin1').includes(key);
          expect(holdsKey, argv.join(' ').slice(0, 60)).toBe(pid === hermes);
        }
      });
      expect(gateway.log).not.toContain(key);
      const transcript = await gateway
        .api('superadmin')
        .get(`/v1/conversations/${gateway.conversation}/transcript?view=canonical`);
      expect(transcript.status).toBe(200);
      expect(transcript.text).not.toContain(key);
      const files = readdirSync(gateway.dataDirectory, { recursive: true, encoding: 'utf8' })
        .map((name) => join(gateway.dataDirectory, name))
        .filter((path) => statSync(path).isFile());
      expect(files.length).toBeGreaterThan(20);
      expect(files.filter((path) => readFileSync(path).includes(key))).toEqual([]);
    },
    limitMs,
  );
});

test.each(['SIGTERM', 'SIGSEGV', 'SIGABRT', 'SIGKILL'] as const)(
  '%s of Hermes during a turn reaches the gateway: the message fails and says so, the next one works',
  async (signal) => {
    // Hermes joins a message that got no answer with the next one.
    model.on((text) => text.includes('be killed') && !text.includes('and now?'), { do: 'hang' });
    const answer = gateway.api().post(messages(), { text: `be killed by ${signal}` }, { prefer: 'wait=120' });
    await model.waitForTurn(`be killed by ${signal}`);
    process.kill(only('Hermes').pid, signal);
    const failed = await answer;
    expect(failed.status).toBe(502);
    expect(failed.json()).toMatchObject({
      type: 'urn:edge-gateway:problem:agent-failed',
      title: 'The agent failed',
      detail: `The agent ended during the turn (${signal}). Send the message again.`,
      signal,
    });
    const { message } = failed.json() as { message: string };
    expect((await gateway.api().get(`${messages()}/${message}`)).json()).toMatchObject({
      state: 'failed',
      problem: { type: 'urn:edge-gateway:problem:agent-failed', signal },
    });
    expect((await gateway.api().say(gateway.conversation, 'and now?')).reply.text).toBe('ok');
  },
  limitMs,
);

test(
  'the start script of a holder replaces nothing in Hermes, and would notice it',
  async () => {
    const check = 'mkdir -p /tmp/check; export EDGE_SELFCHECK=1 HERMES_HOME=/tmp/check';
    const patched = [
      "python - <<'PATCH'",
      'import json, runpy, sys',
      "open('/tmp/check/patch.py', 'w').write('def replaced(*args): pass\\n')",
      "sys.path.insert(0, '/tmp/check')",
      "start = runpy.run_path('/opt/edge/start.py')",
      'import acp_adapter.server, agent.conversation_loop, patch, run_agent, toolsets',
      'for name in ("prompt", "initialize"):',
      '    setattr(acp_adapter.server.HermesACPAgent, name, patch.replaced)',
      'toolsets.resolve_toolset = run_agent.AIAgent.run_conversation = patch.replaced',
      'agent.conversation_loop.added = patch.replaced',
      "print('found', json.dumps([one['attribute'] for one in start['replaced_in_hermes']()['replaced']]))",
      'PATCH',
    ].join('\n');
    const plain = '/opt/hermes/bin/python -I /opt/edge/start.py 3< /dev/null';
    model.on('self-check', call('terminal', { command: `${check}\n${plain}\n${patched}` }), say('ok'));
    await gateway.api().say(gateway.conversation, 'self-check');
    const { output } = JSON.parse(resultOf(model.turns.at(-1)!)) as { output: string };
    const report = JSON.parse(/^\{.*\}$/m.exec(output)?.[0] ?? output) as { modules: number; replaced: unknown };
    expect(report.modules).toBeGreaterThan(50);
    expect(report.replaced).toEqual([]);
    const found = JSON.parse(/^found (.*)$/m.exec(output)?.[1] ?? output) as string[];
    for (const name of [
      'HermesACPAgent.prompt',
      'resolve_toolset',
      'AIAgent.run_conversation',
      'conversation_loop.added',
    ])
      expect(
        found.some((attribute) => attribute.endsWith(name)),
        `${name} in ${found}`,
      ).toBe(true);
  },
  limitMs,
);
