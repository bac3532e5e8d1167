/** What a call means to change, by canonical path, in the order in which it was asked. */
import { modeDirectory, modeRegular, modeSymlink } from '../../agentfs/schema.ts';
import { leave } from '../endings.ts';
import type { Status } from './status.ts';

/** Bytes that may be held back. */
const largestDraft = 512 * 1024 ** 2;

export type Draft =
  | { readonly kind: 'file'; readonly bytes: Uint8Array; readonly permissions: number }
  | { readonly kind: 'symlink'; readonly target: string }
  /** `replaces`: whatever the view has there goes, with all that is in it. */
  | { readonly kind: 'directory'; readonly replaces: boolean }
  | { readonly kind: 'absent' };

const never = { seconds: 0, nanoseconds: 0 };

export class Drafts {
  readonly #byPath = new Map<string, Draft>();
  readonly #byDirectory = new Map<string, Map<string, Draft>>();
  #weight = 0;

  get isEmpty(): boolean {
    return this.#byPath.size === 0;
  }

  /** Undefined: as the view has it. `hidden`: below something that goes or is new. */
  get(path: string): Draft | 'hidden' | undefined {
    if (this.#byPath.size === 0) return undefined;
    const own = this.#byPath.get(path);
    if (own) return own;
    for (let slash = path.lastIndexOf('/'); slash > 0; slash = path.lastIndexOf('/', slash - 1)) {
      if (this.#byPath.has(path.slice(0, slash))) return 'hidden';
    }
    return undefined;
  }

  below(directory: string): ReadonlyMap<string, Draft> | undefined {
    return this.#byDirectory.get(directory);
  }

  set(path: string, draft: Draft): void {
    this.#weight += weightOf(draft) - weightOf(this.#byPath.get(path));
    if (this.#weight > largestDraft) leave(`changes of ${this.#weight} bytes`);
    // Last asked, last done.
    this.#byPath.delete(path);
    this.#byPath.set(path, draft);
    const slash = path.lastIndexOf('/');
    const directory = path.slice(0, slash);
    let names = this.#byDirectory.get(directory);
    if (!names) {
      names = new Map();
      this.#byDirectory.set(directory, names);
    }
    names.set(path.slice(slash + 1), draft);
  }

  /** `isInView`: then its absence must be written; otherwise it is as if it had never been meant. */
  remove(path: string, isInView: boolean): void {
    for (const below of [...this.#byPath.keys()]) if (below.startsWith(`${path}/`)) this.#forget(below);
    if (isInView) this.set(path, { kind: 'absent' });
    else this.#forget(path);
  }

  entries(): IterableIterator<[string, Draft]> {
    return this.#byPath.entries();
  }

  clear(): void {
    this.#byPath.clear();
    this.#byDirectory.clear();
    this.#weight = 0;
  }

  status(draft: Draft): Status {
    const times = { ino: 0, mtime: never, ctime: never };
    if (draft.kind === 'file') {
      return { kind: 'file', mode: modeRegular | draft.permissions, size: draft.bytes.length, ...times };
    }
    if (draft.kind === 'symlink') {
      return { kind: 'symlink', mode: modeSymlink | 0o777, size: Buffer.byteLength(draft.target), ...times };
    }
    return { kind: 'directory', mode: modeDirectory | 0o755, size: 0, ...times };
  }

  #forget(path: string): void {
    this.#weight -= weightOf(this.#byPath.get(path));
    this.#byPath.delete(path);
    const slash = path.lastIndexOf('/');
    this.#byDirectory.get(path.slice(0, slash))?.delete(path.slice(slash + 1));
  }
}

function weightOf(draft: Draft | undefined): number {
  return draft?.kind === 'file' ? draft.bytes.length : 0;
}
