/** `git` as programs of a holder find it, against a machine that a test plays. */
import { afterEach, describe, expect, test } from 'bun:test';
import { existsSync } from 'node:fs';
import { GitServiceStub, type ScriptedCall } from './git-service.fixture.ts';
import { descendants, holderTests, scriptManifest, token } from './holder.fixture.ts';

const { spawn, machine } = holderTests();

let services: GitServiceStub[] = [];
afterEach(() => {
  for (const service of services) service.close();
  services = [];
});

const hasNative = existsSync('/usr/bin/git');
const environment = { PATH: '/opt/edge/bin:/usr/bin:/bin', HOME: '/tmp/home' };

interface Held {
  readonly service: GitServiceStub;
  readonly child: ReturnType<typeof spawn>;
}

/** A holder whose bash runs `script`, and whose calls of git get `answer`. */
async function hold(
  script: string,
  answer: (call: ScriptedCall) => Promise<void>,
  options: { native?: boolean; places?: readonly string[] } = {},
): Promise<Held> {
  const stub = await machine();
  const service = await GitServiceStub.listen();
  service.answer = answer;
  services.push(service);
  const extra = [
    `git-socket ${service.path}`,
    ...(options.native ? ['native-git /usr/bin/git'] : []),
    ...(options.places ?? ['/usr/local/bin/git', '/usr/bin/git']).map((place) => `git-place ${place}`),
  ];
  const child = spawn({ manifest: scriptManifest({ socket: stub.socket, token, script, extra }), environment });
  return { service, child };
}

/** The output of a script; it must end well. */
async function output(...args: Parameters<typeof hold>): Promise<string> {
  const { child } = await hold(...args);
  const text = await child.rest();
  expect({ code: await child.exited, errors: await child.stderr }).toEqual({ code: 0, errors: '' });
  return text;
}

describe('where programs find it', () => {
  const named = async (call: ScriptedCall) => {
    await call.print(`[${call.call.argv.join(',')}]`);
    await call.exit(0);
  };

  test('by the PATH, from a login shell, by another name of the caller’s, from Python', async () => {
    const script =
      `git a; bash -lc 'git b'; (exec -a other git c); /opt/edge/bin/git d; ` +
      `/usr/bin/python3 -c 'import subprocess; subprocess.run(["git", "e"])'; ` +
      `/opt/edge/confined-exec shell 1 /usr/bin/bash bash -c 'git f'`;
    expect(await output(script, named)).toBe('[a][b][c][d][e][f]');
  });

  test.skipIf(!hasNative)(
    'by the path of the host’s git, without any environment, and by git’s other names',
    async () => {
      const script = `/usr/bin/git a; /bin/git b; env -i /usr/bin/git c; env -i bash -c 'git d'; /usr/bin/git-upload-pack e`;
      expect(await output(script, named)).toBe('[a][b][c][d][upload-pack,e]');
    },
  );

  test('the launcher is itself under every other name', async () => {
    const { child } = await hold('/opt/edge/confined-exec status', named);
    await child.rest();
    expect(await child.exited).toBe(2);
    expect(await child.stderr).toStartWith('usage: confined-exec');
  });

  test('what is found there cannot be changed', async () => {
    const script = `for f in /opt/edge/bin/git /opt/edge/bin /opt/edge/git.sock /usr/bin/git; do (rm -rf $f || mv $f /tmp/) 2>&1 | grep -c 'Read-only\\|busy\\|cannot remove'; done; git x`;
    expect(await output(script, named, { places: [] })).toEndWith('[x]');
  });
});

