/** Hermes' home on a real mount: what a real process with threads may do there, and what its descendants may not. */
import { afterAll, beforeAll, expect } from 'bun:test';
import { rootIno } from '../agentfs/ids.ts';
import { type LocalFiles, openLocalFiles } from '../agentfs/local.fixture.ts';
import { Gate } from './gate.ts';
import { canMount, mountTest, mountView, run, shell, type TestMount } from './mount.fixture.ts';
import { opcodes } from './wire.ts';

let local: LocalFiles;
let mount: TestMount;
const gate = new Gate();
let touches = 0;
let conversation: number;

beforeAll(async () => {
  if (!canMount) return;
  local = await openLocalFiles();
  const { names, data } = local.files;
  const make = async (parent: number, name: string) => (await names.makeDirectory({ parent, name }, 0o755)).ino;
  const put = async (parent: number, name: string, text: string, mode = 0o600) => {
    const { ino } = await names.create({ parent, name }, 0o100000 | mode);
    await data.write(ino, 0, Buffer.from(text));
  };
  conversation = await make(await make(rootIno, 'conversations'), 'conv_a');
  for (const name of ['.env', 'SOUL.md', 'config.yaml']) await put(conversation, name, `content of ${name}`);
  await put(await make(rootIno, 'memory'), 'USER.md', 'remembered');
  await put(await make(await make(rootIno, 'skills'), 'one'), 'SKILL.md', 'a skill', 0o644);
  await put(await make(await make(conversation, 'artifacts'), 'inbound'), 'photo.txt', 'from a client', 0o644);
  const touch = () => {
    touches += 1;
    return null;
  };
  mount = mountView((await local.files.view('conv_a'))!, gate, {
    touch,
    onStale: () => () => undefined,
    onFlush: () => () => undefined,
  });
});
afterAll(async () => {
  if (!canMount) return;
  await mount.unmount();
  await local.close();
});

/** Runs a Python program that is Hermes to the gate: it waits for a line before it does anything. */
async function hermes(program: string): Promise<string> {
  const script = `
import sys, os, threading, subprocess, sqlite3, errno, shutil
sys.stdin.readline()
H, W, A = [sys.argv[1] + x for x in ('/home', '/workspace', '/artifacts')]
def get(p): return open(p).read()
def put(p, s, m='w'):
    with open(p, m) as f: f.write(s)
def attempt(f):
    try: return f()
    except OSError as e: return errno.errorcode[e.errno]
def tool(*command):
    r = subprocess.run(command, capture_output=True, text=True); return (r.stdout + r.stderr).strip()
def thread(f):
    out = []; t = threading.Thread(target=lambda: out.append(attempt(f))); t.start(); t.join(); return out[0]
${program}`;
  const child = Bun.spawn(
    ['setpriv', '--reuid', '1000', '--regid', '1000', '--clear-groups', '--', 'python3', '-c', script, mount.path],
    { stdin: 'pipe', stdout: 'pipe', stderr: 'inherit', cwd: '/', env: { PATH: '/usr/local/bin:/usr/bin:/bin' } },
  );
  const one = new Gate();
  one.arm(child.pid);
  // The fixture's one mount serves several programs, each in its turn the armed one.
  gate.allows = (question) => one.allows(question);
  child.stdin.write('go\n');
  child.stdin.end();
  const output = await new Response(child.stdout).text();
  await child.exited;
  return output;
}

mountTest('before arming nothing can be read, and the directories can be bound', async () => {
  const { output } = await shell(
    mount.path,
    'stat -c %F workspace artifacts home; ls workspace || cat home/.env || ls home/skills || true',
  );
  expect(output).toContain('directory\ndirectory\ndirectory\n');
  expect(output.match(/Permission denied/g)?.length).toBe(3);
  gate.arm(1);
});

