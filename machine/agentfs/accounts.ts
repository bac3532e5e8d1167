/**
 * Whose an inode is: a conversation's, or the organization's alone. It is found by its way up to `/conversations`, and
 * remembered; an inode never changes its account.
 */
import { BoundedCache } from './bounded-cache.ts';
import { FileError } from './errors.ts';
import { rootIno } from './ids.ts';
import type { Store } from './store.ts';

/** The number of the conversation's directory, or 0 for the organization alone. */
export type Account = number;
export const organizationAlone: Account = 0;

export class Accounts {
  readonly #store: Store;
  readonly #known: BoundedCache<number, Account>;
  /** Open files that lost a name: when the last is gone, nothing else tells whose they are. */
  readonly #pinned = new Map<number, Account>();
  /** Open files that never had a name: the organization's alone until they get one. */
  readonly #nameless = new Set<number>();
  #conversations = 0;

  /** Remembers `size` inodes' accounts. */
  constructor(store: Store, size: number) {
    this.#store = store;
    this.#known = new BoundedCache(size);
  }

  /** Whoever knows says whose an inode is: it spares a look through the tables. */
  know(ino: number, account: Account): void {
    this.#known.set(ino, account);
  }

  /** Without a look: of what is going, whoever took its name has looked. */
  known(ino: number): Account | undefined {
    if (this.#nameless.has(ino)) return organizationAlone;
    return this.#pinned.get(ino) ?? this.#known.get(ino);
  }

  isNameless(ino: number): boolean {
    return this.#nameless.has(ino);
  }

  isPinned(ino: number, account: Account): boolean {
    return this.#pinned.get(ino) === account;
  }

  /** By the inode's way up. For whoever runs exclusively. */
  async ofHere(ino: number): Promise<Account> {
    const passed: number[] = [];
    let account: Account = organizationAlone;
    for (let at = ino; at !== rootIno; ) {
      const known = this.known(at);
      if (known !== undefined) {
        account = known;
        break;
      }
      passed.push(at);
      const parent = await this.#store.parentHere(at);
      // No name leads here: nothing is remembered, for one may come.
      if (parent === 0) return organizationAlone;
      if (parent === (await this.#conversationsHere())) {
        account = at;
        break;
      }
      at = parent;
    }
    for (const one of passed) this.#known.set(one, account);
    return account;
  }

  /**
   * Whose an inode becomes or was by a name; `isClear` when nobody else can have it. EXDEV: what is one conversation's cannot
   * become another's.
   */
  async claimHere(parent: number, ino: number, isClear: boolean): Promise<Account> {
    const account = parent === (await this.#conversationsHere()) ? ino : await this.ofHere(parent);
    const before = isClear || this.#nameless.has(ino) ? account : await this.ofHere(ino);
    if (before !== account) throw new FileError('EXDEV', 'a move from one conversation to another');
    this.#known.set(ino, account);
    if (this.#store.isOpen(ino) && !this.#nameless.has(ino)) this.#pinned.set(ino, account);
    return account;
  }

  made(ino: number): void {
    this.#nameless.add(ino);
  }

  named(ino: number): void {
    this.#nameless.delete(ino);
  }

  gone(ino: number): void {
    this.#pinned.delete(ino);
    this.#nameless.delete(ino);
  }

  /** A file was closed for the last time and has a name. */
  closed(ino: number): void {
    this.#pinned.delete(ino);
  }

  /** A pull may have brought other inodes. */
  forget(): void {
    this.#known.clear();
    this.#conversations = 0;
  }

  async #conversationsHere(): Promise<number> {
    if (this.#conversations === 0) this.#conversations = await this.#store.nameHere(rootIno, 'conversations');
    // 0 is nobody's parent.
    return this.#conversations;
  }
}
