/** The whole tree on a real mount: what programs ask for rarely, and directories of any size. */
import { afterAll, beforeAll, expect } from 'bun:test';
import { rootIno } from '../agentfs/ids.ts';
import { type LocalFiles, openLocalFiles } from '../agentfs/local.fixture.ts';
import { TreeView } from '../agentfs/tree-view.ts';
import { Gate } from './gate.ts';
import { canMount, mountTest, mountView, type TestMount } from './mount.fixture.ts';
import { opcodes } from './wire.ts';

let local: LocalFiles;
let mount: TestMount;

beforeAll(async () => {
  if (!canMount) return;
  local = await openLocalFiles();
  const gate = new Gate();
  gate.arm(process.pid);
  mount = mountView(new TreeView(local.files), gate);
});
afterAll(async () => {
  if (!canMount) return;
  await mount.unmount();
  await local.close();
});

/** Runs Python as root in the mount; what it printed. */
async function python(script: string): Promise<string> {
  const child = Bun.spawn(['python3', '-c', `import os, errno\nos.chdir(os.environ['DIRECTORY'])\n${script}`], {
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
    env: { PATH: '/usr/local/bin:/usr/bin:/bin', DIRECTORY: mount.path, LC_ALL: 'C.UTF-8' },
    cwd: '/',
  });
  const [out, err] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()]);
  return out + err;
}

const requests = (opcode: number) => mount.requests.get(opcode) ?? 0;

mountTest('holes are told from data, except where a mapping may be ahead of it', async () => {
  const output = await python(`
def parts(fd):
    found, at = [], 0
    while True:
        try: data = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as e:
            assert e.errno == errno.ENXIO; return found
        at = os.lseek(fd, data, os.SEEK_HOLE); found.append((data, at))
fd = os.open('sparse', os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 1 << 20); os.pwrite(fd, b'x' * 10, 200000); os.pwrite(fd, b'y' * 140000, 500000)
print(parts(fd)); os.close(fd)
fd = os.open('sparse', os.O_RDONLY); print(parts(fd), os.lseek(fd, 0, os.SEEK_HOLE))
for whence in (os.SEEK_DATA, os.SEEK_HOLE):
    try: os.lseek(fd, 1 << 20, whence)
    except OSError as e: print(errno.errorcode[e.errno])
copy = os.open('copy', os.O_RDWR | os.O_CREAT); os.lseek(fd, 0, 0)
print(os.copy_file_range(fd, copy, 1 << 20), open('copy', 'rb').read() == open('sparse', 'rb').read())
os.system('fallocate -p -o 500000 -l 200000 copy'); print(open('copy', 'rb').read().count(b'y'))`);
  expect(output).toBe('[(0, 1048576)]\n[(196608, 200010), (458752, 640000)] 0\nENXIO\nENXIO\n1048576 True\n0\n');
});

mountTest('extended attributes are not supported, and that is asked once', async () => {
  const before = requests(opcodes.setxattr) + requests(opcodes.getxattr) + requests(opcodes.listxattr);
  const output = await python(`
open('plain', 'w').close()
for _ in range(5):
    for call in (lambda: os.setxattr('plain', 'user.a', b'1'), lambda: os.getxattr('plain', 'user.a'), lambda: os.listxattr('plain')):
        try: call()
        except OSError as e: print(errno.errorcode[e.errno])`);
  expect(output).toBe('ENOTSUP\n'.repeat(15));
  expect(requests(opcodes.setxattr) + requests(opcodes.getxattr) + requests(opcodes.listxattr) - before).toBeLessThan(
    4,
  );
});

mountTest('a file without a name can get one while it is open, and is gone otherwise', async () => {
  const output = await python(`
def nameless(more=0):
    fd = os.open('.', os.O_TMPFILE | os.O_RDWR | more, 0o640); os.write(fd, b'nameless'); return fd
def name(fd, to): os.link(f'/proc/self/fd/{fd}', to, src_dir_fd=0, follow_symlinks=True)
fd = nameless(); print(os.fstat(fd).st_nlink); name(fd, 'named'); print(os.fstat(fd).st_nlink); os.close(fd)
print(open('named').read(), oct(os.stat('named').st_mode))
fd = nameless(os.O_EXCL)
try: name(fd, 'never')
except OSError as e: print(errno.errorcode[e.errno])
os.close(fd); os.close(nameless()); print('never' in os.listdir('.'))`);
  expect(output).toBe('0\n1\nnameless 0o100640\nENOENT\nFalse\n');
  const row = await local.driver.get('SELECT count(*) AS n FROM fs_inode WHERE nlink = 0');
  expect(Number(row!.n)).toBe(0);
});

