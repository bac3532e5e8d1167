import { afterEach, beforeAll, describe, expect, test } from 'bun:test';
import { chownSync, closeSync, mkdtempSync, readFileSync, readSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  allGone,
  allSeals,
  appeared,
  type Child,
  confinedExec,
  descendants,
  type HolderFiles,
  hostUid,
  isAlive,
  openDescriptors,
  scriptManifest,
  spawnHolder,
  statusField,
} from './holder.fixture.ts';
import { MachineStub } from './machine-stub.fixture.ts';

const token = '0123456789abcdef'.repeat(4);
const limitMs = 60_000;
let binary: string;
let stubs: MachineStub[] = [];
let children: Child[] = [];

beforeAll(async () => {
  binary = await confinedExec();
}, 600_000);

afterEach(async () => {
  for (const child of children) {
    child.kill('SIGKILL');
    await child.exited;
    closeSync(child.channel);
  }
  for (const stub of stubs) stub.close();
  children = [];
  stubs = [];
});

async function machine(options: { goes?: boolean; token?: string } = {}): Promise<MachineStub> {
  const stub = await MachineStub.listen({ token, ...options });
  stubs.push(stub);
  return stub;
}

function spawn(files: HolderFiles, command: readonly string[] = [binary, 'holder']): Child {
  const child = spawnHolder(command, files);
  children.push(child);
  return child;
}

/** A holder in which bash runs `script` in Hermes' place. */
async function hold(script: string, files: Partial<HolderFiles> = {}): Promise<{ stub: MachineStub; child: Child }> {
  const stub = await machine();
  const child = spawn({ manifest: scriptManifest({ socket: stub.socket, token, script }), ...files });
  return { stub, child };
}

/** Runs `script` to its end and returns its output; it must not have failed. */
async function output(script: string, files: Partial<HolderFiles> = {}): Promise<string> {
  const { child } = await hold(script, files);
  const text = await child.rest();
  expect({ code: await child.exited, errors: await child.stderr }).toEqual({ code: 0, errors: '' });
  return text;
}

describe('what Hermes is given', () => {
  test(
    'the machine channel is its descriptor 3, and there is no other beyond 2',
    async () => {
      const { stub, child } = await hold('echo ready; read -u 3 line; echo "$line" >&3; read -r line; echo "$line"');
      expect(await child.line()).toBe('ready');
      expect(openDescriptors(await stub.pid.promise)).toEqual([0, 1, 2, 3]);
      writeSync(child.channel, 'over the channel\n');
      const echoed = Buffer.alloc(64);
      const got = await new Promise<number>((resolve) => {
        // The parent's end does not block, and the echo comes from another process.
        const retry = (): void => {
          try {
            resolve(readSync(child.channel, echoed));
          } catch {
            setTimeout(retry, 5);
          }
        };
        retry();
      });
      expect(echoed.toString('utf8', 0, got)).toBe('over the channel\n');
    },
    limitMs,
  );

  test(
    'its environment is the private one and the layout of the sandbox, nothing of the outer process',
    async () => {
      const text = await output('env | sort', { environment: { MODEL_KEY: 'k', TMPDIR: '/tmp/own' } });
      const names = text.split('\n').map((line) => line.split('=')[0]);
      expect(text).toContain('MODEL_KEY=k\n');
      expect(text).toContain('TMPDIR=/tmp/own\n');
      expect(text).toContain('HOME=/tmp/home\n');
      expect(text).toContain('SSL_CERT_FILE=/opt/edge/ca.pem\n');
      expect(names).not.toContain('OUTER');
    },
    limitMs,
  );

  test(
    '/opt/edge holds the start script, the certificates and the launcher, all read only',
    async () => {
      const script =
        'cat /opt/edge/start.py /opt/edge/ca.pem; stat -c "%a %n" /opt/edge/*; chmod 777 /opt/edge/start.py 2>&1; ' +
        'touch /opt/edge/x 2>&1; (echo x >/opt/edge/start.py) 2>&1; /opt/edge/confined-exec 2>&1 | head -c 5; true';
      const text = await output(script, { startScript: 'start\n', caBundle: 'bundle\n' });
      expect(text).toStartWith(
        'start\nbundle\n444 /opt/edge/ca.pem\n555 /opt/edge/confined-exec\n444 /opt/edge/start.py\n',
      );
      expect(text.match(/Read-only file system/g)).toHaveLength(3);
      expect(text).toEndWith('usage');
    },
    limitMs,
  );

  test(
    'without a CA bundle no variable points to one',
    async () => {
      const text = await output('env; ls /opt/edge', { caBundle: '' });
      expect(text).not.toContain('ca.pem');
    },
    limitMs,
  );

  test(
    'the working directory, the user and the host names are those of the sandbox',
    async () => {
      const text = await output(
        'pwd; id -un; id -u; id -g; id -G; cat /proc/self/uid_map; ls -A /home /root /sys /work 2>&1; true',
      );
      expect(text).toStartWith('/workspace\nagent\n1000\n1000\n1000\n');
      expect(text).toMatch(new RegExp(`^ *1000 +${hostUid} +1$`, 'm'));
      expect(text.match(/No such file or directory/g)).toHaveLength(4);
    },
    limitMs,
  );
});

