/** The audit's questions to AgentFS' own tables, as SQL for the cloud. None reads contents. */

/**
 * Conversation, second and millisecond not before, conversation, then the place behind which to go on (milliseconds twice,
 * id), limit. The index on `started_at` gives the order; `startedAtMs` is the order within one second.
 */
export const toolCallRows = `
  SELECT id, name, parameters, result, error, status, started_at, duration_ms, ms FROM (
    SELECT *,
      CASE WHEN json_valid(parameters) THEN json_extract(parameters, '$.conversation') END AS conversation,
      CASE WHEN json_valid(parameters) THEN json_extract(parameters, '$.startedAtMs') END AS ms
    FROM tool_calls WHERE started_at >= ?
  )
  WHERE conversation = ? AND ms >= ? AND (ms > ? OR (ms = ? AND id > ?))
  ORDER BY started_at, ms, id LIMIT ?`;

/** More entries of one conversation than this are not looked at. */
export const maxTreeEntries = 200_000;

/**
 * Files of a conversation behind a place in time. Its id, 1 to name private files too or 0, the place (seconds, nanoseconds,
 * path), limit. A file's path is as the agent sees it, a private one's as in the organization's tree. The last column says how
 * many entries there are.
 */
export const fileRows = `
  WITH RECURSIVE own(ino, place) AS (
    SELECT c.ino, '/conversations/' || c.name FROM fs_dentry c
    WHERE c.name = ? AND c.parent_ino = (SELECT ino FROM fs_dentry WHERE parent_ino = 1 AND name = 'conversations')
  ),
  tree(ino, path) AS (
    SELECT d.ino, CASE d.name WHEN 'work' THEN '/workspace' WHEN 'artifacts' THEN '/artifacts' ELSE place || '/' || d.name END
    FROM own JOIN fs_dentry d ON d.parent_ino = own.ino
    WHERE d.name IN ('work', 'artifacts') OR ?
    UNION ALL
    SELECT d.ino, tree.path || '/' || d.name FROM tree JOIN fs_dentry d ON d.parent_ino = tree.ino
    LIMIT ${maxTreeEntries + 1}
  )
  SELECT tree.path, i.mode, i.size, i.mtime, i.mtime_nsec, i.ctime, i.ctime_nsec, (SELECT count(*) FROM tree)
  FROM tree JOIN fs_inode i ON i.ino = tree.ino
  WHERE (i.ctime, i.ctime_nsec, tree.path) > (?, ?, ?)
  ORDER BY i.ctime, i.ctime_nsec, tree.path LIMIT ?`;