mountTest('owners, devices, set-group directories and times are kept to the bit', async () => {
  const output = await python(`
import stat
os.umask(0); os.mkdir('group', 0o755); os.chown('group', 5, 77); os.chmod('group', 0o2775)
open('group/file', 'w').close(); os.mkdir('group/sub'); s = os.stat('group/sub'); print(oct(s.st_mode), s.st_uid, s.st_gid, os.stat('group/file').st_gid)
os.mknod('null', stat.S_IFCHR | 0o666, os.makedev(1, 3)); s = os.stat('null'); print(os.major(s.st_rdev), os.minor(s.st_rdev))
os.mkfifo('fifo'); print(stat.S_ISFIFO(os.stat('fifo').st_mode))
os.chmod('group/file', 0o6755); os.chown('group/file', 1, 1); print(oct(os.stat('group/file').st_mode))
os.utime('group/file', ns=(-1_500_000_001, 123_456_789_123_456_789)); s = os.stat('group/file'); print(s.st_atime_ns, s.st_mtime_ns)
print(os.stat('group').st_nlink); os.rmdir('group/sub'); print(os.stat('group').st_nlink)`);
  expect(output).toBe('0o42777 0 77 77\n1 3\nTrue\n0o100755\n-1500000001 123456789123456789\n3\n2\n');
});

/** Empty files with numbered names, put straight into the tables: as many as would take long to make one by one. */
async function fill(name: string, count: number): Promise<void> {
  const { ino } = await local.files.names.makeDirectory({ parent: rootIno, name }, 0o755);
  const perStatement = 500;
  await local.files.flush();
  await local.driver.run('BEGIN');
  for (let first = 0; first < count; first += perStatement) {
    const numbers = Array.from({ length: perStatement }, (_, at) => 2 ** 40 + first + at);
    const inodes = numbers.map((number) => `(${number}, 33188, 1, 0, 1, 1, 1)`);
    await local.driver.run(
      `INSERT INTO fs_inode (ino, mode, nlink, size, atime, mtime, ctime) VALUES ${inodes.join(',')}`,
    );
    const entries = numbers.map((number, at) => `(${number}, 'entry-${first + at}', ${ino}, ${number})`);
    await local.driver.run(`INSERT INTO fs_dentry (id, name, parent_ino, ino) VALUES ${entries.join(',')}`);
  }
  await local.driver.run('COMMIT');
  // As after a pull: what is in the database by another way than the store's is not in its memory.
  await local.files.store.exclusive(() => local.files.store.forget());
}

mountTest(
  'a directory of 100,000 entries is read page by page, each entry once, and cookies lead back',
  async () => {
    await fill('big', 100_000);
    const pages = local.files.names.pages((await local.files.find('/big'))!.ino);
    expect((await pages.next()).value).toHaveLength(1000);
    await pages.return();
    const output = await python(`
import ctypes
names = os.listdir('big'); print(len(names), len(set(names)))
print(sum(entry.stat(follow_symlinks=False).st_nlink for entry in os.scandir('big')))
libc = ctypes.CDLL(None); libc.opendir.restype = libc.readdir.restype = ctypes.c_void_p; libc.telldir.restype = ctypes.c_long
directory = ctypes.c_void_p(libc.opendir(b'big')); cookies = []
def name():
    entry = libc.readdir(directory); return ctypes.string_at(entry + 19) if entry else None
for number in range(20000):
    cookie = libc.telldir(directory); entry = name()
    if number % 3000 == 0: cookies.append((cookie, entry))
for cookie, entry in reversed(cookies):
    libc.seekdir(directory, ctypes.c_long(cookie)); assert name() == entry
libc.rewinddir(directory); assert name() == b'.'
# What is removed while it is read is not missed otherwise.
seen = 0
for number, entry in enumerate(os.scandir('big')):
    seen += 1
    if number % 500 == 0: os.unlink('big/' + entry.name)
print(seen, len(os.listdir('big')))`);
    expect(output).toBe('100000 100000\n100000\n100000 99800\n');
  },
  300_000,
);
