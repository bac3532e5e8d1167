/**
 * Work boundaries: when the organization's replica speaks with its cloud (ADR-046 §5). A turn's first touch of something
 * shared waits for one plain `pull()`; its end pulls and pushes if something is pending. Otherwise there is no request.
 */
import type { Database } from '@tursodatabase/sync';
import { exposedBase } from './agentfs/base.ts';
import type { CloudSql } from './agentfs/cloud.ts';
import { OrganizationFiles } from './agentfs/files.ts';
import { renumberForeignNames } from './agentfs/foreign-names.ts';
import { HranaDatabase } from './agentfs/hrana.ts';
import { Ledger } from './agentfs/ledger.ts';
import { defaultLimits, type StoreLimits } from './agentfs/limits.ts';
import { hasOverlayTables } from './agentfs/overlay.ts';
import { isWhole, removeAbandoned, repairHere } from './agentfs/repair.ts';
import type { FilesState, Launch } from './launch.ts';
import { defaultSilenceMs, type EngineTurns, openReplica } from './replica.ts';
import { atMost } from './waits.ts';

export type SyncState =
  /** Everything is in the cloud. */
  | { readonly state: 'clean' }
  /** Local changes wait for the end of a work boundary. */
  | { readonly state: 'pending' }
  /** The cloud could not be reached or refused; local changes are kept, and the next boundary tries again. */
  | { readonly state: 'failing'; readonly reason: string };

/** What of a sync-enabled database the boundary uses. */
export type SyncDatabase = Pick<Database, 'pull' | 'push' | 'checkpoint' | 'stats' | 'close'>;

/** A write-ahead log beyond this is folded into the database at the end of a boundary, and when a machine begins. */
const checkpointBytes = 64 * 1024 ** 2;

/**
 * Contents that are brought into the database and the cloud in one step of a boundary's end. A pull of another conversation
 * waits for one step, and what it replays over the cloud's changes is one transaction: so little must be unpushed. And the engine
 * makes the request of a push in one go, 40 ms a MB: in that time nothing else of the machine runs.
 */
const bytesOfStep = 192 * 1024;

/** How long a first touch waits for its pull; then the turn goes on with what is here. */
const touchLimitMs = 20_000;

type Work = { readonly begunAt: number; touched: 'no' | Promise<void> | 'yes' };
type Pull = { startedAt: number; readonly done: Promise<boolean> };
/** Why what a kernel remembers may be stale: a turn begins, or a pull brought something. */
export type Staleness = 'begun' | 'pulled';

/** A conversation's side of the boundaries. */
export interface ConversationBoundary {
  /** Null when something shared may be touched now; otherwise a wait that never fails and always ends. */
  touch(): Promise<void> | null;
  /** Calls back when what a kernel remembers may be stale; returns the call that ends this. */
  onStale(listener: (why: Staleness) => void): () => void;
  /** Calls back, and waits, before what is here is taken for all that was written; the listener is bounded and never fails. */
  onFlush(listener: () => Promise<void>): () => void;
}

/** What can wait for a push: rows of the ledger alone are no reason for a request when a turn ends. */
type Scope = 'files' | 'files and ledger';

export class WorkBoundary {
  readonly #files: OrganizationFiles;
  readonly #ledger: Ledger;
  readonly #database: SyncDatabase;
  readonly #engine: EngineTurns;
  readonly #cloud: CloudSql;
  readonly #onUnusable: () => void;
  readonly #log: (text: string) => void;
  readonly #works = new Map<string, Work>();
  readonly #listeners = new Map<string, Set<(why: Staleness) => void>>();
  readonly #flushes = new Set<() => Promise<void>>();
  #clock = 0;
  /** Pulls and boundaries' ends, one after the other. */
  #tail: Promise<unknown> = Promise.resolve();
  #waiting: Pull | null = null;
  #running: Pull | null = null;
  /** When the last successful pull had begun. */
  #pulledAt = 0;
  /**
   * Whether this replica has changed something since it was last seen to be whole, so that a pull may bring what does not go
   * together with that; and whether one has.
   */
  #isMet = true;
  #isUnchecked = false;
  #ending: Promise<SyncState> | null = null;
  #settling: Promise<SyncState> | null = null;
  #state: SyncState = { state: 'clean' };
  #filesState: FilesState = { trouble: null, pending: false };
  #onFilesState: (state: FilesState) => void = () => undefined;

