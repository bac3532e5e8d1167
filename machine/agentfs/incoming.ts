/**
 * Files that come into the cloud AgentFS from outside. Bytes go to an inode without a name in bounded transactions and are
 * read back and compared; then one short transaction gives names to all files that belong together. What has no name yet is
 * noted in `kv_store`, so that whatever a killed process left behind is found and removed by the next one.
 */
import type { CloudFiles, CloudSql } from './cloud.ts';
import { contentsOf } from './cloud-contents.ts';
import { fresh, rowsOf, touch } from './cloud-rows.ts';
import { FileError } from './errors.ts';
import { newNameId, newNameIdArgs } from './foreign-names.ts';
import { HranaError, type ResultSet, type SqlStatement } from './hrana.ts';
import { randomIno } from './ids.ts';
import { type Inode, inodeColumns, inodeOfRow, now } from './inode.ts';
import { isRegular, modeRegular } from './schema.ts';

/** A file that is in the cloud, verified, and has no name. */
export interface Nameless {
  readonly ino: number;
  readonly size: number;
  /** Of its contents, hex. */
  readonly sha256: string;
}

export interface Naming {
  readonly name: string;
  readonly file: Nameless;
}

/** Names that were given, so that they can be taken back. */
export interface Named {
  readonly directory: number;
  readonly names: readonly { readonly name: string; readonly ino: number }[];
}

/** Contents of one request. */
const bytesPerRequest = 1024 * 1024;
/** Rows of contents that one transaction removes. */
const chunksPerRemoval = 128;
const markPrefix = 'edge-gateway:upload:';
/** Before a request that the database was too busy for, or that got no answer, is sent again. */
const retryPausesMs = [100, 400, 1_500];

export class IncomingFiles {
  readonly #sql: CloudSql;
  readonly #files: Pick<CloudFiles, 'chunkSize' | 'ensureDirectory'>;

  constructor(sql: CloudSql, files: Pick<CloudFiles, 'chunkSize' | 'ensureDirectory'>) {
    this.#sql = sql;
    this.#files = files;
  }

  /**
   * Takes contents in. EFBIG beyond `maxBytes`, EIO when what was stored is not what came; HranaError. After a failure,
   * that of `contents` included, nothing of them is left, unless the cloud cannot be reached: then `removeLeftOvers` finds it.
   */
  async receive(contents: AsyncIterable<Uint8Array>, maxBytes: number): Promise<Nameless> {
    const inode = { ...fresh(randomIno(), modeRegular | 0o644, 0), nlink: 0 };
    const store = new Storing(inode, await this.#files.chunkSize(), maxBytes, (statements) =>
      this.#persist(statements),
    );
    try {
      for await (const part of contents) await store.add(part);
      const { size, sha256 } = await store.end();
      await this.#verify({ ...inode, size }, sha256);
      return { ino: inode.ino, size, sha256 };
    } catch (error) {
      // Noted, so the next start removes what cannot be removed now; the first failure counts.
      if (store.hasBegun) await this.discard(inode.ino).catch(() => undefined);
      throw error;
    }
  }

