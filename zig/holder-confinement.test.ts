import { describe, expect, test } from 'bun:test';
import { readFileSync } from 'node:fs';
import { callCommand, descendants, holderTests, hostUid, statusField } from './holder.fixture.ts';

const { hold, output } = holderTests();

describe('what Hermes may not do', () => {
  test('it has no capability, no new privileges and a filter of system calls', async () => {
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
  });

  test('the processes around it have no capability either, and the relay is nobody special', async () => {
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
  });

  test.each([
    ['mount', 'mount -t tmpfs x /tmp', /permission denied|not permitted|must be superuser/i],
    ['unshare', 'unshare -U true', /Operation not permitted/],
    ['nsenter', 'nsenter -t 1 -m true', /Permission denied|not permitted/],
    ['ptrace', callCommand('ptrace'), /Operation not permitted/],
    ['io_uring', callCommand('io_uring_setup'), /Operation not permitted/],
    ['bpf', callCommand('bpf'), /Operation not permitted/],
    ['a call of the future', callCommand('unknown'), /Function not implemented/],
    [
      'another socket family',
      "perl -MSocket -e 'socket(my $s, 38, SOCK_STREAM, 0) or print $!'",
      /Address family not supported/,
    ],
    ['proc sys', 'echo x > /proc/sys/kernel/core_pattern', /Read-only file system/],
    ['init memory', 'cat /proc/1/environ', /Permission denied/],
    ['init root', 'ls /proc/1/root/', /Permission denied/],
    ['system', 'touch /usr/x', /Read-only file system/],
    ['root', 'touch /x', /Read-only file system/],
    ['device', 'mknod /tmp/d c 1 3', /Operation not permitted/],
  ])('%s is refused', async (_name, command, refusal) => {
    const text = await output(`(${command}) 2>&1; true`);
    expect(text).toMatch(refusal);
  });

  test('it sees no process of the host', async () => {
    const pids = (await output('echo /proc/[0-9]*')).trim().split(' ');
    expect(pids.sort()).toEqual(['/proc/1', '/proc/2']);
  });
});