  constructor(
    parts: Omit<OpenedFiles, 'boundary'> & {
      readonly database: SyncDatabase;
      readonly engine: EngineTurns;
      readonly cloud: CloudSql;
      readonly onUnusable: () => void;
    },
    log: (text: string) => void,
  ) {
    this.#files = parts.files;
    this.#ledger = parts.ledger;
    this.#database = parts.database;
    this.#engine = parts.engine;
    this.#cloud = parts.cloud;
    this.#onUnusable = parts.onUnusable;
    this.#log = log;
    this.#files.data.onPressing(() => this.#relieve());
  }

  /** As of the last boundary. */
  get state(): SyncState {
    return this.#state;
  }

  /** Looks what a former machine left unpushed, and calls back with that now and with every change of it. */
  async onFilesState(listener: (state: FilesState) => void): Promise<void> {
    this.#filesState = { trouble: null, pending: await this.#isPending() };
    this.#onFilesState = listener;
    listener(this.#filesState);
  }

  /** Opens a boundary: at attach. Makes no request; kernels ask again for what they remember of this conversation. */
  begin(conversation: string): void {
    this.#works.set(conversation, { begunAt: ++this.#clock, touched: 'no' });
    for (const listener of this.#listeners.get(conversation) ?? []) listener('begun');
  }

  /**
   * To be awaited before something shared is touched. At most one pull a boundary; a pull that another conversation began
   * since this boundary did serves both. Outside of a boundary nothing is pulled.
   */
  firstTouch(conversation: string): Promise<void> | null {
    const work = this.#works.get(conversation);
    if (!work || work.touched === 'yes') return null;
    if (work.touched !== 'no') return work.touched;
    if (this.#pulledAt > work.begunAt) {
      work.touched = 'yes';
      return null;
    }
    const pull = this.#running && this.#running.startedAt > work.begunAt ? this.#running : this.#pull();
    // A pull that failed or takes too long is not tried again in this turn: it goes on with what is here.
    work.touched = atMost(touchLimitMs, pull.done).then(() => {
      work.touched = 'yes';
    });
    return work.touched;
  }

  /** One plain pull now, for somebody who has changed the cloud and wants it seen here. Never fails; false when it did. */
  refresh(): Promise<boolean> {
    return this.#pull().done;
  }

  /** What a mount of this conversation needs. */
  of(conversation: string): ConversationBoundary {
    return {
      touch: () => this.firstTouch(conversation),
      onStale: (listener) => {
        const listeners = this.#listeners.get(conversation) ?? new Set();
        listeners.add(listener);
        this.#listeners.set(conversation, listeners);
        return () => {
          listeners.delete(listener);
          if (listeners.size === 0) this.#listeners.delete(conversation);
        };
      },
      onFlush: (listener) => {
        this.#flushes.add(listener);
        return () => this.#flushes.delete(listener);
      },
    };
  }

  /**
   * Closes a boundary: at detach, at a holder's exit and at its eviction. Never fails; no changed file, no request: rows of
   * the ledger go with the next push.
   */
  end(conversation: string): Promise<SyncState> {
    this.#works.delete(conversation);
    // One that has not begun yet will see this conversation's changes too.
    this.#ending ??= this.#synchronizeInTurn('files', () => {
      this.#ending = null;
    });
    return this.#ending;
  }