describe('the file system', () => {
  test(
    'reads and writes go to the machine, and only the three places show it',
    async () => {
      const { stub, child } = await hold(
        'cat /workspace/hello.txt; echo written > /workspace/new.txt; ls /artifacts; cat /hermes/.env; ' +
          'grep -c " fuse " /proc/mounts; grep " fuse " /proc/mounts; ls -d /.fuse 2>&1; true',
      );
      const text = await child.rest();
      expect(await child.exited).toBe(0);
      expect(text).toStartWith('hello from the machine\ninbound\nSECRET=1\n3\n');
      expect(text.match(/rw,nosuid,nodev,relatime,user_id=1000,group_id=1000,default_permissions/g)).toHaveLength(3);
      expect(text).toContain("cannot access '/.fuse'");
      expect(stub.files.get('/workspace/new.txt')).toBe('written\n');
    },
    limitMs,
  );

  test(
    'a file of many megabytes survives writes and reads of the largest size',
    async () => {
      const { stub, child } = await hold(
        'head -c 9000001 /dev/urandom > /tmp/a; dd if=/tmp/a of=/workspace/a bs=4M status=none; cmp /tmp/a /workspace/a && md5sum < /tmp/a',
      );
      const text = await child.rest();
      expect(await child.exited).toBe(0);
      const bytes = stub.files.bytes('/workspace/a');
      expect(bytes.length).toBe(9_000_001);
      expect(text).toBe(`${new Bun.CryptoHasher('md5').update(bytes).digest('hex')}  -\n`);
    },
    limitMs,
  );

  test(
    'an invalidation that has to wait for a request does not keep the reply of that request back',
    async () => {
      const { stub, child } = await hold('ls /workspace >/dev/null; mkdir /workspace/made && echo made');
      // MKDIR holds the lock of /workspace until it is answered; the invalidation of a name in it needs that lock.
      stub.beforeReply = (opcode) => {
        if (opcode === 9) stub.invalidate('/workspace', 'hello.txt');
      };
      expect(await child.rest()).toBe('made\n');
      expect(await child.exited).toBe(0);
    },
    limitMs,
  );

  test(
    'binds are read only; a missing one is an error unless it is optional',
    async () => {
      const stub = await machine();
      const readable = mkdtempSync(join(tmpdir(), 'edge-bind-'));
      writeFileSync(join(readable, 'own.txt'), '');
      chownSync(readable, hostUid, hostUid);
      chownSync(join(readable, 'own.txt'), hostUid, hostUid);
      const manifest = (extra: string[]) =>
        scriptManifest({
          socket: stub.socket,
          token,
          extra,
          script: 'cat /x/y/own.txt >/dev/null && touch /x/y/own.txt',
        });
      const optional = spawn({ manifest: manifest(['bind? /nowhere', `bind ${readable} /x/y`]) });
      expect(await optional.stderr).toContain('Read-only file system');
      const missing = spawn({ manifest: manifest(['bind /nowhere']) });
      expect(await missing.exited).toBe(126);
      expect(await missing.stderr).toBe('confined-exec holder: bind /nowhere: ENOENT\n');
      expect(stub.lines).toContain('fail bind /nowhere: ENOENT');
      rmSync(readable, { recursive: true });
    },
    limitMs,
  );
});

