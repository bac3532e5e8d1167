/** Paths: links of both kinds, `..`, odd names, other conversations, the organization's root, devices, races. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import { Cell, limitMs, planned } from './cell.fixture.ts';

let cell: Cell;

beforeAll(async () => {
  cell = await Cell.start();
}, limitMs);
afterAll(async () => {
  await cell?.stop();
}, limitMs);

const privateFiles = [
  '.env',
  'SOUL.md',
  'config.yaml',
  'auth.json',
  'state.db',
  'logs',
  'memories',
  'memories/MEMORY.md',
];

describe('the private home', () => {
  test.each(planned(...privateFiles.map((name) => [name, `read('/hermes/${name}')`] as const)))(
    '/hermes/%s: read',
    async (_name, expression) => expect(await cell.answer(expression)).toBe('EACCES'),
  );

  test.each(
    planned(
      ['the list of it', "os.listdir('/hermes')"],
      ['a directory of it, to hold on to', "os.open('/hermes', os.O_RDONLY | os.O_DIRECTORY)"],
      ['a name of it, to hold on to', "os.open('/hermes/.env', os.O_PATH)"],
      ['a new file in it', "os.open('/hermes/new', os.O_CREAT | os.O_WRONLY)"],
      ['a change of it', "os.open('/hermes/config.yaml', os.O_WRONLY)"],
      ['its removal', "os.unlink('/hermes/.env')"],
      ['its replacement', "(open('/workspace/mine', 'w').close(), os.rename('/workspace/mine', '/hermes/.env'))"],
      ['its mode', "os.chmod('/hermes/.env', 0o777)"],
      ['a hard link to it', "os.link('/hermes/.env', '/workspace/link-to-env')"],
      [
        'a hard link by way of /proc',
        "os.link('/proc/self/root/hermes/.env', '/workspace/link-to-env', follow_symlinks=True)",
      ],
      ['moving it out', "os.rename('/hermes/.env', '/workspace/env')"],
      ['exchanging it', "checked(libc.renameat2(-100, b'/hermes/.env', -100, b'/workspace/mine', 2))"],
      ['watching it', "checked(libc.inotify_add_watch(libc.inotify_init(), b'/hermes/.env', 1))"],
      ['running it', "os.execv('/hermes/.env', ['x'])"],
      ['its extended attributes', "os.setxattr('/hermes/.env', 'user.x', b'x')"],
      ["by the root of the tool's process", "read('/proc/self/root/hermes/.env')"],
      ['by the working directory of Hermes', "read('/proc/2/cwd/../hermes/.env')"],
      ['by the root of init', "read('/proc/1/root/hermes/.env')"],
      ['a skill of the organization, to write', "os.open('/hermes/skills/new.md', os.O_CREAT | os.O_WRONLY)"],
    ),
  )('%s', async (_what, expression) => expect(await cell.answer(expression)).toMatch(/^E(ACCES|PERM|XDEV)$/));

  test('from within it', async () => {
    const { output } = await cell.shell('cd /hermes 2>&1; cat .env 2>&1; cat ./config.yaml 2>&1; ls 2>&1');
    expect(output.match(/Permission denied/g)?.length).toBeGreaterThanOrEqual(3);
  });

  test('with the terminal tool started there', async () => {
    const said = await cell.tool('terminal', { command: 'cat .env; echo ended', workdir: '/hermes' });
    expect(said).not.toContain(cell.markers.dotenv);
  });
});

/** Makes `/workspace/loop` a link to `target` and reads through it, a directory as well. */
const readThrough = (target: string) =>
  `(os.path.lexists('loop') and os.unlink('loop'), os.symlink('${target}', 'loop'), os.listdir('loop') if os.path.isdir('loop') else read('loop'))[2]`;

describe('links', () => {
  test.each(
    planned(
      ...(
        [
          ['to a private file', '/hermes/.env', 'EACCES'],
          ['to the private home', '/hermes', 'EACCES'],
          ['by way of /proc', '/proc/self/root/hermes/.env', 'EACCES'],
          ['to the environment of Hermes', '/proc/2/environ', 'EACCES'],
          ['to a directory of the host', '/etc/systemd/system.conf', 'ENOENT'],
          ['to the shadow file', '/etc/shadow', 'ENOENT'],
          ['to itself', 'loop', 'ELOOP'],
          ['upwards', '../../../../../../hermes/.env', 'EACCES'],
        ] as const
      ).map(([what, target, answer]) => [what, readThrough(target), answer] as const),
    ),
  )('%s', async (_what, expression, answer) => expect(await cell.answer(expression)).toBe(answer));

  test('a chain of links over every place that can be written', async () => {
    const { output } = await cell.shell(
      'ln -sfn /hermes /tmp/a; ln -sfn /tmp/a /artifacts/b; ln -sfn /artifacts/b /dev/shm/c; ln -sfn /dev/shm/c d; cat d/.env 2>&1; cat d/memories/MEMORY.md 2>&1',
    );
    expect(output.split('\n').every((line) => line.endsWith('Permission denied'))).toBe(true);
  });

  test('hard links to files of the system', async () => {
    expect(await cell.tried("os.link('/usr/bin/env', '/workspace/hard')")).toMatch(/^E(XDEV|PERM)$/);
    expect(await cell.tried("os.link('/opt/edge/confined-exec', '/tmp/hard')")).toMatch(/^E(XDEV|PERM)$/);
  });
});

