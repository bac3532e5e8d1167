/**
 * How much the organization and each of its conversations has, and may have: bytes (the lengths that files say, holes included)
 * and inodes (files, directories, links; a file that is deleted counts as long as it is open). Kept in memory by what each
 * operation changes, and counted where memory does not know; a pull may bring what others made, so behind one it is counted
 * anew.
 */
import { type Account, Accounts, organizationAlone } from './accounts.ts';
import { BoundedCache } from './bounded-cache.ts';
import { breathe } from './breathe.ts';
import { FileError } from './errors.ts';
import { isDirectory } from './schema.ts';
import type { Store } from './store.ts';
import { ConversationCount, nothing, OrganizationCount, type Usage, type UsageEvent } from './usage.ts';

/** What one operation did to the tree, in its order. */
export type TreeNote =
  /** A name of `ino` in `parent` came, or `isThere` until now: either way it tells whose `ino` is. */
  | { readonly kind: 'named'; readonly parent: number; readonly ino: number; readonly isThere?: true }
  | { readonly kind: 'made'; readonly ino: number; readonly bytes: number }
  | { readonly kind: 'gone'; readonly ino: number; readonly bytes: number };

export interface QuotaLimits {
  readonly organization: Usage;
  readonly conversation: Usage;
}

/** Whether there is room cannot be said before something is counted, which nobody must be kept out for. */
class Uncounted extends Error {
  readonly account: Account;

  constructor(account: Account) {
    super(`what ${account} uses is not known`);
    this.account = account;
  }
}

/** An existing inode got or lost a name: a count that is under way may have passed by its place. */
interface Met {
  readonly account: Account;
  readonly ino: number;
  readonly bytes: number;
  readonly holdsOthers: boolean;
}

export class Quotas {
  readonly accounts: Accounts;
  readonly #store: Store;
  readonly #limits: QuotaLimits;
  #organization: Usage | null = null;
  /** Whether what others made is in it too. */
  #isConfirmed = false;
  readonly #conversations = new BoundedCache<Account, Usage>(10_000);
  #organizationCount: OrganizationCount | null = null;
  #organizationRun: Promise<void> | null = null;
  readonly #counts = new Map<Account, ConversationCount>();
  readonly #runs = new Map<Account, Promise<void>>();
  readonly #names = new BoundedCache<Account, string>(10_000);
  readonly #told = new Set<Account>();
  #tell: (line: string) => void = () => undefined;
  #isStopped = false;

  /** Remembers whose `cachedAccounts` inodes are. */
  constructor(store: Store, limits: QuotaLimits, cachedAccounts: number) {
    this.#store = store;
    this.#limits = limits;
    this.accounts = new Accounts(store, cachedAccounts);
  }

  /** Where a line goes, once for each conversation, when its quota is used up; no path and no content is in it. */
  onUsedUp(tell: (line: string) => void): void {
    this.#tell = tell;
  }

  /** What a conversation is called in that line. */
  call(account: Account, name: string): void {
    this.#names.set(account, name);
  }

  /** Runs what may grow something, and runs it again when something had to be counted first. Not for who runs exclusively. */
  async counted<Result>(work: () => Promise<Result>): Promise<Result> {
    for (;;) {
      try {
        return await work();
      } catch (error) {
        if (!(error instanceof Uncounted)) throw error;
        await this.#count(error.account);
      }
    }
  }

