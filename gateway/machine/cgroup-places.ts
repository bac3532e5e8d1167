/** Where this process stands in the kernel's cgroup hierarchies, read from what `/proc/self` says. */

/** Directories of this process's own cgroup; null where the hierarchy or its controller is not there. */
export interface CgroupPlaces {
  /** Of the unified hierarchy (version 2), whatever controllers it has. */
  readonly unified: string | null;
  /** Of the version 1 hierarchies with these controllers. */
  readonly memory: string | null;
  readonly pids: string | null;
}

interface Mount {
  readonly root: string;
  readonly point: string;
  readonly writable: boolean;
  readonly options: readonly string[];
}

/** `mountinfo` and `cgroup` are the files of these names in `/proc/self`. Hierarchies that are mounted read only do not count. */
export function cgroupPlaces(mountinfo: string, cgroup: string): CgroupPlaces {
  const unified = mountsOf(mountinfo, 'cgroup2')[0];
  const version1 = mountsOf(mountinfo, 'cgroup');
  const place = (controller: string): string | null => {
    const mount = version1.find(({ options }) => options.includes(controller));
    const own = lines(cgroup).find((line) => line.split(':')[1]?.split(',').includes(controller));
    return below(mount, own);
  };
  const own = lines(cgroup).find((line) => line.startsWith('0::'));
  return { unified: below(unified, own), memory: place('memory'), pids: place('pids') };
}

function mountsOf(mountinfo: string, type: string): Mount[] {
  return lines(mountinfo).flatMap((line): Mount[] => {
    const [left = '', right = ''] = line.split(' - ');
    const [, , , root = '', point = '', flags = ''] = left.split(' ');
    const [found, , options = ''] = right.split(' ');
    if (found !== type) return [];
    const writable = flags.split(',').includes('rw') && options.split(',').includes('rw');
    return [{ root, point, writable, options: options.split(',') }];
  });
}

/** The directory of the cgroup that a line of `/proc/self/cgroup` names, as this mount shows it. */
function below(mount: Mount | undefined, line: string | undefined): string | null {
  const path = line?.split(':').slice(2).join(':');
  if (!mount?.writable || path === undefined || path.includes('/..')) return null;
  const root = mount.root === '/' ? '' : mount.root;
  if (root !== '' && path !== root && !path.startsWith(`${root}/`)) return null;
  const rest = path.slice(root.length);
  const directory = rest === '' || rest === '/' ? mount.point : `${mount.point}${rest}`;
  // confined-exec takes no path with white space; the kernel writes such bytes as octal numbers here.
  return /[\s\\]/.test(directory) ? null : directory;
}

function lines(text: string): string[] {
  return text.split('\n').filter((line) => line !== '');
}
