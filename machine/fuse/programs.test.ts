/** Real programs on a real mount. */
import { afterAll, beforeAll, expect } from 'bun:test';
import { rootIno } from '../agentfs/ids.ts';
import { type LocalFiles, openLocalFiles } from '../agentfs/local.fixture.ts';
import { Gate } from './gate.ts';
import { canMount, mountTest, mountView, run, shell, type TestMount } from './mount.fixture.ts';

let local: LocalFiles;
let mount: TestMount;
let workspace: string;

beforeAll(async () => {
  if (!canMount) return;
  local = await openLocalFiles();
  const { names } = local.files;
  const conversations = await names.makeDirectory({ parent: rootIno, name: 'conversations' }, 0o755);
  await names.makeDirectory({ parent: conversations.ino, name: 'conv_a' }, 0o755);
  const gate = new Gate();
  gate.arm(process.pid);
  mount = mountView((await local.files.view('conv_a'))!, gate);
  workspace = `${mount.path}/workspace`;
});
afterAll(async () => {
  if (!canMount) return;
  await mount.unmount();
  await local.close();
});

mountTest(
  'git',
  async () => {
    const { code, output } = await shell(
      workspace,
      `git init -q repo && cd repo && git config user.name a && git config user.email a@example.test
     mkdir -p src/deep && for i in $(seq 50); do echo "line $i" > src/deep/f$i.txt; done
     git add . && git commit -qm first && echo more >> src/deep/f1.txt && git commit -qam second
     git mv src/deep/f2.txt src/g.txt && git commit -qm third && git status --porcelain && git log --oneline | wc -l
     git fsck --strict 2>&1 && git gc -q && git fsck && git checkout -q HEAD~2 && cat src/deep/f1.txt && git clone -q . ../clone && ls ../clone/src/deep | wc -l`,
    );
    expect(output).toMatch(/^3\n/);
    expect(output).toContain('line 1\n50\n');
    expect(code).toBe(0);
  },
  60_000,
);

mountTest(
  'SQLite in WAL mode',
  async () => {
    const script = `
import sqlite3
a = sqlite3.connect('x.db'); print(a.execute('PRAGMA journal_mode=WAL').fetchone()[0])
a.execute('CREATE TABLE t(a, b)')
b = sqlite3.connect('x.db')
for i in range(200):
    with a: a.execute('INSERT INTO t VALUES(?, ?)', (i, 'x' * 500))
    if i % 50 == 0: print(b.execute('SELECT count(*) FROM t').fetchone()[0])
print(b.execute('PRAGMA integrity_check').fetchone()[0]); a.close(); b.close()
c = sqlite3.connect('x.db'); print(c.execute('SELECT count(*), sum(a) FROM t').fetchone())`;
    const { code, output } = await run(workspace, [
      'python3',
      '-c',
      `import os; os.chdir(os.environ['DIRECTORY'])\n${script}`,
    ]);
    expect(output).toBe('wal\n1\n51\n101\n151\nok\n(200, 19900)\n');
    expect(code).toBe(0);
  },
  60_000,
);

mountTest(
  'tar, cp, rm, find',
  async () => {
    const { code, output } = await shell(
      workspace,
      `mkdir -p tree/a/b tree/c && head -c 3000000 /dev/urandom > tree/a/big && printf x > tree/a/b/small && ln -s ../a tree/c/link && : > tree/empty
     chmod 750 tree/a/b && touch -d 2001-02-03T04:05:06.789Z tree/empty
     tar cf t.tar tree && mkdir out && tar xf t.tar -C out && diff -r tree out/tree && stat -c '%a %y' out/tree/a/b out/tree/empty | sed 's/ 20[2-9].*//'
     cp -a tree copy && cmp tree/a/big copy/a/big && readlink copy/c/link && find copy | wc -l && rm -r tree out copy t.tar && ls`,
    );
    expect(output).toContain('750\n');
    expect(output).toContain('644 2001-02-03 04:05:06');
    expect(output).toContain('../a\n8\n');
    expect(code).toBe(0);
  },
  60_000,
);

