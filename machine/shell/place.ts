/** Where a call of git happens: HyperSH Git sees the conversation's files and nothing else of a holder. */

export interface PlacedCall {
  readonly argv: readonly string[];
  /** In `/workspace` or `/artifacts`. */
  readonly cwd: string;
}

/** A call that is about files that only the holder has, and why. */
export interface OutsideCall {
  readonly outside: string;
}

const places = ['/workspace', '/artifacts'];
/** Variables that name a file or directory of the repository. */
const variables = ['GIT_DIR', 'GIT_WORK_TREE', 'GIT_COMMON_DIR', 'GIT_INDEX_FILE', 'GIT_OBJECT_DIRECTORY'];

/** Whether an absolute path, taken by its words alone, lies in the conversation's files. */
export function isInView(path: string): boolean {
  const clean = normalized(path);
  return places.some((place) => clean === place || clean.startsWith(`${place}/`));
}

/** The call as HyperSH Git can take it: also from elsewhere in the holder, when it names its directory or needs none. */
export function placeCall(
  argv: readonly string[],
  cwd: string,
  environment: Readonly<Record<string, string>>,
): PlacedCall | OutsideCall {
  for (const name of variables) {
    const path = environment[name];
    if (path && !isInView(joined(cwd, path))) return { outside: path };
  }
  let at = 0;
  let place = cwd;
  for (; argv[at] === '-C' && argv[at + 1] !== undefined; at += 2) place = joined(place, argv[at + 1]!);
  if (isInView(place)) return isInView(cwd) ? { argv, cwd } : { argv: argv.slice(at), cwd: normalized(place) };
  const rest = argv.slice(at);
  return needsNoDirectory(rest) ? { argv: rest, cwd: places[0]! } : { outside: place };
}

/**
 * The first word that looks like the path of a file that only the holder has: a native git can read it. What only looks
 * so, such as a pattern, is the native git's as well.
 */
export function outsidePath(argv: readonly string[], cwd: string): string | null {
  const paths = argv.map((word) => (word.startsWith('-') ? word.slice(word.indexOf('=') + 1) : word));
  return paths.find((path) => leadsOut(path, cwd)) ?? null;
}

function leadsOut(path: string, cwd: string): boolean {
  if (/\s/.test(path)) return false;
  if (path.startsWith('/')) return !isInView(path);
  return /^\.\.(\/|$)|\/\.\.(\/|$)/.test(path) && !isInView(joined(cwd, path));
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

function joined(cwd: string, path: string): string {
  return path.startsWith('/') ? path : `${cwd}/${path}`;
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