describe('what the machine is told', () => {
  test('words, directory, the variables of git, terminals, umask, the user’s configuration', async () => {
    const script =
      `cd /workspace; umask 027; printf '[user]\\n\\tname = x\\n' > /tmp/home/.gitconfig; ` +
      `exec env GIT_DIR=/x/y LC_ALL=C SECRET_KEY=s GITHUB_TOKEN=t git -c 'a.b=c d' commit '' -m $'\\xc3\\xbc\\n'`;
    const { service, child } = await hold(script, (call) => call.exit(0));
    expect(await child.exited).toBe(0);
    const { call } = service.calls[0]!;
    expect(call.argv).toEqual(['-c', 'a.b=c d', 'commit', '', '-m', 'ü\n']);
    expect(call.cwd).toBe('/workspace');
    expect(call.environment).toEqual({
      GIT_DIR: '/x/y',
      LC_ALL: 'C',
      HOME: '/tmp/home',
      GIT_SSL_CAINFO: '/opt/edge/ca.pem',
    });
    expect(call.terminals).toEqual({ input: false, output: false, errors: false });
    expect(call.umask).toBe(0o027);
    expect(call.hasNative).toBe(false);
    expect(Buffer.from(call.config!).toString()).toBe('[user]\n\tname = x\n');
  });

  test('a terminal', async () => {
    const { service, child } = await hold(`script -qec 'git status' /dev/null </dev/null`, (call) => call.exit(0));
    await child.exited;
    expect(service.calls[0]!.call.terminals).toEqual({ input: true, output: true, errors: true });
    expect(service.calls[0]!.call.config).toBeNull();
  });
});

describe('its output', () => {
  test('both streams come as they are sent, with the exit code', async () => {
    const { child } = await hold(`git x 2>/tmp/errors; echo "$?"; cat /tmp/errors`, async (call) => {
      await call.print('one\n');
      await call.send({ kind: 'errors', bytes: Buffer.from('wrong\n') });
      await call.print('two\n');
      await call.exit(3);
    });
    expect(await child.rest()).toBe('one\ntwo\n3\nwrong\n');
  });

  test('a large one arrives whole, however slow its reader', async () => {
    const block = Buffer.alloc(64 * 1024, 'x');
    const size = 1000;
    const script = 'git x | (sleep 0.3; sha256sum)';
    const text = await output(script, async (call) => {
      for (let index = 0; index < size; index += 1) await call.send({ kind: 'output', bytes: block });
      await call.exit(0);
    });
    const hash = new Bun.CryptoHasher('sha256');
    for (let index = 0; index < size; index += 1) hash.update(block);
    expect(text).toBe(`${hash.digest('hex')}  -\n`);
  });

  test('what nobody takes holds the machine up, and is kept nowhere', async () => {
    let sent = 0;
    const script = `git x | (read -r line; echo "$line"; sleep 1; echo slept; cat >/dev/null)`;
    const { child } = await hold(script, async (call) => {
      await call.print('first\n');
      for (; sent < 400; sent += 1) await call.send({ kind: 'output', bytes: Buffer.alloc(64 * 1024, '\n') });
      await call.exit(0);
    });
    expect(await child.line()).toBe('first');
    const heldUp = sent;
    expect(await child.line()).toBe('slept');
    expect(heldUp).toBeLessThan(400);
    await child.exited;
    expect(sent).toBe(400);
  });

  test('a reader that has gone ends it by SIGPIPE, and the machine learns of it', async () => {
    const gone = Promise.withResolvers<void>();
    const script = `git log | head -1; echo "\${PIPESTATUS[*]}"`;
    const text = await output(script, async (call) => {
      call.closed.promise.then(gone.resolve);
      for (;;) await call.send({ kind: 'output', bytes: Buffer.from('line\n'.repeat(1000)) });
    });
    expect(text).toBe('line\n141 0\n');
    await gone.promise;
  });
});

describe('its input', () => {
  test('is not touched when the machine does not want it', async () => {
    const script = `printf '1\\n2\\n3\\n' | while read -r line; do git show "$line"; done`;
    const text = await output(script, async (call) => {
      await call.print(`<${call.call.argv[1]}>`);
      expect(call.unread).toEqual([]);
      await call.exit(0);
    });
    expect(text).toBe('<1><2><3>');
  });

  test('goes to the machine to its end', async () => {
    const script = `head -c 3000000 /dev/zero | git hash-object --stdin; git a </dev/null; git b <&-`;
    const text = await output(script, async (call) => {
      await call.print(`${(await call.input()).length}\n`);
      await call.exit(0);
    });
    expect(text).toBe('3000000\n0\n0\n');
  });

  test('does not keep the machine from ending the call', async () => {
    const script = `yes | git x; echo "\${PIPESTATUS[*]}"`;
    const text = await output(script, async (call) => {
      await call.send({ kind: 'want-input' });
      await call.next();
      await call.print('enough\n');
      await call.exit(5);
    });
    expect(text).toBe('enough\n141 5\n');
  });
});

