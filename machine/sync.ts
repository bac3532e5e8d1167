/**
 * Work boundaries: when the organization's replica speaks with its cloud (ADR-046 §5). A turn's first touch of something
 * shared waits for one plain `pull()`; its end pulls and pushes if something is pending. Otherwise there is no request.
 */
import type { Database } from '@tursodatabase/sync';
import { OrganizationFiles } from './agentfs/files.ts';
import { defaultLimits, type StoreLimits } from './agentfs/store.ts';
import type { Launch } from './launch.ts';
import { openReplica } from './replica.ts';

export type SyncState =
  /** Everything is in the cloud. */
  | { readonly state: 'clean' }
  /** Local changes wait for the end of a work boundary. */
  | { readonly state: 'pending' }
  /** The cloud could not be reached or refused; local changes are kept, and the next boundary tries again. */
  | { readonly state: 'failing'; readonly reason: string };

/** What of a sync-enabled database the boundary uses. */
export type SyncDatabase = Pick<Database, 'pull' | 'push' | 'checkpoint' | 'stats' | 'close'>;

/** A write-ahead log beyond this is folded into the database at the end of a boundary. */
const checkpointBytes = 64 * 1024 ** 2;

type Work = { readonly begunAt: number; touched: 'no' | Promise<void> | 'yes' };
type Pull = { startedAt: number; readonly done: Promise<boolean> };

/** A conversation's side of the boundaries. */
export interface ConversationBoundary {
  /** Null when something shared may be touched now; otherwise a wait that never fails and always ends. */
  touch(): Promise<void> | null;
  /** Calls back when what a kernel remembers may be stale; returns the call that ends this. */
  onStale(listener: () => void): () => void;
}

export class WorkBoundary {
  readonly #files: OrganizationFiles;
  readonly #database: SyncDatabase;
  readonly #log: (text: string) => void;
  readonly #works = new Map<string, Work>();
  readonly #listeners = new Map<string, Set<() => void>>();
  #clock = 0;
  #waiting: Pull | null = null;
  #running: Pull | null = null;
  /** When the last successful pull had begun. */
  #pulledAt = 0;
  #ending: Promise<SyncState> | null = null;
  #state: SyncState = { state: 'clean' };

  constructor(files: OrganizationFiles, database: SyncDatabase, log: (text: string) => void = console.error) {
    this.#files = files;
    this.#database = database;
    this.#log = log;
  }

  /** As of the last boundary. */
  get state(): SyncState {
    return this.#state;
  }

  /** Opens a boundary: at attach. Makes no request; kernels ask again for what they remember of this conversation. */
  begin(conversation: string): void {
    this.#works.set(conversation, { begunAt: ++this.#clock, touched: 'no' });
    for (const listener of this.#listeners.get(conversation) ?? []) listener();
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
    work.touched = pull.done.then(() => {
      // A failed pull is not tried again in this turn: it goes on with what is here.
      work.touched = 'yes';
    });
    return work.touched;
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
    };
  }

  /** Closes a boundary: at detach, at a holder's exit and at its eviction. Never fails; nothing pending, no request. */
  end(conversation: string): Promise<SyncState> {
    this.#works.delete(conversation);
    // One that has not begun yet will see this conversation's changes too.
    this.#ending ??= this.#files.store
      .exclusive(async () => {
        this.#ending = null;
        await this.#files.data.commitAllHere();
        await this.#files.store.driver.sync();
        this.#state = await this.#settleHere();
        return this.#state;
      })
      .catch((error: unknown) => {
        this.#state = { state: 'failing', reason: reasonOf(error) };
        this.#log(`agentfs: the work boundary failed: ${this.#state.reason}`);
        return this.#state;
      });
    return this.#ending;
  }

