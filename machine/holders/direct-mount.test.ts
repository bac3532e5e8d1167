/** Holders whose FUSE device this process has, with a shell in Hermes' place: they work, and nobody outlives anybody. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { createHash } from 'node:crypto';
import { mkdtempSync, readlinkSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  allGone,
  type Child,
  descendants,
  holderTests,
  openDescriptors,
  scriptManifest,
  token,
} from '../../zig/holder.fixture.ts';
import { rootIno } from '../agentfs/ids.ts';
import { type LocalFiles, openLocalFiles } from '../agentfs/local.fixture.ts';
import { canMount } from '../fuse/device.fixture.ts';
import { DirectStream } from '../fuse/direct-stream.ts';
import { Gate } from '../fuse/gate.ts';
import { FuseSession } from '../fuse/session.ts';
import { DeviceHandoff } from './device-handoff.ts';
import { type HolderSocket, type HolderStream, listenForHolders } from './holder-socket.ts';

const { spawn } = holderTests();
const directory = mkdtempSync(join(tmpdir(), 'direct-mount-'));
const holderTest = canMount ? test : test.skip;
let local: LocalFiles;
let socket: HolderSocket;

beforeAll(async () => {
  local = await openLocalFiles();
  const { names } = local.files;
  const conversations = await names.makeDirectory({ parent: rootIno, name: 'conversations' }, 0o755);
  for (const name of ['one', 'other']) {
    const conversation = await names.makeDirectory({ parent: conversations.ino, name }, 0o755);
    for (const part of ['work', 'artifacts', 'state', 'logs']) {
      await names.makeDirectory({ parent: conversation.ino, name: part }, 0o755);
    }
  }
  for (const name of ['memory', 'skills']) await names.makeDirectory({ parent: rootIno, name }, 0o755);
  socket = listenForHolders(join(directory, 'fuse.sock'));
});

afterAll(async () => {
  socket.stop();
  await local.close();
  rmSync(directory, { recursive: true, force: true });
});

interface Held {
  readonly child: Child;
  readonly session: Promise<FuseSession>;
  readonly log: string[];
  /** From now on whoever touches a shared part waits for ever; resolves when somebody does. */
  silence(): Promise<void>;
  /** Calls back once, from within the next request that touches a shared part. */
  inNextTouch(call: () => void): void;
}

/** A holder of a conversation, served as the machine serves it, with bash in Hermes' place. */
async function hold(conversation: string, script: string): Promise<Held> {
  const view = (await local.files.view(conversation))!;
  const handoff = new DeviceHandoff();
  const gate = new Gate();
  const log: string[] = [];
  const session = Promise.withResolvers<FuseSession>();
  const silenced = Promise.withResolvers<void>();
  let isSilent = false;
  let inTouch: (() => void) | null = null;
  const boundary = {
    touch: () => {
      inTouch?.();
      inTouch = null;
      if (!isSilent) return null;
      silenced.resolve();
      return new Promise<void>(() => undefined);
    },
    onStale: () => () => undefined,
    onFlush: () => () => undefined,
  };
  const arm = (control: HolderStream) =>
    control.onData((bytes) => {
      gate.arm(Number(/^pid (\d+)\n$/.exec(Buffer.from(bytes).toString('latin1'))?.[1]));
      void control.write(Buffer.from('go\n'));
    });
  const unexpect = socket.expect({
    token,
    onControl: arm,
    onFuse: (relay) => {
      const add = (text: string) => void log.push(text);
      const stream = new DirectStream({ relay, takeDevice: () => handoff.take(), log: add });
      session.resolve(new FuseSession({ view, gate, boundary, stream, log: add }));
    },
  });
  const manifest = scriptManifest({ socket: socket.path, token, script, extra: ['fuse-device 8'] });
  const child = spawn({ manifest, device: handoff.childEnd });
  handoff.closeChildEnd();
  const ended = child.exited.then(async () => Promise.reject(new Error(await child.stderr)));
  const served = await Promise.race([session.promise, ended]);
  // From here on its end is the test's.
  ended.catch(() => undefined);
  unexpect();
  void served.ended.then(() => handoff.close());
  const silence = () => {
    isSilent = true;
    return silenced.promise;
  };
  const inNextTouch = (call: () => void) => {
    inTouch = call;
  };
  return { child, session: session.promise, log, silence, inNextTouch };
}

/** As md5sum says it of its standard input. */
const sumOf = (text: string) => `${createHash('md5').update(text).digest('hex')}  -`;

const relayOf = (child: Child) => [...descendants(child.pid)].find(([, name]) => name === 'edge-relay')![0];

