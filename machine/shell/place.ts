/** Where a call of git happens: HyperSH Git sees the conversation's files and nothing else of a holder. */

export interface PlacedCall {
  readonly argv: readonly string[];
  /** In `/workspace` or `/artifacts`. */
  readonly cwd: string;
}

const places = ['/workspace', '/artifacts'];

/** Whether an absolute path, taken by its words alone, lies in the conversation's files. */
export function isInView(path: string): boolean {
  const clean = normalized(path);
  return places.some((place) => clean === place || clean.startsWith(`${place}/`));
}

/**
 * The call as HyperSH Git can take it, also from elsewhere in the holder when it names its directory or needs none; null
 * when it is about files that only the holder has.
 */
export function placeCall(argv: readonly string[], cwd: string): PlacedCall | null {
  if (isInView(cwd)) return { argv, cwd };
  const [first, second] = argv;
  if (first === '-C' && second !== undefined) {
    const path = second.startsWith('/') ? second : `${cwd}/${second}`;
    return isInView(path) ? { argv: argv.slice(2), cwd: normalized(path) } : null;
  }
  return needsNoDirectory(argv) ? { argv, cwd: places[0]! } : null;
}

function needsNoDirectory(argv: readonly string[]): boolean {
  const [command, ...rest] = argv;
  if (command === undefined) return true;
  if (['--version', '-v', 'version', '--help', '-h', 'help'].includes(command)) return true;
  if (command === 'config') return rest.includes('--global');
  // Everything that is read or written has an absolute name.
  if (command === 'clone' || command === 'init') return isInView(rest.at(-1) ?? '');
  return command === 'ls-remote' && /^https?:/.test(rest.at(-1) ?? '');
}

function normalized(path: string): string {
  if (!path.startsWith('/')) return '';
  const names: string[] = [];
  for (const name of path.split('/')) {
    if (name === '..') names.pop();
    else if (name !== '' && name !== '.') names.push(name);
  }
  return `/${names.join('/')}`;
}
