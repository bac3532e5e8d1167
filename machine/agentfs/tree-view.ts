/**
 * The whole tree with its real owners, without any rule of a conversation. For privileged mounts alone: whoever reaches such a
 * mount is judged by the kernel, by owners and permissions, as on any disk. No holder has one.
 */
import type { OrganizationFiles } from './files.ts';
import { rootIno } from './ids.ts';
import type { Child, FileView, Found, ViewEntry, ViewNode } from './views.ts';

export class TreeView implements FileView {
  readonly files: OrganizationFiles;
  readonly label = 'tree';
  readonly ownership = 'kept';
  readonly specialFiles = true;
  readonly root: ViewNode;

  /** `mounts`: whether several mounts show the tree at once; then no kernel remembers anything. */
  constructor(files: OrganizationFiles, mounts: 'one' | 'several' = 'one') {
    this.files = files;
    this.root = { zone: mounts === 'one' ? 'tree' : 'shared-tree', ino: rootIno };
  }

  /** It shows everybody's files. */
  accountOf(): null {
    return null;
  }

  isRoot(node: ViewNode): boolean {
    return node.ino === rootIno;
  }

  child(directory: ViewNode, name: string): Extract<Child, { kind: 'place' }> {
    return { kind: 'place', place: { parent: directory.ino, name }, zone: directory.zone, pinned: false };
  }

  placeToChange(directory: ViewNode, name: string): Extract<Child, { kind: 'place' }> {
    return this.child(directory, name);
  }

  lookup({ zone, ino }: ViewNode, name: string): Found | null | Promise<Found | null> {
    const inode = this.files.names.lookup(ino, name);
    if (inode instanceof Promise) return inode.then((found) => (found ? { zone, inode: found } : null));
    return inode ? { zone, inode } : null;
  }

  async *pages({ zone, ino }: ViewNode): AsyncGenerator<ViewEntry[], void> {
    for await (const page of this.files.names.pages(ino)) yield page.map((entry) => ({ ...entry, zone }));
  }
}
