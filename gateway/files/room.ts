/** How much more the files of a conversation may have, counted in the cloud: what a machine has not brought there yet is not in it. */
import type { CloudSql } from '../../machine/agentfs/cloud.ts';
import type { FileLimits } from '../../machine/launch.ts';
import type { ConversationId } from '../ids.ts';
import { Problem } from '../problem.ts';

export interface Room {
  /** Bytes within the conversation's quota, and within that of the organization. */
  readonly own: number;
  readonly all: number;
  readonly files: number;
}

/**
 * Bytes that have come in, or are coming, and have no name yet: no count in the cloud has them, and without this one any number
 * of uploads at once would have the whole room each.
 */
export class Unnamed {
  #all = 0;
  readonly #of = new Map<ConversationId, number>();

  add(conversation: ConversationId, bytes: number): void {
    this.#all += bytes;
    const own = (this.#of.get(conversation) ?? 0) + bytes;
    if (own === 0) this.#of.delete(conversation);
    else this.#of.set(conversation, own);
  }

  /** Bytes of the room that are left beside them; negative when they are too many. */
  left(conversation: ConversationId, { own, all }: Room): number {
    return Math.min(own - (this.#of.get(conversation) ?? 0), all - this.#all);
  }
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
    own: own.bytes - used!.bytes,
    all: organization.bytes - usedByAll!.bytes,
    files: Math.min(own.inodes - used!.files, organization.inodes - usedByAll!.files),
  };
}

/** Throws `quota-exceeded` when there is not so much as is wanted. */
export function requireRoom(left: { bytes: number; files: number }, wanted: { bytes: number; files: number }): void {
  if (wanted.bytes <= left.bytes && wanted.files <= left.files) return;
  throw new Problem(
    'quota-exceeded',
    `The conversation's files may get ${Math.max(0, left.files)} more files and ${Math.max(0, left.bytes)} more bytes. Delete some, or ask for more.`,
  );
}
