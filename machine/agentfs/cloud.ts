/**
 * The organization's files as the gateway reaches them: straight in the cloud AgentFS, by SQL over Hrana, on the same schema
 * and with the same ids as the machine. The machine sees them by its next pull (ADR-046 §1, §5).
 */
import { contentsOf } from './cloud-contents.ts';
import { fresh, holdsOneMore, insertInode, insertName, namesOf, removeFile, rowsOf, touch } from './cloud-rows.ts';
import { FileError } from './errors.ts';
import type { HranaDatabase, SqlStatement } from './hrana.ts';
import { directoryIno, randomIno, rootIno } from './ids.ts';
import { type Inode, inodeColumns, inodeOfRow, now } from './inode.ts';
import { defaultLimits } from './limits.ts';
import { defaultChunkSize, isDirectory, isRegular, modeDirectory, modeRegular, schemaStatements } from './schema.ts';

export type CloudSql = Pick<HranaDatabase, 'execute' | 'batch'>;

/** Contents of one request; more are sent in several before the file gets its name. */
const bytesPerRequest = 2 * 1024 * 1024;

export class CloudFiles {
  readonly #sql: CloudSql;
  readonly #largestFile: number;
  #chunkSize: number | null = null;

  /** `largestFile`: bytes that a file which is written may have. */
  constructor(sql: CloudSql, largestFile: number = defaultLimits.largestFile) {
    this.#sql = sql;
    this.#largestFile = largestFile;
  }

  /** Makes the schema and the root where they are missing. Organization provisioning, once; harmless again. */
  async provision(): Promise<void> {
    await this.#sql.batch(schemaStatements(now().seconds), { transaction: true });
  }

  /** Makes a directory and those above it where they are missing. ENOTDIR when a name on the way is something else. */
  async ensureDirectory(path: string): Promise<Inode> {
    const names = namesOf(path);
    // Another writer may make the same directory meanwhile: then it is found the next time round.
    for (let attempt = 0; attempt < 5; attempt++) {
      const known = await this.#chain(names);
      const last = known.at(-1)!;
      const bad = known.findIndex((inode) => !isDirectory(inode.mode));
      if (bad >= 0) throw new FileError('ENOTDIR', `/${names.slice(0, bad).join('/')}`);
      if (known.length === names.length + 1) return last;
      await this.#sql
        .batch(await this.#missing(last.ino, names.slice(known.length - 1)), { transaction: true })
        .catch((error: unknown) => {
          if (!/constraint/i.test(String(error))) throw error;
        });
    }
    throw new FileError('EAGAIN', `${path} was changed by others all the while`);
  }

  /**
   * Writes a file that does not exist yet, with its directories; an existing one is left as it is and reported. Nobody sees
   * half a file: it gets its name in the last step. EFBIG writes nothing.
   */
  async writeFileOnce(
    path: string,
    bytes: Uint8Array,
    mode = 0o644,
  ): Promise<{ outcome: 'written' | 'exists'; inode: Inode }> {
    const names = namesOf(path);
    const name = names.at(-1);
    if (name === undefined) throw new FileError('EISDIR', path);
    if (bytes.length > this.#largestFile) {
      throw new FileError('EFBIG', `${path} has ${bytes.length} bytes, of ${this.#largestFile} that a file may have`);
    }
    const parent = await this.ensureDirectory(names.slice(0, -1).join('/'));
    const ino = randomIno();
    const chunks = await this.#chunkStatements(ino, bytes);
    const perRequest = Math.max(1, Math.floor(bytesPerRequest / (await this.chunkSize())));
    const inode = fresh(ino, modeRegular | (mode & 0o7777), bytes.length);
    const isOneRequest = chunks.length <= perRequest;
    if (!isOneRequest) {
      await this.#sql.batch([insertInode({ ...inode, nlink: 0 })], { transaction: true });
      for (let at = 0; at < chunks.length; at += perRequest) {
        await this.#sql.batch(chunks.slice(at, at + perRequest), { transaction: true });
      }
    }
    const naming: SqlStatement[] = [
      ...(isOneRequest
        ? [insertInode(inode), ...chunks]
        : [{ sql: 'UPDATE fs_inode SET nlink = 1 WHERE ino = ?', args: [ino] }]),
      // A name that exists ends the transaction here.
      insertName(parent.ino, name, ino),
      touch(parent.ino),
    ];
    try {
      await this.#sql.batch(naming, { transaction: true });
      return { outcome: 'written', inode };
    } catch (error) {
      const existing = await this.stat(path);
      if (!existing) throw error;
      // The answer to a request that went through may have been lost.
      if (existing.ino === ino) return { outcome: 'written', inode: existing };
      if (!isOneRequest) await this.#sql.batch(removeFile(ino), { transaction: true });
      return { outcome: 'exists', inode: existing };
    }
  }

  /**
   * Replaces the contents of a regular file, at once for everybody. ENOENT, EISDIR, EINVAL for what is none, EFBIG beyond
   * what fits into one request.
   */
  async overwriteFile(path: string, bytes: Uint8Array): Promise<void> {
    if (bytes.length > bytesPerRequest) throw new FileError('EFBIG', `${path}: ${bytes.length} bytes`);
    const { ino } = await this.#regular(path);
    const { seconds, nanoseconds } = now();
    await this.#sql.batch(
      [
        { sql: 'DELETE FROM fs_data WHERE ino = ?', args: [ino] },
        ...(await this.#chunkStatements(ino, bytes)),
        {
          sql: 'UPDATE fs_inode SET size = ?, mtime = ?, ctime = ?, mtime_nsec = ?, ctime_nsec = ? WHERE ino = ?',
          args: [bytes.length, seconds, seconds, nanoseconds, nanoseconds, ino],
        },
        // Contents of a file that somebody has removed meanwhile belong to nothing.
        {
          sql: 'DELETE FROM fs_data WHERE ino = ?1 AND NOT EXISTS (SELECT 1 FROM fs_inode WHERE ino = ?1)',
          args: [ino],
        },
      ],
      { transaction: true },
    );
  }

  /** What a path names, without following symbolic links; null when there is nothing. */
  async stat(path: string): Promise<Inode | null> {
    const names = namesOf(path);
    const known = await this.#chain(names);
    return known[names.length] ?? null;
  }

  /** A regular file's contents. ENOENT, EISDIR, EINVAL for what is none, EFBIG beyond `limit` bytes. */
  async readFile(path: string, limit = 64 * 1024 * 1024): Promise<Uint8Array> {
    const inode = await this.#regular(path);
    if (inode.size > limit) throw new FileError('EFBIG', `${path} has ${inode.size} bytes`);
    const whole = new Uint8Array(inode.size);
    let at = 0;
    for await (const part of contentsOf(this.#sql, inode, await this.chunkSize())) {
      whole.set(part, at);
      at += part.length;
    }
    return whole;
  }

  /** A directory's entries, by name. */
  async list(path: string): Promise<{ name: string; inode: Inode }[]> {
    const inode = await this.stat(path);
    if (!inode) throw new FileError('ENOENT', path);
    if (!isDirectory(inode.mode)) throw new FileError('ENOTDIR', path);
    const result = await this.#sql.execute(
      `SELECT d.name AS name, ${inodeColumns} FROM fs_dentry d JOIN fs_inode i ON i.ino = d.ino WHERE d.parent_ino = ? ORDER BY d.name`,
      [inode.ino],
    );
    return rowsOf(result).map((row) => ({ name: String(row.name), inode: inodeOfRow(row) }));
  }

  /** Bytes of a row of contents in this database. */
  async chunkSize(): Promise<number> {
    if (this.#chunkSize === null) {
      const result = await this.#sql.execute("SELECT value FROM fs_config WHERE key = 'chunk_size'");
      this.#chunkSize = Number(result.rows[0]?.[0] ?? defaultChunkSize);
    }
    return this.#chunkSize;
  }

  async #regular(path: string): Promise<Inode> {
    const inode = await this.stat(path);
    if (!inode) throw new FileError('ENOENT', path);
    if (isDirectory(inode.mode)) throw new FileError('EISDIR', path);
    if (!isRegular(inode.mode)) throw new FileError('EINVAL', `${path} is no regular file`);
    return inode;
  }

