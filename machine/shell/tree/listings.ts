/**
 * The contents of directories, remembered by the stamps that every change of a directory renews. A repository's working
 * tree is walked on each `git status`; reading it from the database each time would be most of the work.
 */
import { BoundedCache } from '../../agentfs/bounded-cache.ts';
import type { Inode } from '../../agentfs/inode.ts';
import type { HolderView, ViewNode, Zone } from '../../agentfs/views.ts';

/** Names in all remembered directories. */
const rememberedNames = 200_000;

interface Remembered {
  readonly stamp: string;
  readonly names: readonly { readonly name: string; readonly zone: Zone; readonly ino: number }[];
}

export interface ListedInode {
  readonly name: string;
  readonly zone: Zone;
  readonly inode: Inode;
}

export class Listings {
  readonly #view: HolderView;
  readonly #remembered = new BoundedCache<number, Remembered>(rememberedNames, ({ names }) => names.length + 1);

  constructor(view: HolderView) {
    this.#view = view;
  }

  /** Every entry of a directory. */
  async list(node: ViewNode): Promise<ListedInode[]> {
    const { store } = this.#view.files;
    const before = store.cachedInode(node.ino);
    const stamp = before ? stampOf(before) : '';
    const known = node.zone === 'root' || !before ? undefined : this.#remembered.get(node.ino);
    if (known?.stamp === stamp) {
      const entries = known.names.map(({ name, zone, ino }) => ({ name, zone, inode: store.cachedInode(ino) }));
      if (entries.every(hasInode)) return entries;
    }
    const listed = await this.#view.list(node);
    const after = store.cachedInode(node.ino) ?? (await store.inode(node.ino));
    // What changed while it was read is read again next time.
    if (node.zone !== 'root' && before && after && stampOf(after) === stamp) {
      for (const { inode } of listed) if (!store.cachedInode(inode.ino)) await store.inode(inode.ino);
      const names = listed.map(({ name, zone, inode }) => ({ name, zone, ino: inode.ino }));
      this.#remembered.set(node.ino, { stamp, names });
    }
    return listed;
  }
}

function hasInode(entry: { inode: Inode | undefined }): entry is ListedInode {
  return entry.inode !== undefined;
}

function stampOf({ mtime, ctime }: Inode): string {
  return `${mtime.seconds}.${mtime.nanoseconds} ${ctime.seconds}.${ctime.nanoseconds}`;
}