describe('other conversations and the organization', () => {
  const guesses = () => [
    `/conversations/${cell.neighbour}/work/private.txt`,
    `/workspace/../conversations/${cell.neighbour}/work/private.txt`,
    `/workspace/../../${cell.neighbour}/work/private.txt`,
    `/hermes/../${cell.neighbour}/work/private.txt`,
    `/artifacts/../../${cell.neighbour}/artifacts/private.txt`,
    `/proc/self/root/conversations/${cell.neighbour}/work/private.txt`,
    `/.fuse/workspace/private.txt`,
    `/hermes/skills/../../conversations/${cell.neighbour}/work/private.txt`,
  ];
  test('by every path that it could have', async () => {
    const answers = await cell.triedAll(guesses().map((path) => `read('${path}')`));
    expect(answers).toEqual(guesses().map(() => 'ENOENT'));
    // The neighbour's own tools do read it.
    expect((await cell.shell('cat private.txt', cell.neighbour)).output).toBe(cell.markers.neighbour);
  });

  test('by search over everything that can be walked to', async () => {
    const marker = cell.markers.neighbour;
    const { output } = await cell.shell(
      `find / -name private.txt 2>/dev/null; grep -rls "${marker.slice(0, 30)}""${marker.slice(30)}" / --exclude-dir=proc --exclude-dir=usr --exclude-dir=opt 2>/dev/null; echo searched`,
    );
    expect(output).toBe('searched');
  });

  test("by the numbers of the neighbour's files", async () => {
    // Numbers of inodes are the organization's: a handle made from one would name any file.
    const said = await cell.python(`
import fcntl
inode = os.stat('/workspace').st_ino
handle = ctypes.create_string_buffer(struct.pack('IiQII', 16, 0x81, inode + 1, 0, 0))
fd = os.open('/workspace', os.O_RDONLY)
print(tried(lambda: call('open_by_handle_at', fd, handle, 0)))`);
    expect(said).toBe('EPERM');
  });

  test("the database and the gateway's files", async () => {
    const { scratch, gateway } = cell;
    const paths = [
      join(scratch, 'host-secret'),
      gateway.dataDirectory,
      join(gateway.dataDirectory, 'machine/organization.db'),
    ];
    const answers = await cell.triedAll(paths.map((path) => `os.stat('${path}')`));
    expect(answers).toEqual(paths.map(() => 'ENOENT'));
  });

  test('the root of the view, which has all conversations behind it, has no name', async () => {
    const said = await cell.python(`
mounts = [line.split() for line in open('/proc/self/mountinfo') if ' - fuse ' in line]
print(sorted((m[3], m[4]) for m in mounts))
d = os.open('/workspace', os.O_RDONLY)
for _ in range(8): d = os.open('..', os.O_PATH, dir_fd=d)
print(os.readlink(f'/proc/self/fd/{d}'))`);
    expect(said).toBe("[('/artifacts', '/artifacts'), ('/home', '/hermes'), ('/workspace', '/workspace')]\n/");
  });
});