  /** Whether an operation that has changed nothing yet is within the quotas: ENOSPC, EDQUOT, EXDEV, or a call for when it has. */
  async approveHere(notes: readonly TreeNote[]): Promise<() => void> {
    const events: UsageEvent[] = [];
    const met: Met[] = [];
    const gone: number[] = [];
    const named = new Map<number, Account>();
    const made = new Map<number, number>();
    for (const note of notes) {
      const { ino } = note;
      if (note.kind === 'made') made.set(ino, note.bytes);
      else if (note.kind === 'gone') {
        const account = named.get(ino) ?? this.accounts.known(ino) ?? organizationAlone;
        events.push({ account, ino, bytes: -note.bytes, inodes: -1 });
        gone.push(ino);
      } else {
        const bytes = made.get(ino);
        made.delete(ino);
        const account = await this.accounts.claimHere(note.parent, ino, bytes !== undefined || note.isThere === true);
        if (bytes !== undefined) events.push({ account, ino, bytes, inodes: 1 });
        else if (this.accounts.isNameless(ino) && !named.has(ino)) {
          const { size } = (await this.#store.inodeHere(ino)) ?? { size: 0 };
          events.push(
            { account: organizationAlone, ino, bytes: -size, inodes: -1 },
            { account, ino, bytes: size, inodes: 1 },
          );
          named.set(ino, account);
        } else if (this.#counts.has(account)) {
          const inode = await this.#store.inodeHere(ino);
          if (inode) met.push({ account, ino, bytes: inode.size, holdsOthers: isDirectory(inode.mode) });
        }
      }
    }
    for (const [ino, bytes] of made) events.push({ account: organizationAlone, ino, bytes, inodes: 1 });
    this.#requireRoom(events);
    return () => {
      for (const { account, ino, bytes, holdsOthers } of met) this.#counts.get(account)?.meet(ino, bytes, holdsOthers);
      for (const event of events) this.#note(event);
      for (const ino of made.keys()) this.accounts.made(ino);
      for (const ino of named.keys()) this.accounts.named(ino);
      for (const ino of gone) this.accounts.gone(ino);
    };
  }

  /** The same for a file that becomes `bytes` longer, or shorter. */
  async resizeHere(ino: number, bytes: number): Promise<() => void> {
    if (bytes === 0) return () => undefined;
    const event = { account: await this.accounts.ofHere(ino), ino, bytes, inodes: 0 } as const;
    this.#requireRoom([event]);
    return () => this.#note(event);
  }

  /** What a conversation may have, has, and may still get. Not for who runs exclusively. */
  async allowance(account: Account): Promise<{ limit: Usage; used: Usage; available: Usage }> {
    for (;;) {
      await this.#count(account);
      const all = this.#organization;
      const used = account === organizationAlone ? all : this.#conversations.get(account);
      if (!all || !used) continue;
      const limit = account === organizationAlone ? this.#limits.organization : this.#limits.conversation;
      const left = (kind: keyof Usage) =>
        Math.min(limit[kind] - used[kind], this.#limits.organization[kind] - all[kind]);
      return { limit, used, available: { bytes: Math.max(0, left('bytes')), inodes: Math.max(0, left('inodes')) } };
    }
  }

  /** A pull may have brought what counts. */
  forget(): void {
    this.accounts.forget();
    this.#isConfirmed = false;
    this.#organizationCount = null;
    this.#counts.clear();
  }

  /** What was counted may not have come to be. */
  lost(): void {
    this.forget();
    this.#organization = null;
    this.#conversations.clear();
  }

  stop(): void {
    this.#isStopped = true;
  }

  #requireRoom(events: readonly UsageEvent[]): void {
    const changes = new Map<Account, Usage>();
    let all = nothing;
    for (const event of events) {
      changes.set(event.account, plus(changes.get(event.account) ?? nothing, event));
      all = plus(all, event);
    }
    for (const [account, change] of changes) {
      if (change.bytes > 0 || change.inodes > 0) this.#requireRoomOf(account, change, all);
    }
  }

  /** `change` of one account within `all` of an operation. */
  #requireRoomOf(account: Account, change: Usage, all: Usage): void {
    if (!this.#organization) throw new Uncounted(account);
    const { organization, conversation } = this.#limits;
    const isAlone = account === organizationAlone;
    const own = isAlone ? undefined : this.#conversations.get(account);
    // A conversation has no more than all have: mostly that is little enough, and its own need not be counted.
    const most = own ?? this.#organization;
    if (!this.#isConfirmed) {
      const isClose = exceeded(most, change, nearly(isAlone ? organization : conversation)) !== null;
      if (isClose || exceeded(this.#organization, all, nearly(organization))) throw new Uncounted(account);
      this.#confirmLater();
    }
    const excess = isAlone ? null : exceeded(most, change, conversation);
    if (excess && !own) throw new Uncounted(account);
    if (excess) throw this.#usedUp(account, 'EDQUOT', excess);
    const excessOfAll = exceeded(this.#organization, all, organization);
    if (excessOfAll) throw this.#usedUp(account, 'ENOSPC', excessOfAll);
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

  #note(event: UsageEvent): void {
    if (this.#organization) this.#organization = plus(this.#organization, event);
    const known = this.#conversations.get(event.account);
    if (known) this.#conversations.set(event.account, plus(known, event));
    this.#organizationCount?.note(event);
    this.#counts.get(event.account)?.note(event);
  }

  async #count(account: Account): Promise<void> {
    if (!this.#organization || !this.#isConfirmed) await this.#runOnceForAll();
    if (account === organizationAlone || this.#conversations.get(account)) return;
    const run = this.#runs.get(account) ?? this.#countConversation(account).finally(() => this.#runs.delete(account));
    this.#runs.set(account, run);
    await run;
  }

  #runOnceForAll(): Promise<void> {
    this.#organizationRun ??= this.#countOrganization().finally(() => {
      this.#organizationRun = null;
    });
    return this.#organizationRun;
  }

  #confirmLater(): void {
    if (this.#organizationRun) return;
    this.#runOnceForAll().catch((error: unknown) => {
      // Whoever needs it exactly counts again and gets the failure.
      if (!this.#isStopped) console.error(`agentfs: usage was not counted: ${error}`);
    });
  }

  /** A pull in between makes it begin anew. */
  async #countOrganization(): Promise<void> {
    while (!this.#organization || !this.#isConfirmed) {
      this.#requireRunning();
      await this.#store.exclusive(async () => {
        this.#organizationCount ??= new OrganizationCount(this.#store);
        await this.#organizationCount.sliceHere();
        if (this.#organizationCount.isDone) this.#confirm(this.#organizationCount.usage);
      });
      await breathe();
    }
  }

