/**
 * The same without root. The tests need root to play somebody else: in a mount namespace of its own, where `/dev/fuse` may
 * be opened by everybody.
 */
import { describe, expect, test } from 'bun:test';
import { chmodSync, copyFileSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { GitServiceStub } from './git-service.fixture.ts';
import { holderTests, scriptManifest, spawnPlain, statusField, token } from './holder.fixture.ts';

const { binary, machine, spawn } = holderTests();
const uid = 64_321;

/** A place that an ordinary user can read, with confined-exec in it. */
function publicPlace(): { place: string; confined: string } {
  const place = mkdtempSync(join(tmpdir(), 'edge-public-'));
  chmodSync(place, 0o755);
  const confined = join(place, 'confined-exec');
  copyFileSync(binary(), confined);
  chmodSync(confined, 0o755);
  return { place, confined };
}

/** Runs what follows as `uid`, with a `/dev/fuse` for everybody, and `place/bun` being this Bun. */
function asUser(place: string, ...command: readonly string[]): string[] {
  const script =
    'mount -t tmpfs -o mode=755 fuse "$1/dev" && mknod -m 666 "$1/dev/fuse" c 10 229 && mount --bind "$1/dev/fuse" /dev/fuse && ' +
    `mount --bind ${process.execPath} "$1/bun" && cd "$1" && shift && exec setpriv --reuid ${uid} --regid ${uid} --clear-groups "$@"`;
  Bun.spawnSync(['mkdir', join(place, 'dev')]);
  writeFileSync(join(place, 'bun'), '');
  return ['unshare', '-m', 'sh', '-c', script, 'sh', place, ...command];
}

describe.skipIf(process.getuid?.() !== 0)('as an ordinary user', () => {
  test('a holder works, and its user is that user', async () => {
    const { place, confined } = publicPlace();
    const stub = await machine();
    chmodSync(dirname(stub.socket), 0o755);
    chmodSync(stub.socket, 0o777);
    const script =
      'id -u; cat /proc/self/uid_map; cat /workspace/hello.txt; echo w > /workspace/w; grep CapEff /proc/self/status; read -r l';
    const manifest = scriptManifest({ socket: stub.socket, token, script });
    const child = spawn({ manifest }, asUser(place, confined, 'holder'));
    expect(await child.line()).toBe('1000');
    expect((await child.line())?.trim().split(/ +/)).toEqual(['1000', String(uid), '1']);
    expect(await child.line()).toBe('hello from the machine');
    expect(await child.line()).toBe('CapEff:\t0000000000000000');
    expect(statusField(await stub.pid.promise, 'Uid')).toStartWith(`${uid}\t`);
    expect(stub.files.get('/workspace/w')).toBe('w\n');
    rmSync(place, { recursive: true });
  });

  test('its git reaches the machine, by the path of the host’s too', async () => {
    const { place, confined } = publicPlace();
    const stub = await machine();
    const service = await GitServiceStub.listen();
    for (const socket of [stub.socket, service.path]) chmodSync(dirname(socket), 0o755);
    chmodSync(stub.socket, 0o777);
    service.answer = async (call) => {
      await call.print(`${call.call.argv}\n`);
      await call.exit(0);
    };
    const hasGit = existsSync('/usr/bin/git');
    const script = `git a; ${hasGit ? '/usr/bin/git b; /opt/edge/native-git --version | cut -c1-11' : ''}`;
    const extra = [
      `git-socket ${service.path}`,
      ...(hasGit ? ['native-git /usr/bin/git'] : []),
      'git-place /usr/bin/git',
    ];
    const manifest = scriptManifest({ socket: stub.socket, token, script, extra });
    const child = spawn({ manifest }, asUser(place, confined, 'holder'));
    expect(await child.rest()).toBe(hasGit ? 'a\nb\ngit version\n' : 'a\n');
    service.close();
    rmSync(place, { recursive: true });
  });

  test('a supervised machine holds conversations', async () => {
    const { place, confined } = publicPlace();
    // In one file over there: the user may not be able to read this checkout, such as one below /root.
    const program = join(place, 'machine.js');
    const source = join(import.meta.dir, 'machine-process.fixture.ts');
    const bundled = Bun.spawnSync([process.execPath, 'build', source, '--target=bun', `--outfile=${program}`]);
    expect({ code: bundled.exitCode, errors: bundled.stderr.toString() }).toEqual({ code: 0, errors: '' });
    const child = spawnPlain(asUser(place, confined, 'supervise', '--', join(place, 'bun'), program, confined));
    const text = await child.rest();
    expect({ code: await child.exited, errors: await child.stderr }).toEqual({ code: 0, errors: '' });
    const said = JSON.parse(text) as { pid: number; uid: string; code: number };
    expect(said.code).toBe(6);
    expect(said.uid).toStartWith(`${uid}\t`); // The supervisor maps the user to itself.
    expect(said.pid).toBeLessThan(1000);
    rmSync(place, { recursive: true });
  });

  test('check names what is missing and what to do', async () => {
    const { place, confined } = publicPlace();
    const good = spawnPlain(asUser(place, confined, 'check'));
    expect(await good.rest()).toMatch(/^(ok [^\n]+\n){8}$/);
    expect(await good.exited).toBe(0);
    // The host's own device belongs to root alone, or to everybody: only the first is missing something.
    const closed =
      'mount -t tmpfs fuse "$1/dev" && mknod -m 600 "$1/dev/fuse" c 10 229 && mount --bind "$1/dev/fuse" /dev/fuse && shift && exec "$@"';
    const command = [
      'unshare',
      '-m',
      'sh',
      '-c',
      closed,
      'sh',
      place,
      'setpriv',
      '--reuid',
      String(uid),
      '--regid',
      String(uid),
      '--clear-groups',
    ];
    const bad = spawnPlain([...command, confined, 'check']);
    expect(await bad.rest()).toMatch(/^missing \/dev\/fuse: load the fuse module.*\(EACCES\)$/m);
    expect(await bad.exited).toBe(1);
    rmSync(place, { recursive: true });
  });
});

test('check finds everything here', async () => {
  const child = spawnPlain([binary(), 'check']);
  expect({ text: await child.rest(), code: await child.exited }).toEqual({
    text: [
      'ok user namespaces',
      'ok users of holders',
      'ok mount namespaces',
      'ok fresh /proc in a PID namespace',
      'ok /dev/fuse',
      'ok Landlock',
      'ok seccomp filters',
      'ok sealed memfds',
      '',
    ].join('\n'),
    code: 0,
  });
});