describe('names', () => {
  test.each(
    planned<readonly [string, string, string | RegExp]>(
      ['an encoded slash', "open(b'/workspace/..\\xc0\\xafhermes', 'w')", 'EILSEQ'],
      ['a name that is not UTF-8', "open(b'/workspace/\\xff\\xfe', 'w')", 'EILSEQ'],
      ['half a surrogate', "open(b'/workspace/\\xed\\xa0\\x80', 'w')", 'EILSEQ'],
      ['a name of 256 bytes', "open('/workspace/' + 'n' * 256, 'w')", 'ENAMETOOLONG'],
      ['a name of 100 letters of 3 bytes', "open('/workspace/' + '\\u4e00' * 100, 'w')", 'ENAMETOOLONG'],
      ['a path of 4096 bytes', "open('/workspace/' + 'd/' * 2100, 'w')", 'ENAMETOOLONG'],
      ['a full-width slash and dots', "read('/workspace/\\uff0e\\uff0e\\uff0fhermes\\uff0f.env')", 'ENOENT'],
      ['a two-dot leader', "read('/workspace/\\u2025/hermes/.env')", 'ENOENT'],
      ['a name with an invisible letter', "read('/hermes/.env\\u200b')", 'EACCES'],
      ['another case', "read('/hermes/.ENV')", 'EACCES'],
      ['a name with a dot behind it', "read('/hermes/.env/.')", 'EACCES'],
      ['three dots', "read('/workspace/.../hermes/.env')", 'ENOENT'],
    ),
  )('%s', async (_what, expression, answer) => expect(await cell.answer(expression)).toBe(answer as string));

  test('letters that look alike are other names', async () => {
    const said = await cell.python(`
open('/workspace/caf\\u00e9', 'w').write('composed'); open('/workspace/cafe\\u0301', 'w').write('decomposed')
print(open('/workspace/caf\\u00e9').read(), open('/workspace/cafe\\u0301').read())`);
    expect(said).toBe('composed decomposed');
  });
});

describe('what is no ordinary file', () => {
  test.each(
    planned<readonly [string, string, string | RegExp]>(
      ['a device node in the workspace', "os.mknod('/workspace/mem', 0o20666, os.makedev(1, 1))", 'EPERM'],
      ['a block device', "os.mknod('/workspace/disk', 0o60666, os.makedev(8, 0))", 'EPERM'],
      ['a FIFO in the workspace, which would hold up Hermes', "os.mkfifo('/workspace/AGENTS.md')", 'EPERM'],
      ['a FIFO in the artifacts', "os.mkfifo('/artifacts/report.txt')", 'EPERM'],
      ['a FIFO elsewhere', "os.mkfifo('/tmp/fifo')", 'done'],
      ['a socket in the workspace', "socket.socket(socket.AF_UNIX).bind('/workspace/socket')", 'done'],
    ),
  )('%s', async (_what, expression, answer) => expect(await cell.answer(expression)).toBe(answer as string));
});

describe('what is read only', () => {
  test.each(
    planned<readonly [string, string, string | RegExp]>(
      ['the system', "open('/usr/bin/new', 'w')", 'EROFS'],
      ['the runtime of Hermes', "open('/opt/hermes/lib/sitecustomize.py', 'w')", 'EROFS'],
      ['the start script', "open('/opt/edge/start.py', 'w')", /^E(ROFS|ACCES)$/],
      ['the launcher', "os.unlink('/opt/edge/confined-exec')", /^E(ROFS|ACCES|PERM)$/],
      ['the list of users', "open('/etc/passwd', 'a')", /^E(ROFS|ACCES)$/],
      ['the loader', "open('/etc/ld.so.preload', 'w')", /^E(ROFS|ACCES)$/],
      ['the root', "os.mkdir('/new')", /^E(ROFS|ACCES)$/],
      ['what clients sent', "open('/artifacts/inbound/new', 'w')", 'EROFS'],
      ['the place of what clients sent', "os.rename('/artifacts/inbound', '/artifacts/mine')", 'EBUSY'],
      ['a device of everybody: its mode', "os.chmod('/dev/null', 0)", /^E(ROFS|PERM)$/],
    ),
  )('%s', async (_what, expression, answer) => {
    const said = await cell.answer(expression);
    if (typeof answer === 'string') expect(said).toBe(answer);
    else expect(said).toMatch(answer);
  });
});

test('a link that changes while it is followed', async () => {
  const said = await cell.python(`
import threading, time
os.makedirs('/workspace/race/real', exist_ok=True)
open('/workspace/race/real/.env', 'w').write('harmless')
os.symlink('/workspace/race/real', '/workspace/race/now'); end = time.time() + 1.5
def flip():
    while time.time() < end:
        for target in ('/hermes', '/workspace/race/real'):
            os.symlink(target, '/workspace/race/next'); os.rename('/workspace/race/next', '/workspace/race/now')
t = threading.Thread(target=flip); t.start()
seen = set()
while time.time() < end: seen.add(str(tried(lambda: read('/workspace/race/now/.env'))))
t.join(); print(*sorted(seen), sep='\\n')`);
  // Now and then it changes twice while it is followed, and cannot be.
  const seen = said.split('\n').filter((one) => one !== 'ESTALE');
  expect(seen).toEqual(['EACCES', "b'harmless'"]);
});

test('after all that no secret is anywhere', async () => expect(await cell.leaks()).toEqual([]));
