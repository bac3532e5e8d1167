/**
 * The same walls where the gateway runs as an ordinary user: then holders have its own host user, there are no cgroups and no
 * guard of the network. What differs by that is written down here as what it is.
 */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { statusField } from '../../zig/holder.fixture.ts';
import { Cell, limitMs, planned } from './cell.fixture.ts';

const user = 64_322;
let cell: Cell;

describe.skipIf(process.getuid?.() !== 0)('a gateway of an ordinary user', () => {
  beforeAll(async () => {
    cell = await Cell.start({ user });
  }, limitMs);
  afterAll(async () => {
    await cell?.stop();
  }, limitMs);

  test('is one, and so are its holders, without a capability', () => {
    for (const pid of [cell.gateway.pid, ...cell.hermes().map((one) => one.pid)]) {
      expect(statusField(pid, 'Uid')).toBe([user, user, user, user].join('\t'));
      expect(statusField(pid, 'CapEff')).toBe('0'.repeat(16));
    }
  });

  test('says at its start that nothing guards the network and that memory has no limit', () => {
    expect(cell.gateway.log).toContain('there is no network guard');
    expect(cell.gateway.log).toContain('agents have no limit of memory');
  });

  test.each(
    planned(
      ['the private environment of the conversation', "read('/hermes/.env')", 'EACCES'],
      ['the list of the home', "os.listdir('/hermes')", 'EACCES'],
      ['the environment of Hermes', "read('/proc/2/environ')", 'EACCES'],
      ['the memory of Hermes', "os.open('/proc/2/mem', os.O_RDONLY)", 'EACCES'],
      ['tracing Hermes', "call('ptrace', 16, 2, 0, 0)", 'EPERM'],
      ['a descriptor of Hermes', "call('pidfd_getfd', call('pidfd_open', 2, 0), 3, 0)", 'EPERM'],
      ['a user namespace', "call('unshare', 0x10000000)", 'EPERM'],
      ['a mount', "call('mount', b'x', b'/tmp', b'tmpfs', 0, 0)", 'EPERM'],
      ['the core pattern', "write('/proc/sys/kernel/core_pattern', b'x')", 'EACCES'],
      ['an owner of the host', "(open('/tmp/f', 'w').close(), os.chown('/tmp/f', 0, 0))", 'EINVAL'],
      ['a FIFO in the workspace', "os.mkfifo('/workspace/fifo')", 'EPERM'],
      ['the system', "open('/usr/bin/new', 'w')", 'EROFS'],
    ),
  )('%s', async (_what, expression, answer) => expect(await cell.answer(expression)).toBe(answer));

  test('processes of the same user outside are not there: not the gateway, not the neighbour', async () => {
    const said = await cell.triedAll([cell.gateway.pid, cell.hermes()[1]!.pid].map((pid) => `os.kill(${pid}, 9)`));
    expect(said).toEqual(['ESRCH', 'ESRCH']);
  });

  test('files of the same user outside are not there', async () => {
    const paths = [cell.gateway.dataDirectory, `${cell.scratch}/host-secret`, `${cell.scratch}/home`];
    expect(await cell.triedAll(paths.map((path) => `os.listdir('${path}')`))).toEqual(paths.map(() => 'ENOENT'));
  });

  test('the neighbour', async () => {
    const paths = [
      `/conversations/${cell.neighbour}/work/private.txt`,
      `/workspace/../../${cell.neighbour}/work/private.txt`,
    ];
    expect(await cell.triedAll(paths.map((path) => `read('${path}')`))).toEqual(['ENOENT', 'ENOENT']);
  });

  test('a gateway that must have the guard does not start', async () => {
    const refused = Cell.start({ user: user + 1, neighbour: false, environment: { EDGE_NETWORK_GUARD: 'require' } });
    await expect(refused).rejects.toThrow('EDGE_NETWORK_GUARD is require, but the guard cannot be had');
  });

  test('after all that no secret is anywhere', async () => expect(await cell.leaks()).toEqual([]));
});
