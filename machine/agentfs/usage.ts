/**
 * Counting what the tables hold, a slice at a time, while others change it: a change to what was counted already corrects the
 * count, any other will be met. So a count is exact when it ends, and nobody waits for more than a slice of it.
 */
import { maxIno } from './ids.ts';
import { isDirectory } from './schema.ts';
import type { Store } from './store.ts';

export interface Usage {
  readonly bytes: number;
  readonly inodes: number;
}
export const nothing: Usage = { bytes: 0, inodes: 0 };

/** Something that a committed operation did. */
export interface UsageEvent {
  /** The number of a conversation's directory, or 0 for the organization alone. */
  readonly account: number;
  readonly ino: number;
  readonly bytes: number;
  /** 1: it counts from now on. -1: it counts no longer. 0: it became longer or shorter. */
  readonly inodes: -1 | 0 | 1;
}

/** Inodes that one question counts, about. */
const inodesAtOnce = 500;
const entriesAtOnce = 200;

/** All inodes that have a name or are open, in the order of their numbers. */
export class OrganizationCount {
  readonly #store: Store;
  #counted = -1;
  #width = 2 ** 40;
  usage: Usage = nothing;

  constructor(store: Store) {
    this.#store = store;
  }

  get isDone(): boolean {
    return this.#counted >= maxIno;
  }

  /** For whoever runs exclusively. */
  async sliceHere(): Promise<void> {
    const end = performance.now() + this.#store.limits.countSliceMs;
    do await this.#stepHere();
    while (!this.isDone && performance.now() < end);
  }

  /** What was committed meanwhile. */
  note({ ino, bytes, inodes }: UsageEvent): void {
    if (ino <= this.#counted) this.#add(bytes, inodes);
  }

  async #stepHere(): Promise<void> {
    const to = Math.min(maxIno, this.#counted + this.#width);
    const row = await this.#store.driver.get(
      'SELECT count(*) AS n, total(size) AS bytes FROM fs_inode WHERE ino > ? AND ino <= ? AND nlink > 0',
      this.#counted,
      to,
    );
    for (const ino of this.#store.openFiles()) {
      if (ino <= this.#counted || ino > to) continue;
      const inode = await this.#store.inodeHere(ino);
      if (inode?.nlink === 0) this.#add(inode.size, 1);
    }
    const inodes = Number(row?.n);
    this.#add(Number(row?.bytes), inodes);
    this.#counted = to;
    this.#width = Math.ceil(this.#width * Math.min(16, Math.max(1 / 16, inodesAtOnce / Math.max(1, inodes))));
  }

  #add(bytes: number, inodes: number): void {
    this.usage = { bytes: this.usage.bytes + bytes, inodes: this.usage.inodes + inodes };
  }
}

/** A conversation's tree, from its directory down. */
export class ConversationCount {
  readonly #store: Store;
  readonly #counted = new Set<number>();
  readonly #directories: number[] = [];
  #current: { readonly directory: number; after: string } | null = null;
  #isBegun = false;
  readonly #account: number;
  readonly #isOurs: (ino: number) => boolean;
  usage: Usage = nothing;

  /** `isOurs`: whether an open file without a name is the conversation's. */
  constructor(store: Store, account: number, isOurs: (ino: number) => boolean) {
    this.#store = store;
    this.#account = account;
    this.#isOurs = isOurs;
  }

  get isDone(): boolean {
    return this.#isBegun && this.#current === null && this.#directories.length === 0;
  }

  async sliceHere(): Promise<void> {
    if (!this.#isBegun) await this.#beginHere();
    const end = performance.now() + this.#store.limits.countSliceMs;
    while (!this.isDone) {
      await this.#stepHere();
      if (performance.now() >= end) return;
    }
  }

  note({ account, ino, bytes, inodes }: UsageEvent): void {
    if (account !== this.#account) return;
    if (inodes > 0) this.meet(ino, bytes, false);
    else if (this.#counted.has(ino)) this.#add(bytes, inodes);
    if (inodes < 0) this.#counted.delete(ino);
  }

  /** Something is ours: it was made, it was found, or it got a name where the count may have passed by. */
  meet(ino: number, bytes: number, holdsOthers: boolean): void {
    if (this.#counted.has(ino)) return;
    this.#counted.add(ino);
    this.#add(bytes, 1);
    if (holdsOthers) this.#directories.push(ino);
  }

  async #beginHere(): Promise<void> {
    this.#isBegun = true;
    const own = await this.#store.inodeHere(this.#account);
    if (own) this.meet(own.ino, own.size, true);
    for (const ino of this.#store.openFiles()) {
      const inode = this.#isOurs(ino) ? await this.#store.inodeHere(ino) : null;
      if (inode?.nlink === 0) this.meet(ino, inode.size, false);
    }
  }

  async #stepHere(): Promise<void> {
    this.#current ??= { directory: this.#directories.pop()!, after: '' };
    const { directory, after } = this.#current;
    const rows = await this.#store.driver.all(
      'SELECT d.name AS name, i.ino AS ino, i.mode AS mode, i.size AS size FROM fs_dentry d JOIN fs_inode i ' +
        'ON i.ino = d.ino WHERE d.parent_ino = ? AND d.name > ? ORDER BY d.name LIMIT ?',
      directory,
      after,
      entriesAtOnce,
    );
    for (const { ino, mode, size } of rows) this.meet(Number(ino), Number(size), isDirectory(Number(mode)));
    if (rows.length < entriesAtOnce) this.#current = null;
    else this.#current.after = String(rows.at(-1)?.name);
  }

  #add(bytes: number, inodes: number): void {
    this.usage = { bytes: this.usage.bytes + bytes, inodes: this.usage.inodes + inodes };
  }
}
