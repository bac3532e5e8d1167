/**
 * System calls that would change the kernel, the namespaces or other processes. Each is made so that an ordinary process
 * outside of a holder is answered otherwise, which is tried beside it; those that need a capability there, too, say so.
 */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { Cell, eachTried, limitMs, prelude } from './cell.fixture.ts';

type Attempt = readonly [name: string, expression: string, answer: string | RegExp];

/** Refused to any process without privileges: a holder has one refusal more. */
const privileged: readonly Attempt[] = [
  ['mount a tmpfs', "call('mount', b'x', b'/tmp', b'tmpfs', 0, 0)", 'EPERM'],
  ['mount a bind of the root', "call('mount', b'/', b'/tmp', 0, 4096, 0)", 'EPERM'],
  ['remount /usr writable', "call('mount', 0, b'/usr', 0, 4096 | 32, 0)", 'EPERM'],
  ['umount /proc/sys', "call('umount2', b'/proc/sys', 2)", 'EPERM'],
  ['pivot_root', "call('pivot_root', b'/tmp', b'/tmp')", 'EPERM'],
  ['chroot', "call('chroot', b'/tmp')", 'EPERM'],
  ['fsopen', "call('fsopen', b'tmpfs', 0)", 'EPERM'],
  ['fsmount', "call('fsmount', -1, 0, 0)", 'EPERM'],
  ['fspick', "call('fspick', -100, b'/', 0)", 'EPERM'],
  ['move_mount', "call('move_mount', -100, b'/usr', -100, b'/tmp', 0)", 'EPERM'],
  ['setns into the namespaces of init', "call('setns', call('pidfd_open', os.getpid(), 0), 0x10000000)", 'EPERM'],
  ['sethostname', "call('sethostname', b'x', 1)", 'EPERM'],
  ['kexec_load', "call('kexec_load', 0, 0, 0, 0)", 'EPERM'],
  ['init_module', "call('init_module', 0, 0, 0)", 'EPERM'],
  ['delete_module', "call('delete_module', b'x', 0)", 'EPERM'],
  ['reboot', "call('reboot', 0, 0, 0, 0)", 'EPERM'],
  ['swapon', "call('swapon', b'/tmp/x', 0)", 'EPERM'],
  ['acct', "call('acct', b'/tmp/x')", 'EPERM'],
  ['clock_settime', "call('clock_settime', 0, b'\\0' * 16)", 'EPERM'],
  ['setuid 0', "call('setuid', 0)", /^E(INVAL|PERM)$/],
  ['setgroups', "call('setgroups', 1, b'\\0' * 4)", 'EPERM'],
  ['a raw socket', 'socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close()', 'EPERM'],
  ['a device node in /tmp', "os.mknod('/tmp/device', 0o20666, os.makedev(1, 1))", 'EPERM'],
];

