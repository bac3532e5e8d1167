import { expect, test } from 'bun:test';
import { Gate, leadsAway, type Question, threadGroupOf } from './gate.ts';
import { opcodes } from './wire.ts';

const hermes = 100;
/** Threads 100 and 101 are Hermes', 200 is a tool's, 300 is gone. */
const gate = () => new Gate((tid) => ({ 100: 100, 101: 100, 200: 200 })[tid] ?? null);
const armed = () => {
  const one = gate();
  one.arm(hermes);
  return one;
};
const ask = (opcode: number, pid: number, zone: Question['node']['zone'], more: Partial<Question> = {}): Question => ({
  opcode,
  pid,
  node: { zone, ino: 2 ** 40 },
  isRoot: false,
  ...more,
});

test('before arming, anybody may look at the directories to bind and at nothing else', () => {
  const one = gate();
  for (const zone of ['root', 'workspace', 'artifacts', 'home'] as const) {
    expect(one.allows(ask(opcodes.getattr, 7, zone, { isRoot: true }))).toBe(true);
    for (const opcode of [opcodes.opendir, opcodes.open, opcodes.mkdir, opcodes.setattr]) {
      expect(one.allows(ask(opcode, hermes, zone, { isRoot: true }))).toBe(false);
    }
  }
  expect(one.allows(ask(opcodes.lookup, 7, 'root', { isRoot: true }))).toBe(true);
  expect(one.allows(ask(opcodes.lookup, 7, 'workspace', { isRoot: true }))).toBe(false);
  expect(one.allows(ask(opcodes.lookup, 7, 'home', { isRoot: true, leadsTo: 'secret' }))).toBe(false);
  expect(one.allows(ask(opcodes.getattr, 7, 'workspace'))).toBe(false);
});

test('private zones are for threads of Hermes', () => {
  const one = armed();
  const all = Object.values(opcodes).filter(
    (opcode) =>
      ![
        opcodes.init,
        opcodes.forget,
        opcodes.batchForget,
        opcodes.release,
        opcodes.releasedir,
        opcodes.flush,
        opcodes.interrupt,
        opcodes.destroy,
        opcodes.notifyReply,
        opcodes.statfs,
      ].includes(opcode as never),
  );
  for (const zone of ['home', 'private', 'secret', 'memories'] as const) {
    for (const opcode of all) {
      expect(one.allows(ask(opcode, 100, zone))).toBe(true);
      expect(one.allows(ask(opcode, 101, zone))).toBe(true);
      const isWay = zone === 'home' && (opcode === opcodes.getattr || opcode === opcodes.access);
      expect([zone, opcode, one.allows(ask(opcode, 200, zone))]).toEqual([zone, opcode, isWay]);
      expect([zone, opcode, one.allows(ask(opcode, 300, zone))]).toEqual([zone, opcode, isWay]);
    }
  }
});

test('tools walk to the skills and read them, and change nothing there', () => {
  const one = armed();
  expect(one.allows(ask(opcodes.lookup, 200, 'home', { leadsTo: 'skills' }))).toBe(true);
  expect(one.allows(ask(opcodes.lookup, 200, 'home', { leadsTo: 'memories' }))).toBe(false);
  expect(one.allows(ask(opcodes.lookup, 200, 'home', { leadsTo: null }))).toBe(false);
  for (const opcode of [opcodes.lookup, opcodes.open, opcodes.read, opcodes.readdirplus]) {
    expect(one.allows(ask(opcode, 200, 'skills'))).toBe(true);
  }
  for (const opcode of [
    opcodes.create,
    opcodes.unlink,
    opcodes.rename2,
    opcodes.setattr,
    opcodes.write,
    opcodes.link,
  ]) {
    expect(one.allows(ask(opcode, 200, 'skills'))).toBe(false);
    expect(one.allows(ask(opcode, 101, 'skills'))).toBe(true);
  }
  expect(one.allows(ask(opcodes.open, 200, 'skills', { opensToWrite: true }))).toBe(false);
});

