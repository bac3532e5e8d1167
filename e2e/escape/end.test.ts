/** Whatever a model starts is gone within a second of its holder's end, however hard it holds on. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { readdirSync, readlinkSync } from 'node:fs';
import { descendants, isAlive, type ProcessInfo, readProcess } from '../harness/processes.ts';
import { partsBelow } from '../harness/tree.ts';
import { Cell, limitMs } from './cell.fixture.ts';

/** From the end of the holder's process to the end of the last one inside; a requirement, not a measurement. */
const requiredMs = 1_000;

let cell: Cell;

beforeAll(async () => {
  cell = await Cell.start({ neighbour: false });
}, limitMs);
afterAll(async () => {
  await cell?.stop();
}, limitMs);

/** Each holds on in its own way. They say nothing, so that the tool's call returns. */
const clingers: Readonly<Record<string, string>> = {
  'in the background': 'sleep 1000 &',
  'without a hangup': 'nohup sleep 1000 &',
  'in a session of its own': 'setsid sleep 1000 &',
  'forked twice': '(setsid bash -c "(sleep 1000 &) & exit" &)',
  'deaf to every signal': `setsid bash -c 'for s in $(seq 1 64); do trap "" $s 2>/dev/null; done; while :; do sleep 1000; done' &`,
  'answering every signal with a new one': `setsid bash -c 'again() { setsid bash -c "sleep 1000" & }; for s in HUP INT QUIT TERM USR1 USR2 PIPE ALRM EXIT; do trap again $s; done; while :; do sleep 1; done' &`,
  'one that watches another and starts it again': `setsid bash -c 'while :; do sleep 0.05; pgrep -x clung >/dev/null || (exec -a clung sleep 1000 &); done' &`,
  'a chain that forks and ends': `setsid python3 -c '
import os, time
while True:
    if os.fork(): os._exit(0)
    time.sleep(0.001)
' &`,
  'many chains at once': `for i in 1 2 3 4 5 6 7 8; do setsid python3 -c '
import os
while True:
    if os.fork(): os._exit(0)
' & done`,
  stopped: `setsid bash -c 'kill -STOP $$' &`,
  'traced by nobody, with a name of its own': `setsid python3 -c '
import ctypes, time
PR_SET_NAME = 15
ctypes.CDLL(None).prctl(PR_SET_NAME, b"kworker/0:0", 0, 0, 0)
ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
time.sleep(1000)
' &`,
  'with a listening socket': `setsid python3 -m http.server 0 --bind 127.0.0.1 &`,
  'writing to the workspace without an end': `setsid bash -c 'while :; do echo x >> /workspace/growing; done' &`,
  'waiting in the file system': `setsid python3 -c '
import fcntl, os, time
f = open("/workspace/lock", "w"); fcntl.flock(f, fcntl.LOCK_EX)
os.fork(); g = open("/workspace/lock", "w")
fcntl.flock(g, fcntl.LOCK_EX)
' &`,
};

/** Starts them all, and answers when each that can be seen is there. */
async function start(): Promise<ProcessInfo[]> {
  const script = Object.values(clingers).map((command) => `(${command}) > /dev/null 2>&1 < /dev/null`);
  await cell.shell(script.join('\n'));
  const deadlineMs = performance.now() + 30_000;
  for (;;) {
    const found = inside();
    const seen = visible.filter((words) => found.some(({ argv }) => argv.join(' ').includes(words)));
    if (seen.length === visible.length) return found;
    if (performance.now() > deadlineMs)
      throw new Error(`not there: ${visible.filter((words) => !seen.includes(words))}`);
    await Bun.sleep(50);
  }
}

/** Words in the command lines of those that stay long enough to be listed; the chains of forks do not. */
const visible = [
  'sleep 1000',
  'trap "" $s',
  'trap again $s',
  'pgrep -x clung',
  'kill -STOP',
  'PR_SET_NAME',
  'http.server',
  'growing',
  'flock',
];

/** Everything of the holder: its processes outside of the namespace, and all within. */
function inside(): ProcessInfo[] {
  return [...(partsBelow(cell.gateway.pid).get('holder') ?? [])].flatMap((outer) => descendants(outer.pid));
}

const holder = () => partsBelow(cell.gateway.pid).get('holder')![0]!;

/** How long something in the holder's PID namespace lived on after its outer process had ended, in milliseconds. */
async function lingeringMs(outer: ProcessInfo, namespace: string): Promise<number> {
  while (isAlive(outer)) await Bun.sleep(1);
  const endedAt = performance.now();
  for (;;) {
    const isLeft = readdirSync('/proc').some((name) => /^\d+$/.test(name) && livesIn(namespace, Number(name)));
    const ms = performance.now() - endedAt;
    if (!isLeft || ms > 30_000) return ms;
    await Bun.sleep(2);
  }
}

/** A zombie has no namespaces any more that could be looked at. */
function livesIn(namespace: string, pid: number): boolean {
  try {
    return readlinkSync(`/proc/${pid}/ns/pid`) === namespace && readProcess(pid)?.state !== 'Z';
  } catch {
    return false; // It ended meanwhile.
  }
}

async function expectGone(end: (outer: ProcessInfo, hermes: ProcessInfo) => void): Promise<void> {
  await start();
  const outer = holder();
  const [hermes] = cell.hermes();
  const namespace = readlinkSync(`/proc/${hermes!.pid}/ns/pid`);
  end(outer, hermes!);
  expect(await lingeringMs(outer, namespace)).toBeLessThanOrEqual(requiredMs);
}

const machine = () => partsBelow(cell.gateway.pid).get('machine')![0]!;

describe(`all of them are gone within a second: ${Object.keys(clingers).join(', ')}`, () => {
  test('when the holder is killed', () => expectGone((outer) => process.kill(outer.pid, 'SIGKILL')));
  test('when Hermes is told to end', () => expectGone((_, hermes) => process.kill(hermes.pid, 'SIGTERM')));
  test('when Hermes is killed', () => expectGone((_, hermes) => process.kill(hermes.pid, 'SIGKILL')));
  test('when the first process inside is killed', () =>
    expectGone(() => process.kill(partsBelow(cell.gateway.pid).get('holder’s init')![0]!.pid, 'SIGKILL')));
  // The last: the gateway ends with its machine.
  test('when the machine is killed', () => expectGone(() => process.kill(machine().pid, 'SIGKILL')));
});