describe('signals', () => {
  /** Runs git in the background, until the machine has the call. */
  const running = 'git x > /tmp/out & until [ -s /tmp/out ]; do sleep 0.02; done';
  const started = (call: ScriptedCall) => call.print('started');

  test.each([
    ['INT', 130, 2],
    ['TERM', 143, 15],
    ['HUP', 129, 1],
  ])('SIG%s aborts the call and ends it', async (name, code, number) => {
    const heard: unknown[] = [];
    const script = `set -m; ${running}; kill -${name} $!; wait $!; echo $?`;
    const { child } = await hold(script, async (call) => {
      await started(call);
      heard.push(await call.next());
      await call.exit(0);
    });
    expect(await child.rest()).toBe(`${code}\n`);
    expect(heard).toEqual([{ kind: 'abort', signal: number }]);
  });

  test('a machine that does not end the call is not waited for long; a second signal not at all', async () => {
    const script = `set -m; ${running}; kill -INT $!; sleep 0.2; kill -INT $!; wait $!; echo $?`;
    const { child } = await hold(script, async (call) => {
      await started(call);
      await new Promise(() => {});
    });
    expect(await child.rest()).toBe('130\n');
  });

  test('one that the caller had made it ignore stays ignored', async () => {
    const script = `trap '' INT; ${running}; kill -INT $!; wait $!; echo $?`;
    const { child } = await hold(script, async (call) => {
      await started(call);
      await Bun.sleep(1000);
      expect(call.unread).toEqual([]);
      await call.exit(4);
    });
    expect(await child.rest()).toBe('4\n');
  });

  test('it can be interrupted while nobody reads its output', async () => {
    const script = `set -m; (git x | sleep 30) & sleep 0.5; kill -TERM $(pgrep -x git); sleep 0.5; pgrep -cx git; kill %1`;
    const { child } = await hold(script, async (call) => {
      let isAborted = false;
      call.next().then(() => {
        isAborted = true;
      });
      while (!isAborted) await call.send({ kind: 'output', bytes: Buffer.alloc(65536) });
      await call.exit(0);
    });
    expect(await child.line()).toBe('0');
  });
});

describe('the user’s configuration', () => {
  test('is replaced when the machine says so', async () => {
    const errnos: unknown[] = [];
    const script = `git config --global a.b c; cat ~/.gitconfig; export GIT_CONFIG_GLOBAL=/nowhere/x; git config --global a.b c; ls /tmp/home -A`;
    const text = await output(script, async (call) => {
      await call.send({ kind: 'put-config', bytes: Buffer.from('[a]\n\tb = c\n') });
      errnos.push(await call.next());
      await call.exit(0);
    });
    expect(text).toBe('[a]\n\tb = c\n.gitconfig\n');
    expect(errnos).toEqual([
      { kind: 'config-written', errno: 0 },
      { kind: 'config-written', errno: 2 },
    ]);
  });
});

