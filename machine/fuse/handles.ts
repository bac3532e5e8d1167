/** What the kernel has open: numbers for files and directory lists, bounded. */
import { FileError } from '../agentfs/errors.ts';
import type { Inode } from '../agentfs/inode.ts';
import type { ViewNode, Zone } from '../agentfs/views.ts';

export interface OpenFile {
  readonly kind: 'file';
  readonly node: ViewNode;
  /** O_APPEND in a zone that other mounts change too: the end is where the server says it is. */
  readonly appends: boolean;
  /** Open for reading and writing: a mapping of it may change pages that only the kernel knows of. */
  readonly mapsToWrite: boolean;
  /** The store's count of lost groups that its holder knows of. */
  failures: number;
}

export interface ListedEntry {
  readonly name: Uint8Array;
  readonly zone: Zone;
  readonly inode: Inode;
}

export interface OpenDirectory {
  readonly kind: 'directory';
  readonly node: ViewNode;
  /** The entries as they were when reading began; a list stays the same while its reader removes what it read. */
  entries: readonly ListedEntry[] | null;
}

export type Handle = OpenFile | OpenDirectory;

const maxHandles = 16_384;
/** Entries in all the lists that are being read. */
const maxListedEntries = 2_000_000;

export class Handles {
  readonly #handles = new Map<number, Handle>();
  #next = 1;
  #listed = 0;

  /** ENFILE beyond the limit. */
  add(handle: Handle): number {
    this.requireRoom();
    const number = this.#next++;
    this.#handles.set(number, handle);
    return number;
  }

  requireRoom(): void {
    if (this.#handles.size >= maxHandles) throw new FileError('ENFILE', `${maxHandles} files are open`);
  }

  file(number: number): OpenFile {
    const handle = this.#handles.get(number);
    if (handle?.kind !== 'file') throw new FileError('EBADF', `no open file ${number}`);
    return handle;
  }

  directory(number: number): OpenDirectory {
    const handle = this.#handles.get(number);
    if (handle?.kind !== 'directory') throw new FileError('EBADF', `no open directory ${number}`);
    return handle;
  }

  /** Keeps what a directory holds for its reader. ENOMEM beyond the limit. */
  list(directory: OpenDirectory, entries: readonly ListedEntry[]): void {
    this.#listed += entries.length - (directory.entries?.length ?? 0);
    directory.entries = entries;
    if (this.#listed > maxListedEntries) throw new FileError('ENOMEM', 'too many directory entries are being read');
  }

  remove(number: number): Handle | null {
    const handle = this.#handles.get(number);
    if (!handle) return null;
    this.#handles.delete(number);
    if (handle.kind === 'directory') this.#listed -= handle.entries?.length ?? 0;
    return handle;
  }

  values(): IterableIterator<Handle> {
    return this.#handles.values();
  }

  clear(): void {
    this.#handles.clear();
    this.#listed = 0;
  }
}
