/** Every successful system call of some processes, and of all that they start, that can change a file: by strace. Needs root. */
import { posix } from 'node:path';
import { requireProgram } from './programs.ts';

export interface FileChange {
  readonly call: string;
  /** Absolute, as the process itself sees it. */
  readonly path: string;
}

// Written with a question mark for strace: an older one does not know every name.
const traced = [
  ...[
    'open',
    'openat',
    'openat2',
    'creat',
    'open_by_handle_at',
    'rename',
    'renameat',
    'renameat2',
    'unlink',
    'unlinkat',
  ],
  ...['rmdir', 'mkdir', 'mkdirat', 'symlink', 'symlinkat', 'link', 'linkat', 'mknod', 'mknodat', 'chmod', 'fchmod'],
  ...['fchmodat', 'fchmodat2', 'chown', 'lchown', 'fchown', 'fchownat', 'truncate', 'ftruncate', 'fallocate', 'utime'],
  ...['utimes', 'utimensat', 'futimesat', 'setxattr', 'lsetxattr', 'fsetxattr', 'removexattr', 'lremovexattr'],
  ...[
    'fremovexattr',
    'bind',
    'mount',
    'move_mount',
    'mount_setattr',
    'umount2',
    'pivot_root',
    'chroot',
    'chdir',
    'fchdir',
  ],
];

export class FileTrace {
  readonly #strace: Bun.Subprocess<'ignore', 'ignore', 'pipe'>;
  readonly #output: string;

  private constructor(strace: Bun.Subprocess<'ignore', 'ignore', 'pipe'>, output: string) {
    this.#strace = strace;
    this.#output = output;
  }

  /** Resolves once all of them are traced, threads included. */
  static async attach(pids: readonly number[], output: string): Promise<FileTrace> {
    const flags = [
      '-f',
      '-y',
      '-z',
      '-s',
      '4096',
      '-e',
      `trace=${traced.map((name) => `?${name}`).join(',')}`,
      '-e',
      'signal=none',
    ];
    const strace = Bun.spawn(
      [requireProgram('strace'), ...flags, '-o', output, ...pids.flatMap((pid) => ['-p', String(pid)])],
      { stdin: 'ignore', stdout: 'ignore', stderr: 'pipe' },
    );
    const waiting = new Set(pids);
    let text = '';
    const reader = strace.stderr.getReader();
    while (waiting.size > 0) {
      const { value } = await reader.read();
      if (!value) throw new Error(`strace did not attach to ${[...waiting].join(', ')}: ${text}`);
      text += Buffer.from(value).toString();
      for (const [, pid] of text.matchAll(/Process (\d+) attached/g)) waiting.delete(Number(pid));
    }
    void (async () => {
      while (!(await reader.read()).done); // one line a new process: keeps the pipe empty
    })();
    return new FileTrace(strace, output);
  }

  /** Stops tracing. `cwd` is where the processes were when the trace began. */
  async stop(cwd: string): Promise<FileChange[]> {
    this.#strace.kill('SIGINT');
    await this.#strace.exited;
    return fileChanges(await Bun.file(this.#output).text(), cwd);
  }
}

/**
 * The changes in strace's output. A relative path without a directory descriptor counts against every directory that any
 * of the processes was in: rather one change too many than one too few.
 */
export function fileChanges(output: string, cwd: string): FileChange[] {
  // A call that another process interrupted in the log is still written in one piece, once it has ended (-z).
  const lines = output.replaceAll(' <unfinished ...>\n', '').split('\n');
  const calls = lines.filter((line) => line !== '' && !/^\d+ +(\+\+\+|---) /.test(line)).map(parseCall);
  const directories = [cwd];
  for (const { name, strings, descriptors } of calls) {
    if (name === 'chdir') directories.push(posix.resolve(cwd, strings[0] ?? ''));
    if (name === 'fchdir') directories.push(descriptors[0]?.path ?? '');
  }
  return calls.flatMap((call) =>
    changedPaths(call).flatMap((path) => {
      const roots = path.base === null && !path.name.startsWith('/') ? [...new Set(directories)] : [path.base ?? '/'];
      return roots.map((root) => ({ call: call.name, path: posix.resolve(root, path.name) }));
    }),
  );
}

interface Call {
  readonly name: string;
  readonly text: string;
  readonly strings: readonly string[];
  /** `5</path>` and `AT_FDCWD</path>`, with where in the text they stand. */
  readonly descriptors: readonly { readonly path: string; readonly at: number }[];
  readonly result: string;
}

/** @throws Error for a line that is no system call: a change may be hidden in it */
function parseCall(line: string): Call {
  const found = /^\d+ +([a-z0-9_]+)\((.*)\) += (\d+.*)$/.exec(line);
  if (!found) throw new Error(`strace wrote something else than a call: ${line}`);
  const [, name, text, result] = found as unknown as [string, string, string, string];
  const strings = [...text.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map(([, string]) => string!);
  const descriptors = [...text.matchAll(/(?:^|, )(?:\d+|AT_FDCWD)<([^>]*)>/g)].map((match) => ({
    path: match[1]!,
    at: match.index,
  }));
  return { name, text, strings, descriptors, result };
}

interface ChangedPath {
  /** The directory that the name is relative to; null when the call does not tell. */
  readonly base: string | null;
  readonly name: string;
}

function changedPaths(call: Call): ChangedPath[] {
  const { name, text, strings, descriptors, result } = call;
  const descriptor = descriptors[0]?.path ?? '';
  switch (name) {
    case 'chdir':
    case 'fchdir':
      return [];
    case 'open':
    case 'openat':
    case 'openat2':
    case 'creat':
    case 'open_by_handle_at': {
      if (name !== 'creat' && !/O_(WRONLY|RDWR|CREAT|TRUNC|TMPFILE)/.test(text)) return [];
      const opened = /^\d+<(.*)>/.exec(result)?.[1];
      return [{ base: null, name: opened ?? `/unknown ${text}` }];
    }
    case 'fchmod':
    case 'fchown':
    case 'ftruncate':
    case 'fallocate':
    case 'fsetxattr':
    case 'fremovexattr':
      return descriptor.startsWith('/memfd:') ? [] : [{ base: null, name: descriptor }];
    case 'bind': {
      const path = /sun_path="((?:[^"\\]|\\.)*)"/.exec(text)?.[1]; // an abstract name is written @"…"
      return path === undefined ? [] : [{ base: null, name: path }];
    }
    case 'symlink':
      return [{ base: null, name: strings[1] ?? '' }];
    case 'symlinkat':
      return [{ base: descriptor, name: strings[1] ?? '' }];
    case 'rename':
    case 'link':
      return strings.slice(0, 2).map((path) => ({ base: null, name: path }));
    case 'renameat':
    case 'renameat2':
    case 'linkat':
      return descriptors.slice(0, 2).map(({ path }, index) => ({ base: path, name: strings[index] ?? '' }));
    case 'unlinkat':
    case 'mkdirat':
    case 'mknodat':
    case 'fchmodat':
    case 'fchmodat2':
    case 'fchownat':
    case 'utimensat':
    case 'futimesat':
      return [{ base: descriptor, name: strings[0] ?? '' }];
    default:
      return [{ base: null, name: strings[0] ?? '' }];
  }
}
