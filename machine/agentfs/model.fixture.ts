/** For tests: the same file system as plain objects in memory, with the same errors. */
import { type Errno, FileError } from './errors.ts';
import type { RenameMode } from './namespace.ts';

export interface ModelNode {
  readonly kind: 'file' | 'directory' | 'symlink';
  entries: Map<string, ModelNode>;
  /** Never changed in place: what was there at another time can be kept. */
  data: Uint8Array;
  target: string;
  nlink: number;
  mode: number;
  uid: number;
  gid: number;
  /** Nanoseconds since 1970, where somebody set it; null where the clock did. */
  mtime: bigint | null;
}

const fail = (errno: Errno): never => {
  throw new FileError(errno, 'model');
};

export class Model {
  /** Whoever makes a database does not count the directories in its root. */
  readonly root = { ...make('directory'), nlink: 1 };

  lookup(parent: ModelNode, name: string): ModelNode | null {
    return parent.entries.get(name) ?? null;
  }

  create(parent: ModelNode, name: string, kind: ModelNode['kind'], target = ''): ModelNode {
    this.#requireDirectory(parent);
    if (parent.entries.has(name)) fail('EEXIST');
    const node = this.#made(parent, kind);
    node.target = target;
    this.#enter(parent, name, node);
    return node;
  }

  /** A file that has no name (yet). */
  createNameless(parent: ModelNode): ModelNode {
    this.#requireDirectory(parent);
    return { ...this.#made(parent, 'file'), nlink: 0 };
  }

  link(node: ModelNode, isOpen: boolean, parent: ModelNode, name: string): void {
    this.#requireDirectory(parent);
    if (parent.entries.has(name)) fail('EEXIST');
    if (node.nlink === 0 && !isOpen) fail('ENOENT');
    if (node.kind === 'directory') fail('EPERM');
    node.nlink += 1;
    this.#enter(parent, name, node);
  }

  unlink(parent: ModelNode, name: string): void {
    this.#requireDirectory(parent);
    const node = parent.entries.get(name) ?? fail('ENOENT');
    if (node.kind === 'directory') fail('EISDIR');
    this.#leave(parent, name);
    node.nlink -= 1;
  }

  rmdir(parent: ModelNode, name: string): void {
    this.#requireDirectory(parent);
    const node = parent.entries.get(name) ?? fail('ENOENT');
    if (node.kind !== 'directory') fail('ENOTDIR');
    if (node.entries.size > 0) fail('ENOTEMPTY');
    this.#leave(parent, name);
    node.nlink = 0;
  }

  rename(from: ModelNode, oldName: string, to: ModelNode, newName: string, mode: RenameMode): void {
    this.#requireDirectory(from);
    this.#requireDirectory(to);
    const moved = from.entries.get(oldName) ?? fail('ENOENT');
    const replaced = to.entries.get(newName);
    if (mode === 'no-replace' && replaced) fail('EEXIST');
    if (mode === 'exchange' && !replaced) fail('ENOENT');
    if (replaced === moved) return;
    if (contains(moved, to)) fail('EINVAL');
    if (mode === 'exchange' && replaced) {
      if (contains(replaced, from)) fail('EINVAL');
      this.#leave(from, oldName);
      this.#leave(to, newName);
      this.#enter(from, oldName, replaced);
      this.#enter(to, newName, moved);
      return;
    }
    if (replaced) {
      if (moved.kind === 'directory' && replaced.kind !== 'directory') fail('ENOTDIR');
      if (moved.kind !== 'directory' && replaced.kind === 'directory') fail('EISDIR');
      if (replaced.kind === 'directory' && replaced.entries.size > 0) fail('ENOTEMPTY');
      this.#leave(to, newName);
      replaced.nlink = replaced.kind === 'directory' ? 0 : replaced.nlink - 1;
    }
    this.#leave(from, oldName);
    this.#enter(to, newName, moved);
  }

  write(node: ModelNode, offset: number | 'end', bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    const at = offset === 'end' ? node.data.length : offset;
    this.truncate(node, Math.max(node.data.length, at + bytes.length));
    node.data.set(bytes, at);
  }

  truncate(node: ModelNode, size: number): void {
    const data = new Uint8Array(size);
    data.set(node.data.subarray(0, size));
    node.data = data;
    node.mtime = null;
  }

  punch(node: ModelNode, offset: number, length: number): void {
    if (offset >= node.data.length) return;
    this.truncate(node, node.data.length);
    node.data.fill(0, offset, offset + length);
  }

  #made(parent: ModelNode, kind: ModelNode['kind']): ModelNode {
    const node = make(kind);
    if ((parent.mode & 0o2000) === 0) return node;
    node.gid = parent.gid;
    if (kind === 'directory') node.mode |= 0o2000;
    return node;
  }

  #enter(parent: ModelNode, name: string, node: ModelNode): void {
    parent.entries.set(name, node);
    if (node.kind === 'directory' && parent.nlink > 1) parent.nlink += 1;
    parent.mtime = null;
  }

  #leave(parent: ModelNode, name: string): void {
    if (parent.entries.get(name)?.kind === 'directory' && parent.nlink > 1) parent.nlink -= 1;
    parent.entries.delete(name);
    parent.mtime = null;
  }

  #requireDirectory(node: ModelNode): void {
    if (node.kind !== 'directory') fail('ENOTDIR');
    if (node.nlink === 0) fail('ENOENT');
  }
}

function make(kind: ModelNode['kind']): ModelNode {
  return {
    kind,
    entries: new Map(),
    data: new Uint8Array(0),
    target: '',
    nlink: kind === 'directory' ? 2 : 1,
    mode: { directory: 0o755, file: 0o644, symlink: 0o777 }[kind],
    uid: 0,
    gid: 0,
    mtime: null,
  };
}

function contains(tree: ModelNode, node: ModelNode): boolean {
  return tree === node || [...tree.entries.values()].some((child) => contains(child, node));
}

/** Random numbers that are the same for the same seed. */
export function seeded(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}