test('workspace and artifacts are for everybody in the mount', () => {
  for (const zone of ['workspace', 'artifacts', 'inbound'] as const) {
    for (const opcode of [opcodes.open, opcodes.create, opcodes.write, opcodes.unlink]) {
      expect(armed().allows(ask(opcode, 200, zone))).toBe(true);
    }
  }
});

test('a link out of the shared view leads tools, not Hermes', () => {
  for (const [linksTo, isFollowed] of [
    ['/hermes/.env', false],
    ['/workspace/inner', true],
  ] as const) {
    for (const zone of ['workspace', 'artifacts', 'inbound', 'skills'] as const) {
      expect(armed().allows(ask(opcodes.readlink, 101, zone, { linksTo }))).toBe(isFollowed);
      expect(armed().allows(ask(opcodes.readlink, 200, zone, { linksTo }))).toBe(true);
    }
    // Nobody but Hermes makes links there.
    expect(armed().allows(ask(opcodes.readlink, 101, 'private', { linksTo }))).toBe(true);
  }
});

test('where a link may lead', () => {
  const away = ['/hermes/x', '//hermes', '/./hermes', '/', '/proc/self/environ', '/tmp/other', '/dev/stdin', '/work'];
  const climbing = ['..', '../x', 'a/..', 'a/../b', '/workspace/a/../../hermes', '/workspace/..'];
  for (const target of [...away, ...climbing]) expect([target, leadsAway(target)]).toEqual([target, true]);
  for (const target of ['x', 'a/b', './a', 'a..b', '...', '/workspace', '/artifacts/inbound/x', '/usr/bin/python3']) {
    expect([target, leadsAway(target)]).toEqual([target, false]);
  }
});

test('nobody (pid 0) is the kernel itself: house-keeping and write-back, nothing else', () => {
  const one = armed();
  for (const opcode of [opcodes.init, opcodes.forget, opcodes.release, opcodes.releasedir, opcodes.flush]) {
    expect(one.allows(ask(opcode, 0, 'private'))).toBe(true);
  }
  for (const zone of ['private', 'workspace'] as const) {
    for (const opcode of [opcodes.getattr, opcodes.lookup, opcodes.open, opcodes.read, opcodes.write, opcodes.create]) {
      expect(one.allows(ask(opcode, 0, zone))).toBe(false);
    }
    expect(one.allows(ask(opcodes.write, 0, zone, { writesBack: true }))).toBe(true);
  }
});

test('a gate is armed once, with a process', () => {
  expect(() => armed().arm(5)).toThrow('already');
  expect(() => gate().arm(0)).toThrow('no process');
});

test('the thread group of a real thread, of a child, and of nobody', async () => {
  const script = `
import os, threading, subprocess, sys, time
ready = threading.Event(); tid = []
def work():
    tid.append(threading.get_native_id()); ready.set(); time.sleep(30)
threading.Thread(target=work, daemon=True).start(); ready.wait()
child = subprocess.Popen(['sleep', '30'])
print(os.getpid(), tid[0], child.pid, flush=True)
sys.stdin.read(); child.kill()`;
  const python = Bun.spawn(['python3', '-c', script], { stdin: 'pipe', stdout: 'pipe' });
  let line = '';
  for await (const bytes of python.stdout) {
    line += new TextDecoder().decode(bytes);
    if (line.includes('\n')) break;
  }
  const [pid, tid, child] = line.trim().split(' ').map(Number);
  expect(tid).not.toBe(pid!);
  expect(threadGroupOf(pid!)).toBe(pid!);
  expect(threadGroupOf(tid!)).toBe(pid!);
  expect(threadGroupOf(child!)).toBe(child!);
  python.stdin.end();
  await python.exited;
  expect(threadGroupOf(tid!)).toBeNull();
});
