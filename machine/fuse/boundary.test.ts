/** A real mount between work boundaries: what the cloud changed is seen, and nothing asks the cloud without need. */
import { afterAll, beforeAll, expect } from 'bun:test';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { startAuthority, type TestAuthority } from '../agentfs/authority.fixture.ts';
import { type OpenedFiles, openOrganizationFiles } from '../sync.ts';
import { Gate } from './gate.ts';
import { canMount, mountTest, mountView, shell, type TestMount } from './mount.fixture.ts';
import { opcodes } from './wire.ts';

let authority: TestAuthority;
let opened: OpenedFiles;
let mount: TestMount;
let workspace: string;
const conversation = 'conv_a';
const root = `/conversations/${conversation}`;

beforeAll(async () => {
  if (!canMount) return;
  authority = await startAuthority();
  for (const name of ['work/sub', 'artifacts', 'state', 'logs'])
    await authority.cloud.ensureDirectory(`${root}/${name}`);
  for (const name of ['memory', 'skills']) await authority.cloud.ensureDirectory(name);
  await authority.cloud.writeFileOnce(`${root}/work/sub/file`, Buffer.from('as it was'));
  await authority.cloud.writeFileOnce(`${root}/config.yaml`, Buffer.from('model: x'), 0o600);
  opened = await openOrganizationFiles({
    agentfs: authority.address,
    replicaDirectory: join(authority.directory, 'replica'),
  });
  opened.boundary.begin(conversation);
  await opened.boundary.firstTouch(conversation);
  const gate = new Gate();
  gate.arm(process.pid);
  mount = mountView((await opened.files.view(conversation))!, gate, opened.boundary.of(conversation));
  workspace = `${mount.path}/workspace`;
  await opened.boundary.end(conversation);
});
afterAll(async () => {
  if (!canMount) return;
  await mount.unmount();
  await opened.boundary.close();
  await authority.stop();
});

async function turn<Result>(work: () => Promise<Result>): Promise<{ result: Result; requests: number }> {
  const before = authority.requests();
  opened.boundary.begin(conversation);
  const result = await work();
  expect(await opened.boundary.end(conversation)).toEqual({ state: 'clean' });
  return { result, requests: authority.requests() - before };
}

mountTest('a turn that only reads makes one request; the kernel remembers within it', async () => {
  const { result, requests } = await turn(async () => {
    await shell(workspace, 'cat sub/file');
    const before = mount.requests.get(opcodes.lookup)!;
    const { output } = await shell(workspace, 'for i in 1 2 3 4 5; do stat -c %s sub/file; done; cat sub/file');
    expect(mount.requests.get(opcodes.lookup)! - before).toBeLessThan(5);
    return output;
  });
  expect(result).toBe('9\n9\n9\n9\n9\nas it was');
  expect(requests).toBe(1);
});

mountTest('a turn that touches nothing makes none', async () => {
  const { requests } = await turn(async () => {
    const { output } = await shell(mount.path, 'stat -c %F home');
    expect(output).toBe('directory\n');
  });
  expect(requests).toBe(0);
});

mountTest(
  'what the cloud changed meanwhile is seen in the next turn, in names, attributes and contents, also from a directory that a process sits in',
  async () => {
    await turn(() => shell(workspace, 'ls -l . sub >/dev/null; cat sub/file; stat sub/new 2>/dev/null || true'));
    // Outside of the view, which has no FIFOs.
    const go = join(mkdtempSync(join(tmpdir(), 'edge-go-')), 'go');
    chmodSync(dirname(go), 0o777);
    await shell(workspace, `mkfifo ${go}`);
    const sitting = shell(
      `${workspace}/sub`,
      `touch ../sits; read -r -t 20 < ${go} || true; cat file new; pwd -P | grep -c sub; ls`,
    );
    await shell(workspace, 'until [ -e sits ]; do sleep 0.05; done');
    const before = (await authority.cloud.stat(`${root}/work/sub/file`))!;
    await authority.sql.batch(
      [
        { sql: "UPDATE fs_data SET data = CAST('changed in the cloud' AS BLOB) WHERE ino = ?", args: [before.ino] },
        { sql: 'UPDATE fs_inode SET size = 20, mtime = mtime + 1 WHERE ino = ?', args: [before.ino] },
      ],
      { transaction: true },
    );
    await authority.cloud.writeFileOnce(`${root}/work/sub/new`, Buffer.from(', and new'));
    const { result } = await turn(() => shell(workspace, 'stat -c %s sub/file; cat sub/file sub/new; ls sub'));
    expect(result.output).toBe('20\nchanged in the cloud, and newfile\nnew\n');
    await turn(() => shell(workspace, `timeout 5 bash -c "echo > ${go}"`));
    expect((await sitting).output).toContain('changed in the cloud, and new1\nfile\nnew');
    rmSync(dirname(go), { recursive: true });
  },
  30_000,
);

mountTest('what a turn wrote is in the cloud when its boundary has ended', async () => {
  const { requests } = await turn(() =>
    shell(workspace, 'mkdir -p out && printf made > out/made && ln -s made out/link'),
  );
  expect(requests).toBeGreaterThan(2);
  expect(Buffer.from(await authority.cloud.readFile(`${root}/work/out/made`)).toString()).toBe('made');
  expect((await authority.cloud.list(`${root}/work/out`)).map(({ name }) => name)).toEqual(['link', 'made']);
});

mountTest('an unreachable cloud fails no operation', async () => {
  authority.setReachable(false);
  opened.boundary.begin(conversation);
  const { output } = await shell(workspace, 'printf kept > kept && cat kept sub/file');
  expect(output).toBe('keptchanged in the cloud');
  expect((await opened.boundary.end(conversation)).state).toBe('failing');
  authority.setReachable(true);
  await turn(async () => undefined);
  expect(Buffer.from(await authority.cloud.readFile(`${root}/work/kept`)).toString()).toBe('kept');
});

mountTest(
  'what a program wrote into a mapping is in the cloud when the boundary has ended, while it still runs',
  async () => {
    const program =
      'import mmap, os, sys; f = open(os.environ["DIRECTORY"] + "/mapped", "r+b"); m = mmap.mmap(f.fileno(), 0); m[0:6] = b"mapped"; ' +
      'open(os.environ["DIRECTORY"] + "/is-mapped", "w").close(); sys.stdin.read()';
    await turn(() => shell(workspace, 'printf %4096s > mapped'));
    let child: Bun.Subprocess<'pipe', 'inherit', 'inherit'> | undefined;
    await turn(async () => {
      child = Bun.spawn(
        ['setpriv', '--reuid', '1000', '--regid', '1000', '--clear-groups', '--', 'python3', '-c', program],
        {
          stdin: 'pipe',
          stdout: 'inherit',
          stderr: 'inherit',
          env: { PATH: '/usr/local/bin:/usr/bin:/bin', DIRECTORY: workspace },
          cwd: '/',
        },
      );
      await shell(workspace, 'until [ -e is-mapped ]; do sleep 0.05; done');
    });
    expect(
      Buffer.from(await authority.cloud.readFile(`${root}/work/mapped`))
        .toString('latin1')
        .trim(),
    ).toBe('mapped');
    child?.stdin.end();
    await child?.exited;
  },
);
