/**
 * What the kernel remembers of one mount, and has not told yet: dirty pages are brought here, and what was changed behind the
 * mount's back is forgotten there.
 *
 * Facts of Linux (fs/fuse, 6.18). syncfs(2) sends nothing to a server of ours and need not wait for what it starts. The
 * invalidation of an inode from offset 0 unmaps every page, writes dirty ones and waits for our answers: so it may wait, and
 * goes through the holder's notifier, which says when it is done. Pages get dirty in mappings alone (no write-back cache is
 * asked for), and a file with dirty pages is open for reading and writing until they are written. Before 6.16 the pages of a
 * mapping that has just been closed may still be on their way.
 */
import type { Inode } from '../agentfs/inode.ts';
import { isDirectory } from '../agentfs/schema.ts';
import { type ViewNode, type Zone, zoneRules } from '../agentfs/views.ts';
import type { MountContext } from './context.ts';
import { type NodeNumber, numberOfNode } from './nodes.ts';
import { notification, notifyCodes, replyHeaderBytes, writeU64 } from './wire.ts';

/** Invalidations that may wait, at once: the relay's queue of them is bounded. */
const batch = 1_000;
/** Invalidations of attributes that a pull, or a call of git, causes. */
const maxAttributes = 1_000;
/** Changed inodes that are told one by one; with more, all that is open counts as changed. */
const maxChanged = 20_000;
/** How long the kernel may take for a batch. */
const patienceMs = 10_000;

/** Zones that git changes. */
const changedZones: readonly Zone[] = ['workspace', 'artifacts'];

export class KernelCaches {
  readonly #context: MountContext;
  readonly #send: (bytes: Uint8Array) => void;
  readonly #log: (text: string) => void;
  readonly #waiting = new Map<number, () => void>();
  #lastNumber = 0;
  #closed = false;
  /** One batch after the other. */
  #tail: Promise<void> = Promise.resolve();

  constructor(context: MountContext, send: (bytes: Uint8Array) => void, log: (text: string) => void) {
    this.#context = context;
    this.#send = send;
    this.#log = log;
  }

  /** Makes the kernel ask again for every name. Says nothing to a kernel that remembers none. */
  forgetNames(): void {
    if (this.#context.kernel.forgetsAtOnce) this.#send(notification(notifyCodes.incrementEpoch, 0).bytes);
  }

  /** Makes the kernel ask again for the attributes of what is open, by which it then judges the pages. */
  forgetOpenAttributes(): void {
    if (!this.#context.kernel.forgetsAtOnce) return;
    for (const number of this.#context.openNodes(maxAttributes)) this.#send(invalidation(number, 0));
  }

  /** Makes the kernel ask again for what the base alone had, and has no longer. */
  forgetBase(inos: readonly number[]): void {
    if (!this.#context.kernel.forgetsAtOnce) return;
    this.forgetNames();
    for (const ino of inos.slice(0, maxAttributes)) this.#send(invalidation(numberOfNode('skills', ino), -1));
  }

  /** Brings here what programs changed in mapped files. Resolves when it is here; bounded, and never fails. */
  flush(): Promise<void> {
    return this.#dropPages(this.#openFiles(({ mapsToWrite }) => mapsToWrite));
  }

  /**
   * From here on changes of this conversation's files are noted. The call that is returned ends that and resolves when the
   * kernel remembers nothing that they made wrong: names, attributes, pages, mappings.
   */
  noteChanges(): () => Promise<void> {
    const files = new Set<number>();
    const directories = new Set<number>();
    const end = this.#context.files.store.watch((ino: number, inode: Inode | null) => {
      if (files.size + directories.size > maxChanged) return;
      if (inode && isDirectory(inode.mode)) directories.add(ino);
      else files.add(ino);
    });
    return () => {
      end();
      return this.#forgetChanged(files, directories);
    };
  }

  /** All that was sent before this barrier is done. */
  reached(number: number): void {
    this.#waiting.get(number)?.();
  }

  /** Nobody answers any more. */
  close(): void {
    this.#closed = true;
    for (const resolve of [...this.#waiting.values()]) resolve();
  }

  async #forgetChanged(files: ReadonlySet<number>, directories: ReadonlySet<number>): Promise<void> {
    if (files.size + directories.size === 0) return;
    const isAll = files.size + directories.size > maxChanged;
    this.forgetNames();
    // A process may sit in a directory, which it then asks for by no name.
    for (const ino of directories) {
      for (const zone of changedZones) this.#send(invalidation(numberOfNode(zone, ino), -1));
    }
    await this.#dropPages(this.#openFiles(({ node }) => isAll || files.has(node.ino)));
  }

  #openFiles(wanted: (file: { readonly node: ViewNode; readonly mapsToWrite: boolean }) => boolean): NodeNumber[] {
    const numbers = new Map<string, NodeNumber>();
    for (const handle of this.#context.handles.values()) {
      if (handle.kind !== 'file' || !zoneRules[handle.node.zone].cached || !wanted(handle)) continue;
      const { zone, ino } = handle.node;
      numbers.set(`${zone} ${ino}`, numberOfNode(zone, ino));
    }
    return [...numbers.values()];
  }

  #dropPages(numbers: readonly NodeNumber[]): Promise<void> {
    if (numbers.length === 0) return Promise.resolve();
    const dropped = this.#tail.then(async () => {
      for (let at = 0; at < numbers.length && !this.#closed; at += batch) {
        for (const number of numbers.slice(at, at + batch)) this.#send(invalidation(number, 0));
        await this.#done();
      }
    });
    this.#tail = dropped;
    return dropped;
  }

  /** Resolves when the kernel has done what was sent to it before. */
  async #done(): Promise<void> {
    if (this.#closed) return;
    this.#lastNumber += 1;
    const number = this.#lastNumber;
    const answer = Promise.withResolvers<void>();
    this.#waiting.set(number, answer.resolve);
    const timer = setTimeout(() => {
      this.#log(`fuse ${this.#context.view.label}: the kernel does not invalidate within ${patienceMs} ms`);
      answer.resolve();
    }, patienceMs);
    this.#send(barrier(number));
    await answer.promise;
    clearTimeout(timer);
    this.#waiting.delete(number);
  }
}

/** `struct fuse_notify_inval_inode_out`: all pages from `offset` on, and the attributes; these alone when it is negative. */
function invalidation(node: NodeNumber, offset: number): Uint8Array {
  const { bytes, view } = notification(notifyCodes.invalidateInode, 24);
  view.setUint32(replyHeaderBytes, node.low, true);
  view.setUint32(replyHeaderBytes + 4, node.high, true);
  view.setBigInt64(replyHeaderBytes + 8, BigInt(offset), true);
  return bytes;
}

function barrier(number: number): Uint8Array {
  const { bytes, view } = notification(notifyCodes.barrier, 8);
  writeU64(view, replyHeaderBytes, number);
  return bytes;
}
