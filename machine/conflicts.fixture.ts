/** For the table of conflicts: two who change the same organization, one of them perhaps the API, and what must hold afterwards. */
import { cpSync } from 'node:fs';
import { join } from 'node:path';
import type { TestAuthority } from './agentfs/authority.fixture.ts';
import type { SqlRow, SqlValue } from './agentfs/driver.ts';
import { dentryId } from './agentfs/ids.ts';
import { isDirectory } from './agentfs/schema.ts';
import { type OpenedFiles, openOrganizationFiles } from './sync.ts';

/** Paths below the directory of the test. */
export interface Actor {
  write(path: string, bytes: Uint8Array): Promise<void>;
  setMode(path: string, mode: number): Promise<void>;
  makeDirectory(path: string): Promise<void>;
  remove(path: string): Promise<void>;
  removeDirectory(path: string): Promise<void>;
  rename(from: string, to: string): Promise<void>;
  link(from: string, to: string): Promise<void>;
}

const split = (path: string) => {
  const at = path.lastIndexOf('/');
  return { directory: path.slice(0, at), name: path.slice(at + 1) };
};

export class MachineActor implements Actor {
  opened: OpenedFiles;
  /** Whether only another process can go on. */
  isUnusable = false;
  readonly log: string[] = [];
  readonly #home: () => string;

  readonly #authority: TestAuthority;
  #directory: string;

  private constructor(authority: TestAuthority, directory: string, home: () => string) {
    this.#authority = authority;
    this.#directory = directory;
    this.#home = home;
    this.opened = null as never;
  }

  static async open(authority: TestAuthority, name: string, home: () => string): Promise<MachineActor> {
    const machine = new MachineActor(authority, join(authority.directory, name), home);
    await machine.#open();
    return machine;
  }

  /** As the next process does: it has another copy, for the engine keeps what a process has open. */
  async openAnew(): Promise<void> {
    const before = this.#directory;
    this.#directory = `${before}-anew`;
    cpSync(before, this.#directory, { recursive: true });
    this.isUnusable = false;
    await this.#open();
  }

  async #open(): Promise<void> {
    this.opened = await openOrganizationFiles(
      { agentfs: this.#authority.address, replicaDirectory: this.#directory },
      {
        log: (line) => this.log.push(line),
        onUnusable: () => {
          this.isUnusable = true;
        },
      },
    );
  }

  async begin(): Promise<void> {
    this.opened.boundary.begin('conv');
    await this.opened.boundary.firstTouch('conv');
  }

  end(): Promise<{ readonly state: string }> {
    return this.opened.boundary.end('conv');
  }

  async #place(path: string) {
    const { directory, name } = split(`${this.#home()}/${path}`);
    const parent = await this.opened.files.find(directory);
    if (!parent) throw new Error(`${directory} is not here`);
    return { parent: parent.ino, name };
  }

