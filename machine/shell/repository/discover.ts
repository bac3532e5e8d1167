/** Finds the repository that a command is about. */
import { fatal, leave } from '../endings.ts';
import type { Tree } from '../tree/tree.ts';
import { Repository, type Surroundings } from './repository.ts';

export interface Place {
  readonly gitDirectory: string;
  readonly workTree: string | null;
}

export interface Wanted {
  /** Canonical. */
  readonly cwd: string;
  /** `--git-dir` or `GIT_DIR`, absolute. */
  readonly gitDirectory: string | null;
  readonly workTree: string | null;
}

export async function discover(tree: Tree, wanted: Wanted): Promise<Place | null> {
  if (wanted.gitDirectory !== null) {
    const gitDirectory = await tree.resolve(wanted.gitDirectory);
    if (gitDirectory === null || !(await isGitDirectory(tree, gitDirectory))) return null;
    return { gitDirectory, workTree: wanted.workTree ?? wanted.cwd };
  }
  if (wanted.workTree !== null) leave('--work-tree without --git-dir');
  for (let at = wanted.cwd; at !== ''; at = at.slice(0, at.lastIndexOf('/'))) {
    const status = await tree.lstat(`${at}/.git`);
    if (status?.kind === 'file' || status?.kind === 'symlink') leave('a .git that is no directory');
    if (status && (await isGitDirectory(tree, `${at}/.git`))) return { gitDirectory: `${at}/.git`, workTree: at };
    if (await isGitDirectory(tree, at)) return { gitDirectory: at, workTree: null };
  }
  return null;
}

export async function openRepository(around: Surroundings, wanted: Wanted): Promise<Repository> {
  const place = await discover(around.tree, wanted);
  if (place) return Repository.open(around, place.gitDirectory, place.workTree);
  if (wanted.gitDirectory !== null) throw fatal(`not a git repository: '${wanted.gitDirectory}'`);
  throw notARepository();
}

/** In a holder the tree is a mount of its own, and git looks no further up. */
export const notARepository = () =>
  fatal(
    'not a git repository (or any parent up to mount point /)\nStopping at filesystem boundary (GIT_DISCOVERY_ACROSS_FILESYSTEM not set).',
  );

async function isGitDirectory(tree: Tree, path: string): Promise<boolean> {
  const head = await tree.lstat(`${path}/HEAD`);
  if (head?.kind !== 'file') return false;
  return (
    (await tree.stat(`${path}/objects`))?.kind === 'directory' &&
    (await tree.stat(`${path}/refs`))?.kind === 'directory'
  );
}
