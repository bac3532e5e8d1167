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
import type { Place } from './namespace.ts';

/** Rows of one request. */
const rowsOfPage = 5_000;

/** How often all names are read: those that had to give way get their own ids the next time round. */
const mostRounds = 5;

interface ForeignName extends Place {
  readonly id: number;
  readonly ours: number;
}

/** @returns how many got another id @throws HranaError */
export async function renumberForeignNames(sql: CloudSql): Promise<number> {
  let count = 0;
  for (let round = 0; round < mostRounds; round++) {
    const { renumbered, gaveWay } = await renumberOnce(sql);
    count += renumbered;
    if (gaveWay === 0) break;
  }
  return count;
}

/** Reads all names of the cloud, page by page. */
async function renumberOnce(sql: CloudSql): Promise<{ readonly renumbered: number; readonly gaveWay: number }> {
  let [renumbered, gaveWay] = [0, 0];
  for (let last = 0; ; ) {
    const { rows } = await sql.execute('SELECT id, parent_ino, name FROM fs_dentry WHERE id > ? ORDER BY id LIMIT ?', [
      last,
      rowsOfPage,
    ]);
    const foreign: ForeignName[] = [];
    for (const [id, parentIno, text] of rows) {
      last = Number(id);
      const [parent, name] = [Number(parentIno), String(text)];
      const ours = dentryId(parent, name);
      if (ours !== last) foreign.push({ id: last, ours, parent, name });
    }
    if (foreign.length > 0) {
      const giving = foreign.map(({ parent, name }) => giveWay(parent, name));
      // Somebody may have changed or removed it meanwhile.
      const changes = foreign.map(
        ({ id, ours, parent, name }): SqlStatement => ({
          sql: 'UPDATE fs_dentry SET id = ? WHERE id = ? AND parent_ino = ? AND name = ?',
          args: [ours, id, parent, name],
        }),
      );
      const counts = (await sql.batch([...giving, ...changes], { transaction: true })).map(
        (one) => one.affectedRowCount,
      );
      gaveWay += sum(counts.slice(0, giving.length));
      renumbered += sum(counts.slice(giving.length));
    }
    if (rows.length < rowsOfPage) return { renumbered, gaveWay };
  }
}

const sum = (counts: readonly number[]): number => counts.reduce((total, one) => total + one, 0);

/** Whatever other name has the row id that we give this one gets an id that nothing else has. */
function giveWay(parent: number, name: string): SqlStatement {
  return {
    sql: 'UPDATE fs_dentry SET id = ? WHERE id = ? AND NOT (parent_ino = ? AND name = ?)',
    args: [randomIno(), dentryId(parent, name), parent, name],
  };
}

/**
 * The row id of a new name in the cloud, as an expression: ours, or one that nothing else has where another name has ours, as
 * a program that renames in the same row takes it along. That one keeps it: a host may be about to push its removal.
 */
export const newNameId = 'coalesce((SELECT ? FROM fs_dentry WHERE id = ?), ?)';
export function newNameIdArgs(parent: number, name: string): number[] {
  const ours = dentryId(parent, name);
  return [randomIno(), ours, ours];
}

/**
 * Frees ids of ours here for their own names: names that another program has renamed in the same row have taken them along.
 * Each gets an id that nothing else has. @returns whether there was one
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
