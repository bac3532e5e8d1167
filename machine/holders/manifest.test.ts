import { expect, test } from 'bun:test';
import { formatManifest, type HolderManifest } from './manifest.ts';

const manifest: HolderManifest = {
  uid: 101000,
  fuseSocket: '/run/x/fuse.sock',
  fuseToken: 'f'.repeat(64),
  binds: [
    { source: '/usr', target: '/usr', optional: false },
    { source: '/srv/runtime', target: '/opt/hermes', optional: false },
    { source: '/etc/gitconfig', target: '/etc/gitconfig', optional: true },
  ],
  cgroups: ['/sys/fs/cgroup/edge/holder.1'],
  program: '/opt/hermes/bin/python',
  args: ['-I', '/opt/edge/start.py'],
  git: { socket: '/run/x/git-101000.sock', native: '/usr/bin/git', places: ['/usr/bin/git'] },
};

test('one key and value a line, in the order confined-exec reads them', () => {
  expect(formatManifest(manifest).split('\n')).toEqual([
    'edge-holder 1',
    'uid 101000',
    'fuse-socket /run/x/fuse.sock',
    `fuse-token ${'f'.repeat(64)}`,
    'fuse-device 8',
    'bind /usr',
    'bind /srv/runtime /opt/hermes',
    'bind? /etc/gitconfig',
    'cgroup /sys/fs/cgroup/edge/holder.1',
    'exec /opt/hermes/bin/python',
    'arg -I',
    'arg /opt/edge/start.py',
    'git-socket /run/x/git-101000.sock',
    'native-git /usr/bin/git',
    'git-place /usr/bin/git',
    '',
  ]);
});

test('a value that would start another line, or a path that would be two, is refused', () => {
  expect(() => formatManifest({ ...manifest, args: ['a\nbind /root'] })).toThrow('line break');
  const spaced = { source: '/a b', target: '/a b', optional: false };
  expect(() => formatManifest({ ...manifest, binds: [spaced] })).toThrow('cannot bind');
  expect(() => formatManifest({ ...manifest, args: ['x'.repeat(20_000)] })).toThrow('too long');
});