  /** Whether local changes wait for a push. For whoever runs exclusively. */
  async pendingHere(): Promise<boolean> {
    const { cdcOperations } = await this.#database.stats();
    if (cdcOperations === 0) return false;
    const row = await this.#files.store.driver.get(
      'SELECT count(*) AS n FROM (SELECT change_type, table_name FROM turso_cdc ORDER BY change_id DESC LIMIT ?) ' +
        "WHERE change_type <> 2 AND table_name <> 'turso_sync_last_change_id'",
      cdcOperations,
    );
    return Number(row?.n) > 0;
  }

  /** The last boundary, and the end of the replica. */
  async close(): Promise<SyncState> {
    this.#files.data.stop();
    const state = await this.end('');
    await this.#files.store.exclusive(async () => {
      await this.#files.store.forget();
      await this.#database.close();
    });
    return state;
  }

  async #settleHere(): Promise<SyncState> {
    if (!(await this.pendingHere())) return { state: 'clean' };
    try {
      await this.#pullHere();
      await this.#database.push();
    } catch (error) {
      if (!/UNIQUE|constraint/i.test(String(error))) throw error;
      await this.#recoverHere(error);
    }
    if ((await this.#database.stats()).mainWalSize > checkpointBytes) await this.#database.checkpoint();
    return (await this.pendingHere()) ? { state: 'pending' } : { state: 'clean' };
  }

  /**
   * A local row and a row of the cloud have the same name under different ids. The pull fails on it; a push reports the
   * failure but commits every other row; then the pull goes through.
   */
  async #recoverHere(cause: unknown): Promise<void> {
    this.#log(`agentfs: recovering from a conflict: ${reasonOf(cause)}`);
    await this.#database.push().catch((error: unknown) => {
      this.#log(`agentfs: as expected, the push says: ${reasonOf(error)}`);
    });
    await this.#pullHere();
    if (await this.pendingHere()) await this.#database.push();
  }

  #pull(): Pull {
    if (this.#waiting) return this.#waiting;
    const { promise: done, resolve } = Promise.withResolvers<boolean>();
    const pull: Pull = { startedAt: Number.POSITIVE_INFINITY, done };
    this.#waiting = pull;
    void this.#files.store
      .exclusive(async () => {
        this.#waiting = null;
        this.#running = pull;
        pull.startedAt = ++this.#clock;
        await this.#files.data.commitAllHere();
        await this.#pullHere();
        this.#pulledAt = pull.startedAt;
        if (this.#state.state === 'failing') this.#state = { state: 'pending' };
        return true;
      })
      .catch((error: unknown) => {
        this.#state = { state: 'failing', reason: reasonOf(error) };
        this.#log(`agentfs: pull failed: ${this.#state.reason}`);
        return false;
      })
      .then((isDone) => {
        this.#running = null;
        resolve(isDone);
      });
    return pull;
  }

  async #pullHere(): Promise<void> {
    const changed = await this.#database.pull();
    if (!changed) return;
    this.#files.data.forgetRead();
    await this.#files.store.forget();
    for (const listeners of this.#listeners.values()) for (const listener of listeners) listener();
  }
}

export interface OpenedFiles {
  readonly files: OrganizationFiles;
  readonly boundary: WorkBoundary;
}

/**
 * Opens the organization's files, once in a machine's life. Throws with the reason when a new replica cannot be filled from
 * the cloud, or when the cloud's database has no AgentFS in it.
 */
export async function openOrganizationFiles(
  launch: Pick<Launch, 'agentfs' | 'replicaDirectory'>,
  options: { limits?: StoreLimits; log?: (text: string) => void } = {},
): Promise<OpenedFiles> {
  const { database, driver } = await openReplica(launch.agentfs, launch.replicaDirectory);
  const hasSchema = () => driver.get("SELECT 1 AS one FROM sqlite_schema WHERE name = 'fs_config'");
  if (!(await hasSchema())) await database.pull();
  if (!(await hasSchema())) {
    await database.close();
    throw new Error('the organization has no AgentFS yet: its cloud database has not been provisioned');
  }
  const files = await OrganizationFiles.open(driver, options.limits ?? defaultLimits);
  return { files, boundary: new WorkBoundary(files, database, options.log) };
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
