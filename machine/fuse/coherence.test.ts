/** A real mount whose files are looked at and changed behind its back, as HyperSH Git does: kernel and machine agree at once. */
import { afterAll, beforeAll, expect } from 'bun:test';
import { rootIno } from '../agentfs/ids.ts';
import type { Inode } from '../agentfs/inode.ts';
import { type LocalFiles, openLocalFiles } from '../agentfs/local.fixture.ts';
import type { Place } from '../agentfs/namespace.ts';
import { Gate } from './gate.ts';
import { canMount, mountTest, mountView, shell, type TestMount } from './mount.fixture.ts';
import { opcodes } from './wire.ts';

let local: LocalFiles;
let mount: TestMount;
let workspace: string;
let work: number;

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
  work = (await local.files.find('/conversations/conv_a/work'))!.ino;
});
afterAll(async () => {
  if (!canMount) return;
  await mount.unmount();
  await local.close();
});

const place = (name: string): Place => ({ parent: work, name });
const find = async (name: string): Promise<Inode> => (await local.files.find(`/conversations/conv_a/work/${name}`))!;
async function textHere(name: string): Promise<string> {
  const { ino, size } = await find(name);
  return Buffer.from(await local.files.data.read(ino, 0, size)).toString();
}
/** Replaces the contents of a file in its place. */
async function putHere(name: string, text: string): Promise<void> {
  const { ino } = await find(name);
  await local.files.data.truncate(ino, 0);
  await local.files.data.write(ino, 0, Buffer.from(text));
}
/** Changes files as HyperSH Git does. */
async function change(work: () => Promise<void>): Promise<void> {
  const known = mount.session.caches.noteChanges();
  await work();
  await known();
}

/** A Python program that runs one line of code at a time and says what came out. */
function python() {
  const program = `
import mmap, os, sys
os.chdir(os.environ['DIRECTORY'])
def opened(name, size=None):
    global f, m
    f = open(name, 'r+b'); m = mmap.mmap(f.fileno(), size or 0)
def attempt(g):
    try: return g()
    except OSError as e: return type(e).__name__
for line in sys.stdin:
    try: out = eval(line)
    except SyntaxError: exec(line); out = None
    print(repr(out), flush=True)
`;
  const child = Bun.spawn(
    ['setpriv', '--reuid', '1000', '--regid', '1000', '--clear-groups', '--', 'python3', '-uc', program],
    {
      stdin: 'pipe',
      stdout: 'pipe',
      stderr: 'inherit',
      env: { PATH: '/usr/local/bin:/usr/bin:/bin', DIRECTORY: workspace },
      cwd: '/',
    },
  );
  const reader = child.stdout.getReader();
  let pending = '';
  return {
    async does(line: string): Promise<string> {
      child.stdin.write(`${line}\n`);
      await child.stdin.flush();
      while (!pending.includes('\n')) {
        const { value } = await reader.read();
        if (!value) throw new Error(`Python ended at ${line}`);
        pending += Buffer.from(value).toString();
      }
      const end = pending.indexOf('\n');
      const said = pending.slice(0, end);
      pending = pending.slice(end + 1);
      return said;
    },
    async end(): Promise<void> {
      child.stdin.end();
      await child.exited;
    },
  };
}

mountTest('what a program wrote into a mapping is here after a flush, however it left the mapping', async () => {
  await shell(workspace, 'printf %8192s > mapped; printf %8192s > left');
  const program = python();
  await program.does(`opened('mapped')`);
  await program.does(`m[0:5] = b'first'; m[5000:5006] = b'second'`);
  expect(await textHere('mapped')).not.toContain('first');
  await mount.session.caches.flush();
  expect((await textHere('mapped')).replaceAll(' ', '')).toBe('firstsecond');
  // Again, through the pages that were taken away.
  await program.does(`m[0:5] = b'third'`);
  await mount.session.caches.flush();
  expect((await textHere('mapped')).replaceAll(' ', '')).toBe('thirdsecond');
  await program.does(`opened('left'); m[0:4] = b'left'; f.close(); m.close()`);
  await mount.session.caches.flush();
  expect((await textHere('left')).trim()).toBe('left');
  await program.does(`opened('left'); m[0:4] = b'died'`);
  await program.end();
  await mount.session.caches.flush();
  expect((await textHere('left')).trim()).toBe('died');
});

mountTest('where nothing is mapped to write, a flush asks the kernel for nothing', async () => {
  const program = python();
  await program.does(`f = open('mapped', 'rb'); g = open('written', 'wb')`);
  const before = mount.requests.get(opcodes.notifyReply) ?? 0;
  await mount.session.caches.flush();
  expect(mount.requests.get(opcodes.notifyReply) ?? 0).toBe(before);
  await program.end();
});