mountTest(
  'append, hard links, rename over an open file, unlink while open, holes',
  async () => {
    const script = `
import os
os.chdir(os.environ['DIRECTORY'])
def put(p, s, m='w'):
    with open(p, m) as f: f.write(s)
def get(p): return open(p).read()
put('a', 'one'); put('a', 'two', 'a'); assert get('a') == 'onetwo'
os.link('a', 'b'); assert os.stat('a').st_nlink == 2 and os.stat('b').st_ino == os.stat('a').st_ino
put('b', '!', 'a'); assert get('a') == 'onetwo!'
f = open('a'); put('new', 'fresh'); os.rename('new', 'a'); assert f.read() == 'onetwo!' and get('a') == 'fresh' and get('b') == 'onetwo!'
assert os.stat('b').st_nlink == 1
g = open('gone', 'w+'); g.write('still here'); g.flush(); os.unlink('gone'); g.seek(0); assert g.read() == 'still here'
assert os.fstat(g.fileno()).st_nlink == 0; g.write('x' * 100000); g.flush(); g.seek(0); assert len(g.read()) == 100010; g.close()
h = os.open('hole', os.O_RDWR | os.O_CREAT); os.pwrite(h, b'end', 200000); os.pwrite(h, b'mid', 70000)
assert os.pread(h, 10, 0) == bytes(10) and os.pread(h, 5, 69999) == b'\\0mid\\0' and os.stat('hole').st_size == 200003
os.ftruncate(h, 70001); os.ftruncate(h, 70010); assert os.pread(h, 100, 69999) == b'\\0m' + bytes(9)
os.posix_fallocate(h, 0, 80000); assert os.fstat(h).st_size == 80000
for bad, call in [('ENOTEMPTY', lambda: os.rmdir('d')), ('EISDIR', lambda: os.rename('b', 'd')), ('ENOTDIR', lambda: os.rename('d', 'b')), ('EEXIST', lambda: os.mkdir('d')), ('ENAMETOOLONG', lambda: os.mkdir('n' * 256)), ('EINVAL', lambda: os.rename('d', 'd/e/f')), ('ENOENT', lambda: open('nothing')), ('EILSEQ', lambda: open(b'\\xff', 'w')), ('EPERM', lambda: os.mkfifo('fifo')), ('EPERM', lambda: os.mknod('device', 0o20666, os.makedev(1, 3))), ('ENODATA|ENOTSUP', lambda: os.getxattr('b', 'user.x'))]:
    if bad == 'ENOTEMPTY': os.makedirs('d/e')
    try: call(); print('no', bad)
    except OSError as e:
        import errno
        if errno.errorcode[e.errno] not in bad: print(bad, errno.errorcode[e.errno])
os.rmdir('d/e'); os.rmdir('d'); os.mkdir('d'); put('d/again', 'x'); assert os.listdir('d') == ['again']
import socket; s = socket.socket(socket.AF_UNIX); s.bind('s'); s.close()
print('done')`;
    const { output } = await run(workspace, ['python3', '-c', script]);
    expect(output).toBe('done\n');
  },
  60_000,
);

mountTest('a written mapping, and locks', async () => {
  const script = `
import mmap, os, fcntl
os.chdir(os.environ['DIRECTORY'])
with open('m', 'wb') as f: f.write(b'.' * 100000)
with open('m', 'r+b') as f:
    fcntl.flock(f, fcntl.LOCK_EX)
    m = mmap.mmap(f.fileno(), 0); m[70000:70005] = b'hello'; m.flush(); m.close()
    fcntl.lockf(f, fcntl.LOCK_UN)
print(open('m', 'rb').read()[69999:70006])`;
  const { output } = await run(workspace, ['python3', '-c', script]);
  expect(output).toBe("b'.hello.'\n");
});

mountTest(
  'a directory that many change while it is read',
  async () => {
    const { output, code } = await shell(
      workspace,
      `mkdir many && cd many && for i in $(seq 500); do : > f$i; done
     (for i in $(seq 100); do : > g$i; mv g$i h$i; rm h$i; done) & for i in 1 2 3; do ls | grep -c ^f; done; wait; cd .. && rm -r many`,
    );
    expect(output).toBe('500\n500\n500\n');
    expect(code).toBe(0);
  },
  60_000,
);

mountTest('nothing failed inside the machine, and what was closed is committed', async () => {
  await shell(workspace, 'printf committed > last');
  const found = await local.files.find('/conversations/conv_a/work/last');
  const rows = await local.driver.all('SELECT data FROM fs_data WHERE ino = ?', found!.ino);
  expect(String(rows[0]!.data)).toBe('committed');
});
