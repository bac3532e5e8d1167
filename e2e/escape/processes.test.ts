/**
 * Other processes and what /proc tells of them: Hermes itself (the tools have its user), the first process of the holder, the
 * host. Beside each refusal stands that the same works on a process of the tool's own.
 */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { readFileSync } from 'node:fs';
import { Cell, limitMs } from './cell.fixture.ts';

let cell: Cell;
/** What each expression came to, for Hermes, for init, and for a process of the tool's own. */
let ofHermes: Map<string, string>;
let ofInit: Map<string, string>;
let ofOwn: Map<string, string>;

/** PID is the process. */
const looks: readonly (readonly [what: string, expression: string])[] = [
  ['its environment', "read(f'/proc/{PID}/environ') and 'read'"],
  [
    'its memory',
    "os.pread(os.open(f'/proc/{PID}/mem', os.O_RDONLY), 8, int(open(f'/proc/{PID}/maps').read().split('-')[0], 16)) and 'read'",
  ],
  ['its memory, to write', "os.open(f'/proc/{PID}/mem', os.O_RDWR) and 'opened'"],
  ['its map', "read(f'/proc/{PID}/maps') and 'read'"],
  ['its mapped files', "os.listdir(f'/proc/{PID}/map_files') and 'read'"],
  ['its pages', "os.open(f'/proc/{PID}/pagemap', os.O_RDONLY) and 'opened'"],
  ['its working directory', "os.listdir(f'/proc/{PID}/cwd') and 'read'"],
  ['its root', "os.listdir(f'/proc/{PID}/root/usr') and 'read'"],
  ['its descriptors', "os.listdir(f'/proc/{PID}/fd') and 'read'"],
  ['its descriptor 3', "os.open(f'/proc/{PID}/fd/3', os.O_RDWR) and 'opened'"],
  ["its descriptors' state", "os.listdir(f'/proc/{PID}/fdinfo') and 'read'"],
  ['its auxiliary vector', "read(f'/proc/{PID}/auxv') and 'read'"],
  ['its system call', "read(f'/proc/{PID}/syscall') and 'read'"],
  ['its kernel stack', "read(f'/proc/{PID}/stack') and 'read'"],
  ['its input and output', "read(f'/proc/{PID}/io') and 'read'"],
  ["its threads' environment", "read(f'/proc/{PID}/task/{PID}/environ') and 'read'"],
  ["its threads' memory", "os.open(f'/proc/{PID}/task/{PID}/mem', os.O_RDONLY) and 'opened'"],
  ['its namespaces', "os.readlink(f'/proc/{PID}/ns/mnt') and 'read'"],
  ['its executable file', "os.open(f'/proc/{PID}/exe', os.O_RDONLY) and 'opened'"],
  ['to change its map of users', "write(f'/proc/{PID}/uid_map', b'0 0 1') and 'written'"],
  ['to make it the first victim', "write(f'/proc/{PID}/oom_score_adj', b'1000') and 'written'"],
  ['to clear its page references', "write(f'/proc/{PID}/clear_refs', b'1') and 'written'"],
  ['to choose what its core holds', "write(f'/proc/{PID}/coredump_filter', b'ff') and 'written'"],
  ['a descriptor of it', "call('pidfd_getfd', call('pidfd_open', PID, 0), 3, 0)"],
  ['to trace it', "call('ptrace', 16, PID, 0, 0)"],
  ['to read its memory by a call', "call('process_vm_readv', PID, 0, 0, 0, 0, 0)"],
  ['to take its memory', "call('prlimit64', PID, 9, ctypes.create_string_buffer(16), 0)"],
];
/** Made one by one and last: where they succeed there is no Hermes left to tell of it. */
const kills: typeof looks = [
  ['to kill it', 'os.kill(PID, 9)'],
  ['to stop it', 'os.kill(PID, 19)'],
  ['to kill it by a descriptor', "call('pidfd_send_signal', call('pidfd_open', PID, 0), 9, 0, 0)"],
  ['to kill its thread', 'call(234 if X86 else 131, PID, PID, 9)'],
  [
    'to have the kernel kill it',
    "(lambda r, w, f: (f.fcntl(r, f.F_SETOWN, PID), f.fcntl(r, 10, 9), f.fcntl(r, f.F_SETFL, os.O_ASYNC | os.O_NONBLOCK), os.write(w, b'x'))[3])(*os.pipe(), __import__('fcntl'))",
  ],
];
/** What even an own process is refused, by other walls. */
const refusedToOwn = new Set([
  'its kernel stack',
  'to change its map of users',
  'its mapped files',
  'a descriptor of it',
  'to trace it',
  'to read its memory by a call',
  'to take its memory',
  'its descriptor 3',
  'to make it the first victim',
]);
async function all(pid: string): Promise<Map<string, string>> {
  const answers = await cell.triedAll(looks.map(([, expression]) => `(lambda PID: ${expression})(${pid})`));
  return new Map(answers.map((answer, index) => [looks[index]![0], answer]));
}