/** Answered otherwise to an ordinary process of this host. */
const ordinary: readonly Attempt[] = [
  ['ptrace: to be traced', "call('ptrace', 0, 0, 0, 0)", 'EPERM'],
  // Not PTRACE_ATTACH, which would leave the child stopped for ever outside.
  ['ptrace: seize a child', "call('ptrace', 0x4206, os.spawnlp(os.P_NOWAIT, 'sleep', 'sleep', '1'), 0, 0)", 'EPERM'],
  ['ptrace: seize nobody', "call('ptrace', 0x4206, 2**22 + 1, 0, 0)", 'EPERM'],
  ['process_vm_readv', "call('process_vm_readv', os.getpid(), 0, 0, 0, 0, 0)", 'EPERM'],
  ['process_vm_writev', "call('process_vm_writev', os.getpid(), 0, 0, 0, 0, 0)", 'EPERM'],
  ['pidfd_getfd of oneself', "call('pidfd_getfd', call('pidfd_open', os.getpid(), 0), 0, 0)", 'EPERM'],
  ['kcmp', "call('kcmp', os.getpid(), os.getpid(), 0, 0, 0)", 'EPERM'],
  ['process_madvise', "call('process_madvise', -1, 0, 0, 0, 0)", 'EPERM'],
  ['move_pages', "call('move_pages', 0, 0, 0, 0, 0, 0)", 'EPERM'],
  ['prlimit of another process', "call('prlimit64', os.getppid(), 7, 0, ctypes.create_string_buffer(16))", 'EPERM'],
  ['unshare a user namespace', "call('unshare', 0x10000000)", 'EPERM'],
  ['clone a user namespace', "call('clone', 0x10000000 | 17, 0, 0, 0, 0)", 'EPERM'],
  ['clone a network namespace', "call('clone', 0x40000000 | 0x10000000 | 17, 0, 0, 0, 0)", 'EPERM'],
  ['clone3, whose flags no filter can read', "call('clone3', 0, 0)", 'ENOSYS'],
  ['open_tree', "call('open_tree', -100, b'/tmp', 0)", 'EPERM'],
  ['statmount', "call('statmount', 0, 0, 0, 0)", 'EPERM'],
  ['listmount', "call('listmount', 0, 0, 0, 0)", 'EPERM'],
  ['mount_setattr', "call('mount_setattr', -100, b'/', 0, 0, 0)", 'EPERM'],
  ['fsconfig', "call('fsconfig', -1, 0, 0, 0, 0)", 'EPERM'],
  ['personality: no address randomization', "call('personality', 0x40000)", 'EPERM'],
  ['keyctl: the session keyring', "call('keyctl', 0, -3, 0, 0, 0)", 'EPERM'],
  ['add_key', "call('add_key', b'user', b'x', b'x', 1, -4)", 'EPERM'],
  ['request_key', "call('request_key', b'user', b'nothing', 0, 0)", 'EPERM'],
  ['userfaultfd', "call('userfaultfd', 1)", 'EPERM'],
  ['name_to_handle_at', "call('name_to_handle_at', -100, b'/tmp', 0, 0, 0)", 'EPERM'],
  ['open_by_handle_at', "call('open_by_handle_at', -100, 0, 0)", 'EPERM'],
  ['io_uring_setup', "call('io_uring_setup', 8, 0)", 'EPERM'],
  ['io_uring_enter', "call('io_uring_enter', -1, 0, 0, 0, 0, 0)", 'EPERM'],
  ['io_uring_register', "call('io_uring_register', -1, 0, 0, 0)", 'EPERM'],
  ['perf_event_open', "call('perf_event_open', 0, 0, 0, 0, 0)", 'EPERM'],
  ['fanotify_init', "call('fanotify_init', 0x200, 0)", 'EPERM'],
  ['modify_ldt', "call('modify_ldt', 0, ctypes.create_string_buffer(16), 16)", /^E(PERM|NOSYS)$/],
  ['adjtimex', "call('adjtimex', ctypes.create_string_buffer(1024))", 'EPERM'],
  ['a call of the future', "call('future', 0)", 'ENOSYS'],
  ['a call of the x32 interface', 'call(0x40000000 | 39)', 'ENOSYS'],
  ['typing into a terminal', "__import__('fcntl').ioctl(os.openpty()[1], 0x5412, b'x')", 'EPERM'],
  ['a vsock', 'socket.socket(40, socket.SOCK_STREAM)', 'EAFNOSUPPORT'],
  ["a socket of the kernel's ciphers", 'socket.socket(38, socket.SOCK_SEQPACKET)', 'EAFNOSUPPORT'],
  ['multipath TCP', 'socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).close()', 'EPROTONOSUPPORT'],
  ['a netlink socket about sockets', 'socket.socket(16, socket.SOCK_RAW, 4).close()', 'EPROTONOSUPPORT'],
];
/** Some kernels have none of these, or refuse them by a setting. */
const mayBeAlike = new Set([
  'a call of the future',
  'a call of the x32 interface',
  'typing into a terminal',
  "a socket of the kernel's ciphers",
]);

const expressions = [...privileged, ...ordinary].map(([, expression]) => expression);
let cell: Cell;
let answers: Map<string, string>;

beforeAll(async () => {
  cell = await Cell.start({ neighbour: false });
  answers = new Map((await cell.triedAll(expressions)).map((answer, index) => [expressions[index]!, answer]));
}, limitMs);
afterAll(async () => {
  await cell?.stop();
}, limitMs);

function expectAnswer(expression: string, answer: string | RegExp): void {
  if (typeof answer === 'string') expect(answers.get(expression)).toBe(answer);
  else expect(answers.get(expression)).toMatch(answer);
}

describe('what needs privileges that a holder does not have', () => {
  test.each([...privileged])('%s', (_name, expression, answer) => expectAnswer(expression, answer));
});

describe('what ordinary processes may and a holder may not', () => {
  test.each([...ordinary])('%s', (_name, expression, answer) => expectAnswer(expression, answer));

  test.skipIf(process.getuid?.() !== 0)('an ordinary process outside is answered otherwise', () => {
    const program = `${prelude}\n${eachTried(ordinary.map(([, expression]) => expression))}`;
    const outside = Bun.spawnSync(['setpriv', '--reuid=64321', '--regid=64321', '--clear-groups', 'python3', '-'], {
      stdin: Buffer.from(program),
      cwd: '/',
      env: { PATH: '/usr/bin:/bin' },
    });
    const controls = JSON.parse(outside.stdout.toString()) as string[];
    const alike = ordinary.filter(([name, expression], index) => {
      return !mayBeAlike.has(name) && controls[index] === answers.get(expression);
    });
    expect(alike.map(([name, expression]) => `${name}: ${answers.get(expression)}`)).toEqual([]);
  });
});