  /** Removes a file that got no name, in bounded transactions; one that has a name stays. HranaError. */
  async discard(ino: number): Promise<void> {
    const isNameless = 'NOT EXISTS (SELECT 1 FROM fs_inode WHERE ino = ? AND nlink > 0)';
    for (;;) {
      const [removed] = await this.#persist([
        {
          sql: `DELETE FROM fs_data WHERE ino = ? AND chunk_index > (SELECT max(chunk_index) FROM fs_data WHERE ino = ?) - ? AND ${isNameless}`,
          args: [ino, ino, chunksPerRemoval, ino],
        },
      ]);
      if (removed!.affectedRowCount === 0) break;
    }
    await this.#persist([
      { sql: 'DELETE FROM fs_inode WHERE ino = ? AND nlink = 0', args: [ino] },
      forgetNameless(ino),
    ]);
  }

  /**
   * Gives the files their names in a directory, all or none. A name that is there already with the same contents counts as
   * given, and that file is left nameless: EEXIST when its contents are others. FileError, HranaError.
   */
  async name(directory: string, namings: readonly Naming[]): Promise<Named> {
    const wanted = new Map<string, Nameless>();
    for (const { name, file } of namings) if (!wanted.has(name)) wanted.set(name, file);
    for (let attempt = 1; ; attempt += 1) {
      const { ino: parent } = await this.#files.ensureDirectory(directory);
      const taken = await this.#entries(parent, [...wanted.keys()]);
      const missing: Naming[] = [];
      const ours: { name: string; ino: number }[] = [];
      for (const [name, file] of wanted) {
        const existing = taken.get(name);
        if (!existing) missing.push({ name, file });
        // The answer to a request that went through may have been lost.
        else if (existing.ino === file.ino) ours.push({ name, ino: file.ino });
        else await this.#requireSame(existing, name, file);
      }
      if (missing.length === 0) return { directory: parent, names: ours };
      try {
        await this.#sql.batch([...missing.flatMap((naming) => giveName(parent, naming)), touch(parent)], {
          transaction: true,
        });
      } catch (error) {
        // Somebody else took one of the names, or nobody knows: the names tell.
        if (attempt > retryPausesMs.length) throw error;
        await Bun.sleep(retryPausesMs[attempt - 1]!);
        continue;
      }
      return { directory: parent, names: [...ours, ...missing.map(({ name, file }) => ({ name, ino: file.ino }))] };
    }
  }

  /** Takes names back that `name` gave: their files are nameless again. HranaError. */
  async unname({ directory, names }: Named): Promise<void> {
    if (names.length === 0) return;
    const taking = names.flatMap(({ name, ino }) => takeName(directory, name, ino));
    await this.#persist([...taking, touch(directory)]);
  }

  /** What processes that are gone left without a name: a list at once, and the removal of it. HranaError. */
  async leftOvers(): Promise<{ readonly count: number; remove(): Promise<void> }> {
    const { rows } = await this.#sql.execute('SELECT key FROM kv_store WHERE key >= ? AND key < ?', [
      markPrefix,
      `${markPrefix}~`,
    ]);
    const inos = rows.map(([key]) => Number(String(key).slice(markPrefix.length))).filter(Number.isSafeInteger);
    return {
      count: inos.length,
      remove: async () => {
        for (const ino of inos) await this.discard(ino);
      },
    };
  }

  /** Reads back what the database has and compares it with what came. */
  async #verify(inode: Inode, sha256: string): Promise<void> {
    const digest = new Bun.CryptoHasher('sha256');
    for await (const bytes of contentsOf(this.#sql, inode, await this.#files.chunkSize())) digest.update(bytes);
    if (digest.digest('hex') !== sha256) throw new FileError('EIO', 'what was stored is not what came');
  }

  async #entries(parent: number, names: readonly string[]): Promise<ReadonlyMap<string, Inode>> {
    const { rows, ...rest } = await this.#sql.execute(
      `SELECT d.name AS name, ${inodeColumns} FROM fs_dentry d JOIN fs_inode i ON i.ino = d.ino ` +
        `WHERE d.parent_ino = ? AND d.name IN (${names.map(() => '?').join(', ')})`,
      [parent, ...names],
    );
    return new Map(rowsOf({ rows, ...rest }).map((row) => [String(row.name), inodeOfRow(row)] as const));
  }

  async #requireSame(existing: Inode, name: string, { size, sha256 }: Nameless): Promise<void> {
    const other = new FileError('EEXIST', `${name} is there already with other contents`);
    if (!isRegular(existing.mode) || existing.size !== size) throw other;
    await this.#verify(existing, sha256).catch((error: unknown) => {
      throw error instanceof FileError && error.errno === 'EIO' ? other : error;
    });
  }

  /** One transaction of statements that may be carried out twice. */
  async #persist(statements: readonly SqlStatement[]): Promise<ResultSet[]> {
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await this.#sql.batch(statements, { transaction: true });
      } catch (error) {
        const pauseMs = retryPausesMs[attempt];
        if (pauseMs === undefined || !isPassing(error)) throw error;
        await Bun.sleep(pauseMs);
      }
    }
  }
}

/** The contents of one file on their way into rows: whole chunks, as many as fit into a request. */
class Storing {
  readonly #inode: Inode;
  readonly #chunkSize: number;
  readonly #maxBytes: number;
  readonly #persist: (statements: readonly SqlStatement[]) => Promise<ResultSet[]>;
  readonly #buffer: Uint8Array;
  readonly #digest = new Bun.CryptoHasher('sha256');
  #filled = 0;
  #size = 0;
  hasBegun = false;

  constructor(
    inode: Inode,
    chunkSize: number,
    maxBytes: number,
    persist: (statements: readonly SqlStatement[]) => Promise<ResultSet[]>,
  ) {
    this.#inode = inode;
    this.#chunkSize = chunkSize;
    this.#maxBytes = maxBytes;
    this.#persist = persist;
    this.#buffer = new Uint8Array(Math.max(1, Math.floor(bytesPerRequest / chunkSize)) * chunkSize);
  }

