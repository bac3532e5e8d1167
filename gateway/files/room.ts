/** How much more the files of a conversation may have, counted in the cloud: what a machine has not brought there yet is not in it. */
import type { CloudSql } from '../../machine/agentfs/cloud.ts';
import type { FileLimits } from '../../machine/launch.ts';
import type { ConversationId } from '../ids.ts';
import { Problem } from '../problem.ts';

export interface Room {
  readonly bytes: number;
  readonly files: number;
}

/** Conversation, and the files after which counting ends. A file with several names counts once. */
const conversationUsage = `
  WITH RECURSIVE tree(ino) AS (
    SELECT d.ino FROM fs_dentry d
    WHERE d.name = ? AND d.parent_ino = (SELECT ino FROM fs_dentry WHERE parent_ino = 1 AND name = 'conversations')
    UNION
    SELECT d.ino FROM tree JOIN fs_dentry d ON d.parent_ino = tree.ino
    LIMIT ?
  )
  SELECT total(i.size), count(*) FROM tree JOIN fs_inode i ON i.ino = tree.ino`;
const organizationUsage = 'SELECT total(size), count(*) FROM fs_inode WHERE nlink > 0';

/** Both quotas in one round trip. Null: there is no such conversation in the tree. Throws HranaError. */
export async function roomFor(
  sql: Pick<CloudSql, 'batch'>,
  { conversation: own, organization }: Pick<FileLimits, 'conversation' | 'organization'>,
  conversation: ConversationId,
): Promise<Room | null> {
  const results = await sql.batch(
    [{ sql: conversationUsage, args: [conversation, own.inodes + 1] }, { sql: organizationUsage }],
    { transaction: false },
  );
  const [used, usedByAll] = results.map(({ rows }) => ({ bytes: Number(rows[0]?.[0]), files: Number(rows[0]?.[1]) }));
  if (used!.files === 0) return null;
  return {
    bytes: Math.min(own.bytes - used!.bytes, organization.bytes - usedByAll!.bytes),
    files: Math.min(own.inodes - used!.files, organization.inodes - usedByAll!.files),
  };
}

/** Throws `quota-exceeded`. */
export function requireRoom(room: Room, bytes: number, files: number): void {
  if (bytes <= room.bytes && files <= room.files) return;
  throw new Problem(
    'quota-exceeded',
    `The conversation's files may get ${Math.max(0, room.files)} more files and ${Math.max(0, room.bytes)} more bytes. Delete some, or ask for more.`,
  );
}