/** Tools are kept from signalling Hermes by Landlock's scopes: kernel 6.12. */
const [major = 0, minor = 0] = readFileSync('/proc/sys/kernel/osrelease', 'utf8').split('.').map(Number);
const hasScopes = major > 6 || (major === 6 && minor >= 12);

beforeAll(async () => {
  cell = await Cell.start();
  ofHermes = await all('HERMES');
  ofInit = await all('1');
  // Without a terminal's pipes, which would keep the tool's call open until its end.
  ofOwn = await all("(__import__('subprocess').Popen(['sleep', '30'], stdin=-3, stdout=-3, stderr=-3).pid)");
}, limitMs);
afterAll(async () => {
  await cell?.stop();
}, limitMs);

const refusals = /^E(ACCES|PERM|SRCH)$/;

describe('Hermes, from its own tools', () => {
  test.each([...looks])('%s', (what) => expect(ofHermes.get(what)).toMatch(refusals));

  test.each([...kills])('%s', async (_what, expression) => {
    if (!hasScopes) return;
    const before = cell.hermes().map(({ pid }) => pid);
    // That the kernel does it on behalf of a tool may be asked for; it must not happen.
    const said = await cell.tried(`(lambda PID: ${expression})(HERMES)`);
    expect(said).toMatch(/^(E(ACCES|PERM|SRCH)|1)$/);
    expect((await cell.shell('echo alive')).output).toBe('alive');
    expect(cell.hermes().map(({ pid }) => pid)).toEqual(before);
  });
});

describe('the first process of the holder', () => {
  test.each([...looks])('%s', (what) => expect(ofInit.get(what)).toMatch(refusals));
});

test("a process of the tool's own shows that these attempts would succeed", () => {
  const failed = looks.filter(([what]) => !refusedToOwn.has(what) && refusals.test(ofOwn.get(what) ?? ''));
  expect(failed.map(([what]) => `${what}: ${ofOwn.get(what)}`)).toEqual([]);
});

test("and so does killing a process of the tool's own", async () => {
  const own =
    "(lambda p: (EXPRESSION, p.wait())[1])(__import__('subprocess').Popen(['sleep', '30'], stdin=-3, stdout=-3, stderr=-3))";
  const ends = kills.map(([, expression]) => own.replace('EXPRESSION', `(lambda PID: ${expression})(p.pid)`));
  const stops = kills.findIndex(([what]) => what === 'to stop it');
  const answers = await cell.triedAll(ends.filter((_, index) => index !== stops));
  expect(answers).toEqual(answers.map(() => '-9'));
});

describe('what the kernel keeps in /proc', () => {
  const files: readonly (readonly [string, string | RegExp])[] = [
    ["write('/proc/sys/kernel/core_pattern', b'|/tmp/x')", /^E(ROFS|ACCES)$/],
    ["write('/proc/sys/kernel/modprobe', b'/tmp/x')", /^E(ROFS|NOENT)$/],
    ["write('/proc/sys/vm/overcommit_memory', b'1')", /^E(ROFS|ACCES)$/],
    ["write('/proc/sys/kernel/ns_last_pid', b'1')", /^E(ROFS|NOENT)$/],
    ["write('/proc/sys/net/ipv4/ip_forward', b'1')", /^E(ROFS|ACCES|NOENT)$/],
    ["write('/proc/sysrq-trigger', b'c')", /^E(ROFS|ACCES|NOENT)$/],
    ["os.open('/proc/kcore', os.O_RDONLY)", /^E(ACCES|PERM|NOENT)$/],
    ["os.open('/proc/kmsg', os.O_RDONLY)", /^E(ACCES|PERM|NOENT)$/],
    ["os.open('/proc/kpagecount', os.O_RDONLY)", /^E(ACCES|PERM|NOENT)$/],
    [
      "[l for l in open('/proc/kallsyms') if not l.startswith('0' * 16)] or 'no addresses'",
      /^(no addresses|E(ACCES|PERM|NOENT))$/,
    ],
    ["os.listdir('/proc/sys/fs/binfmt_misc')", /^(\[\]|ENOENT)$/],
    ["write('/proc/self/uid_map', b'0 0 1')", 'EPERM'],
    ["write('/proc/self/gid_map', b'0 0 1')", 'EPERM'],
    ["write('/proc/self/setgroups', b'allow')", /^E(PERM|ACCES)$/],
    ["write('/proc/self/oom_score_adj', b'-1000')", 'EACCES'],
    ["os.listdir('/sys')", 'ENOENT'],
    ["os.open('/dev/mem', os.O_RDONLY)", 'ENOENT'],
    ["os.open('/dev/fuse', os.O_RDWR)", 'ENOENT'],
    ["os.open('/dev/kmsg', os.O_RDWR)", 'ENOENT'],
  ];
  let answers: string[];
  beforeAll(async () => {
    answers = await cell.triedAll(files.map(([expression]) => expression));
  }, limitMs);

  test.each(files.map(([expression, answer], index) => [expression, answer, index] as const))(
    '%s',
    (_, answer, index) => {
      if (typeof answer === 'string') expect(answers[index]).toBe(answer);
      else expect(answers[index]).toMatch(answer);
    },
  );
});

