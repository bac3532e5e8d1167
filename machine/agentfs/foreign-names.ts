/**
 * Names that another program has given in the cloud database, such as the public SDK: their row ids are counted up, ours are
 * hashes of their places (ids.ts). The sync engine cannot merge the same name under two ids. A name's id means nothing to
 * anybody, so there it gets the id that we would have given it; then the two are one row, and the last push wins.
 */
import { times } from './batches.ts';
import type { CloudSql } from './cloud.ts';
import type { SqlDriver } from './driver.ts';
import type { SqlStatement } from './hrana.ts';
import { dentryId, randomIno } from './ids.ts';

/** Rows of one request. */
const rowsOfPage = 5_000;

/** Reads all names of the cloud, page by page. @returns how many got another id @throws HranaError */
export async function renumberForeignNames(sql: CloudSql): Promise<number> {
  let count = 0;
  for (let last = 0; ; ) {
    const { rows } = await sql.execute('SELECT id, parent_ino, name FROM fs_dentry WHERE id > ? ORDER BY id LIMIT ?', [
      last,
      rowsOfPage,
    ]);
    const changes: SqlStatement[] = [];
    for (const [id, parent, name] of rows) {
      last = Number(id);
      const ours = dentryId(Number(parent), String(name));
      // Somebody may have changed or removed it meanwhile.
      if (ours !== last)
        changes.push({
          sql: 'UPDATE fs_dentry SET id = ? WHERE id = ? AND parent_ino = ? AND name = ?',
          args: [ours, last, Number(parent), String(name)],
        });
    }
    await sql.batch(changes, { transaction: true });
    count += changes.length;
    if (rows.length < rowsOfPage) return count;
  }
}

/**
 * Frees ids of ours for their own names: a program that renames in the same row, as the public SDK does, has taken them to
 * other names. Such a row gets an id that nothing else has. @returns whether there was one
 */
export async function freeIds(sql: SqlDriver, ids: readonly number[]): Promise<boolean> {
  const ours = times(ids, '?');
  const taken = await sql.all(`SELECT name, parent_ino, ino FROM fs_dentry WHERE id IN (${ours})`, ...ids);
  // Not by an update: the engine's log of changes has no new row of one whose id changes, and no push gets over that.
  await sql.run(`DELETE FROM fs_dentry WHERE id IN (${ours})`, ...ids);
  for (const { name, parent_ino: parent, ino } of taken) {
    const insert = 'INSERT INTO fs_dentry (id, name, parent_ino, ino) VALUES (?, ?, ?, ?)';
    await sql.run(insert, randomIno(), name!, parent!, ino!);
  }
  return taken.length > 0;
}
