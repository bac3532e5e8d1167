/** What stat(2) says, of what is in the tree or only meant to be. */
import type { Inode, Stamp } from '../../agentfs/inode.ts';
import { isDirectory, isRegular, isSymlink } from '../../agentfs/schema.ts';

export type Kind = 'file' | 'directory' | 'symlink' | 'other';

export interface Status {
  readonly kind: Kind;
  /** Type and permissions. */
  readonly mode: number;
  readonly size: number;
  /** 0 for what is not written yet. */
  readonly ino: number;
  readonly mtime: Stamp;
  readonly ctime: Stamp;
}

export interface Listed {
  readonly name: string;
  readonly status: Status;
}

export function statusOf(inode: Inode): Status {
  const { mode, size, ino, mtime, ctime } = inode;
  return { kind: kindOf(mode), mode, size, ino, mtime, ctime };
}

function kindOf(mode: number): Kind {
  if (isRegular(mode)) return 'file';
  if (isDirectory(mode)) return 'directory';
  return isSymlink(mode) ? 'symlink' : 'other';
}
