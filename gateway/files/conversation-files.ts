/**
 * A conversation's files as clients may read them (file API, "Outbound"): straight from the organization's cloud AgentFS, after
 * the machine has brought there what its agent wrote. What is not plainly a regular file in the view is not there.
 */
import type { CloudFiles, CloudSql } from '../../machine/agentfs/cloud.ts';
import { type ByteRange, contentsOf } from '../../machine/agentfs/cloud-contents.ts';
import { rowsOf } from '../../machine/agentfs/cloud-rows.ts';
import { FileError } from '../../machine/agentfs/errors.ts';
import { HranaError, type SqlArgument } from '../../machine/agentfs/hrana.ts';
import { type Inode, inodeColumns, inodeOfRow } from '../../machine/agentfs/inode.ts';
import { isDirectory, isRegular, isSymlink } from '../../machine/agentfs/schema.ts';
import { decodePath, encodePath } from '../audit/cursor.ts';
import type { ConversationId } from '../ids.ts';
import type { SettleFiles } from '../machine/settling.ts';
import { Problem } from '../problem.ts';
import { fileUri, followLink, parseFileUri, parseViewPath, treeNames, type ViewPath } from './view-path.ts';

export interface FileEntry {
  readonly name: string;
  readonly path: string;
  readonly kind: 'file' | 'directory' | 'symlink' | 'special';
  readonly size: number;
  readonly modifiedAt: Date;
  /** Of a regular file: what it is read by. */
  readonly uri: string | null;
}

export interface FileListing {
  readonly entries: readonly FileEntry[];
  /** The cursor of the next page; null at the end. */
  readonly next: string | null;
}

/** One regular file as it is now. */
export interface OpenedFile {
  readonly name: string;
  readonly size: number;
  /** Another one whenever its contents may be others. */
  readonly version: string;
  readonly modifiedAt: Date;
  /** Asks the cloud for a bounded piece at a time. Throws as soon as the file is no longer that version. */
  read(range: ByteRange): AsyncGenerator<Uint8Array>;
}

export interface ConversationFiles {
  /** A directory's entries by name. Problems: `invalid-request`, `not-found`, `agentfs-unavailable`. */
  list(
    conversation: ConversationId,
    path: string,
    page: { readonly cursor: string | null; readonly limit: number },
  ): Promise<FileListing>;
  /** Problems: the same, and `body-too-large`. */
  open(conversation: ConversationId, uri: string): Promise<OpenedFile>;
}

export interface ConversationFilesParts {
  readonly sql: CloudSql;
  readonly files: Pick<CloudFiles, 'chunkSize'>;
  readonly settleFiles: SettleFiles;
  /** Bytes of a file that can be read. */
  readonly largestFile: number;
}

/** How long a reader waits for what the agent wrote a moment ago. */
const settleMs = 30_000;
/** As many links in a row as Linux follows. */
const maxLinks = 40;

/** The names on the way as JSON: every inode on it, as far as there are such, and where it leads if it is a link. */
const walk = `
  WITH RECURSIVE walk(depth, ino) AS (
    SELECT 0, 1
    UNION ALL
    SELECT w.depth + 1, d.ino FROM walk w JOIN fs_dentry d
    ON d.parent_ino = w.ino AND d.name = json_extract(?, '$[' || w.depth || ']')
  )
  SELECT ${inodeColumns}, s.target AS target
  FROM walk w JOIN fs_inode i ON i.ino = w.ino LEFT JOIN fs_symlink s ON s.ino = i.ino ORDER BY w.depth`;

const listing = `
  SELECT d.name AS name, ${inodeColumns} FROM fs_dentry d JOIN fs_inode i ON i.ino = d.ino
  WHERE d.parent_ino = ? AND d.name > ? ORDER BY d.name LIMIT ?`;

type Row = Readonly<Record<string, unknown>>;

