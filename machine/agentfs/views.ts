/**
 * What one holder sees: `/workspace`, `/artifacts` and Hermes' home, composed of the conversation's own directories and the
 * organization's memory and skills. Nothing else has a name in it, so nothing else can be reached (ADR-046 §5).
 */

import type { Account } from './accounts.ts';
import { FileError } from './errors.ts';
import type { OrganizationFiles } from './files.ts';
import { rootIno } from './ids.ts';
import type { Inode } from './inode.ts';
import type { Place } from './namespace.ts';

/** A part of the view with one set of rules. */
export type Zone =
  | 'root'
  | 'workspace'
  | 'artifacts'
  /** `/artifacts/inbound`: what clients sent, read-only to the agent. */
  | 'inbound'
  /** Hermes' home directory itself: its list is private, its skills can be walked to. */
  | 'home'
  /** The conversation's state and logs: for the Hermes process alone. */
  | 'private'
  /** Of these, the files that hold credentials or the persona. */
  | 'secret'
  /** Where Hermes would write its conversation down once more: nothing can be made there (ADR-046 §6). */
  | 'sessions'
  /** The organization's memory: for Hermes processes alone. */
  | 'memories'
  /** The organization's skills: any tool may read them. */
  | 'skills'
  /** The whole tree, as only a privileged mount shows it. */
  | 'tree'
  /** The same through several mounts at once. */
  | 'shared-tree';

export interface ZoneRules {
  /** Only threads of the Hermes process may ask. */
  readonly onlyHermes: boolean;
  /** Only threads of the Hermes process may change. */
  readonly onlyHermesChanges: boolean;
  readonly readOnly: boolean;
  /** The kernel may remember names, attributes and contents: no other mount changes them. */
  readonly cached: boolean;
  /** Of the organization or the cloud's too: its first touch in a work boundary waits for a pull. */
  readonly shared: boolean;
}

const open = { onlyHermes: false, onlyHermesChanges: false, readOnly: false, cached: true, shared: true };
const closed = { onlyHermes: true, onlyHermesChanges: true, readOnly: false, cached: false, shared: false };

export const zoneRules: Readonly<Record<Zone, ZoneRules>> = {
  root: { ...open, readOnly: true, shared: false },
  workspace: open,
  artifacts: open,
  inbound: { ...open, readOnly: true },
  home: closed,
  private: closed,
  secret: closed,
  sessions: { ...closed, readOnly: true },
  memories: { ...closed, shared: true },
  skills: { ...closed, onlyHermes: false, shared: true },
  tree: { ...open, shared: false },
  'shared-tree': { ...open, cached: false },
};

/** Whose files a view shows: each as its row says, or all as those of the one user that a holder has. */
export type Ownership = 'kept' | 'squashed';

/** An entry of a directory, as a view shows it. */
export interface ViewEntry extends Found {
  readonly name: string;
}

/** What a mount shows. */
export interface FileView {
  readonly files: OrganizationFiles;
  /** For log lines. */
  readonly label: string;
  readonly ownership: Ownership;
  /**
   * Whether FIFOs and device nodes may be made. Not in a holder: opening a FIFO waits for its other end, so that one would hold
   * up Hermes when it opens what a tool or a client names. Sockets cannot be opened, and may be made anywhere.
   */
  readonly specialFiles: boolean;
  /** The node of the mount's root directory. */
  readonly root: ViewNode;
  /** Whose quota counts in a zone; null when the view does not know. */
  accountOf(zone: Zone): Account | null;
  isRoot(node: ViewNode): boolean;
  child(directory: ViewNode, name: string): Child | null;
  placeToChange(directory: ViewNode, name: string): Extract<Child, { kind: 'place' }>;
  lookup(directory: ViewNode, name: string): Found | null | Promise<Found | null>;
  pages(directory: ViewNode): AsyncGenerator<ViewEntry[], void>;
}

/** Something in the view. The same inode in two zones is two nodes. */
export interface ViewNode {
  readonly zone: Zone;
  readonly ino: number;
}

export const rootNode: ViewNode = { zone: 'root', ino: rootIno };

/** What a name in the view stands for. */
export type Child =
  /** A directory that is part of the composition: always there, cannot be removed or renamed. */
  | { readonly kind: 'fixed'; readonly node: ViewNode }
  /** A name in some directory; there may be nothing. `pinned`: it cannot be made, removed or renamed from within. */
  | { readonly kind: 'place'; readonly place: Place; readonly zone: Zone; readonly pinned: boolean };

export interface ViewRoots {
  readonly conversation: number;
  readonly work: number;
  readonly artifacts: number;
  readonly state: number;
  readonly logs: number;
  readonly memory: number;
  readonly skills: number;
}

/** Files of the home that lie in the conversation's directory itself. */
const ofConversation = new Set(['.env', 'SOUL.md', 'config.yaml']);
/**
 * Parts of `state/` with rules of their own: what holds credentials, and where the pinned Hermes puts the whole request, with
 * all that was said so far, each time a model fails (`sessions/request_dump_*.json`, no setting). It goes on without that.
 */
const zonesOfState: ReadonlyMap<string, Zone> = new Map([
  ['auth.json', 'secret'],
  ['sessions', 'sessions'],
]);

