/**
 * A mount namespace of a test's own: what is mounted in it is seen by nobody else and ends with it. Two users are in it that
 * the machine does not have, as test suites for file systems need them.
 */
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export const users = ['tests', 'tests2'] as const;

/** Binds the files over the machine's own, makes a second file system, and becomes the command. */
const enter = `set -e
mount --bind "$0/passwd" /etc/passwd
mount --bind "$0/group" /etc/group
mount -t tmpfs none "$0/second"
exec "$@"`;

/** What the commands find in the scratch directory: `tree` to mount on, `plain` on the disk, `second` in memory. */
export function prepare(scratch: string): void {
  // Other users walk through it.
  chmodSync(scratch, 0o755);
  for (const name of ['tree', 'plain', 'second']) mkdirSync(join(scratch, name), { mode: 0o755 });
  mkdirSync(join(scratch, 'database'), { mode: 0o700 });
  const lines = (line: (name: string, id: number) => string) =>
    users.map((name, at) => line(name, 61_001 + at)).join('\n');
  const passwd = lines((name, id) => `${name}:x:${id}:${id}::/nonexistent:/usr/sbin/nologin`);
  writeFileSync(join(scratch, 'passwd'), `${readFileSync('/etc/passwd', 'utf8')}\n${passwd}\n`, { mode: 0o644 });
  const group = lines((name, id) => `${name}:x:${id}:`);
  writeFileSync(join(scratch, 'group'), `${readFileSync('/etc/group', 'utf8')}\n${group}\n`, { mode: 0o644 });
}

/** The command line that runs a command in such a namespace. */
export function apart(scratch: string, command: readonly string[]): string[] {
  return ['unshare', '--mount', '--propagation', 'private', 'sh', '-c', enter, scratch, ...command];
}

/** The command line that runs a command beside a server of `tree`; whatever is in the database directory stays in it. */
export function onTree(scratch: string, command: readonly string[]): string[] {
  const server = join(import.meta.dir, 'tree-server.ts');
  return [
    'env',
    'UV_THREADPOOL_SIZE=8',
    process.execPath,
    server,
    join(scratch, 'database'),
    join(scratch, 'tree'),
    '--',
    ...command,
  ];
}