describe('what Hermes may not do', () => {
  test(
    'it has no capability, no new privileges and a filter of system calls',
    async () => {
      const { stub, child } = await hold('echo ready; read -r line');
      await child.line();
      const pid = await stub.pid.promise;
      for (const field of ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb']) {
        expect(statusField(pid, field)).toBe('0'.repeat(16));
      }
      expect(statusField(pid, 'NoNewPrivs')).toBe('1');
      expect(statusField(pid, 'Seccomp')).toBe('2');
      expect(statusField(pid, 'Uid')).toBe([hostUid, hostUid, hostUid, hostUid].join('\t'));
      expect(statusField(pid, 'Gid')).toBe([hostUid, hostUid, hostUid, hostUid].join('\t'));
      expect(readFileSync(`/proc/${pid}/status`, 'utf8')).toMatch(/^Groups:\s*$/m);
    },
    limitMs,
  );

  test(
    'the processes around it have no capability either, and the relay is nobody special',
    async () => {
      const { child } = await hold('echo ready; read -r line');
      await child.line();
      const around = [child.pid, ...descendants(child.pid).keys()];
      expect(around.length).toBe(5);
      for (const pid of around) {
        expect(statusField(pid, 'CapEff')).toBe('0'.repeat(16));
        expect(statusField(pid, 'CapPrm')).toBe('0'.repeat(16));
        expect(statusField(pid, 'Seccomp')).toBe('2');
        expect(statusField(pid, 'Uid')).toStartWith(`${hostUid}\t`);
      }
    },
    limitMs,
  );

  test.each([
    ['mount', 'mount -t tmpfs x /tmp', /permission denied|not permitted|must be superuser/i],
    ['unshare', 'unshare -U true', /Operation not permitted/],
    ['nsenter', 'nsenter -t 1 -m true', /Permission denied|not permitted/],
    ['ptrace', 'strace -p 1', /Operation not permitted/],
    ['proc sys', 'echo x > /proc/sys/kernel/core_pattern', /Read-only file system/],
    ['init memory', 'cat /proc/1/environ', /Permission denied/],
    ['init root', 'ls /proc/1/root/', /Permission denied/],
    ['system', 'touch /usr/x', /Read-only file system/],
    ['root', 'touch /x', /Read-only file system/],
    ['device', 'mknod /tmp/d c 1 3', /Operation not permitted/],
  ])(
    '%s is refused',
    async (_name, command, refusal) => {
      const text = await output(`(${command}) 2>&1; true`);
      expect(text).toMatch(refusal);
    },
    limitMs,
  );

  test(
    'it sees no process of the host',
    async () => {
      const pids = (await output('echo /proc/[0-9]*')).trim().split(' ');
      expect(pids.sort()).toEqual(['/proc/1', '/proc/2']);
    },
    limitMs,
  );
});

describe('the word with the machine', () => {
  test(
    'the pid that is said is the one under which the machine sees Hermes',
    async () => {
      const { stub, child } = await hold('echo ready; read -r line');
      await child.line();
      const pid = await stub.pid.promise;
      expect(stub.lines).toEqual([`pid ${pid}`]);
      expect(readFileSync(`/proc/${pid}/cmdline`, 'utf8')).toStartWith('/usr/bin/bash\0-c\0echo ready');
      expect(statusField(pid, 'NSpid')).toBe(`${pid}\t2`);
      expect(stub.files.callers).toContain(`${child.pid}:1000`); // The lookups of the mount itself.
    },
    limitMs,
  );

  test(
    'FUSE requests carry that pid',
    async () => {
      const { stub, child } = await hold('echo > /workspace/own; echo ready; read -r line');
      await child.line();
      expect(stub.files.callers).toContain(`${await stub.pid.promise}:1000`);
    },
    limitMs,
  );

  test(
    'nothing of Hermes runs before go',
    async () => {
      const stub = await machine({ goes: false });
      const child = spawn({ manifest: scriptManifest({ socket: stub.socket, token, script: 'echo started' }) });
      const pid = await stub.pid.promise;
      expect(readFileSync(`/proc/${pid}/cmdline`, 'utf8')).toEndWith('holder\0');
      stub.control?.write('go\n');
      expect(await child.line()).toBe('started');
    },
    limitMs,
  );

  test(
    'the program that cannot be executed is named',
    async () => {
      const stub = await machine();
      const manifest = scriptManifest({ socket: stub.socket, token, script: 'x' }).replace(
        '/usr/bin/bash',
        '/usr/bin/none',
      );
      const child = spawn({ manifest });
      expect(await child.exited).toBe(126);
      expect(await child.stderr).toBe('confined-exec holder: exec /usr/bin/none: ENOENT\n');
      expect(stub.lines.at(-1)).toBe('fail exec /usr/bin/none: ENOENT');
    },
    limitMs,
  );
});