export class HolderView implements FileView {
  readonly files: OrganizationFiles;
  readonly conversation: string;
  readonly ownership = 'squashed';
  readonly specialFiles = false;
  readonly root = rootNode;
  readonly #roots: ViewRoots;
  readonly #root: ReadonlyMap<string, ViewNode>;
  readonly #home: ReadonlyMap<string, ViewNode>;

  constructor(files: OrganizationFiles, conversation: string, roots: ViewRoots) {
    this.files = files;
    this.conversation = conversation;
    this.#roots = roots;
    this.#root = new Map<string, ViewNode>([
      ['workspace', { zone: 'workspace', ino: roots.work }],
      ['artifacts', { zone: 'artifacts', ino: roots.artifacts }],
      ['home', { zone: 'home', ino: roots.state }],
    ]);
    this.#home = new Map<string, ViewNode>([
      ['logs', { zone: 'private', ino: roots.logs }],
      ['memories', { zone: 'memories', ino: roots.memory }],
      ['skills', { zone: 'skills', ino: roots.skills }],
    ]);
  }

  get label(): string {
    return this.conversation;
  }

  accountOf(zone: Zone): Account | null {
    if (zone === 'root') return null;
    return zone === 'memories' || zone === 'skills' ? 0 : this.#roots.conversation;
  }

  /** Whether a node is one of the composition's directories, whose attributes a mount must be able to read. */
  isRoot(node: ViewNode): boolean {
    if (node.zone === 'root' || node.zone === 'home') return true;
    return [...this.#root.values(), ...this.#home.values()].some(
      (one) => one.zone === node.zone && one.ino === node.ino,
    );
  }

  /** What `name` in `directory` stands for; null for a name that can never be anything. */
  child(directory: ViewNode, name: string): Child | null {
    const { zone, ino } = directory;
    if (zone === 'root') {
      const node = this.#root.get(name);
      return node ? { kind: 'fixed', node } : null;
    }
    if (zone === 'home') {
      const node = this.#home.get(name);
      if (node) return { kind: 'fixed', node };
      if (ofConversation.has(name)) return place(this.#roots.conversation, name, 'secret');
      return place(this.#roots.state, name, zonesOfState.get(name) ?? 'private');
    }
    if (zone === 'artifacts' && ino === this.#roots.artifacts && name === 'inbound') {
      return { kind: 'place', place: { parent: ino, name }, zone: 'inbound', pinned: true };
    }
    return place(ino, name, zone);
  }

  /** The place that a change of `name` in `directory` is about; EROFS, EBUSY or EACCES where the view does not allow it. */
  placeToChange(directory: ViewNode, name: string): Extract<Child, { kind: 'place' }> {
    if (zoneRules[directory.zone].readOnly) throw new FileError('EROFS', name);
    const child = this.child(directory, name);
    if (!child) throw new FileError('EACCES', name);
    if (child.kind === 'fixed' || child.pinned) throw new FileError('EBUSY', `${name} is part of the view`);
    return child;
  }

  /** What a name is; null when there is nothing. */
  lookup(directory: ViewNode, name: string): Found | null | Promise<Found | null> {
    const child = this.child(directory, name);
    if (!child) return null;
    const { zone } = child.kind === 'fixed' ? child.node : child;
    const inode =
      child.kind === 'fixed'
        ? this.files.store.inode(child.node.ino)
        : this.files.names.lookup(child.place.parent, child.place.name);
    if (inode instanceof Promise) return inode.then((found) => (found ? { zone, inode: found } : null));
    return inode ? { zone, inode } : null;
  }

  /** Every entry of a directory, some at a time. */
  async *pages(directory: ViewNode): AsyncGenerator<ViewEntry[], void> {
    if (directory.zone === 'root') {
      yield await this.#existing(directory, [...this.#root.keys()]);
      return;
    }
    // What `state/` holds under a name that the composition uses cannot be seen.
    const special = directory.zone === 'home' ? [...ofConversation, ...this.#home.keys()] : [];
    for await (const page of this.files.names.pages(directory.ino)) {
      const own = special.length === 0 ? page : page.filter(({ name }) => !special.includes(name));
      yield own.map(({ name, inode }) => {
        const child = this.child(directory, name);
        return { name, inode, zone: child?.kind === 'place' ? child.zone : directory.zone };
      });
    }
    if (special.length > 0) yield await this.#existing(directory, special);
  }

  /** All at once. */
  async list(directory: ViewNode): Promise<ViewEntry[]> {
    const entries: ViewEntry[] = [];
    for await (const page of this.pages(directory)) entries.push(...page);
    return entries;
  }

  async #existing(directory: ViewNode, names: string[]): Promise<ViewEntry[]> {
    const entries: ViewEntry[] = [];
    for (const name of names) {
      const found = await this.lookup(directory, name);
      if (found) entries.push({ name, ...found });
    }
    return entries;
  }
}

export interface Found {
  readonly zone: Zone;
  readonly inode: Inode;
}

function place(parent: number, name: string, zone: Zone): Child {
  return { kind: 'place', place: { parent, name }, zone, pinned: false };
}
