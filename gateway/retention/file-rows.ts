/**
 * A conversation's tree in the cloud AgentFS, with the record of what was executed in it. What somebody else has a name for
 * too (a hard link elsewhere) stays with that name.
 */
import type { HranaDatabase } from '../../machine/agentfs/hrana.ts';
import { rootIno } from '../../machine/agentfs/ids.ts';
import type { ConversationId } from '../ids.ts';
import type { FileCounts } from './counts.ts';

export type FileSql = Pick<HranaDatabase, 'execute' | 'batch'>;

/** Rows of contents that go in one request: 64 MiB of them. */
const chunksAtOnce = 1_000;

/** `tree`: the ids of the names of `?1` and below, and what they name. `own`: what has no other name than these. */
const tree = `
  WITH RECURSIVE tree(id, ino) AS (
    SELECT d.id, d.ino FROM fs_dentry d
    WHERE d.name = ?1 AND d.parent_ino = (SELECT ino FROM fs_dentry WHERE parent_ino = ${rootIno} AND name = 'conversations')
    UNION
    SELECT d.id, d.ino FROM tree JOIN fs_dentry d ON d.parent_ino = tree.ino
  ),
  own(ino) AS (
    SELECT DISTINCT t.ino FROM tree t
    WHERE NOT EXISTS (SELECT 1 FROM fs_dentry d WHERE d.ino = t.ino AND d.id NOT IN (SELECT id FROM tree))
  )`;

const ownCalls = "CASE WHEN json_valid(parameters) THEN json_extract(parameters, '$.conversation') END = ?1";

export interface FoundFiles {
  readonly counts: FileCounts;
  /** The newest change, in seconds since the epoch. */
  readonly changedAt: number;
}

export async function findFiles(sql: FileSql, conversation: ConversationId): Promise<FoundFiles> {
  const { rows } = await sql.execute(
    `${tree}
     SELECT
       (SELECT count(*) FROM tree),
       (SELECT count(*) FROM own),
       (SELECT coalesce(sum(i.size), 0) FROM fs_inode i WHERE i.ino IN (SELECT ino FROM own)),
       (SELECT count(*) FROM tool_calls WHERE ${ownCalls}),
       (SELECT coalesce(max(i.ctime), 0) FROM fs_inode i WHERE i.ino IN (SELECT ino FROM own))`,
    [conversation],
  );
  const [names, files, bytes, toolCalls, changedAt] = rows[0]!.map(Number) as [number, number, number, number, number];
  return { counts: { names, files, bytes, toolCalls }, changedAt };
}

/** Contents first, in bounded steps; then everything else at once, names last seen. Harmless again. */
export async function eraseFiles(sql: FileSql, conversation: ConversationId): Promise<void> {
  for (;;) {
    const { rows } = await sql.execute(
      `${tree}
       DELETE FROM fs_data WHERE rowid IN (
         SELECT rowid FROM fs_data WHERE ino IN (SELECT ino FROM own) LIMIT ${chunksAtOnce}
       ) RETURNING 1`,
      [conversation],
    );
    if (rows.length < chunksAtOnce) break;
  }
  const now = Math.floor(Date.now() / 1000);
  await sql.batch(
    [
      ...['fs_symlink WHERE ino', 'fs_origin WHERE delta_ino', 'fs_inode WHERE ino'].map((where) => ({
        sql: `${tree} DELETE FROM ${where} IN (SELECT ino FROM own)`,
        args: [conversation],
      })),
      // One name less for what has others; a directory has none.
      {
        sql: `${tree} UPDATE fs_inode SET nlink = (SELECT count(*) FROM fs_dentry d WHERE d.ino = fs_inode.ino AND d.id NOT IN (SELECT id FROM tree))
              WHERE ino IN (SELECT ino FROM tree)`,
        args: [conversation],
      },
      {
        sql: `UPDATE fs_inode SET mtime = ?2, ctime = ?2, nlink = CASE WHEN nlink > 2 THEN nlink - 1 ELSE nlink END
              WHERE ino = (SELECT parent_ino FROM fs_dentry WHERE name = ?1 AND parent_ino =
                (SELECT ino FROM fs_dentry WHERE parent_ino = ${rootIno} AND name = 'conversations'))`,
        args: [conversation, now],
      },
      { sql: `${tree} DELETE FROM fs_dentry WHERE id IN (SELECT id FROM tree)`, args: [conversation] },
      { sql: `DELETE FROM tool_calls WHERE ${ownCalls}`, args: [conversation] },
    ],
    { transaction: true },
  );
}
