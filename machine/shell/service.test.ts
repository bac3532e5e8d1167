/** The machine's side of `git`: what it makes of calls, and of everything else that a holder can send. */
import { afterEach, describe, expect, test } from 'bun:test';
import { existsSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { LedgerCall } from '../agentfs/ledger.ts';
import type { GitCall, GitOutcome } from './git-call.ts';
import { ledgerRow, withoutCredentials } from './ledger-row.ts';
import { isInView, outsidePath, placeCall } from './place.ts';
import { encode, limits } from './protocol.ts';
import { GitService, type ServiceLimits } from './service.ts';

type Run = (call: GitCall) => Promise<GitOutcome>;

const done = (exitCode: number): GitOutcome => ({ kind: 'done', exitCode });
const text = (value: string) => Buffer.from(value);

class Fixture {
  readonly directory = mkdtempSync(join(tmpdir(), 'edge-git-service-'));
  readonly rows: LedgerCall[] = [];
  readonly lines: string[] = [];
  readonly steps: string[] = [];
  readonly service: GitService;
  run: Run;

  constructor(run: Run, given: Partial<ServiceLimits> = {}) {
    this.run = run;
    this.service = new GitService({
      path: join(this.directory, 'git.sock'),
      conversation: 'conv_a',
      engine: { run: (call) => this.run(call) },
      kernel: {
        flush: async () => void this.steps.push('flush'),
        noteChanges: () => {
          this.steps.push('note');
          return async () => void this.steps.push('known');
        },
      },
      ledger: {
        record: async (row) => {
          this.steps.push('record');
          this.rows.push(row);
        },
      },
      log: (line) => this.lines.push(line),
      limits: given,
    });
  }

  client(): Client {
    return new Client(this.service.path);
  }
}

let fixtures: Fixture[] = [];
function serve(run: Run, given?: Partial<ServiceLimits>): Fixture {
  const fixture = new Fixture(run, given);
  fixtures.push(fixture);
  return fixture;
}
afterEach(async () => {
  for (const { service, directory } of fixtures) {
    await service.close();
    rmSync(directory, { recursive: true, force: true });
  }
  fixtures = [];
});

interface Told {
  readonly argv?: readonly string[];
  readonly cwd?: string;
  readonly environment?: readonly string[];
  readonly flags?: number;
  readonly config?: string;
}

function callPayload(told: Told): Buffer {
  const { argv = ['status'], cwd = '/workspace', environment = [], flags = 0, config = '' } = told;
  const fixed = Buffer.alloc(24);
  [1, flags, 0o22, argv.length, environment.length, config.length].forEach((number, index) => {
    fixed.writeUInt32LE(number, index * 4);
  });
  const texts = [cwd, ...argv, ...environment].map((one) => `${one}\0`).join('');
  return Buffer.concat([fixed, text(texts), text(config)]);
}

function frame(letter: string, payload: Uint8Array, length = payload.length): Buffer {
  const header = Buffer.alloc(5);
  header.write(letter, 'latin1');
  header.writeUInt32LE(length, 1);
  return Buffer.concat([header, payload]);
}

const native = 1 << 3;

/** Any bytes in, frames out. */
class Client {
  readonly socket: net.Socket;
  readonly closed = Promise.withResolvers<void>();
  #got = Buffer.alloc(0);
  #arrival = Promise.withResolvers<void>();
  #isClosed = false;

  constructor(path: string) {
    this.socket = net.connect(path);
    this.socket.on('error', () => undefined); // Being cut off is what many tests are about.
    this.socket.on('close', () => {
      this.#isClosed = true;
      this.#arrival.resolve();
      this.closed.resolve();
    });
    this.socket.on('data', (bytes: Buffer) => {
      this.#got = Buffer.concat([this.#got, bytes]);
      this.#arrival.resolve();
      this.#arrival = Promise.withResolvers();
    });
  }

  call(told: Told = {}): this {
    this.socket.write(frame('C', callPayload(told)));
    return this;
  }

  send(letter: string, payload: Uint8Array = Buffer.alloc(0)): this {
    this.socket.write(frame(letter, payload));
    return this;
  }

  /** The next frame, as its letter and its text; null at the end. */
  async next(): Promise<string | null> {
    for (;;) {
      if (this.#got.length >= 5) {
        const length = this.#got.readUInt32LE(1);
        if (this.#got.length >= 5 + length) {
          const payload = this.#got.subarray(5, 5 + length);
          const letter = this.#got.toString('latin1', 0, 1);
          this.#got = this.#got.subarray(5 + length);
          return letter === 'X' ? `X${payload[0]}` : `${letter}${payload}`;
        }
      }
      if (this.#isClosed) return null;
      await this.#arrival.promise;
    }
  }

  /** All frames to the end. */
  async all(): Promise<string[]> {
    const frames: string[] = [];
    for (let one = await this.next(); one !== null; one = await this.next()) frames.push(one);
    return frames;
  }
}

describe('a call', () => {
  test('is run with what was told, between a flush and the kernel’s forgetting, and recorded before its answer', async () => {
    const calls: GitCall[] = [];
    const fixture = serve(async (call) => {
      calls.push(call);
      fixture.steps.push('run');
      await call.stdout(text('out'));
      await call.stderr(text('err'));
      return done(3);
    });
    const client = fixture.client().call({
      argv: ['log', '', 'ü'],
      cwd: '/workspace/a',
      environment: ['GIT_DIR=x=y', 'TZ='],
      flags: 0b10010,
      config: '[user]',
    });
    expect(await client.all()).toEqual(['Oout', 'Rerr', 'X3']);
    expect(fixture.steps).toEqual(['flush', 'note', 'run', 'known', 'record']);
    const call = calls[0]!;
    expect(call.argv).toEqual(['log', '', 'ü']);
    expect(call.cwd).toBe('/workspace/a');
    expect(call.environment).toEqual({ GIT_DIR: 'x=y', TZ: '' });
    expect(call.terminals).toEqual({ input: false, output: true, errors: false });
    expect(call.umask).toBe(0o22);
    expect(Buffer.from((await call.globalConfig!.read())!).toString()).toBe('[user]');
    expect(fixture.rows[0]).toMatchObject({
      name: 'git',
      conversation: 'conv_a',
      parameters: { argv: ['git', 'log', '', 'ü'], cwd: '/workspace/a' },
      result: { engine: 'just-git', exitCode: 3 },
      error: 'exit code 3',
    });
  });

  test('may come in any pieces', async () => {
    const fixture = serve(async ({ argv }) => done(argv.length));
    const client = fixture.client();
    client.socket.setNoDelay(true);
    for (const byte of frame('C', callPayload({ argv: ['a', 'b'] }))) {
      client.socket.write(Uint8Array.of(byte));
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(await client.all()).toEqual(['X2']);
  });

  test('gets standard input only when it asks, and then all of it, once', async () => {
    const fixture = serve(async (call) => {
      const [one, two] = await Promise.all([call.stdin(), call.stdin()]);
      await call.stdout(one);
      return done(one === two ? 0 : 1);
    });
    const client = fixture.client().call();
    expect(await client.next()).toBe('S');
    client.send('I', text('first ')).send('I', text('second')).send('I');
    expect(await client.all()).toEqual(['Ofirst second', 'X0']);
  });

  test('sends large output in frames that a client takes', async () => {
    const fixture = serve(async (call) => {
      await call.stdout(Buffer.alloc(limits.data * 2 + 1, 'x'));
      return done(0);
    });
    const sizes = (await fixture.client().call().all()).map((one) => one.length - 1);
    expect(sizes).toEqual([limits.data, limits.data, 1, 1]);
  });

  test('that fails in the machine says so, and the log says why', async () => {
    const fixture = serve(() => Promise.reject(new Error('a defect')));
    expect(await fixture.client().call().all()).toEqual([
      'Rfatal: git failed in the machine; its log says why\n',
      'X128',
    ]);
    expect(fixture.lines.join()).toContain('a defect');
    expect(fixture.steps).toContain('known');
  });

  test('can change the user’s configuration, and learns when that fails', async () => {
    const fixture = serve(async (call) => {
      await call.globalConfig!.write(text('[a]'));
      await call.globalConfig!.write(text('[b]')).catch((error: Error) => call.stderr(text(error.message)));
      return done(0);
    });
    const client = fixture.client().call();
    expect(await client.next()).toBe('P[a]');
    client.send('W', Uint8Array.of(0, 0, 0, 0));
    expect(await client.next()).toBe('P[b]');
    client.send('W', Uint8Array.of(17, 0, 0, 0));
    expect(await client.all()).toEqual(["Rthe user's configuration file cannot be written: errno 17", 'X0']);
  });
});

describe('what is left to the native git', () => {
  const leaves: Run = async () => ({ kind: 'native', reason: 'rebase -i is not done here' });

  test('where there is one: it is told, and its end is recorded', async () => {
    const fixture = serve(leaves);
    const client = fixture.client().call({ argv: ['rebase', '-i'], flags: native });
    expect(await client.next()).toBe('N');
    expect(fixture.rows).toEqual([]);
    client.send('E', Uint8Array.of(0, 7, 0, 0));
    expect(await client.all()).toEqual([]);
    expect(fixture.rows[0]).toMatchObject({
      result: { engine: 'native', exitCode: 7, reason: 'rebase -i is not done here' },
      error: 'exit code 7',
    });
  });

  test('where there is none: a plain answer', async () => {
    const fixture = serve(leaves);
    const client = fixture.client().call({ argv: ['-c', 'a=b', 'rebase', '-i', 'x'] });
    expect(await client.all()).toEqual([
      "Rgit: 'rebase -i' is not available here (rebase -i is not done here)\n",
      'X1',
    ]);
    expect(fixture.rows[0]).toMatchObject({ result: { engine: 'none', exitCode: 1 } });
  });

  test('a client that goes before its end', async () => {
    const fixture = serve(leaves);
    const client = fixture.client().call({ flags: native });
    await client.next();
    client.socket.destroy();
    while (fixture.rows.length === 0) await Bun.sleep(1);
    expect(fixture.rows[0]).toMatchObject({ result: { engine: 'native', exitCode: null }, error: expect.any(String) });
  });

  test('a directory of the holder alone', async () => {
    const fixture = serve(async () => done(0));
    expect(await fixture.client().call({ cwd: '/tmp/r', flags: native }).next()).toBe('N');
    expect((await fixture.client().call({ cwd: '/tmp/r' }).all())[0]).toContain(
      'neither in /workspace nor in /artifacts',
    );
    expect(
      await fixture
        .client()
        .call({ argv: ['-C', '/workspace/r', 'status'], cwd: '/tmp/r' })
        .all(),
    ).toEqual(['X0']);
  });
});

describe('the end of a call', () => {
  const untilAborted: Run = (call) =>
    new Promise((_, reject) => call.signal.addEventListener('abort', () => reject(new Error('aborted'))));

  test('by a signal', async () => {
    const fixture = serve(untilAborted);
    const client = fixture.client().call().send('K', Uint8Array.of(2));
    expect(await client.all()).toEqual(['X130']);
    expect(fixture.rows[0]).toMatchObject({ result: { signal: 2 }, error: 'ended by signal 2' });
  });

  test('by the client’s own end', async () => {
    const fixture = serve(untilAborted);
    const client = fixture.client().call();
    while (!fixture.steps.includes('note')) await Bun.sleep(1);
    client.socket.destroy();
    while (fixture.rows.length === 0) await Bun.sleep(1);
    expect(fixture.rows[0]).toMatchObject({ result: { exitCode: null } });
    expect(fixture.lines).toEqual([]);
  });

  test('by its time', async () => {
    const fixture = serve(untilAborted, { wallMs: 30 });
    expect(await fixture.client().call().all()).toEqual([
      'Rfatal: git took longer than 0.03 s and was ended\n',
      'X128',
    ]);
  });

  test('by its time while it waits for input that never comes', async () => {
    const fixture = serve(async (call) => done((await call.stdin()).length), { wallMs: 30 });
    expect(await fixture.client().call().all()).toEqual([
      'S',
      'Rfatal: git took longer than 0.03 s and was ended\n',
      'X128',
    ]);
  });

  test('by that of the holder', async () => {
    const fixture = serve(untilAborted);
    const client = fixture.client().call();
    const silent = fixture.client();
    while (!fixture.steps.includes('note')) await Bun.sleep(1);
    await fixture.service.close();
    expect(fixture.rows).toHaveLength(1);
    expect(await client.all()).toEqual([]);
    expect(await silent.all()).toEqual([]);
    expect(existsSync(fixture.service.path)).toBe(false);
  });
});

describe('limits', () => {
  test('calls at once', async () => {
    const gate = Promise.withResolvers<void>();
    const fixture = serve(() => gate.promise.then(() => done(0)), { calls: 2 });
    const running = [fixture.client().call(), fixture.client().call()];
    while (fixture.steps.filter((step) => step === 'note').length < 2) await Bun.sleep(1);
    const refused = await fixture.client().call().all();
    expect(refused).toEqual([
      'Rfatal: too many git commands run here at once; try again when some have ended\n',
      'X128',
    ]);
    gate.resolve();
    for (const client of running) expect(await client.all()).toEqual(['X0']);
    expect(await fixture.client().call().all()).toEqual(['X0']);
  });

  test('a native git counts for nothing', async () => {
    const fixture = serve(async () => ({ kind: 'native', reason: 'x' }), { calls: 1 });
    const first = fixture.client().call({ flags: native });
    expect(await first.next()).toBe('N');
    expect(await fixture.client().call({ flags: native }).next()).toBe('N');
  });

  test('connections, also of those that never say or never close anything', async () => {
    const fixture = serve(async () => done(0), { connections: 2, helloMs: 100 });
    const silent = [fixture.client(), fixture.client()];
    await Promise.all(silent.map(({ socket }) => new Promise((resolve) => socket.once('connect', resolve))));
    expect(await fixture.client().call().all()).toEqual([]);
    for (const client of silent) expect(await client.all()).toEqual([]);
    expect(await fixture.client().call().all()).toEqual(['X0']);
  });

  test('a client that keeps its end open after the answer is cut off', async () => {
    const fixture = serve(async () => done(0), { connections: 1, helloMs: 50 });
    const kept = net.connect({ path: fixture.service.path, allowHalfOpen: true });
    kept.on('error', () => undefined);
    kept.write(frame('C', callPayload({})));
    await new Promise((resolve) => kept.once('data', resolve));
    for (;;) {
      const answer = await fixture.client().call().all();
      if (answer.length > 0) break;
      await Bun.sleep(5);
    }
    kept.destroy();
  });

  test('standard input of one call, and of all', async () => {
    const fixture = serve(async (call) => done((await call.stdin()).length), { inputBytes: 10 });
    const one = fixture.client().call();
    expect(await one.next()).toBe('S');
    one.send('I', text('1234567'));
    const other = fixture.client().call();
    expect(await other.next()).toBe('S');
    other.send('I', text('1234567')).send('I', text('more')).send('I');
    const [said, exit] = await other.all();
    expect(said).toStartWith('Rfatal: standard input is longer than the 10 bytes');
    expect(exit).toBe('X128');
    one.send('I', text('890')).send('I');
    expect(await one.all()).toEqual(['X10']);
    const next = fixture.client().call();
    expect(await next.next()).toBe('S');
    next.send('I', text('1234567890')).send('I');
    expect(await next.all()).toEqual(['X10']);
  });

  test('lines in the log', async () => {
    const fixture = serve(async () => done(0), { complaints: 2 });
    for (let index = 0; index < 5; index += 1) await fixture.client().send('?').all();
    expect(fixture.lines).toHaveLength(2);
  });
});

describe('what no client of ours sends', () => {
  const words = (count: number) => Array.from({ length: count }, () => 'x');
  const payload = (change: (bytes: Buffer) => void): Buffer => {
    const bytes = callPayload({ argv: ['a'], environment: ['A=1'] });
    change(bytes);
    return bytes;
  };

  test.each<[string, Buffer]>([
    ['an unknown letter', frame('Z', Buffer.alloc(0))],
    ['another letter first', frame('I', text('x'))],
    [
      'an abort first, and then nothing that makes sense',
      Buffer.concat([frame('K', Uint8Array.of(2)), frame('E', Buffer.alloc(4))]),
    ],
    ['a length beyond all limits', frame('C', Buffer.alloc(0), 0xffff_ffff)],
    ['an input frame that is too long', frame('I', Buffer.alloc(0), limits.data + 1)],
    ['an empty call', frame('C', Buffer.alloc(0))],
    [
      'a call of another version',
      frame(
        'C',
        payload((bytes) => bytes.writeUInt32LE(2, 0)),
      ),
    ],
    [
      'more words than there are',
      frame(
        'C',
        payload((bytes) => bytes.writeUInt32LE(9, 12)),
      ),
    ],
    [
      'fewer words than there are',
      frame(
        'C',
        payload((bytes) => bytes.writeUInt32LE(0, 12)),
      ),
    ],
    [
      'countless words',
      frame(
        'C',
        payload((bytes) => bytes.writeUInt32LE(0xffff_ffff, 12)),
      ),
    ],
    [
      'countless variables',
      frame(
        'C',
        payload((bytes) => bytes.writeUInt32LE(0xffff_ffff, 16)),
      ),
    ],
    [
      'a configuration longer than the call',
      frame(
        'C',
        payload((bytes) => bytes.writeUInt32LE(60_000, 20)),
      ),
    ],
    ['a variable without a name', frame('C', callPayload({ environment: ['=x'] }))],
    ['a variable without a value', frame('C', callPayload({ environment: ['x'] }))],
    ['a relative directory', frame('C', callPayload({ cwd: 'workspace' }))],
    ['no directory', frame('C', callPayload({ cwd: '' }))],
    ['a directory that is too long', frame('C', callPayload({ cwd: `/${'x'.repeat(limits.path)}` }))],
    ['too many words', frame('C', callPayload({ argv: words(limits.wordCount + 1) }))],
    ['words that are too long', frame('C', callPayload({ argv: ['x'.repeat(limits.words)] }))],
    ['a text without an end', frame('C', callPayload({}).subarray(0, -1))],
    [
      'a signal that is none',
      Buffer.concat([frame('C', callPayload({ argv: ['wait'] })), frame('K', Uint8Array.of(0))]),
    ],
    ['a short abort', Buffer.concat([frame('C', callPayload({ argv: ['wait'] })), frame('K', Buffer.alloc(0))])],
    [
      'input that was not asked for',
      Buffer.concat([frame('C', callPayload({ argv: ['wait'] })), frame('I', text('x'))]),
    ],
    ['a second call', Buffer.concat([frame('C', callPayload({ argv: ['wait'] })), frame('C', callPayload({}))])],
    [
      'an end of a native git that does not run',
      Buffer.concat([frame('C', callPayload({ argv: ['wait'] })), frame('E', Buffer.alloc(4))]),
    ],
    [
      'a configuration that nobody wrote',
      Buffer.concat([frame('C', callPayload({ argv: ['wait'] })), frame('W', Buffer.alloc(4))]),
    ],
    [
      'endless aborts',
      Buffer.concat([
        frame('C', callPayload({ argv: ['stubborn'] })),
        ...words(20).map(() => frame('K', Uint8Array.of(15))),
      ]),
    ],
  ])('%s', async (_name, bytes) => {
    const fixture = serve(async (call) => {
      if (call.argv[0] === 'wait') {
        await new Promise<void>((resolve) => call.signal.addEventListener('abort', () => resolve()));
      }
      if (call.argv[0] === 'stubborn') await Bun.sleep(200);
      return done(0);
    });
    const client = fixture.client();
    client.socket.write(bytes);
    expect(await client.all()).toEqual([]);
    expect(fixture.lines[0]).toContain('a client that is none of ours');
    // And the next one is served.
    expect(await fixture.client().call().all()).toEqual(['X0']);
  });

  test('any bytes', async () => {
    const fixture = serve(async () => done(0), { helloMs: 50, complaints: 1e9 });
    let state = 1;
    const random = () => {
      state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
      return state / 2 ** 31;
    };
    const clients: Promise<string[]>[] = [];
    for (let round = 0; round < 300; round += 1) {
      const bytes = Buffer.from(frame('C', callPayload({ argv: ['a', 'b'], environment: ['A=1'] })));
      for (let change = 0; change <= random() * 4; change += 1)
        bytes[Math.floor(random() * bytes.length)] = random() * 256;
      const client = fixture.client();
      client.socket.write(bytes.subarray(0, Math.ceil(random() * bytes.length)));
      clients.push(client.all());
      if (round % 50 === 49) await Promise.all(clients.splice(0));
    }
    expect(await fixture.client().call().all()).toEqual(['X0']);
  });

  test('the socket can be reached by every user, in a directory that none can enter', () => {
    const fixture = serve(async () => done(0));
    expect(statSync(fixture.service.path).mode & 0o777).toBe(0o666);
    expect(statSync(fixture.directory).mode & 0o077).toBe(0);
  });
});

describe('places', () => {
  test.each([
    ['/workspace', true],
    ['/workspace/a/../b', true],
    ['/artifacts/x', true],
    ['/workspaces', false],
    ['/workspace/../tmp', false],
    ['/tmp/../workspace/r', true],
    ['/hermes', false],
    ['workspace', false],
  ])('%s', (path, expected) => expect(isInView(path)).toBe(expected));

  const at = (argv: string[], cwd: string) => ({ argv, cwd });
  test.each<[string[], string, unknown]>([
    [['status'], '/tmp', { outside: '/tmp' }],
    [['-C', '/workspace/r', 'status'], '/tmp', at(['status'], '/workspace/r')],
    [['-C', '..', '-C', 'workspace/r', 'status'], '/tmp', at(['status'], '/workspace/r')],
    [['-C', '/tmp/r', 'status'], '/workspace', { outside: '/tmp/r' }],
    [['-C'], '/tmp', { outside: '/tmp' }],
    [['--version'], '/tmp', at(['--version'], '/workspace')],
    [['config', '--global', 'a.b', 'c'], '/tmp', at(['config', '--global', 'a.b', 'c'], '/workspace')],
    [['config', 'a.b', 'c'], '/tmp', { outside: '/tmp' }],
    [['clone', 'https://h/r', '/workspace/r'], '/tmp', at(['clone', 'https://h/r', '/workspace/r'], '/workspace')],
    [['clone', 'https://h/r'], '/tmp', { outside: '/tmp' }],
    [['-C', 'r', 'status'], '/workspace', at(['-C', 'r', 'status'], '/workspace')],
  ])('%j in %s', (argv, cwd, expected) => expect(placeCall(argv, cwd, {})).toEqual(expected as never));

  test('a repository that variables name', () => {
    expect(placeCall(['status'], '/workspace', { GIT_DIR: '/tmp/x/.git' })).toEqual({ outside: '/tmp/x/.git' });
    expect(placeCall(['status'], '/workspace/r', { GIT_INDEX_FILE: '../../tmp/i' })).toEqual({
      outside: '../../tmp/i',
    });
    const inside = { GIT_DIR: '.git', GIT_WORK_TREE: '/workspace/r' };
    expect(placeCall(['status'], '/workspace/r', inside)).toEqual(at(['status'], '/workspace/r'));
  });

  test.each<[string[], string | null]>([
    [['commit', '-F', '/tmp/message'], '/tmp/message'],
    [['commit', '--file=/tmp/message'], '/tmp/message'],
    [['apply', '../../tmp/p.patch'], '../../tmp/p.patch'],
    [['--git-dir=/tmp/x/.git', 'log'], '/tmp/x/.git'],
    [['clone', '/workspace/a', '/tmp/b'], '/tmp/b'],
    [['commit', '-m', '/tmp is full'], null],
    [['diff', 'HEAD..main', '--', '../a'], null],
    [['add', '/workspace/r/a', '.', ':/x'], null],
    [['clone', 'https://host/tmp'], null],
  ])('the path of the holder alone in %j', (argv, expected) => {
    expect(outsidePath(argv, '/workspace/r')).toBe(expected as never);
  });
});

describe('the ledger', () => {
  test.each([
    ['https://user:secret@host/path', 'https://***@host/path'],
    ['https://token@host:8443/r.git', 'https://***@host:8443/r.git'],
    ['https://host/a@b', 'https://host/a@b'],
    ['git@github.com:a/b.git', 'git@github.com:a/b.git'],
    ['http.extraHeader=Authorization: Bearer abc', 'http.extraHeader=***'],
    ['http.https://h/.extraheader=AUTHORIZATION: basic abc', 'http.https://h/.extraheader=***'],
    ['a message about Authorization: Basic dXNlcg==', 'a message about Authorization: Basic ***'],
    ['user.name=x', 'user.name=x'],
  ])('%s', (word, expected) => expect(withoutCredentials(word)).toBe(expected));

  test('a call that succeeded', () => {
    const call = {
      argv: ['status'],
      cwd: '/workspace',
      engine: 'just-git',
      reason: null,
      startedAt: 1,
      endedAt: 2,
    } as const;
    expect(ledgerRow('conv_a', { ...call, end: { kind: 'exited', code: 0 } })).toEqual({
      name: 'git',
      conversation: 'conv_a',
      parameters: { argv: ['git', 'status'], cwd: '/workspace' },
      result: { engine: 'just-git', exitCode: 0 },
      error: null,
      startedAt: 1,
      endedAt: 2,
    });
  });
});

test('a frame that no client takes is not made', () => {
  expect(() => encode({ kind: 'output', bytes: Buffer.alloc(limits.data + 1) })).toThrow('too long');
});
