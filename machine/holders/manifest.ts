/** The launch manifest that confined-exec reads from fd 4: one `key value` a line. */

export interface HolderManifest {
  /** Host uid and gid that the holder's 1000 maps to; one for each living holder. */
  readonly uid: number;
  readonly fuseSocket: string;
  /** 64 hex digits that the holder shows on the fuse socket. */
  readonly fuseToken: string;
  readonly binds: readonly Bind[];
  /** Directories of the cgroups that Hermes and its tools are put into. */
  readonly cgroups: readonly string[];
  readonly program: string;
  readonly args: readonly string[];
  /** Null for a holder that has no git but the host's. */
  readonly git: HolderGit | null;
}

/** The `git` of a holder. */
export interface HolderGit {
  /** Where the machine listens for this holder's calls. */
  readonly socket: string;
  /** The host's git, for what the machine leaves to it; null when there is none, or when it is not to be used. */
  readonly native: string | null;
  /** Programs that the machine's client stands in the place of, where they are files. */
  readonly places: readonly string[];
}

/** A read-only bind of `source` at `target`; an optional one is skipped when the source is missing. */
export interface Bind {
  readonly source: string;
  readonly target: string;
  readonly optional: boolean;
}

const maxManifestBytes = 16 * 1024;

/** Throws a RangeError when a value cannot be written in this form; nothing of it comes from a client. */
export function formatManifest(manifest: HolderManifest): string {
  const lines = [
    'edge-holder 1',
    line('uid', String(manifest.uid)),
    line('fuse-socket', manifest.fuseSocket),
    line('fuse-token', manifest.fuseToken),
    // Where `DeviceHandoff` puts the child's end.
    line('fuse-device', '8'),
    ...manifest.binds.map(formatBind),
    ...manifest.cgroups.map((directory) => line('cgroup', directory)),
    line('exec', manifest.program),
    ...manifest.args.map((arg) => line('arg', arg)),
    ...(manifest.git === null ? [] : formatGit(manifest.git)),
  ];
  const text = `${lines.join('\n')}\n`;
  if (Buffer.byteLength(text) > maxManifestBytes) throw new RangeError('the launch manifest is too long');
  return text;
}

function formatGit({ socket, native, places }: HolderGit): string[] {
  const rest = places.map((place) => line('git-place', place));
  return [line('git-socket', socket), ...(native === null ? [] : [line('native-git', native)]), ...rest];
}

function formatBind(bind: Bind): string {
  for (const path of [bind.source, bind.target]) {
    if (!path.startsWith('/') || path.includes(' ')) throw new RangeError(`cannot bind ${JSON.stringify(path)}`);
  }
  const key = bind.optional ? 'bind?' : 'bind';
  return line(key, bind.source === bind.target ? bind.source : `${bind.source} ${bind.target}`);
}

function line(key: string, value: string): string {
  if (/[\n\r\0]/.test(value)) throw new RangeError(`a line break in ${key}`);
  return `${key} ${value}`;
}