describe('the native git', () => {
  const leaves = async (call: ScriptedCall) => {
    await call.send({ kind: 'native' });
  };

  test.skipIf(!hasNative)('has words, input, environment and directory of the call; its end is told', async () => {
    const ends: unknown[] = [];
    const script =
      `cd /tmp; git --version | cut -c1-11; printf hello | git hash-object --stdin; git init -q r; cd r; ` +
      `GIT_AUTHOR_NAME=env GIT_AUTHOR_EMAIL=e git var GIT_AUTHOR_IDENT | cut -c1-3; git rev-parse HEAD >/dev/null 2>&1; echo $?`;
    const text = await output(
      script,
      async (call) => {
        await call.send({ kind: 'native' });
        ends.push(await call.next());
      },
      { native: true },
    );
    expect(text).toBe('git version\nb6fc4c620b67d95f953a5c1c1230aaab5db5a1b0\nenv\n128\n');
    expect(ends).toHaveLength(5);
    expect(ends[0]).toEqual({ kind: 'native-ended', end: { kind: 'exited', code: 0 } });
    expect(ends[4]).toEqual({ kind: 'native-ended', end: { kind: 'exited', code: 128 } });
  });

  test.skipIf(!hasNative)('its own children are native as well', async () => {
    const script = `cd /tmp && git init -q s && cd s && git -c alias.x='!git --exec-path' x && git -c alias.y='!command -v git' y; git bisect 2>&1 | head -1`;
    const { service, child } = await hold(script, leaves, { native: true });
    expect(await child.line()).toContain('git-core');
    expect(await child.line()).toContain('git-core');
    await child.rest();
    expect(service.calls.map(({ call }) => call.argv.at(-1))).toEqual(['s', 'x', 'y', 'bisect']);
  });

  test.skipIf(!hasNative)('never waits at a pager', async () => {
    const script = `cd /tmp && git init -q p && cd p && git config core.pager 'false' && git config user.name a && git config user.email b && git commit -q --allow-empty -m paged && script -qec 'git log --format=%s' /dev/null </dev/null`;
    expect(await output(script, leaves, { native: true })).toBe('paged\r\n');
  });

  test.skipIf(!hasNative)('is signalled with the client, and dies with it', async () => {
    const ends: unknown[] = [];
    const script =
      `cd /tmp && git init -q q && cd q; set -m; git -c alias.s='!exec sleep 31000' s & sleep 0.5; kill -TERM $!; wait $!; echo $?; ` +
      `git -c alias.s='!exec sleep 31001' s & sleep 0.5; kill -KILL $!; wait $! 2>/dev/null; echo $?; sleep 30`;
    const { child } = await hold(
      script,
      async (call) => {
        await call.send({ kind: 'native' });
        if (call.call.argv.includes('s')) ends.push(await call.next());
      },
      { native: true },
    );
    expect(await child.line()).toBe('143');
    expect(await child.line()).toBe('137');
    expect(ends[0]).toEqual({ kind: 'native-ended', end: { kind: 'killed', signal: 15 } });
    // What a killed git leaves running is its children's affair, as anywhere; the native git itself is gone.
    expect([...descendants(child.pid).values()]).not.toContain('git');
  });

  test.skipIf(!hasNative)('does what the machine cannot be asked for', async () => {
    const script = `echo up; read -r go; git --version | cut -c1-11; cd /tmp; mkdir gone; cd gone; rmdir ../gone; git --version | cut -c1-11; cd /tmp; git check-ref-format "$(printf %130000s x)"; echo $?`;
    const { service, child } = await hold(script, leaves, { native: true });
    expect(await child.line()).toBe('up');
    service.close();
    child.write('go\n');
    expect(await child.rest()).toBe('git version\ngit version\n1\n');
  });
});

describe('without a native git', () => {
  test.each([
    ['a machine that is not there', 'git x', 'fatal: git cannot be reached here: ECONNREFUSED\n'],
    [
      'a directory that is gone',
      'mkdir /tmp/g; cd /tmp/g; rmdir /tmp/g; git x',
      'fatal: Unable to read current working directory: ENOENT\n',
    ],
    [
      'too many words',
      'git $(seq 20000)',
      'fatal: the command line, the environment or the configuration file is too long: E2BIG\n',
    ],
  ])('%s', async (_name, script, message) => {
    const { service, child } = await hold(`echo up; read -r go; ${script}; echo $?`, (call) => call.exit(0));
    expect(await child.line()).toBe('up');
    service.close();
    child.write('go\n');
    expect(await child.rest()).toBe('128\n');
    expect(await child.stderr).toBe(message);
    expect(service.calls).toEqual([]);
  });

  test.each([
    ['is gone', (call: ScriptedCall) => call.cut(), 'the connection to git’s machine was lost: ECONNRESET'],
    [
      'sends what is no frame',
      (call: ScriptedCall) => void call.raw(Buffer.from('?\0\0\0\0')),
      'a frame of git’s machine: EPROTO',
    ],
    [
      'sends a frame without an end',
      (call: ScriptedCall) => void call.raw(Buffer.from('O\xff\xff\xff\xff', 'latin1')),
      'a frame of git’s machine: EPROTO',
    ],
    [
      'sends an exit without a code',
      (call: ScriptedCall) => void call.raw(Buffer.from('X\0\0\0\0')),
      'a frame of git’s machine: EPROTO',
    ],
  ])('a machine that %s', async (_name, answer, message) => {
    const { child } = await hold('git x; echo $?', async (call) => answer(call));
    expect(await child.rest()).toBe('128\n');
    expect(await child.stderr).toBe(`fatal: ${message.replace('’', "'")}\n`);
  });
});
