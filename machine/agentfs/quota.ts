/**
 * How much the organization and each of its conversations has, and may have: bytes (the lengths that files say, holes included)
 * and inodes (files, directories, links; a file that is deleted counts as long as it is open). Kept in memory by what each
 * operation changes; counted from the tables where memory does not know, and compared with them after a pull.
 */
import { BoundedCache } from './bounded-cache.ts';
import { breathe } from './breathe.ts';
import type { SqlRow } from './driver.ts';
import { FileError } from './errors.ts';
import { rootIno } from './ids.ts';
import { isDirectory } from './schema.ts';
import type { Store } from './store.ts';

export interface Usage {
  readonly bytes: number;
  readonly inodes: number;
}

/** Whom something counts for: the number of the conversation's directory, or 0 for the organization alone. */
export type Account = number;
const organizationAlone: Account = 0;

/** What one operation did to the tree, in its order. */
export type TreeNote =
  /** A name of `ino` in `parent` came or went: either way it tells whose `ino` is. */
  | { readonly kind: 'named'; readonly parent: number; readonly ino: number }
  | { readonly kind: 'made'; readonly ino: number; readonly bytes: number }
  | { readonly kind: 'gone'; readonly ino: number; readonly bytes: number };

export interface QuotaLimits {
  readonly organization: Usage;
  readonly conversation: Usage;
}

/** Inodes, and directory entries, that are counted at once; then others may run. */
const countStep = 10_000;
const walkStep = 1_000;
const nothing: Usage = { bytes: 0, inodes: 0 };

export class Quotas {
  readonly #store: Store;
  readonly #limits: QuotaLimits;
  #organization: Usage | null = null;
  /** Exact where it is known. */
  readonly #conversations = new BoundedCache<Account, Usage>(10_000);
  /** An inode never changes its account; a pull may bring other inodes. */
  readonly #accounts: BoundedCache<number, Account>;
  /** Open files that lost a name: when the last is gone, nothing else tells whose they are. */
  readonly #pinned = new Map<number, Account>();
  /** Open files that never had a name: the organization's alone until they get one. */
  readonly #nameless = new Set<number>();
  readonly #names = new BoundedCache<Account, string>(10_000);
  readonly #told = new Set<Account>();
  #tell: (line: string) => void = () => undefined;
  #conversationsIno = 0;

  constructor(store: Store, limits: QuotaLimits, cachedAccounts: number) {
    this.#store = store;
    this.#limits = limits;
    this.#accounts = new BoundedCache(cachedAccounts);
  }

  /** Where a line goes, once for each conversation, when its quota is used up; no path and no content is in it. */
  onUsedUp(tell: (line: string) => void): void {
    this.#tell = tell;
  }

  /** What a conversation is called in that line. */
  call(account: Account, name: string): void {
    this.#names.set(account, name);
  }

  /** Whoever knows says whose an inode is: it spares a look through the tables. */
  know(ino: number, account: Account): void {
    this.#accounts.set(ino, account);
  }