describe('a holder whose device the machine reads', () => {
  holderTest('works: names, contents, mappings, and Hermes has no descriptor of it', async () => {
    const script = [
      'for i in $(seq 200); do echo "text $i" >"f$i"; done',
      'cat f* | LC_ALL=C sort | md5sum',
      'head -c 5000000 /dev/zero | tr "\\0" "x" >big; md5sum <big',
      'rm f*',
      'ls',
      'read -r line',
    ].join('; ');
    const texts = Array.from({ length: 200 }, (_, index) => `text ${index + 1}\n`);
    const { child, log, session } = await hold('one', script);
    expect(await child.line()).toBe(sumOf(texts.sort().join('')));
    expect(await child.line()).toBe(sumOf('x'.repeat(5_000_000)));
    expect(await child.line()).toBe('big');
    const hermes = [...descendants(child.pid)].find(([, name]) => name === 'bash')![0];
    expect(openDescriptors(hermes)).toEqual([0, 1, 2, 3]);
    child.closeInput();
    expect(await child.exited).toBe(1); // `read` at the end of the input.
    expect(await child.stderr).toBe('');
    await (await session).ended;
    expect(log).toEqual([]);
  });

  holderTest('nobody is waked while nobody asks', async () => {
    const { child } = await hold('one', 'ls >/dev/null; echo ready; read -r line');
    await child.line();
    const relay = relayOf(child);
    const wakes = async () => {
      const status = await Bun.file(`/proc/${relay}/status`).text();
      return Number(/^voluntary_ctxt_switches:\s+(\d+)$/m.exec(status)![1]);
    };
    // What it still had to do is done.
    await Bun.sleep(200);
    const before = await wakes();
    await Bun.sleep(500);
    expect(await wakes()).toBe(before);
  });

  holderTest('two at once are both served', async () => {
    const script = 'for i in $(seq 300); do echo $i >a; read -r line <a; echo $line; done | md5sum';
    const holders = [await hold('one', script), await hold('other', script)];
    const lines = Array.from({ length: 300 }, (_, index) => `${index + 1}\n`);
    for (const { child } of holders) {
      expect(await child.line()).toBe(sumOf(lines.join('')));
      expect(await child.exited).toBe(0);
    }
  });

  /** A tool that waits for an answer that never comes. */
  async function stuck() {
    const { child, silence, session } = await hold('one', 'echo ready; read -r line; cat hello & read -r line; exit 3');
    expect(await child.line()).toBe('ready');
    const silenced = silence();
    child.write('on\n');
    await silenced;
    return { child, session, below: descendants(child.pid) };
  }

  holderTest.each(['edge-holder', 'edge-relay', 'edge-init'])(
    'an unanswered request keeps nobody alive: kill -9 of %s',
    async (name) => {
      const { child, below, session } = await stuck();
      const pid = name === 'edge-holder' ? child.pid : [...below].find(([, own]) => own === name)![0];
      process.kill(pid, 'SIGKILL');
      await child.exited;
      await allGone(below.keys());
      await (await session).ended;
    },
  );

  holderTest('an unanswered request does not keep Hermes’ end back', async () => {
    const { child, below } = await stuck();
    child.closeInput();
    expect(await child.exited).toBe(3);
    expect(await child.stderr).toEndWith('the machine does not answer on the FUSE stream: ETIMEDOUT\n');
    await allGone(below.keys());
  });

  holderTest('a session that ends takes the holder with it', async () => {
    const { child, session } = await hold('one', 'sleep 1000 & cat & echo ready; wait');
    await child.line();
    const below = descendants(child.pid);
    await (await session).close();
    expect(await child.exited).toBe(126);
    await allGone(below.keys());
  });

  holderTest('a session that ends within a request takes the holder with it', async () => {
    const { child, session, inNextTouch } = await hold(
      'one',
      'echo ready; read -r line; for i in $(seq 1000000); do cat none$i; done',
    );
    await child.line();
    const served = await session;
    inNextTouch(() => void served.close());
    const below = descendants(child.pid);
    child.write('on\n');
    expect(await child.exited).toBe(126);
    await allGone(below.keys());
    await served.ended;
  });

  holderTest('however holders end, in the middle of their work, no device stays here', async () => {
    const devices = () => openDescriptors(process.pid).filter((fd) => linkOf(fd).endsWith('/fuse'));
    const before = devices();
    const ends = [
      (child: Child) => void child.closeInput(),
      (child: Child) => void process.kill(child.pid, 'SIGKILL'),
      (child: Child) => void process.kill(relayOf(child), 'SIGKILL'),
      (_: Child, session: FuseSession) => void session.close(),
    ];
    for (const end of [...ends, ...ends]) {
      const { child, session } = await hold(
        'one',
        'while :; do ls; echo x >a; rm a; done >/dev/null & echo ready; read -r line',
      );
      await child.line();
      const served = await session;
      expect(devices().length).toBe(before.length + 1);
      end(child, served);
      await child.exited;
      await served.ended;
      expect(devices()).toEqual(before);
    }
  });
});

function linkOf(fd: number): string {
  try {
    return readlinkSync(`/proc/self/fd/${fd}`);
  } catch {
    return ''; // The one by which the list was read.
  }
}

test('a handoff through which nothing came gives nothing, and its sockets are closed', () => {
  const handoff = new DeviceHandoff();
  const end = handoff.childEnd;
  expect(openDescriptors(process.pid)).toContain(end);
  expect(handoff.take()).toBe(null);
  expect(handoff.take()).toBe(null);
  expect(openDescriptors(process.pid)).not.toContain(end);
});