describe('refusals', () => {
  test.each([
    ['no seals', 0],
    ['writable', allSeals & ~8],
    ['may shrink', allSeals & ~2],
    ['may grow', allSeals & ~4],
    ['more seals may follow', allSeals & ~1],
  ])(
    'a memfd with %s',
    async (_name, manifestSeals) => {
      const child = spawn({ manifest: 'edge-holder 1\n', manifestSeals });
      expect(await child.exited).toBe(126);
      expect(await child.stderr).toBe('confined-exec holder: manifest is not sealed: EPERM\n');
    },
    limitMs,
  );

  test(
    'a regular file in the place of a memfd',
    async () => {
      const command = ['sh', '-c', `exec ${binary} holder 6</etc/hosts`];
      const child = spawn({ manifest: 'edge-holder 1\n' }, command);
      expect(await child.exited).toBe(126);
      expect(await child.stderr).toMatch(
        /^confined-exec holder: private environment (seals: EINVAL|is not sealed: EPERM)\n$/,
      );
    },
    limitMs,
  );

  test(
    'a malformed manifest, with its line',
    async () => {
      const child = spawn({ manifest: 'edge-holder 1\nuid 5\n' });
      expect(await child.exited).toBe(126);
      expect(await child.stderr).toBe('confined-exec holder: manifest line 2: uid out of range: EINVAL\n');
    },
    limitMs,
  );

  test(
    'a private environment without names',
    async () => {
      const child = spawn({ manifest: scriptManifest({ socket: '/x', token, script: 'x' }), environment: { '': 'x' } });
      expect(await child.exited).toBe(126);
      expect(await child.stderr).toBe('confined-exec holder: private environment: entry without a name: EINVAL\n');
    },
    limitMs,
  );

  test(
    'a socket that is not there',
    async () => {
      const child = spawn({ manifest: scriptManifest({ socket: '/nowhere/fuse.sock', token, script: 'x' }) });
      expect(await child.exited).toBe(126);
      expect(await child.stderr).toBe('confined-exec holder: connect fuse-socket /nowhere/fuse.sock: ENOENT\n');
    },
    limitMs,
  );

  test(
    'a machine that does not know the token',
    async () => {
      const stub = await machine({ token: 'f'.repeat(64) });
      const child = spawn({ manifest: scriptManifest({ socket: stub.socket, token, script: 'x' }) });
      expect(await child.exited).toBe(126);
      expect(await child.stderr).toMatch(/^confined-exec holder: .*: E(CONNRESET|PIPE|CONNABORTED|NOTCONN)$/m);
    },
    limitMs,
  );

  test(
    'a missing machine channel',
    async () => {
      const child = spawn({ manifest: 'edge-holder 1\n' }, ['sh', '-c', `exec ${binary} holder 3>&-`]);
      expect(await child.exited).toBe(126);
      expect(await child.stderr).toBe('confined-exec holder: descriptor 3: EBADF\n');
    },
    limitMs,
  );
});

describe('the end', () => {
  test(
    'the exit code is Hermes’ own',
    async () => {
      const { child } = await hold('exit 37');
      expect(await child.exited).toBe(37);
      expect(await child.stderr).toBe('');
    },
    limitMs,
  );

  test(
    'so is the signal',
    async () => {
      const { child } = await hold('kill -SEGV $$');
      await child.exited;
      expect(child.signal()).toBe('SIGSEGV');
    },
    limitMs,
  );

  test(
    'SIGTERM reaches Hermes',
    async () => {
      const { child } = await hold('trap "echo ending; exit 5" TERM; echo ready; while :; do read -r -t 1 line; done');
      await child.line();
      child.kill('SIGTERM');
      expect(await child.line()).toBe('ending');
      expect(await child.exited).toBe(5);
    },
    limitMs,
  );

  test(
    'nothing that Hermes left behind outlives it',
    async () => {
      const { child } = await hold('setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo ready; read -r line; exit 4');
      await child.line();
      const all = ['bash', 'edge-init', 'edge-notify', 'edge-relay', 'sleep'];
      const below = (await appeared(child.pid, all)).keys();
      child.kill('SIGTERM');
      await child.exited;
      await allGone(below);
    },
    limitMs,
  );

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

  test(
    'kill -9 of the outer process leaves nothing',
    async () => {
      await expectNothingLeft(({ child }) => child.kill('SIGKILL'));
    },
    limitMs,
  );

  test.each(['edge-relay', 'edge-init'])(
    'kill -9 of %s leaves nothing, and is an error',
    async (name) => {
      expect(await expectNothingLeft(({ child }) => killNamed(child, name))).toBe(126);
    },
    limitMs,
  );

  test(
    'the end of the control stream leaves nothing',
    async () => {
      expect(await expectNothingLeft(({ stub }) => stub.control?.destroy())).toBe(126);
    },
    limitMs,
  );

  test(
    'the end of the FUSE stream leaves nothing',
    async () => {
      expect(await expectNothingLeft(({ stub }) => stub.fuse?.destroy())).toBe(126);
    },
    limitMs,
  );

  test(
    'an unanswered request keeps nobody alive',
    async () => {
      const { stub, child } = await hold('echo ready; cat /workspace/hello.txt');
      stub.silentOn = 'hello.txt';
      expect(await child.line()).toBe('ready');
      await stub.silenced.promise;
      const below = [...descendants(child.pid).keys()];
      child.kill('SIGKILL');
      await allGone([child.pid, ...below]);
      expect(isAlive(child.pid)).toBe(false);
    },
    limitMs,
  );
});
