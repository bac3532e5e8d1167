import { describe, expect, test } from 'bun:test';
import {
  appeared,
  confinedExec,
  holderTests,
  openDescriptors,
  scriptManifest,
  spawnPlain,
  token,
} from './holder.fixture.ts';

const { hold, machine, output, spawn } = holderTests();

const shell = '/opt/edge/confined-exec shell';
/** `command` run by bash behind the door, its errors on its output; the whole never fails. */
const tool = (command: string) => `${shell} 1 /usr/bin/bash bash -c '(${command}) 2>&1; true'`;

describe('the start of a tool', () => {
  test('it has the descriptors 0, 1 and 2, whatever Hermes had open', async () => {
    const { child } = await hold(
      `exec 5</etc/hosts 6>&1; ${shell} 1 /usr/bin/sleep sleep 1000 & echo ready; read -r l`,
    );
    await child.line();
    const below = await appeared(child.pid, ['bash', 'edge-init', 'edge-notify', 'edge-relay', 'sleep']);
    const sleep = [...below].find(([, name]) => name === 'sleep');
    expect(openDescriptors(sleep![0])).toEqual([0, 1, 2]);
  });

  test('the first candidate that exists is executed, with the name and the environment it was given', async () => {
    const script = `export A=1; ${shell} 4 /nowhere/x /etc/hosts/x /usr/bin/bash /usr/bin/false zero -c 'echo $0 $A $#' one two`;
    expect(await output(script)).toBe('one 1 1\n');
    expect(await output(`${shell} 2 /nowhere/x /usr/bin/bash zero -c 'echo $0'`)).toBe('zero\n');
  });

  test('a candidate that may not be executed does not hide a later one', async () => {
    expect(await output(`${shell} 2 /etc/passwd /usr/bin/echo echo found`)).toBe('found\n');
  });

  test.each([
    ['no candidate exists', '2 /nowhere/x /etc/hosts/x x', 127, 'exec /etc/hosts/x: ENOENT'],
    ['the only one may not be executed', '1 /etc/passwd x', 126, 'exec /etc/passwd: EACCES'],
    ['the count is no number', 'x /usr/bin/true true', 126, 'number of candidates: EINVAL'],
    ['the count is zero', '0 true', 126, 'number of candidates: EINVAL'],
    ['there is no argv', '2 /usr/bin/true true', 126, 'fewer arguments than candidates: EINVAL'],
    ['the count is larger than everything', '200 /usr/bin/true', 126, 'fewer arguments than candidates: EINVAL'],
  ])('when %s, exit code and message tell', async (_name, args, code, message) => {
    const text = await output(`${shell} ${args} 2>&1; echo $?`);
    expect(text).toBe(`confined-exec shell: ${message}\n${code}\n`);
  });

  test('a long command line arrives whole', async () => {
    const script = `long=$(printf %100000s | tr " " x); ${shell} 1 /usr/bin/bash bash -c 'echo \${#1}' bash "$long"`;
    expect(await output(script)).toBe('100000\n');
  });

  test('CPython sees a started program, its exit code and its output', async () => {
    const python =
      'import subprocess as s; p = s.run(["/opt/edge/confined-exec", "shell", "1", "/usr/bin/bash", "bash", "-c", "echo out; exit 9"], ' +
      'stdout=s.PIPE, pass_fds=(3,)); print(p.returncode, p.stdout)';
    expect(await output(`/usr/bin/python3 -c '${python}'`)).toBe("9 b'out\\n'\n");
  });

  test.skipIf(Bun.which('strace') === null)('a kernel without Landlock is an error, not an open door', async () => {
    const inject = 'inject=landlock_create_ruleset:error=EOPNOTSUPP';
    const child = spawnPlain([
      'strace',
      '-o',
      '/dev/null',
      '-e',
      inject,
      await confinedExec(),
      'shell',
      '1',
      '/bin/echo',
      'echo',
      'open',
    ]);
    expect(await child.exited).toBe(126);
    expect(await child.stderr).toBe('confined-exec shell: landlock: EOPNOTSUPP\n');
    expect(await child.rest()).toBe('');
  });
});