  /**
   * Brings everything that was changed or recorded before this call into the cloud: at a holder's end, and when somebody
   * wants to read there. Never fails; nothing pending, no request. Callers at once share one that begins after their calls.
   */
  settle(): Promise<SyncState> {
    this.#settling ??= this.#synchronizeInTurn('files and ledger', () => {
      this.#settling = null;
    });
    return this.#settling;
  }

  /** The last boundary, and the end of the replica. */
  async close(): Promise<SyncState> {
    this.#files.data.stop();
    const state = await this.settle();
    await this.#files.store.exclusive(async () => {
      await this.#files.store.forget();
      await this.#database.close();
    });
    await this.#files.close();
    return state;
  }

  /** Step by step: another conversation's pull comes between two of them. */
  async #synchronizeInTurn(scope: Scope, onBegin: () => void): Promise<SyncState> {
    try {
      await this.#inTurn(async () => onBegin());
      // Kernels may still have what programs wrote into mapped files. Nobody's turn: they write it now, and may wait for room.
      await Promise.all([...this.#flushes].map((flush) => flush()));
      const mark = await this.#files.data.mark();
      for (let isFirst = true; ; isFirst = false) {
        const { isLast, state } = await this.#inTurn(() => this.#step(scope, mark, isFirst));
        if (!isLast) continue;
        this.#state = state;
        this.#note({ pending: state.state !== 'clean' });
        return state;
      }
    } catch (error) {
      this.#fail('the work boundary failed', error);
      this.#note({ pending: await this.#isPending() });
      return this.#state;
    }
  }

  async #step(scope: Scope, mark: number, isFirst: boolean): Promise<{ isLast: boolean; state: SyncState }> {
    const { store, data } = this.#files;
    const isLast = await data.settleUpTo(mark, bytesOfStep);
    await store.exclusive(() => this.#ledger.writeHere());
    await store.sync();
    if (this.#isUnchecked) await this.#repair();
    if (!(await store.exclusive(() => this.#pendingHere(scope)))) return { isLast, state: { state: 'clean' } };
    this.#isMet = true;
    await this.#pullAndPush(isFirst);
    return store.exclusive(async () => {
      await store.commitHere();
      await foldLog(this.#database);
      return { isLast, state: (await this.#pendingHere(scope)) ? { state: 'pending' } : { state: 'clean' } };
    });
  }

  /** The spool is half full: what is in it goes where it would go at the boundary's end, or at least into the database. */
  async #relieve(): Promise<void> {
    const { state } = await this.settle();
    if (state === 'failing') await this.#files.data.settle();
  }

  async #pullAndPush(isFirst: boolean): Promise<void> {
    try {
      if (isFirst) await this.#pullNow();
      if (this.#isUnchecked) await this.#repair();
      await this.#alone(() => this.#database.push());
      this.#note({ trouble: null });
    } catch (error) {
      if (!isConflict(error)) throw error;
      await this.#recover(error);
    }
  }

  /**
   * A local name and one of the cloud have different row ids: another program wrote there. In the cloud it gets the id that is
   * ours, and then the two merge. The engine cannot go on with the database in which a pull has met this, and neither can this
   * process: what is on disk is as it was before that pull.
   */
  async #recover(cause: unknown): Promise<void> {
    this.#log(`agentfs: recovering from a conflict of names: ${reasonOf(cause)}`);
    const count = await renumberForeignNames(this.#cloud);
    this.#log(`agentfs: ${count} names of another program in the cloud have other row ids now`);
    const isUsable = await this.#files.store
      .exclusive(() => this.#files.store.driver.get('SELECT count(*) AS n FROM fs_dentry'))
      .then(
        () => true,
        () => false,
      );
    if (!isUsable) {
      this.#onUnusable();
      throw new Error('the replica must be opened anew by another process');
    }
    await this.#pullNow();
    if (this.#isUnchecked) await this.#repair();
    await this.#alone(() => this.#database.push());
    this.#note({ trouble: null });
  }

  async #repair(): Promise<void> {
    const { store, data } = this.#files;
    if (await isWhole(store)) {
      this.#isUnchecked = false;
      this.#isMet = false;
      return;
    }
    const done = await store.exclusive(async () => {
      await store.forget();
      const repairs = await repairHere(store);
      data.forgetRead();
      await store.forget();
      return repairs;
    });
    this.#isUnchecked = false;
    this.#isMet = false;
    const { found, remade, unnamed, recounted, emptied } = done;
    if (found + remade + unnamed + recounted + emptied === 0) return;
    this.#log(
      `agentfs: repaired after a merge: ${found} files and directories have a name again, ${remade} directories are there ` +
        `again, ${unnamed} names of nothing are gone, ${recounted} counts of links are right, contents of ${emptied} removed files are gone`,
    );
    this.#tellStale();
  }

  #tellStale(): void {
    for (const listeners of this.#listeners.values()) for (const listener of listeners) listener('pulled');
  }

  /** Whether local changes wait for a push. */
  async #pendingHere(scope: Scope): Promise<boolean> {
    const { cdcOperations } = await this.#database.stats();
    if (cdcOperations === 0) return false;
    const row = await this.#files.store.driver.get(
      'SELECT count(*) AS n FROM (SELECT change_type, table_name FROM turso_cdc ORDER BY change_id DESC LIMIT ?) ' +
        "WHERE change_type <> 2 AND table_name <> 'turso_sync_last_change_id' AND table_name <> ?",
      cdcOperations,
      scope === 'files' ? 'tool_calls' : '',
    );
    return Number(row?.n) > 0;
  }

  #pull(): Pull {
    if (this.#waiting) return this.#waiting;
    const { promise: done, resolve } = Promise.withResolvers<boolean>();
    const pull: Pull = { startedAt: Number.POSITIVE_INFINITY, done };
    this.#waiting = pull;
    void this.#inTurn(async () => {
      this.#waiting = null;
      this.#running = pull;
      pull.startedAt = ++this.#clock;
      try {
        await this.#pullNow();
        this.#pulledAt = pull.startedAt;
        if (this.#state.state === 'failing') this.#state = { state: 'pending' };
        this.#note({ trouble: null });
        resolve(true);
      } catch (error) {
        this.#fail('pull failed', error);
        if (isConflict(error)) await this.#recover(error).catch((failed: unknown) => this.#fail('no recovery', failed));
        resolve(false);
      } finally {
        this.#running = null;
      }
    });
    return pull;
  }

  /** True when something came. */
  async #pullNow(): Promise<boolean> {
    const changed = await this.#alone(async () => {
      const changed = await this.#database.pull();
      if (changed) {
        this.#files.data.forgetRead();
        await this.#files.store.forget();
      }
      return changed;
    });
    if (changed) {
      this.#isUnchecked ||= this.#isMet;
      this.#tellStale();
    }
    return changed;
  }

  /** The engine's work: alone with the database, and aside while the network is waited for. */
  #alone<Result>(work: () => Promise<Result>): Promise<Result> {
    const { store, data } = this.#files;
    // What is unwritten would be written over what a pull brings, and by rows that may be gone then.
    return this.#engine.run(
      () => store.acquire(),
      () => data.commitBeforePullHere(),
      work,
    );
  }

  #inTurn<Result>(work: () => Promise<Result>): Promise<Result> {
    const result = this.#tail.then(work);
    // The chain goes on after a failure; whoever asked gets the failure.
    this.#tail = result.catch(() => undefined);
    return result;
  }

  #fail(what: string, error: unknown): void {
    this.#state = { state: 'failing', reason: reasonOf(error) };
    this.#log(`agentfs: ${what}: ${this.#state.reason}`);
    this.#note({ trouble: this.#state.reason.slice(0, 1000) });
  }

  /** Whether changed files wait for a push; also when that cannot be told. Never rejects. */
  async #isPending(): Promise<boolean> {
    try {
      return await this.#files.store.exclusive(() => this.#pendingHere('files'));
    } catch (error) {
      this.#log(`agentfs: what is pending cannot be read: ${reasonOf(error)}`);
      return true;
    }
  }

  #note(change: Partial<FilesState>): void {
    const state = { ...this.#filesState, ...change };
    if (state.trouble === this.#filesState.trouble && state.pending === this.#filesState.pending) return;
    this.#filesState = state;
    this.#onFilesState(state);
  }
}