  async #ino(path: string): Promise<number> {
    const inode = await this.opened.files.find(`${this.#home()}/${path}`);
    if (!inode) throw new Error(`${path} is not here`);
    return inode.ino;
  }

  async write(path: string, bytes: Uint8Array): Promise<void> {
    const { files } = this.opened;
    const found = await files.find(`${this.#home()}/${path}`);
    const { ino } = found ?? (await files.names.create(await this.#place(path), 0o100644));
    await files.data.truncate(ino, 0);
    await files.data.write(ino, 0, bytes);
  }

  async setMode(path: string, mode: number): Promise<void> {
    await this.opened.files.names.setAttributes(await this.#ino(path), { mode });
  }

  async makeDirectory(path: string): Promise<void> {
    await this.opened.files.names.makeDirectory(await this.#place(path), 0o755);
  }

  async remove(path: string): Promise<void> {
    await this.opened.files.names.unlink(await this.#place(path));
  }

  async removeDirectory(path: string): Promise<void> {
    await this.opened.files.names.removeDirectory(await this.#place(path));
  }

  async rename(from: string, to: string): Promise<void> {
    await this.opened.files.names.rename(await this.#place(from), await this.#place(to), 'replace');
  }

  async link(from: string, to: string): Promise<void> {
    await this.opened.files.names.link(await this.#ino(from), await this.#place(to));
  }
}

/** As the gateway writes: each change is one transaction in the cloud, there at once. */
export class ApiActor implements Actor {
  readonly #authority: TestAuthority;
  readonly #home: () => string;

  constructor(authority: TestAuthority, home: () => string) {
    this.#authority = authority;
    this.#home = home;
  }

  async #found(path: string): Promise<{ parent: number; name: string; ino: number; isDirectory: boolean }> {
    const { directory, name } = split(`${this.#home()}/${path}`);
    const [parent, inode] = [
      await this.#authority.cloud.stat(directory),
      await this.#authority.cloud.stat(`${directory}/${name}`),
    ];
    if (!parent) throw new Error(`${directory} is not there`);
    return { parent: parent.ino, name, ino: inode?.ino ?? 0, isDirectory: inode !== null && isDirectory(inode.mode) };
  }

  #batch(...statements: [sql: string, ...args: SqlValue[]][]): Promise<unknown> {
    return this.#authority.sql.batch(
      statements.map(([sql, ...args]) => ({ sql, args })),
      { transaction: true },
    );
  }

  async write(path: string, bytes: Uint8Array): Promise<void> {
    const { ino } = await this.#found(path);
    if (ino === 0) {
      await this.#authority.cloud.writeFileOnce(`${this.#home()}/${path}`, bytes);
      return;
    }
    const chunks: [string, ...SqlValue[]][] = [];
    for (let index = 0; index * 65_536 < bytes.length; index++)
      chunks.push([
        'INSERT INTO fs_data (ino, chunk_index, data) VALUES (?, ?, ?)',
        ino,
        index,
        bytes.subarray(index * 65_536, (index + 1) * 65_536),
      ]);
    const now = Math.floor(Date.now() / 1000);
    await this.#batch(['DELETE FROM fs_data WHERE ino = ?', ino], ...chunks, [
      'UPDATE fs_inode SET size = ?, mtime = ?, ctime = ? WHERE ino = ?',
      bytes.length,
      now,
      now,
      ino,
    ]);
  }

  async setMode(path: string, mode: number): Promise<void> {
    const { ino } = await this.#found(path);
    await this.#batch(['UPDATE fs_inode SET mode = (mode & 61440) | ? WHERE ino = ?', mode, ino]);
  }

  async makeDirectory(path: string): Promise<void> {
    await this.#authority.cloud.ensureDirectory(`${this.#home()}/${path}`);
  }

  async remove(path: string): Promise<void> {
    const { parent, name, ino } = await this.#found(path);
    const last = 'ino = ? AND NOT EXISTS (SELECT 1 FROM fs_dentry WHERE ino = ?)';
    await this.#batch(
      ['DELETE FROM fs_dentry WHERE parent_ino = ? AND name = ?', parent, name],
      [`DELETE FROM fs_data WHERE ${last}`, ino, ino],
      [`DELETE FROM fs_inode WHERE ${last}`, ino, ino],
      ['UPDATE fs_inode SET nlink = nlink - 1 WHERE ino = ?', ino],
    );
  }

  async removeDirectory(path: string): Promise<void> {
    const { parent, name, ino } = await this.#found(path);
    await this.#batch(
      ['DELETE FROM fs_dentry WHERE parent_ino = ? AND name = ?', parent, name],
      ['DELETE FROM fs_inode WHERE ino = ?', ino],
      ['UPDATE fs_inode SET nlink = max(2, nlink - 1) WHERE ino = ? AND nlink > 1', parent],
    );
  }

  async rename(from: string, to: string): Promise<void> {
    const [moved, target] = [await this.#found(from), await this.#found(to)];
    if (target.ino !== 0) await this.remove(to);
    const change = moved.isDirectory && moved.parent !== target.parent;
    await this.#batch(
      ['DELETE FROM fs_dentry WHERE parent_ino = ? AND name = ?', moved.parent, moved.name],
      [
        'INSERT INTO fs_dentry (id, name, parent_ino, ino) VALUES (?, ?, ?, ?)',
        dentryId(target.parent, target.name),
        target.name,
        target.parent,
        moved.ino,
      ],
      ['UPDATE fs_inode SET nlink = nlink - ? WHERE ino = ? AND nlink > 1', change ? 1 : 0, moved.parent],
      ['UPDATE fs_inode SET nlink = nlink + ? WHERE ino = ? AND nlink > 1', change ? 1 : 0, target.parent],
    );
  }

  async link(from: string, to: string): Promise<void> {
    const [{ ino }, { parent, name }] = [await this.#found(from), await this.#found(to)];
    await this.#batch(
      [
        'INSERT INTO fs_dentry (id, name, parent_ino, ino) VALUES (?, ?, ?, ?)',
        dentryId(parent, name),
        name,
        parent,
        ino,
      ],
      ['UPDATE fs_inode SET nlink = nlink + 1 WHERE ino = ?', ino],
    );
  }

  /** As the public SDK would write a file: with ids that it counts up. */
  async writeAsSdk(path: string, text: string, id: number): Promise<void> {
    const { parent, name } = await this.#found(path);
    await this.#batch(
      [
        'INSERT INTO fs_inode (ino, mode, nlink, size, atime, mtime, ctime) VALUES (?, 33188, 1, ?, 1, 1, 1)',
        id,
        text.length,
      ],
      ['INSERT INTO fs_data (ino, chunk_index, data) VALUES (?, 0, CAST(? AS BLOB))', id, text],
      ['INSERT INTO fs_dentry (id, name, parent_ino, ino) VALUES (?, ?, ?, ?)', id, name, parent, id],
    );
  }
}

