/** For tests: the same file system as plain objects in memory, with the same errors. */
import { type Errno, FileError } from './errors.ts';
import type { RenameMode } from './namespace.ts';

export interface ModelNode {
  readonly kind: 'file' | 'directory' | 'symlink';
  readonly entries: Map<string, ModelNode>;
  data: Uint8Array;
  target: string;
  nlink: number;
  mode: number;
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
    const node = make(kind);
    node.target = target;
    this.#enter(parent, name, node);
    return node;
  }

  link(node: ModelNode, parent: ModelNode, name: string): void {
    this.#requireDirectory(parent);
    if (parent.entries.has(name)) fail('EEXIST');
    if (node.nlink === 0) fail('ENOENT');
    if (node.kind === 'directory') fail('EPERM');
    node.nlink += 1;
    parent.entries.set(name, node);
  }

  unlink(parent: ModelNode, name: string): void {
    this.#requireDirectory(parent);
    const node = parent.entries.get(name) ?? fail('ENOENT');
    if (node.kind === 'directory') fail('EISDIR');
    parent.entries.delete(name);
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

  write(node: ModelNode, offset: number, bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    this.truncate(node, Math.max(node.data.length, offset + bytes.length));
    node.data.set(bytes, offset);
  }

  truncate(node: ModelNode, size: number): void {
    const data = new Uint8Array(size);
    data.set(node.data.subarray(0, size));
    node.data = data;
  }

  punch(node: ModelNode, offset: number, length: number): void {
    node.data.fill(0, offset, offset + length);
  }

  #enter(parent: ModelNode, name: string, node: ModelNode): void {
    parent.entries.set(name, node);
    if (node.kind === 'directory' && parent.nlink > 1) parent.nlink += 1;
  }

  #leave(parent: ModelNode, name: string): void {
    if (parent.entries.get(name)?.kind === 'directory' && parent.nlink > 1) parent.nlink -= 1;
    parent.entries.delete(name);
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
    mode: kind === 'directory' ? 0o755 : 0o644,
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