mountTest('the home is composed, and changes land where they belong', async () => {
  const output = await hermes(`
print(sorted(os.listdir(H)))
print(get(H + '/.env'), thread(lambda: get(H + '/config.yaml')), get(H + '/memories/USER.md'), get(H + '/skills/one/SKILL.md'))
put(H + '/memories/USER.md.tmp', 'new memory'); os.rename(H + '/memories/USER.md.tmp', H + '/memories/USER.md')
put(H + '/config.tmp', 'new config'); os.replace(H + '/config.tmp', H + '/config.yaml'); print(get(H + '/config.yaml'))
put(H + '/auth.json', '{}'); put(H + '/logs/agent.log', 'a line\\n', 'a'); os.makedirs(H + '/cache/vision')
shutil.copytree(H + '/skills/one', H + '/skills/two')
print([attempt(f) for f in (lambda: os.rmdir(H + '/logs'), lambda: os.rename(H + '/skills', H + '/x'), lambda: os.mkdir(H + '/memories'))])
print([attempt(f) for f in (lambda: os.rename(H + '/auth.json', W + '/stolen'), lambda: os.link(H + '/.env', W + '/stolen'))])`);
  expect(output).toBe(
    `['.env', 'SOUL.md', 'config.yaml', 'logs', 'memories', 'skills']\n` +
      'content of .env content of config.yaml remembered a skill\n' +
      'new config\n' +
      `['EBUSY', 'EBUSY', 'EEXIST']\n` +
      `['EXDEV', 'EXDEV']\n`,
  );
  const found = async (path: string) => {
    const inode = await local.files.find(path);
    return inode && Buffer.from(await local.files.data.read(inode.ino, 0, 100)).toString();
  };
  expect(await found('/conversations/conv_a/config.yaml')).toBe('new config');
  expect(await found('/conversations/conv_a/logs/agent.log')).toBe('a line\n');
  expect(await found('/conversations/conv_a/state/auth.json')).toBe('{}');
  expect(await found('/memory/USER.md')).toBe('new memory');
  expect(await found('/skills/two/SKILL.md')).toBe('a skill');
});

mountTest(
  'the conversation is not written down a second time: nothing can be made where Hermes dumps requests',
  async () => {
    const output = await hermes(`
S = H + '/sessions'; os.makedirs(S, exist_ok=True); os.makedirs(S, exist_ok=True); put(H + '/dump', 'all that was said')
print([attempt(f) for f in (lambda: put(S + '/request_dump_1.json', 'x'), lambda: os.mkdir(S + '/d'), lambda: os.replace(H + '/dump', S + '/x'), lambda: os.link(H + '/dump', S + '/x'), lambda: os.symlink('x', S + '/x'))])
print(os.listdir(S), [attempt(f) for f in (lambda: os.rename(S, H + '/other'), lambda: os.rmdir(S))]); os.makedirs(S, exist_ok=True)`);
    expect(output).toBe(`['EROFS', 'EROFS', 'EROFS', 'EROFS', 'EROFS']\n[] ['EXDEV', None]\n`);
  },
);

mountTest('descendants of Hermes cannot read, list, change, inherit or map what is private', async () => {
  const output = await hermes(`
put(H + '/secret', 'S' * 5000)
for name in ('.env', 'config.yaml', 'SOUL.md', 'auth.json', 'secret', 'memories/USER.md', 'logs/agent.log'):
    get(H + '/' + name)
    print('Permission denied' in tool('cat', H + '/' + name), 'Permission denied' in tool('stat', H + '/' + name), end=' ')
print('Permission denied' in tool('ls', H), 'Permission denied' in tool('ls', H + '/memories'), tool('cat', H + '/skills/one/SKILL.md'))
print('Permission denied' in tool('sh', '-c', 'echo x > ' + H + '/skills/one/SKILL.md'), 'Permission denied' in tool('sh', '-c', 'echo x > ' + H + '/new'))
fd = os.open(H + '/secret', os.O_RDONLY); os.read(fd, 10)
print('Permission denied' in subprocess.run(['cat', f'/proc/self/fd/{fd}'], pass_fds=[fd], capture_output=True, text=True).stderr)
print('Permission denied' in subprocess.run(['cat'], stdin=fd, capture_output=True, text=True).stderr)
print('Permission denied' in tool('cat', f'/proc/{os.getpid()}/fd/{fd}'), 'Permission denied' in tool('cat', f'/proc/{os.getpid()}/root{H}/.env'))
sys.stdout.flush(); pid = os.fork()
if pid == 0:
    print('forked', attempt(lambda: os.pread(fd, 10, 0)), attempt(lambda: get(H + '/.env')), flush=True); os._exit(0)
os.waitpid(pid, 0)
print(thread(lambda: get(H + '/secret'))[:3])`);
  const lines = output.trim().split('\n');
  expect(lines[0]).toBe(`${'True '.repeat(14)}True True a skill`);
  expect(lines.slice(1)).toEqual(['True True', 'True', 'True', 'True True', 'forked EACCES EACCES', 'SSS']);
});