export interface OpenOptions {
  readonly limits?: StoreLimits;
  /** Milliseconds that the cloud may send or take nothing. */
  readonly silenceMs?: number;
  readonly log?: (text: string) => void;
  readonly onUnusable?: () => void;
}

export interface OpenedFiles {
  readonly files: OrganizationFiles;
  readonly ledger: Ledger;
  readonly boundary: WorkBoundary;
}

/**
 * Opens the organization's files, once in a machine's life. Throws with the reason when a new replica cannot be filled from
 * the cloud, or when the cloud's database has no AgentFS in it. `onUnusable` is called when only another process can go on with
 * the replica; what it has is durable as far as it was synced, and the next one finds it.
 */
export async function openOrganizationFiles(
  launch: Pick<Launch, 'agentfs' | 'replicaDirectory'>,
  options: OpenOptions = {},
): Promise<OpenedFiles> {
  const log = options.log ?? console.error;
  const { database, driver, engine } = await openReplica(launch.agentfs, launch.replicaDirectory, {
    silenceMs: options.silenceMs ?? defaultSilenceMs,
    organizationBytes: (options.limits ?? defaultLimits).organization.bytes,
  });
  const hasConfig = () => driver.get("SELECT 1 AS one FROM sqlite_schema WHERE name = 'fs_config'");
  // A replica that is older than the overlay gets its tables from the cloud, where the gateway has made them.
  const hasSchema = async () => (await hasConfig()) && (await hasOverlayTables(driver));
  if (!(await hasSchema())) await database.pull();
  if (!(await hasSchema())) {
    await database.close();
    throw new Error('the organization has no AgentFS yet: its cloud database has not been provisioned');
  }
  // Machines that are killed one after the other come to no boundary's end, and each adds to the log what it pulls.
  await foldLog(database);
  const files = await OrganizationFiles.open(driver, options.limits ?? defaultLimits, exposedBase);
  files.store.quotas.onUsedUp(log);
  const removed = await removeAbandoned(files.store, files.data);
  if (removed > 0) log(`agentfs: removed ${removed} abandoned files`);
  const ledger = new Ledger(files, log);
  const cloud = new HranaDatabase(launch.agentfs);
  const onUnusable = options.onUnusable ?? (() => undefined);
  return { files, ledger, boundary: new WorkBoundary({ files, ledger, database, engine, cloud, onUnusable }, log) };
}

async function foldLog(database: SyncDatabase): Promise<void> {
  if ((await database.stats()).mainWalSize > checkpointBytes) await database.checkpoint();
}

const isConflict = (error: unknown): boolean => /UNIQUE|constraint/i.test(String(error));

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
