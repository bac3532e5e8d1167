/** What the kernel has open: numbers for files and directory lists, bounded. */
import { FileError } from '../agentfs/errors.ts';
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
  readonly ino: number;
  readonly mode: number;
}

export interface OpenDirectory {
  readonly kind: 'directory';
  readonly node: ViewNode;
  /** What has been read of the list since its beginning: the place of each entry in it is its cookie. */
  entries: ListedEntry[];
  /** What comes then; null before the first read and after the last entry. */
  more: AsyncGenerator<ListedEntry[], void> | null;
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

  /** Begins a directory's list anew. */
  rewind(directory: OpenDirectory, more: AsyncGenerator<ListedEntry[], void>): void {
    this.#listed -= directory.entries.length;
    directory.entries = [];
    directory.more = more;
  }

  /** Keeps what a directory holds for its reader, who may come back to it. ENOMEM beyond the limit. */
  listed(directory: OpenDirectory, entries: readonly ListedEntry[]): void {
    if (this.#listed + entries.length > maxListedEntries) {
      throw new FileError('ENOMEM', 'too many directory entries are being read');
    }
    this.#listed += entries.length;
    for (const entry of entries) directory.entries.push(entry);
  }

  remove(number: number): Handle | null {
    const handle = this.#handles.get(number);
    if (!handle) return null;
    this.#handles.delete(number);
    if (handle.kind === 'directory') this.#listed -= handle.entries.length;
    return handle;
  }

  /** Whether somebody may have a mapping of the file that changes it. */
  mayMap(ino: number): boolean {
    for (const handle of this.#handles.values()) {
      if (handle.kind === 'file' && handle.mapsToWrite && handle.node.ino === ino) return true;
    }
    return false;
  }

  values(): IterableIterator<Handle> {
    return this.#handles.values();
  }

  clear(): void {
    this.#handles.clear();
    this.#listed = 0;
  }
}