export function createConversationFiles({
  sql,
  files,
  settleFiles,
  largestFile,
}: ConversationFilesParts): ConversationFiles {
  const query = async (text: string, args: readonly SqlArgument[]) => rowsOf(await reading(sql.execute(text, args)));

  const settled = async (): Promise<void> => {
    const outcome = await settleFiles(settleMs);
    if (outcome.state === 'failing') {
      // What is in the cloud may be older than what the caller was told of.
      throw new Problem('agentfs-unavailable', "The agent's last changes are not in the cloud yet. Try again later.", {
        retryAfter: 5,
      });
    }
  };

  /** What is at a place, links followed within the view; null when there is nothing of it there. */
  const find = async (conversation: ConversationId, place: ViewPath): Promise<Inode | null> => {
    let path = place;
    for (let links = 0; links <= maxLinks; links += 1) {
      const names = treeNames(conversation, path);
      const inodes = (await query(walk, [JSON.stringify(names)])) as readonly (Row &
        Parameters<typeof inodeOfRow>[0])[];
      // The root of the tree comes before its names. Above the view is no link.
      const above = names.length - path.length;
      const link = inodes.findIndex((row, depth) => depth > above && isSymlink(Number(row.mode)));
      if (link === -1) return inodes.length === names.length + 1 ? inodeOfRow(inodes.at(-1)!) : null;
      const [root, ...below] = path.slice(0, link - above) as unknown as ViewPath;
      const next = followLink([root, ...below], String(inodes[link]!.target), path.slice(link - above));
      if (next === null) return null;
      path = next;
    }
    return null;
  };

  return {
    async list(conversation, given, { cursor, limit }) {
      const path = parseViewPath(given);
      const after = decodePath(cursor) ?? '';
      await settled();
      const directory = await find(conversation, path);
      if (directory === null || !isDirectory(directory.mode)) throw nothing('directory');
      const rows = await query(listing, [directory.ino, after, limit + 1]);
      const entries = rows.slice(0, limit).map((row) => entryOf(path, String(row.name), inodeOfRow(row)));
      return { entries, next: rows.length > limit ? encodePath(entries.at(-1)!.name) : null };
    },

    async open(conversation, uri) {
      const path = parseFileUri(uri);
      await settled();
      const inode = await find(conversation, path);
      if (inode === null || !isRegular(inode.mode)) throw nothing('file');
      if (inode.size > largestFile) {
        throw new Problem('body-too-large', `A file of more than ${largestFile} bytes cannot be read here`);
      }
      const chunkSize = await reading(files.chunkSize());
      return {
        name: path.at(-1)!,
        size: inode.size,
        version: versionOf(inode),
        modifiedAt: modifiedAt(inode),
        read: (range) => contentsOf(sql, inode, chunkSize, range),
      };
    },
  };
}

const nothing = (what: string): Problem => new Problem('not-found', `There is no such ${what} in this conversation`);

async function reading<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof HranaError || error instanceof FileError)) throw error;
    const problem = new Problem('agentfs-unavailable', 'The files cannot be read now. Try again later.');
    problem.cause = error;
    throw problem;
  }
}

function entryOf(directory: ViewPath, name: string, inode: Inode): FileEntry {
  const kind = kindOf(inode.mode);
  return {
    name,
    path: `/${[...directory, name].join('/')}`,
    kind,
    size: inode.size,
    modifiedAt: modifiedAt(inode),
    uri: kind === 'file' ? fileUri([...directory, name] as unknown as ViewPath) : null,
  };
}

function kindOf(mode: number): FileEntry['kind'] {
  if (isRegular(mode)) return 'file';
  if (isDirectory(mode)) return 'directory';
  return isSymlink(mode) ? 'symlink' : 'special';
}

const modifiedAt = ({ mtime }: Inode): Date => new Date(mtime.seconds * 1000 + Math.floor(mtime.nanoseconds / 1e6));

function versionOf({ ino, size, mtime, ctime }: Inode): string {
  const parts = [ino, size, mtime.seconds, mtime.nanoseconds, ctime.seconds, ctime.nanoseconds];
  return new Bun.CryptoHasher('sha256').update(parts.join(' ')).digest('base64url').slice(0, 27);
}