  /** Whether an operation that has changed nothing yet is within the quotas: ENOSPC, EDQUOT, EXDEV, or a call for when it has. */
  async approveHere(notes: readonly TreeNote[]): Promise<() => void> {
    const changes = new Map<Account, Usage>();
    const gone: number[] = [];
    const named = new Map<number, Account>();
    const add = (account: Account, { bytes, inodes }: Usage) => {
      const before = changes.get(account) ?? nothing;
      changes.set(account, { bytes: before.bytes + bytes, inodes: before.inodes + inodes });
    };
    const made = new Map<number, number>();
    for (const note of notes) {
      switch (note.kind) {
        case 'made':
          made.set(note.ino, note.bytes);
          break;
        case 'named': {
          const bytes = made.get(note.ino);
          const account = await this.#claimHere(note, bytes !== undefined);
          if (bytes !== undefined) add(account, { bytes, inodes: 1 });
          else if (this.#nameless.has(note.ino) && !named.has(note.ino)) {
            const { size } = (await this.#store.inodeHere(note.ino)) ?? { size: 0 };
            add(account, { bytes: size, inodes: 1 });
            add(organizationAlone, { bytes: -size, inodes: -1 });
            named.set(note.ino, account);
          }
          made.delete(note.ino);
          break;
        }
        case 'gone':
          add(named.get(note.ino) ?? this.#known(note.ino) ?? organizationAlone, { bytes: -note.bytes, inodes: -1 });
          gone.push(note.ino);
      }
    }
    for (const bytes of made.values()) add(organizationAlone, { bytes, inodes: 1 });
    for (const [account, change] of changes) await this.#requireHere(account, change, sum(changes.values()));
    return () => {
      for (const [account, change] of changes) this.#add(account, change);
      for (const ino of made.keys()) this.#nameless.add(ino);
      for (const ino of named.keys()) this.#nameless.delete(ino);
      for (const ino of gone) {
        this.#pinned.delete(ino);
        this.#nameless.delete(ino);
      }
    };
  }

  /** The same for a file that becomes `bytes` longer, or shorter. */
  async resizeHere(ino: number, bytes: number): Promise<() => void> {
    const account = await this.#accountHere(ino);
    const change = { bytes, inodes: 0 };
    await this.#requireHere(account, change, change);
    return () => this.#add(account, change);
  }

  /** A file was closed for the last time and has a name. */
  closed(ino: number): void {
    this.#pinned.delete(ino);
  }

  /** What a conversation may have, has, and may still get. */
  async allowanceHere(account: Account): Promise<{ limit: Usage; used: Usage; available: Usage }> {
    const organization = await this.#organizationHere();
    const whole = this.#limits.organization;
    const left = { bytes: whole.bytes - organization.bytes, inodes: whole.inodes - organization.inodes };
    const isAlone = account === organizationAlone;
    const limit = isAlone ? whole : this.#limits.conversation;
    const used = isAlone ? organization : await this.#conversationHere(account);
    const available = {
      bytes: Math.max(0, Math.min(limit.bytes - used.bytes, left.bytes)),
      inodes: Math.max(0, Math.min(limit.inodes - used.inodes, left.inodes)),
    };
    return { limit, used, available };
  }

  /** After a pull: where the tables agree with memory nothing came that counts, and the walks are spared. */
  async confirmHere(): Promise<void> {
    this.#accounts.clear();
    this.#conversationsIno = 0;
    const before = this.#organization;
    if (!before) return;
    this.#organization = null;
    const now = await this.#organizationHere();
    if (now.bytes !== before.bytes || now.inodes !== before.inodes) this.#conversations.clear();
  }

  /** What was counted may not have come to be. */
  lost(): void {
    this.#organization = null;
    this.#conversations.clear();
    this.#nameless.clear();
  }

  /** Whose an inode becomes or was by its name; what is one conversation's cannot become another's. */
  async #claimHere({ parent, ino }: { parent: number; ino: number }, isNew: boolean): Promise<Account> {
    const account = parent === (await this.#conversationsHere()) ? ino : await this.#accountHere(parent);
    const before = isNew || this.#nameless.has(ino) ? account : await this.#accountHere(ino);
    if (before !== account) throw new FileError('EXDEV', 'a move from one conversation to another');
    this.#accounts.set(ino, account);
    if (this.#store.isOpen(ino)) this.#pinned.set(ino, account);
    return account;
  }

  #known(ino: number): Account | undefined {
    if (this.#nameless.has(ino)) return organizationAlone;
    return this.#pinned.get(ino) ?? this.#accounts.get(ino);
  }

  async #accountHere(ino: number): Promise<Account> {
    const passed: number[] = [];
    let account: Account = organizationAlone;
    for (let at = ino; at !== rootIno; ) {
      const known = this.#known(at);
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
    for (const one of passed) this.#accounts.set(one, account);
    return account;
  }

  async #conversationsHere(): Promise<number> {
    if (this.#conversationsIno === 0) this.#conversationsIno = await this.#store.nameHere(rootIno, 'conversations');
    // 0 is nobody's parent.
    return this.#conversationsIno;
  }

  /** `change` of one account within `all` of an operation. */
  async #requireHere(account: Account, change: Usage, all: Usage): Promise<void> {
    if (change.bytes <= 0 && change.inodes <= 0) return;
    if (account !== organizationAlone) {
      const excess = exceeded(await this.#conversationHere(account), change, this.#limits.conversation);
      if (excess) throw this.#usedUp(account, 'EDQUOT', excess);
    }
    const excess = exceeded(await this.#organizationHere(), all, this.#limits.organization);
    if (excess) throw this.#usedUp(account, 'ENOSPC', excess);
  }

  #usedUp(account: Account, errno: 'EDQUOT' | 'ENOSPC', excess: keyof Usage): FileError {
    const ofConversation = errno === 'EDQUOT';
    const limit = (ofConversation ? this.#limits.conversation : this.#limits.organization)[excess];
    const what = `${limit} ${excess === 'bytes' ? 'bytes' : 'files and directories'}`;
    const setting = `EDGE_${ofConversation ? 'CONVERSATION' : 'ORGANIZATION'}_${excess === 'bytes' ? 'BYTES' : 'FILES'}`;
    const whose = ofConversation ? 'its' : "the organization's";
    if (!this.#told.has(account)) {
      if (this.#told.size >= 10_000) this.#told.clear();
      this.#told.add(account);
      const who =
        account === organizationAlone ? 'the organization' : `conversation ${this.#names.get(account) ?? account}`;
      this.#tell(`agentfs: ${who}: ${whose} quota of ${what} is used up (${errno}); ${setting} sets it`);
    }
    return new FileError(errno, `${whose} quota of ${what} is used up`);
  }

  #add(account: Account, { bytes, inodes }: Usage): void {
    if (this.#organization) {
      this.#organization = { bytes: this.#organization.bytes + bytes, inodes: this.#organization.inodes + inodes };
    }
    const known = this.#conversations.get(account);
    if (known) this.#conversations.set(account, { bytes: known.bytes + bytes, inodes: known.inodes + inodes });
  }

  async #organizationHere(): Promise<Usage> {
    this.#organization ??= await this.#countAllHere();
    return this.#organization;
  }

  async #conversationHere(account: Account): Promise<Usage> {
    const known = this.#conversations.get(account);
    if (known) return known;
    const usage = await this.#walkHere(account);
    this.#conversations.set(account, usage);
    return usage;
  }

  async #countAllHere(): Promise<Usage> {
    const { driver } = this.#store;
    let [bytes, inodes] = [0, 0];
    for (let last = 0; ; ) {
      const row = await driver.get(
        'SELECT count(*) AS n, sum(nlink > 0) AS inodes, total(CASE WHEN nlink > 0 THEN size ELSE 0 END) AS bytes, ' +
          'max(ino) AS last FROM (SELECT ino, nlink, size FROM fs_inode WHERE ino > ? ORDER BY ino LIMIT ?)',
        last,
        countStep,
      );
      inodes += Number(row?.inodes ?? 0);
      bytes += Number(row?.bytes);
      if (Number(row?.n) < countStep) break;
      last = Number(row?.last);
      await breathe();
    }
    const nameless = await this.#namelessHere(() => true);
    return { bytes: bytes + nameless.bytes, inodes: inodes + nameless.inodes };
  }

  async #walkHere(account: Account): Promise<Usage> {
    const own = await this.#store.inodeHere(account);
    const nameless = await this.#namelessHere((ino) => this.#pinned.get(ino) === account);
    let [bytes, inodes] = own ? [nameless.bytes + own.size, nameless.inodes + 1] : [nameless.bytes, nameless.inodes];
    const linked = new Set<number>();
    const directories = [account];
    for (let directory = directories.pop(); directory !== undefined; directory = directories.pop()) {
      for await (const { ino, mode, nlink, size } of this.#entries(directory)) {
        if (isDirectory(Number(mode))) directories.push(Number(ino));
        else if (Number(nlink) > 1) {
          if (linked.has(Number(ino))) continue;
          linked.add(Number(ino));
        }
        bytes += Number(size);
        inodes += 1;
      }
    }
    return { bytes, inodes };
  }

