/** What the operations of one mount share. */

import { FileError } from '../agentfs/errors.ts';
import type { OrganizationFiles } from '../agentfs/files.ts';
import type { Inode, Owner } from '../agentfs/inode.ts';
import { maxNameBytes } from '../agentfs/namespace.ts';
import { type FileView, type ViewNode, type Zone, zoneRules } from '../agentfs/views.ts';
import { Handles } from './handles.ts';
import { type NodeNumber, nodeOfNumber, numberOfNode } from './nodes.ts';
import {
  type EntryAnswer,
  entryBytes,
  openFlags,
  type Request,
  replyFor,
  replyHeaderBytes,
  writeAttributes,
  writeEntry,
  writeU64,
} from './wire.ts';

/** What the kernel said at INIT that it can do. */
export interface KernelAbilities {
  /** It can forget all names at once (7.44): then it may remember them long. */
  readonly forgetsAtOnce: boolean;
  /** It maps files that are opened for direct I/O (7.39). */
  readonly mapsDirectIo: boolean;
}

/** The one user that a holder has, seen from inside. */
export const holderUser: Owner = { uid: 1000, gid: 1000 };

/** How long the kernel may remember what only this mount and a work boundary's pull change. */
const longSeconds = 24 * 3600;

export class MountContext {
  readonly view: FileView;
  readonly files: OrganizationFiles;
  readonly handles = new Handles();
  kernel: KernelAbilities = { forgetsAtOnce: false, mapsDirectIo: false };

  constructor(view: FileView) {
    this.view = view;
    this.files = view.files;
  }

  /** What a number stands for; null for one that was never given out. */
  node(number: NodeNumber): ViewNode | null {
    const node = nodeOfNumber(number);
    return node?.zone === 'root' ? this.view.root : node;
  }

  /** Whom a file is shown to belong to. */
  ownerOf(inode: Inode): Owner {
    return this.view.ownership === 'kept' ? inode : holderUser;
  }

  /** Whom it belongs to what a request makes. */
  maker({ header }: Request): { owner?: Owner } {
    return this.view.ownership === 'kept' ? { owner: { uid: header.uid, gid: header.gid } } : {};
  }

  /** Seconds that the kernel may remember that a zone's directory has no such name. */
  absenceSeconds(zone: Zone): number {
    return zoneRules[zone].cached && this.kernel.forgetsAtOnce ? longSeconds : 0;
  }

  /** Seconds that the kernel may remember name and attributes of a node. */
  memorySeconds(zone: Zone, ino: number): number {
    if (this.isOnlyInBase(zone, ino)) return this.kernel.forgetsAtOnce ? longSeconds : 0;
    // Root and home are walked through by everything, are everybody's to look at, and change in nothing but times.
    return zone === 'root' || zone === 'home' ? longSeconds : this.absenceSeconds(zone);
  }

  entry(zone: Zone, inode: Inode): EntryAnswer {
    return {
      node: numberOfNode(zone, inode.ino),
      generation: this.files.store.incarnation(inode.ino),
      seconds: this.memorySeconds(zone, inode.ino),
      inode,
      owner: this.ownerOf(inode),
    };
  }

  entryReply(request: Request, zone: Zone, inode: Inode): Uint8Array {
    const { bytes, view } = replyFor(request.header.unique, entryBytes);
    writeEntry(view, replyHeaderBytes, this.entry(zone, inode));
    return bytes;
  }

  attributesReply(request: Request, zone: Zone, inode: Inode): Uint8Array {
    const { bytes, view } = replyFor(request.header.unique, 104);
    writeU64(view, replyHeaderBytes, this.memorySeconds(zone, inode.ino));
    // The mount's root is no inode of the organization's to show.
    const shown = zone === 'root' ? { ...inode, mode: 0o040555 } : inode;
    writeAttributes(view, replyHeaderBytes + 16, shown, this.ownerOf(inode));
    return bytes;
  }

  /** Nodes that are open and that the kernel remembers, each once, at most `limit`. */
  openNodes(limit: number): NodeNumber[] {
    const numbers = new Map<string, NodeNumber>();
    for (const { node } of this.handles.values()) {
      if (numbers.size >= limit) break;
      if (zoneRules[node.zone].cached) numbers.set(`${node.zone} ${node.ino}`, numberOfNode(node.zone, node.ino));
    }
    return [...numbers.values()];
  }

  /**
   * What only the base has is the same for every mount and nobody's secret: kernels keep it until the session tells them that
   * it was copied up or deleted.
   */
  isOnlyInBase(zone: Zone, ino: number): boolean {
    return zone === 'skills' && this.files.store.overlay.node(ino) !== undefined;
  }

  /** How a file is opened: private contents never stay in the kernel. */
  openReplyFlags({ zone, ino }: ViewNode): number {
    if (this.isOnlyInBase(zone, ino)) return openFlags.keepCache;
    const rules = zoneRules[zone];
    // A close promises nothing (`fsync` does): it need not wait for an answer.
    if (rules.cached) return openFlags.keepCache | openFlags.noFlush;
    if (!rules.onlyHermes) return 0;
    // SQLite's files in `state/` must be mappable; where the kernel cannot map direct I/O, they alone use its cache.
    return zone === 'private' && !this.kernel.mapsDirectIo ? 0 : openFlags.directIo;
  }
}

export type Answer = Uint8Array | null;
/** Answers a request; null when the kernel expects no answer. FileErrors become its errno. */
export type Operation = (context: MountContext, request: Request, node: ViewNode) => Answer | Promise<Answer>;

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** The text of a name or target; EILSEQ when it is not UTF-8, which is all that AgentFS can hold. */
export function decodeName(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes);
  } catch {
    // The decoder's own error says no more than that.
    throw new FileError('EILSEQ', 'a name that is not UTF-8');
  }
}

/** The same for a name to look up: one that cannot exist is not there. */
export function decodeLookup(bytes: Uint8Array): string {
  if (bytes.length > maxNameBytes) throw new FileError('ENAMETOOLONG', 'name');
  try {
    return utf8.decode(bytes);
  } catch {
    // AgentFS holds UTF-8 names only.
    throw new FileError('ENOENT', 'a name that is not UTF-8');
  }
}

export function emptyReply(request: Request): Uint8Array {
  return replyFor(request.header.unique, 0).bytes;
}