  async add(part: Uint8Array): Promise<void> {
    if (this.#size + part.length > this.#maxBytes) {
      throw new FileError('EFBIG', `a file may have ${this.#maxBytes} bytes`);
    }
    this.#digest.update(part);
    for (let at = 0; at < part.length; ) {
      if (this.#filled === this.#buffer.length) await this.#flush([]);
      const taken = Math.min(part.length - at, this.#buffer.length - this.#filled);
      this.#buffer.set(part.subarray(at, at + taken), this.#filled);
      at += taken;
      this.#size += taken;
      this.#filled += taken;
    }
  }

  async end(): Promise<{ readonly size: number; readonly sha256: string }> {
    const sized = {
      sql: 'UPDATE fs_inode SET size = ? WHERE ino = ? AND nlink = 0',
      args: [this.#size, this.#inode.ino],
    };
    await this.#flush([sized]);
    return { size: this.#size, sha256: this.#digest.digest('hex') };
  }

  /** One transaction; the first of a file makes its inode. */
  async #flush(more: readonly SqlStatement[]): Promise<void> {
    const { ino } = this.#inode;
    const before = this.hasBegun ? [] : [noteNameless(ino), insertNameless(this.#inode)];
    const first = (this.#size - this.#filled) / this.#chunkSize;
    const chunks: SqlStatement[] = [];
    for (let at = 0; at < this.#filled; at += this.#chunkSize) {
      const bytes = this.#buffer.subarray(at, Math.min(this.#filled, at + this.#chunkSize));
      chunks.push(insertChunk(ino, first + at / this.#chunkSize, bytes));
    }
    this.hasBegun = true;
    const results = await this.#persist([...before, ...chunks, ...more]);
    this.#filled = 0;
    for (const { affectedRowCount } of results) {
      if (affectedRowCount !== 1) throw new FileError('EIO', 'the file was removed while it came in');
    }
  }
}

function isPassing(error: unknown): boolean {
  if (!(error instanceof HranaError)) return false;
  return error.kind === 'unreachable' || error.kind === 'timeout' || error.code.startsWith('SQLITE_BUSY');
}

const noteNameless = (ino: number): SqlStatement => ({
  sql: 'INSERT OR REPLACE INTO kv_store (key, value) VALUES (?, ?)',
  args: [markPrefix + ino, '{}'],
});
const forgetNameless = (ino: number): SqlStatement => ({
  sql: 'DELETE FROM kv_store WHERE key = ?',
  args: [markPrefix + ino],
});

function insertNameless({ ino, mode, mtime: { seconds, nanoseconds } }: Inode): SqlStatement {
  return {
    sql:
      'INSERT OR REPLACE INTO fs_inode (ino, mode, nlink, size, atime, mtime, ctime, atime_nsec, mtime_nsec, ctime_nsec) ' +
      'VALUES (?, ?, 0, 0, ?, ?, ?, ?, ?, ?)',
    args: [ino, mode, seconds, seconds, seconds, nanoseconds, nanoseconds, nanoseconds],
  };
}

// A request that was given up may arrive when its file is gone: then it must leave nothing.
const insertChunk = (ino: number, index: number, data: Uint8Array): SqlStatement => ({
  sql:
    'INSERT OR REPLACE INTO fs_data (ino, chunk_index, data) SELECT ?, ?, ? ' +
    'WHERE EXISTS (SELECT 1 FROM fs_inode WHERE ino = ? AND nlink = 0)',
  args: [ino, index, data, ino],
});

function giveName(parent: number, { name, file }: Naming): SqlStatement[] {
  const { seconds, nanoseconds } = now();
  return [
    {
      sql: 'UPDATE fs_inode SET nlink = 1, ctime = ?, ctime_nsec = ? WHERE ino = ? AND nlink = 0',
      args: [seconds, nanoseconds, file.ino],
    },
    {
      // NULL, which the table refuses, where the file or the directory has gone meanwhile: then none gets its name.
      sql:
        `INSERT INTO fs_dentry (id, name, parent_ino, ino) VALUES (${newNameId}, ?, ` +
        '(SELECT ino FROM fs_inode WHERE ino = ?), (SELECT ino FROM fs_inode WHERE ino = ? AND nlink = 1))',
      args: [...newNameIdArgs(parent, name), name, parent, file.ino],
    },
    forgetNameless(file.ino),
  ];
}

function takeName(parent: number, name: string, ino: number): SqlStatement[] {
  return [
    { sql: 'DELETE FROM fs_dentry WHERE parent_ino = ? AND name = ? AND ino = ?', args: [parent, name, ino] },
    noteNameless(ino),
    { sql: 'UPDATE fs_inode SET nlink = 0 WHERE ino = ?', args: [ino] },
  ];
}
