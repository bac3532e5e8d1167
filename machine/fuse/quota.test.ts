/** Quotas through a real mount: what `df` shows and what real programs are told. */
import { afterAll, beforeAll, expect } from 'bun:test';
import { rootIno } from '../agentfs/ids.ts';
import { type LocalFiles, openLocalFiles } from '../agentfs/local.fixture.ts';
import { Gate } from './gate.ts';
import { canMount, mountTest, mountView, run, shell, type TestMount } from './mount.fixture.ts';

const mebibyte = 1024 ** 2;
let local: LocalFiles;
let mount: TestMount;
let workspace: string;

beforeAll(async () => {
  if (!canMount) return;
  local = await openLocalFiles({
    largestFile: 4 * mebibyte,
    conversation: { bytes: 8 * mebibyte, inodes: 60 },
    organization: { bytes: 10 * mebibyte, inodes: 100 },
  });
  const { names } = local.files;
  const conversations = (await names.makeDirectory({ parent: rootIno, name: 'conversations' }, 0o755)).ino;
  for (const name of ['conv_a', 'conv_b']) await names.makeDirectory({ parent: conversations, name }, 0o755);
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

const df = async () => {
  const { output } = await run('/', ['df', '-B1', '--output=size,used,avail,itotal,iused,iavail', workspace]);
  return output.trim().split('\n')[1]!.trim().split(/\s+/).map(Number);
};

mountTest('df shows the quota of the conversation and what it uses', async () => {
  expect(await df()).toEqual([8 * mebibyte, 0, 8 * mebibyte, 60, 5, 55]);
  await shell(workspace, 'head -c 3145728 /dev/zero > three; mkdir d; ln three d/link');
  expect(await df()).toEqual([8 * mebibyte, 3 * mebibyte, 5 * mebibyte, 60, 7, 53]);
});

mountTest(
  'programs hear of a full quota and a file too large, what was written stays, and room comes back at once',
  async () => {
    const { output } = await shell(
      workspace,
      `exec 2>&1
head -c 5242880 /dev/zero > large || stat -c %s large; rm large
head -c 4194304 /dev/zero > four
head -c 4194304 /dev/zero > full || stat -c %s full
cp three copy || true
printf short | dd of=three conv=notrunc status=none && echo overwritten
rm four && head -c 3145728 /dev/zero > full && echo again`,
    );
    expect(output).toMatch(/File too large\n4194304\n/);
    expect(output).toMatch(/Disk quota exceeded\n1048576\n/);
    expect(output.match(/Disk quota exceeded/g)?.length).toBe(2);
    expect(output).toEndWith('overwritten\nagain\n');
    const many = await shell(
      workspace,
      'exec 2>&1; for i in $(seq 1 100); do : > f$i || break; done; ls | wc -l; rm f[0-9]*; : > after && echo made',
    );
    expect(many.output).toContain('Disk quota exceeded');
    expect(many.output).toEndWith('made\n');
  },
);

mountTest('the organization may be full before its conversation is', async () => {
  const view = (await local.files.view('conv_b'))!;
  const parent = (await view.files.find('/conversations/conv_b/work'))!.ino;
  const { ino } = await view.files.names.create({ parent, name: 'other' }, 0o100644);
  await view.files.data.truncate(ino, 3.5 * mebibyte);
  const [size, , available] = await df();
  expect([size, available]).toEqual([8 * mebibyte, 0.5 * mebibyte]);
  const { output } = await shell(workspace, 'head -c 1048576 /dev/zero > more || stat -c %s more');
  expect(output).toContain('No space left on device');
});