  /** Root and every inode on the way, as far as there are such. */
  async #chain(names: readonly string[]): Promise<Inode[]> {
    const statements: SqlStatement[] = [
      { sql: `SELECT ${inodeColumns} FROM fs_inode i WHERE i.ino = ?`, args: [rootIno] },
    ];
    let ino = '?';
    const args: (string | number)[] = [rootIno];
    for (const name of names) {
      ino = `(SELECT ino FROM fs_dentry WHERE parent_ino = ${ino} AND name = ?)`;
      args.push(name);
      statements.push({ sql: `SELECT ${inodeColumns} FROM fs_inode i WHERE i.ino = ${ino}`, args: [...args] });
    }
    const results = await this.#sql.batch(statements, { transaction: true });
    const inodes: Inode[] = [];
    for (const result of results) {
      const row = rowsOf(result)[0];
      if (!row) break;
      inodes.push(inodeOfRow(row));
    }
    if (inodes.length === 0) throw new FileError('ENOENT', 'the organization has no root directory');
    return inodes;
  }

  async #missing(parent: number, names: readonly string[]): Promise<SqlStatement[]> {
    const statements: SqlStatement[] = [];
    for (const name of names) {
      const regular = directoryIno(parent, name);
      const taken = await this.#sql.execute('SELECT 1 FROM fs_inode WHERE ino = ?', [regular]);
      const inode = fresh(taken.rows.length === 0 ? regular : randomIno(), modeDirectory | 0o755, 0);
      statements.push(insertInode(inode), insertName(parent, name, inode.ino), touch(parent), holdsOneMore(parent));
      parent = inode.ino;
    }
    return statements;
  }

  async #chunkStatements(ino: number, bytes: Uint8Array): Promise<SqlStatement[]> {
    const size = await this.chunkSize();
    const statements: SqlStatement[] = [];
    for (let index = 0; index * size < bytes.length; index++) {
      const data = bytes.subarray(index * size, (index + 1) * size);
      statements.push({
        sql: 'INSERT INTO fs_data (ino, chunk_index, data) VALUES (?, ?, ?)',
        args: [ino, index, data],
      });
    }
    return statements;
  }
}