  async *#entries(directory: number): AsyncGenerator<SqlRow> {
    for (let after = ''; ; ) {
      const rows = await this.#store.driver.all(
        'SELECT d.name AS name, i.ino AS ino, i.mode AS mode, i.nlink AS nlink, i.size AS size ' +
          'FROM fs_dentry d JOIN fs_inode i ON i.ino = d.ino WHERE d.parent_ino = ? AND d.name > ? ORDER BY d.name LIMIT ?',
        directory,
        after,
        walkStep,
      );
      yield* rows;
      if (rows.length < walkStep) return;
      after = String(rows.at(-1)?.name);
      await breathe();
    }
  }

  /** Open files that have no name any more. */
  async #namelessHere(counts: (ino: number) => boolean): Promise<Usage> {
    let [bytes, inodes] = [0, 0];
    for (const ino of this.#store.openFiles()) {
      const inode = counts(ino) ? await this.#store.inodeHere(ino) : null;
      if (!inode || inode.nlink > 0) continue;
      bytes += inode.size;
      inodes += 1;
    }
    return { bytes, inodes };
  }
}

function sum(usages: Iterable<Usage>): Usage {
  let [bytes, inodes] = [0, 0];
  for (const usage of usages) {
    bytes += usage.bytes;
    inodes += usage.inodes;
  }
  return { bytes, inodes };
}

/** Which limit would be passed; what does not grow is within its limit, whatever it has. */
function exceeded(used: Usage, change: Usage, limit: Usage): keyof Usage | null {
  if (change.bytes > 0 && used.bytes + change.bytes > limit.bytes) return 'bytes';
  return change.inodes > 0 && used.inodes + change.inodes > limit.inodes ? 'inodes' : null;
}
