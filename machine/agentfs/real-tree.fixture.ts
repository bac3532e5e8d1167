/** For tests: a whole tree as the store answers it, to compare with a model's. */
import type { OrganizationFiles } from './files.ts';
import type { Snapshot } from './history.fixture.ts';
import type { Inode } from './inode.ts';
import type { ModelNode } from './model.fixture.ts';
import { isDirectory, modeDirectory, modeFormat, modeRegular, modeSymlink } from './schema.ts';

export interface RealNode {
  readonly inode: Inode;
  readonly entries: ReadonlyMap<string, RealNode>;
}

type Inos = ReadonlyMap<ModelNode, number>;

const formats = { file: modeRegular, directory: modeDirectory, symlink: modeSymlink };

export async function readTree(files: OrganizationFiles, ino: number): Promise<RealNode> {
  const inode = (await files.store.inode(ino))!;
  const entries = new Map<string, RealNode>();
  if (isDirectory(inode.mode)) {
    for (const { name, inode: child } of await files.names.list(ino)) {
      entries.set(
        name,
        isDirectory(child.mode) ? await readTree(files, child.ino) : { inode: child, entries: new Map() },
      );
    }
  }
  return { inode, entries };
}

/** Whether a tree has the names and attributes of a snapshot. */
export function isThat({ inode, entries }: RealNode, node: ModelNode, snapshot: Snapshot, inos: Inos): boolean {
  const attributes = snapshot.get(node);
  if (!attributes || inode.ino !== inos.get(node) || entries.size !== attributes.entries.size) return false;
  const mtime = BigInt(inode.mtime.seconds) * 1_000_000_000n + BigInt(inode.mtime.nanoseconds);
  const isSame =
    (inode.mode & modeFormat) === formats[node.kind] &&
    (inode.mode & 0o7777) === attributes.mode &&
    inode.nlink === attributes.nlink &&
    inode.uid === attributes.uid &&
    inode.gid === attributes.gid &&
    (attributes.mtime === null || attributes.mtime === mtime);
  if (!isSame) return false;
  return [...attributes.entries].every(([name, child]) => {
    const real = entries.get(name);
    return real !== undefined && isThat(real, child, snapshot, inos);
  });
}

/** For a message: a tree, and a model's tree in the same form. */
export function shown({ inode, entries }: RealNode): unknown {
  const { ino, mode, nlink, uid, gid } = inode;
  const below = [...entries].map(([name, child]) => [name, shown(child)]);
  return { ino, mode: mode & 0o7777, nlink, uid, gid, entries: Object.fromEntries(below) };
}

export function shownModel(node: ModelNode, inos: Inos): unknown {
  const { mode, nlink, uid, gid } = node;
  const below = [...node.entries].map(([name, child]) => [name, shownModel(child, inos)]);
  return { ino: inos.get(node), mode, nlink, uid, gid, entries: Object.fromEntries(below) };
}
