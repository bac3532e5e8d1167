/** Default skills through real mounts of two conversations: cached by the kernel, changed by one Hermes, seen by the other. */
import { afterAll, beforeAll, expect } from 'bun:test';
import { exposedBase } from '../agentfs/base.ts';
import { rootIno } from '../agentfs/ids.ts';
import { type LocalFiles, openLocalFiles } from '../agentfs/local.fixture.ts';
import { Gate } from './gate.ts';
import { canMount, mountTest, mountView, run, shell, type TestMount } from './mount.fixture.ts';
import { opcodes } from './wire.ts';

const skill = 'home/skills/tabular-data/SKILL.md';
const script = 'home/skills/tabular-data/scripts/profile_csv.py';
const whole = Buffer.from(exposedBase.entry('/skills/tabular-data/SKILL.md')!.bytes).toString();

const env = { PATH: '/usr/local/bin:/usr/bin:/bin' };

let local: LocalFiles;
let one: TestMount;
let two: TestMount;
const gate = new Gate();

beforeAll(async () => {
  if (!canMount) return;
  local = await openLocalFiles({}, exposedBase);
  const { names } = local.files;
  const conversations = (await names.makeDirectory({ parent: rootIno, name: 'conversations' }, 0o755)).ino;
  for (const name of ['conv_a', 'conv_b']) await names.makeDirectory({ parent: conversations, name }, 0o755);
  gate.arm(1);
  const other = new Gate();
  other.arm(process.pid);
  const boundary = { touch: () => null, onStale: () => () => undefined, onFlush: () => () => undefined };
  one = mountView((await local.files.view('conv_a'))!, gate, boundary);
  two = mountView((await local.files.view('conv_b'))!, other, boundary);
});
afterAll(async () => {
  if (!canMount) return;
  await one.unmount();
  await two.unmount();
  await local.close();
});

/** A Python program that is conversation A's Hermes to the gate. */
async function hermes(program: string): Promise<string> {
  const text = `import sys, os, shutil\nsys.stdin.readline()\nS = sys.argv[1] + '/home/skills'\n${program}`;
  const command = ['setpriv', '--reuid', '1000', '--regid', '1000', '--clear-groups', '--', 'python3', '-c', text];
  const child = Bun.spawn([...command, one.path], { stdin: 'pipe', stdout: 'pipe', stderr: 'inherit', cwd: '/', env });
  const armed = new Gate();
  armed.arm(child.pid);
  gate.allows = (question) => armed.allows(question);
  child.stdin.write('go\n');
  child.stdin.end();
  const output = await new Response(child.stdout).text();
  expect(await child.exited).toBe(0);
  return output;
}

const asked = (mount: TestMount) =>
  [opcodes.lookup, opcodes.read, opcodes.getattr].map((opcode) => mount.requests.get(opcode) ?? 0);
const deltaRows = async () => Number((await local.driver.get('SELECT count(*) AS n FROM fs_dentry'))?.n);

mountTest('tools of two conversations read and run them; the kernel asks once and nothing is written', async () => {
  const before = await deltaRows();
  for (const mount of [one, two]) {
    expect((await shell(mount.path, `cat ${skill}`)).output).toBe(whole);
    const { output } = await shell(
      mount.path,
      `ls home/skills; stat -c '%a %U' ${script}; printf 'x;y\\n1;2\\n' > workspace/t.csv; ${script} workspace/t.csv`,
    );
    expect(output).toStartWith('files-and-deliverables\ntabular-data\n755 ');
    expect(output).toContain("'y': 1 filled, 0 empty, 1 numbers");
  }
  const questions = asked(two);
  for (let round = 0; round < 5; round++) expect((await shell(two.path, `cat ${skill}`)).output).toBe(whole);
  // Each process walks to its working directory; beyond that nothing is asked for.
  const [lookups, reads] = asked(two).map((count, at) => count - questions[at]!);
  expect(reads).toBe(0);
  expect(lookups).toBeLessThanOrEqual(5);
  expect(await deltaRows()).toBe(before + 2);
});

mountTest('no tool may change them, and nothing else of the executable is there', async () => {
  const { output } = await shell(
    one.path,
    `echo x >> ${skill} || rm ${skill} || mv home/skills/tabular-data home/skills/x || touch home/skills/new || true`,
  );
  expect(output.match(/Permission denied/g)?.length).toBe(4);
  expect((await run(one.path, ['find', `${one.path}/home/skills`, '-type', 'f'])).output.split('\n').length - 1).toBe(
    3,
  );
});

mountTest(
  'what one Hermes edits and deletes, the other conversation sees at once, also where it has it open',
  async () => {
    const reader = Bun.spawn(
      [
        'setpriv',
        '--reuid',
        '1000',
        '--regid',
        '1000',
        '--clear-groups',
        'python3',
        '-c',
        `import sys, os
f = open(sys.argv[1]); print(len(f.read()), flush=True)
sys.stdin.readline(); print(os.fstat(f.fileno()).st_size, f.seek(0), f.read()[-8:].strip(), os.stat(sys.argv[1]).st_ino == os.fstat(f.fileno()).st_ino)`,
        `${two.path}/${skill}`,
      ],
      { stdin: 'pipe', stdout: 'pipe', stderr: 'inherit', cwd: '/', env },
    );
    const lines = reader.stdout.getReader();
    const line = async () => Buffer.from((await lines.read()).value ?? []).toString();
    expect(await line()).toBe(`${[...whole].length}\n`);
    await hermes(`open(S + '/tabular-data/SKILL.md', 'a').write('EDITED\\n')`);
    reader.stdin.write('go\n');
    reader.stdin.end();
    expect(await line()).toBe(`${Buffer.byteLength(whole) + 7} 0 EDITED True\n`);
    expect((await shell(two.path, `tail -n 1 ${skill}`)).output).toBe('EDITED\n');

    expect(await hermes(`shutil.rmtree(S + '/files-and-deliverables'); print(os.listdir(S))`)).toBe(
      "['tabular-data']\n",
    );
    const { output } = await shell(two.path, 'ls home/skills; cat home/skills/files-and-deliverables/SKILL.md || true');
    expect(output).toStartWith('tabular-data\n');
    expect(output).toContain('No such file');
    expect(
      await local.driver.all("SELECT 1 AS one FROM fs_whiteout WHERE path = '/skills/files-and-deliverables'"),
    ).toHaveLength(1);
  },
);

mountTest('a directory of the base is renamed by a plain rename(2)', async () => {
  expect(
    await hermes(
      `os.rename(S + '/tabular-data', S + '/tables'); print(os.listdir(S), open(S + '/tables/scripts/profile_csv.py').readline())`,
    ),
  ).toBe("['tables'] #!/usr/bin/env python3\n\n");
});