  #confirm(usage: Usage): void {
    const before = this.#organization;
    // Where nothing came that counts, no conversation has changed either.
    if (before && (before.bytes !== usage.bytes || before.inodes !== usage.inodes)) this.#conversations.clear();
    this.#organization = usage;
    this.#isConfirmed = true;
    this.#organizationCount = null;
  }

  async #countConversation(account: Account): Promise<void> {
    while (!this.#conversations.get(account)) {
      this.#requireRunning();
      await this.#store.exclusive(async () => {
        const count =
          this.#counts.get(account) ??
          new ConversationCount(this.#store, account, (ino) => this.accounts.isPinned(ino, account));
        this.#counts.set(account, count);
        await count.sliceHere();
        if (!count.isDone) return;
        this.#conversations.set(account, count.usage);
        this.#counts.delete(account);
      });
      await breathe();
    }
  }

  #requireRunning(): void {
    if (this.#isStopped) throw new FileError('EIO', 'the files are being closed');
  }
}

const plus = (usage: Usage, change: Usage): Usage => ({
  bytes: usage.bytes + change.bytes,
  inodes: usage.inodes + change.inodes,
});

/** What others made since the last count is not in sight: this far from a limit it does not matter. */
const nearly = ({ bytes, inodes }: Usage): Usage => ({ bytes: bytes - bytes / 16, inodes: inodes - inodes / 16 });

/** Which limit would be passed; what does not grow is within its limit, whatever it has. */
function exceeded(used: Usage, change: Usage, limit: Usage): keyof Usage | null {
  if (change.bytes > 0 && used.bytes + change.bytes > limit.bytes) return 'bytes';
  return change.inodes > 0 && used.inodes + change.inodes > limit.inodes ? 'inodes' : null;
}
