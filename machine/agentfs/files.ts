/**
 * The organization's files over one local replica: the store, the contents and the names, and paths for those who need
 * them. What a holder sees of it is a `HolderView`.
 */
import { type BaseTree, emptyBase } from './base.ts';
import { FileData } from './data.ts';
import type { SqlDriver } from './driver.ts';
import { FileError } from './errors.ts';
import { rootIno } from './ids.ts';
import type { Inode } from './inode.ts';
import { defaultLimits, type StoreLimits } from './limits.ts';
import { Namespace } from './namespace.ts';
import { isDirectory } from './schema.ts';
import { Store } from './store.ts';
import { HolderView } from './views.ts';

export class OrganizationFiles {
  readonly store: Store;
  readonly data: FileData;
  readonly names: Namespace;

  private constructor(store: Store, data: FileData) {
    this.store = store;
    this.data = data;
    this.names = new Namespace(store, data);
  }

  /** Throws where the database has no AgentFS schema. */
  static async open(
    driver: SqlDriver,
    limits: StoreLimits = defaultLimits,
    base: BaseTree = emptyBase,
  ): Promise<OrganizationFiles> {
    const store = await Store.open(driver, limits, base);
    return new OrganizationFiles(store, await FileData.open(store));
  }

  /** What a path names, without following symbolic links; null when there is no such thing. */
  async find(path: string): Promise<Inode | null> {
    let inode = await this.store.inode(rootIno);
    for (const name of path.split('/').filter((part) => part !== '')) {
      if (!inode || !isDirectory(inode.mode)) return null;
      inode = await this.names.lookup(inode.ino, name);
    }
    return inode;
  }

  /**
   * A conversation's view; null when the conversation has no directory here: it was never established, or the last pull was
   * before that. Directories of it that are missing are made.
   */
  async view(conversation: string): Promise<HolderView | null> {
    if (!/^[A-Za-z0-9_-]{1,128}$/.test(conversation)) return null;
    const own = await this.find(`/conversations/${conversation}`);
    if (!own || !isDirectory(own.mode)) return null;
    this.store.quotas.call(own.ino, conversation);
    return new HolderView(this, conversation, {
      conversation: own.ino,
      work: await this.#directory(own.ino, 'work'),
      artifacts: await this.#directory(own.ino, 'artifacts'),
      state: await this.#directory(own.ino, 'state'),
      logs: await this.#directory(own.ino, 'logs'),
      memory: await this.#directory(rootIno, 'memory'),
      skills: await this.#directory(rootIno, 'skills'),
    });
  }

  /** Writes everything into the database and makes it durable. */
  async flush(): Promise<void> {
    await this.data.settle();
    await this.store.sync();
  }

  /** Ends what goes on in the background; whatever is durable now is found by the next machine. */
  async close(): Promise<void> {
    await this.data.close();
  }

  async #directory(parent: number, name: string): Promise<number> {
    const found = await this.names.lookup(parent, name);
    if (!found) return (await this.names.makeDirectory({ parent, name }, 0o755)).ino;
    if (!isDirectory(found.mode)) throw new FileError('ENOTDIR', `${name} of ${parent} is no directory`);
    return found.ino;
  }
}
