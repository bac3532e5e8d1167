/** The rows by which the delta says what it has of the base, and what it hides of it (AgentFS specification, "Overlay"). */
import type { BaseEntry } from './base.ts';
import { bytesAsSql, type SqlValue } from './driver.ts';
import { now } from './inode.ts';
import type { LowerNode } from './overlay.ts';

export interface Statement {
  readonly sql: string;
  readonly args: readonly SqlValue[];
}

/** Contents and origin of a copy; its inode and its name are the caller's. */
export function copyRows({ entry, inode: { ino } }: LowerNode, chunkSize: number): Statement[] {
  const rows: Statement[] = [
    { sql: 'INSERT OR REPLACE INTO fs_origin (delta_ino, base_ino) VALUES (?, ?)', args: [ino, ino] },
  ];
  for (let at = 0; at < entry.bytes.length; at += chunkSize) {
    const { expression, value } = bytesAsSql(entry.bytes.subarray(at, at + chunkSize));
    const sql = `INSERT INTO fs_data (ino, chunk_index, data) VALUES (?, ?, ${expression})`;
    rows.push({ sql, args: [ino, at / chunkSize, value] });
  }
  return rows;
}

/** Hides what the base has at a place. */
export function whiteoutRow({ path }: BaseEntry): Statement {
  return {
    sql:
      'INSERT INTO fs_whiteout (path, parent_path, created_at) VALUES (?, ?, ?) ' +
      'ON CONFLICT(path) DO UPDATE SET created_at = excluded.created_at',
    args: [path, path.slice(0, path.lastIndexOf('/')) || '/', now().seconds],
  };
}

/** Something new comes where the base has something: a name hides that from now on, and whiteouts what was in it. */
export function coverRows({ path, children }: BaseEntry): Statement[] {
  const shown = { sql: 'DELETE FROM fs_whiteout WHERE path = ?', args: [path] };
  return [shown, ...[...children.values()].map(whiteoutRow)];
}