mountTest('a changed file is the same to a path, an open file and a mapping', async () => {
  await shell(workspace, 'printf "as it was" > file; cat file; ls -l >/dev/null');
  const program = python();
  await program.does(`opened('file')`);
  await program.does(`r = open('file', 'rb', buffering=0)`);
  expect(await program.does(`(m[0:9], r.read())`)).toBe(`(b'as it was', b'as it was')`);
  await change(() => putHere('file', 'as it is, longer'));
  expect(
    await program.does(`(m[0:9], os.pread(r.fileno(), 99, 0), open('file').read(), os.stat('file').st_size)`),
  ).toBe(`(b'as it is,', b'as it is, longer', 'as it is, longer', 16)`);
  // Same size, at once again: nothing but the contents tells the two apart.
  await change(() => putHere('file', 'AS IT IS, LONGER'));
  expect(await program.does(`(m[0:9], os.pread(r.fileno(), 99, 0), open('file').read())`)).toBe(
    `(b'AS IT IS,', b'AS IT IS, LONGER', 'AS IT IS, LONGER')`,
  );
  await change(() => putHere('file', 'short'));
  expect(await program.does(`(m[0:9], os.pread(r.fileno(), 99, 0), os.fstat(r.fileno()).st_size)`)).toBe(
    `(b'short\\x00\\x00\\x00\\x00', b'short', 5)`,
  );
  const { output } = await shell(workspace, 'cat file; stat -c " %s" file');
  expect(output).toBe('short 5\n');
  await program.end();
});

mountTest('what was mapped and written just before a change of another file is kept', async () => {
  await shell(workspace, 'printf %4096s > kept; echo x > other');
  const program = python();
  await program.does(`opened('kept')`);
  await program.does(`m[0:4] = b'kept'`);
  await change(() => putHere('other', 'changed'));
  await mount.session.caches.flush();
  expect((await textHere('kept')).trim()).toBe('kept');
  await program.end();
});

mountTest('names that came, went and changed places are known at once, also to who sits in the directory', async () => {
  await shell(
    workspace,
    'mkdir -p sub; echo gone > sub/gone; echo old > sub/old; cat sub/*; cat sub/new sub/moved 2>&1 || true',
  );
  const program = python();
  await program.does(`os.chdir('sub')`);
  await program.does(`before = os.stat('.').st_mtime_ns`);
  expect(await program.does(`(sorted(os.listdir()), attempt(lambda: open('new').read()))`)).toBe(
    `(['gone', 'old'], 'FileNotFoundError')`,
  );
  const sub = (await find('sub')).ino;
  const { names, data } = local.files;
  await change(async () => {
    await names.unlink({ parent: sub, name: 'gone' });
    await names.rename({ parent: sub, name: 'old' }, { parent: sub, name: 'moved' }, 'replace');
    const made = await names.create({ parent: sub, name: 'new' }, 0o100644);
    await data.write(made.ino, 0, Buffer.from('new\n'));
  });
  expect(
    await program.does(
      `(sorted(os.listdir()), open('new').read(), open('moved').read(), attempt(lambda: open('gone')), attempt(lambda: open('old')), os.stat('.').st_mtime_ns > before)`,
    ),
  ).toBe(`(['moved', 'new'], 'new\\n', 'old\\n', 'FileNotFoundError', 'FileNotFoundError', True)`);
  const { output } = await shell(workspace, 'ls sub; cat sub/new sub/moved');
  expect(output).toBe('moved\nnew\nnew\nold\n');
  await program.end();
});

mountTest('a file that is replaced keeps its old contents for who has it open, as anywhere', async () => {
  await shell(workspace, 'printf before > replaced; cat replaced');
  const program = python();
  await program.does(`opened('replaced')`);
  const { names, data } = local.files;
  await change(async () => {
    const made = await names.create(place('replacement'), 0o100644);
    await data.write(made.ino, 0, Buffer.from('after!'));
    await names.rename(place('replacement'), place('replaced'), 'replace');
  });
  expect(await program.does(`(m[0:6], open('replaced').read())`)).toBe(`(b'before', 'after!')`);
  await program.end();
});

mountTest('a look that changes nothing costs the kernel nothing', async () => {
  await shell(workspace, 'cat file sub/new');
  const before = mount.requests.get(opcodes.lookup)!;
  await change(async () => void (await textHere('file')));
  await shell(workspace, 'cat file sub/new');
  expect(mount.requests.get(opcodes.lookup)! - before).toBeLessThan(3);
});