describe('what a tool may do to itself opens nothing', () => {
  test('a filter of its own does not loosen the one above it', async () => {
    const program = `
# An allow-all filter: struct sock_fprog { 1, &{ret ALLOW} }
code = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 1, ctypes.addressof(code)))
print(tried(lambda: call('seccomp', 1, 0, program)), tried(lambda: call('unshare', 0x10000000)))`;
    expect(await cell.python(program)).toBe('0 EPERM');
  });

  test('no_new_privs, capabilities and core limits are not taken back', async () => {
    const program = `
header = ctypes.create_string_buffer(struct.pack('IiIIIIII', 0x20080522, 0, 1 << 21, 1 << 21, 0, 0, 0, 0))
print(tried(lambda: checked(libc.prctl(38, 0, 0, 0, 0))), tried(lambda: call('capset', ctypes.byref(header), ctypes.byref(header, 8))),
      tried(lambda: checked(libc.prctl(47, 2, 21, 0, 0))), tried(lambda: checked(libc.prctl(28, 0, 0, 0, 0))))
import resource
try: resource.setrlimit(resource.RLIMIT_CORE, (-1, -1)); print('raised')
except (ValueError, OSError) as e: print('kept')
print([line for line in open('/proc/self/status') if line.startswith(('CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp:'))])`;
    const said = await cell.python(program);
    expect(said).toStartWith('EINVAL EPERM EPERM EPERM\nkept\n');
    for (const field of ['CapEff', 'CapBnd', 'CapAmb']) expect(said).toContain(`${field}:\\t0000000000000000`);
    expect(said).toContain('NoNewPrivs:\\t1');
    expect(said).toContain('Seccomp:\\t2');
  });

  test('a program that exists in memory alone runs behind the same walls', async () => {
    const program = `
fd = os.memfd_create('tool', 0)
os.write(fd, open('/bin/cat', 'rb').read())
pid = os.fork()
if pid == 0: os.execve(fd, ['cat', '/hermes/.env', '/workspace/here.txt'], {})
print(os.waitpid(pid, 0)[1] >> 8)`;
    const said = await cell.python(`open('/workspace/here.txt', 'w').write('it runs\\n')\n${program}`);
    expect(said).toContain('it runs');
    expect(said).toMatch(/\.env: Permission denied/);
  });

  test('calls by the 32-bit gate end the process', async () => {
    if (process.arch !== 'x64') return;
    // mov eax, 20 (getpid); int 0x80; ret
    const program = `
import mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3')
pid = os.fork()
if pid == 0:
    ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
    os._exit(0)
print('signal', os.waitpid(pid, 0)[1] & 127)`;
    expect(await cell.python(program)).toMatch(/^signal (31|11)$/);
  });
});

test('setuid programs stay who they are', async () => {
  const { output } = await cell.shell(
    `for p in $(find /usr/bin /usr/sbin -perm /6000 -type f 2>/dev/null | head -20); do echo "$p"; done; ` +
      `timeout 5 su -c id root </dev/null 2>&1; timeout 5 mount -t tmpfs x /tmp 2>&1; cp /usr/bin/id /tmp/id; chmod 6755 /tmp/id; /tmp/id -u; /tmp/id -g; grep nosuid /proc/self/mounts | grep -c .`,
  );
  expect(output).not.toContain('uid=0');
  expect(output).toMatch(/\n1000\n1000\n\d+$/);
  // Every mount but the device nodes is nosuid, whatever stands on it.
  const mounts = await cell.shell("awk '{print $4}' /proc/self/mounts | grep -vc nosuid");
  expect(mounts.output).toBe('0');
});

test('a file gets neither another owner nor a capability', async () => {
  const expressions = [
    "(open('/workspace/f', 'w').close(), os.chown('/workspace/f', 0, 0))",
    "(open('/tmp/f', 'w').close(), os.chown('/tmp/f', 0, 0))",
    "os.setxattr('/tmp/f', 'security.capability', struct.pack('<IIIII', 0x02000001, 1 << 21, 0, 0, 0))",
    "os.setxattr('/workspace/f', 'security.capability', struct.pack('<IIIII', 0x02000001, 1 << 21, 0, 0, 0))",
  ];
  const [workspace, tmp, capability, onFuse] = await cell.triedAll(expressions);
  expect([workspace, tmp, capability]).toEqual(['EINVAL', 'EINVAL', 'EPERM']);
  expect(onFuse).toMatch(/^E(PERM|NOTSUP|OPNOTSUPP)$/);
});

test('after all that no secret is anywhere', async () => expect(await cell.leaks()).toEqual([]), limitMs);