describe('what a tool starts with', () => {
  test('no descriptor but the three, none of them leading out', async () => {
    const said = await cell.python(`
print(sorted(int(n) for n in os.listdir('/proc/self/fd'))[:4], tried(lambda: os.fstat(3) and 'open'))
for n in range(3):
    target = os.readlink(f'/proc/self/fd/{n}')
    print(target.split(':')[0])`);
    // The listing itself is one; standard input is the program.
    expect(said).toMatch(/^\[0, 1, 2, 3\] (EBADF|open)\n/);
    const { output } = await cell.shell('ls /proc/$$/fd; exec 3<&- ; (echo SELECT >&3) 2>&1');
    expect(output).toContain('Bad file descriptor');
  });

  test('no variable that is a secret, in no process that it can see', async () => {
    const { output } = await cell.shell(
      "env; cat /proc/*/environ 2>/dev/null | tr '\\\\0' '\\\\n'; ps axeww; cat /proc/*/cmdline | tr '\\\\0' ' '",
    );
    expect(output).toContain('HERMES_HOME=/hermes');
    for (const name of ['EDGE_', 'BUN_', 'API_KEY', 'UNRELATED_SECRET', 'TOKEN']) expect(output).not.toContain(name);
  });

  test('no process of the host or of the neighbour is there to be seen', async () => {
    const said = await cell.python(`
print(sorted(int(n) for n in os.listdir('/proc') if n.isdigit())[:2])
print(tried(lambda: os.kill(${cell.gateway.pid}, 0)), tried(lambda: os.kill(${cell.hermes()[1]!.pid}, 9)))`);
    expect(said.split('\n')).toEqual(['[1, 2]', 'ESRCH ESRCH']);
  });

  test('shared memory, queues and semaphores of the host are others', async () => {
    const made = Bun.spawnSync(['ipcmk', '-M', '4096']);
    const id = /\d+/.exec(made.stdout.toString())?.[0];
    expect(id).toBeDefined();
    try {
      const { output } = await cell.shell('tail -n +2 /proc/sysvipc/shm | wc -l; ls /dev/shm | wc -l');
      expect(output).toBe('0\n0');
    } finally {
      Bun.spawnSync(['ipcrm', '-m', id!]);
    }
  });
});

test('a crash leaves no core, neither here nor on the host', async () => {
  const { output } = await cell.shell(
    "ulimit -c unlimited 2>&1; ulimit -c; python3 -c 'import os; os.abort()'; echo $?; find /workspace /tmp /artifacts -name '*core*' -size +100k | wc -l",
  );
  expect(output).toMatch(/^(.*cannot modify limit.*\n)?.*0\n.*134\n0$/s);
});

test('everything that a tool may signal at once leaves Hermes alone', async () => {
  if (!hasScopes) return;
  const before = cell.hermes().map(({ pid }) => pid);
  await cell.shell('setsid bash -c "trap \'\' TERM; kill -TERM -1; kill -KILL -1" > /dev/null 2>&1; true');
  expect((await cell.shell('echo still here')).output).toBe('still here');
  expect(cell.hermes().map(({ pid }) => pid)).toEqual(before);
});

test('after all that no secret is anywhere', async () => expect(await cell.leaks()).toEqual([]));