mountTest('a link that a tool made does not lead Hermes to what is private', async () => {
  const output = await hermes(`
put(W + '/inner', 'inner')
made = tool('sh', '-c', f'''cd {W} && ln -s {H}/.env absolute && ln -s ../home/.env climbing && ln -s {H} directory && \\
  ln -s absolute second && ln -s inner good && ln -s /tmp/elsewhere outside && ln -s /proc/self/root{H}/.env through''')
print(made, end='')
for name in ('absolute', 'climbing', 'directory/.env', 'second', 'outside', 'through'):
    print(name, attempt(lambda: get(f'{W}/{name}')), thread(lambda: get(f'{W}/{name}')), os.path.islink(f'{W}/{name}'))
print(get(W + '/good'), tool('readlink', W + '/absolute') == H + '/.env', tool('cat', W + '/good'), get(H + '/.env'))
for name in ('absolute', 'climbing', 'directory', 'second', 'good', 'outside', 'through', 'inner'): os.unlink(f'{W}/{name}')`);
  expect(output.trim().split('\n')).toEqual([
    'absolute EACCES EACCES True',
    'climbing EACCES EACCES True',
    'directory/.env EACCES EACCES False',
    'second EACCES EACCES True',
    'outside EACCES EACCES True',
    'through EACCES EACCES True',
    'inner True inner content of .env',
  ]);
});

mountTest('SQLite in WAL mode works in the private home', async () => {
  const output = await hermes(`
a = sqlite3.connect(H + '/verification_evidence.db'); print(a.execute('PRAGMA journal_mode=WAL').fetchone()[0])
a.execute('CREATE TABLE t(a)')
def add():
    b = sqlite3.connect(H + '/verification_evidence.db')
    with b: b.executemany('INSERT INTO t VALUES(?)', [(i,) for i in range(1000)])
    b.close()
thread(add); print(a.execute('SELECT count(*) FROM t').fetchone()[0], a.execute('PRAGMA integrity_check').fetchone()[0])`);
  expect(output).toBe('wal\n1000 ok\n');
});

mountTest('inbound files can be read and nothing of inbound can be changed', async () => {
  const output = await hermes(`
I = A + '/inbound'
print(get(I + '/photo.txt'), tool('cat', I + '/photo.txt'))
print([attempt(f) for f in (lambda: put(I + '/new', 'x'), lambda: put(I + '/photo.txt', 'x'), lambda: os.unlink(I + '/photo.txt'), lambda: os.rename(I + '/photo.txt', A + '/x'), lambda: os.chmod(I + '/photo.txt', 0o777), lambda: os.rename(I, A + '/other'), lambda: os.mkdir(I + '/d'), lambda: os.truncate(I + '/photo.txt', 0), lambda: os.utime(I + '/photo.txt'))])
put(A + '/made.txt', 'mine'); print(get(A + '/made.txt'))`);
  expect(output).toBe(
    `from a client from a client\n['EROFS', 'EROFS', 'EROFS', 'EROFS', 'EROFS', 'EBUSY', 'EROFS', 'EROFS', 'EROFS']\nmine\n`,
  );
});

mountTest(
  'a warm text turn (stat of config.yaml and the home) touches nothing shared and reads nothing from the database',
  async () => {
    await hermes(`os.stat(H); os.stat(H + '/config.yaml')`);
    const before = touches;
    const output = await hermes(`
for _ in range(50): os.stat(H); os.stat(H + '/config.yaml')
print('ok')`);
    expect(output).toBe('ok\n');
    expect(touches).toBe(before);
    expect(mount.requests.get(opcodes.lookup)).toBeGreaterThan(50);
    await hermes(`os.stat(H + '/memories/USER.md')`);
    expect(touches).toBeGreaterThan(before);
  },
);

mountTest('other users get nothing from anywhere', async () => {
  const { output } = await run(mount.path, ['sh', '-c', `cat ${mount.path}/home/.env`]);
  expect(output).toContain('Permission denied');
});
