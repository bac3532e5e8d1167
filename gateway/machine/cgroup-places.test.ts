import { expect, test } from 'bun:test';
import { cgroupPlaces } from './cgroup-places.ts';

const mount = (root: string, point: string, type: string, options: string, flags = 'rw,relatime') =>
  `30 23 0:26 ${root} ${point} ${flags} shared:9 - ${type} cgroup ${options}\n`;

test('one hierarchy', () => {
  const mountinfo = mount('/', '/sys/fs/cgroup', 'cgroup2', 'rw,nsdelegate');
  expect(cgroupPlaces(mountinfo, '0::/system.slice/edge.service\n')).toEqual({
    unified: '/sys/fs/cgroup/system.slice/edge.service',
    memory: null,
    pids: null,
  });
  expect(cgroupPlaces(mountinfo, '0::/\n').unified).toBe('/sys/fs/cgroup');
});

test('several hierarchies, with the controllers in those of version 1', () => {
  const mountinfo =
    mount('/', '/sys/fs/cgroup/cpu', 'cgroup', 'rw,cpu,cpuacct') +
    mount('/', '/sys/fs/cgroup/memory', 'cgroup', 'rw,memory') +
    mount('/', '/sys/fs/cgroup/pids', 'cgroup', 'rw,pids') +
    mount('/', '/sys/fs/cgroup/unified', 'cgroup2', 'rw');
  expect(cgroupPlaces(mountinfo, '5:pids:/\n4:memory:/a/b\n3:cpu,cpuacct:/\n0::/c\n')).toEqual({
    unified: '/sys/fs/cgroup/unified/c',
    memory: '/sys/fs/cgroup/memory/a/b',
    pids: '/sys/fs/cgroup/pids',
  });
});

test('a container that sees the paths of its host', () => {
  const mountinfo = mount('/docker/x', '/sys/fs/cgroup', 'cgroup2', 'rw');
  expect(cgroupPlaces(mountinfo, '0::/docker/x\n').unified).toBe('/sys/fs/cgroup');
  expect(cgroupPlaces(mountinfo, '0::/docker/x/y\n').unified).toBe('/sys/fs/cgroup/y');
  expect(cgroupPlaces(mountinfo, '0::/docker/xy\n').unified).toBeNull();
});

test('what cannot be used is not there', () => {
  const readOnly = mount('/', '/sys/fs/cgroup', 'cgroup2', 'rw', 'ro,nosuid');
  expect(cgroupPlaces(readOnly, '0::/\n').unified).toBeNull();
  const usable = mount('/', '/sys/fs/cgroup', 'cgroup2', 'rw');
  // Outside of this process' cgroup namespace.
  expect(cgroupPlaces(usable, '0::/../other\n').unified).toBeNull();
  expect(cgroupPlaces(mount('/', '/sys/fs/c\\040group', 'cgroup2', 'rw'), '0::/\n').unified).toBeNull();
  expect(cgroupPlaces('', '')).toEqual({ unified: null, memory: null, pids: null });
});