describe('what a tool may reach', () => {
  test.each([
    [
      'its work',
      'cat /workspace/hello.txt; echo new > /workspace/n; cat /workspace/n',
      'hello from the machine\nnew\n',
    ],
    ['the skills', 'ls /hermes/skills; cat /hermes/skills/one/SKILL.md', 'one\na skill\n'],
    ['the artifacts', 'echo a > /artifacts/a; cat /artifacts/a', 'a\n'],
    ['its temporary files', 'mkdir /tmp/a /tmp/b; echo t > /tmp/a/f; mv /tmp/a/f /tmp/b/f; cat /tmp/b/f', 't\n'],
    ['the system', 'head -c 4 /usr/bin/bash | tail -c 3; echo; cat /etc/passwd | grep -c agent', 'ELF\n1\n'],
    ['devices and /proc', 'echo x > /dev/null; cat /proc/self/comm; head -c 1 /dev/zero | wc -c', 'cat\n1\n'],
    ['shared memory', 'echo s > /dev/shm/s; cat /dev/shm/s', 's\n'],
    ['its own children', 'sleep 100 & kill $! && echo killed', 'killed\n'],
  ])('%s', async (_name, command, expected) => {
    expect(await output(tool(command))).toBe(expected);
  });

  test('a place that the manifest binds elsewhere', async () => {
    const stub = await machine();
    const script = tool('cat /base/elsewhere/debian_version >/dev/null && echo read; echo x > /base/elsewhere/x');
    const manifest = scriptManifest({ socket: stub.socket, token, script, extra: ['bind /usr /base/elsewhere'] });
    const child = spawn({ manifest: manifest.replace('debian_version', 'bin/env') });
    expect(await child.rest()).toStartWith('read\n');
  });

  test('a terminal of its own', async () => {
    const text = await output(tool('script -qec "tty; stty size" /dev/null </dev/null'));
    expect(text).toMatch(/^\/dev\/pts\/\d+\r\n/);
  });
});

describe('what a tool may not reach', () => {
  test.each([
    ['the private files', 'cat /hermes/.env', /Permission denied/],
    ['the private home', 'ls /hermes', /Permission denied/],
    ['the home by another name', 'cat /proc/$PPID/root/hermes/.env', /Permission denied/],
    ['a file in the home', 'echo x > /hermes/x', /Permission denied/],
    ['a skill, for writing', 'echo x > /hermes/skills/one/SKILL.md', /Permission denied/],
    ['a new skill', 'mkdir /hermes/skills/two', /Permission denied/],
    ['the environment of Hermes', 'cat /proc/2/environ', /Permission denied/],
    ['the memory of Hermes', 'head -c 1 /proc/2/mem', /Permission denied/],
    ['the descriptors of Hermes', 'ls -l /proc/2/fd/', /Permission denied/],
    ['Hermes, by a signal', 'kill -9 2', /Operation not permitted/],
    ['init, by a signal', 'kill -9 1', /Operation not permitted/],
  ])('%s', async (_name, command, refusal) => {
    expect(await output(`${tool(command)}; true`)).toMatch(refusal);
  });

  test('an abstract socket of Hermes', async () => {
    const listen =
      'use Socket; socket(my $s, PF_UNIX, SOCK_STREAM, 0); bind($s, pack_sockaddr_un("\\0edge-test")) or die; listen($s, 1); ' +
      '$| = 1; print "ready\\n"; sleep 1000';
    const connect =
      'use Socket; socket(my $s, PF_UNIX, SOCK_STREAM, 0); print connect($s, pack_sockaddr_un("\\0edge-test")) ? "in\\n" : "$!\\n"';
    const script =
      `coproc perl -e '${listen}'; read -r line <&"\${COPROC[0]}"; perl -e '${connect}'; ` +
      `${shell} 1 /usr/bin/perl perl -e '${connect}'; kill $COPROC_PID`;
    expect(await output(script)).toBe('in\nOperation not permitted\n');
  });
});