/** What the tables say of a directory: each path with its contents' length and hash, `/` for a directory. */
export type Tree = Readonly<Record<string, string>>;

export const print = (bytes: Uint8Array): string => `${bytes.length}:${Bun.hash(bytes).toString(36)}`;

type All = (sql: string, ...args: SqlValue[]) => Promise<readonly SqlRow[]>;

export const sqlOf = (machine: MachineActor): All => {
  const { store } = machine.opened.files;
  return (sql, ...args) => store.exclusive(() => store.driver.all(sql, ...args));
};

export const sqlOfCloud =
  (authority: TestAuthority): All =>
  async (sql, ...args) => {
    const { columns, rows } = await authority.sql.execute(sql, args);
    return rows.map((row) => Object.fromEntries(columns.map((column, at) => [column, row[at] as SqlValue])));
  };

/** Reads the tables and nothing else: no cache, no spool. */
export async function treeOf(all: All, directory: string): Promise<Tree> {
  const tree: Record<string, string> = {};
  const walk = async (ino: number, path: string): Promise<void> => {
    const sql =
      'SELECT d.name AS name, d.ino AS ino, i.mode AS mode, i.size AS size, i.nlink AS nlink FROM fs_dentry d ' +
      'LEFT JOIN fs_inode i ON i.ino = d.ino WHERE d.parent_ino = ?';
    for (const row of await all(sql, ino)) {
      const place = path === '' ? String(row.name) : `${path}/${row.name}`;
      if (row.mode === null) tree[place] = 'dangling';
      else if (isDirectory(Number(row.mode))) {
        tree[`${place}/`] = '';
        await walk(Number(row.ino), place);
      } else {
        const whole = new Uint8Array(Number(row.size));
        const chunks = await all('SELECT chunk_index, data FROM fs_data WHERE ino = ?', row.ino ?? 0);
        for (const { chunk_index, data } of chunks)
          if (Number(chunk_index) * 65_536 < whole.length)
            whole.set(
              (data as Uint8Array).subarray(0, whole.length - Number(chunk_index) * 65_536),
              Number(chunk_index) * 65_536,
            );
        tree[place] = print(whole);
      }
    }
  };
  let ino = 1;
  for (const name of directory.split('/').filter((part) => part !== '')) {
    const [row] = await all('SELECT ino FROM fs_dentry WHERE parent_ino = ? AND name = ?', ino, name);
    if (!row) return {};
    ino = Number(row.ino);
  }
  await walk(ino, '');
  return tree;
}

const named = 'SELECT ino FROM fs_dentry';
const flaws: Readonly<Record<string, string>> = {
  'names of nothing': 'SELECT d.name FROM fs_dentry d LEFT JOIN fs_inode i ON i.ino = d.ino WHERE i.ino IS NULL',
  'names in nothing': 'SELECT d.name FROM fs_dentry d LEFT JOIN fs_inode i ON i.ino = d.parent_ino WHERE i.ino IS NULL',
  'inodes without a name': `SELECT ino FROM fs_inode WHERE ino <> 1 AND nlink > 0 AND ino NOT IN (${named})`,
  'wrong counts of links':
    'SELECT i.ino FROM fs_inode i JOIN (SELECT ino, count(*) AS n FROM fs_dentry GROUP BY ino) d ON d.ino = i.ino ' +
    'WHERE (i.mode & 61440) <> 16384 AND i.nlink <> d.n',
  'contents of nothing': 'SELECT DISTINCT ino FROM fs_data WHERE ino NOT IN (SELECT ino FROM fs_inode)',
};

/** What is wrong in the tables; empty when nothing is. */
export async function flawsOf(all: All): Promise<string[]> {
  const found: string[] = [];
  for (const [what, sql] of Object.entries(flaws)) {
    const rows = await all(sql);
    if (rows.length > 0) found.push(`${what}: ${rows.length}`);
  }
  return found;
}
