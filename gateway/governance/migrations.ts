/** The schema's history. A migration is never edited once released: the database remembers its checksum. */
import type { TransactionSql } from 'postgres';
import { DatabaseUnusable, describe, isRefusal, type Sql } from './connection.ts';
import foundation from './migrations/0001_foundation.sql' with { type: 'text' };
import amendments from './migrations/0110_amendments.sql' with { type: 'text' };
import questionCards from './migrations/0130_question_cards.sql' with { type: 'text' };
import users from './migrations/0140_users.sql' with { type: 'text' };
import operations from './migrations/0141_operations.sql' with { type: 'text' };
import purges from './migrations/0142_purges.sql' with { type: 'text' };

export interface Migration {
  readonly version: number;
  readonly name: string;
  readonly sql: string;
}

export const migrations: readonly Migration[] = [
  { version: 1, name: 'foundation', sql: foundation },
  { version: 110, name: 'amendments', sql: amendments },
  { version: 130, name: 'question cards', sql: questionCards },
  { version: 140, name: 'users', sql: users },
  { version: 141, name: 'operations', sql: operations },
  { version: 142, name: 'purges', sql: purges },
];

/**
 * Brings the database to the newest version, each migration in one transaction. Throws {@link DatabaseUnusable} when the
 * database is newer than this program or was migrated with another text.
 */
export async function migrate(sql: Sql, steps: readonly Migration[] = migrations): Promise<void> {
  try {
    await sql`
      create table if not exists edge_gateway_migrations (
        version integer primary key,
        name text not null,
        checksum text not null,
        applied_at timestamptz not null
      )`;
    for (const step of steps) await sql.begin((transaction) => applyOnce(transaction, step));
    const [newest] = await sql<
      { version: number | null }[]
    >`select max(version) as version from edge_gateway_migrations`;
    const known = steps.at(-1)?.version ?? 0;
    if ((newest?.version ?? 0) > known) throw newer(newest?.version ?? 0, known);
  } catch (error) {
    if (isRefusal(error))
      throw new DatabaseUnusable(`The database could not be migrated: ${describe(error)}`, { cause: error });
    throw error;
  }
}

async function applyOnce(transaction: TransactionSql<Record<string, never>>, step: Migration): Promise<void> {
  // Two starting gateways take turns here; an advisory lock would do the same but means nothing on the embedded database.
  await transaction`lock table edge_gateway_migrations in exclusive mode`;
  const applied = await transaction<{ version: number; checksum: string }[]>`
    select version, checksum from edge_gateway_migrations where version >= ${step.version} order by version`;
  const checksum = new Bun.CryptoHasher('sha256').update(step.sql).digest('hex');
  const same = applied.find((row) => row.version === step.version);
  if (same !== undefined) {
    if (same.checksum === checksum) return;
    throw new DatabaseUnusable(
      `Migration ${step.version} (${step.name}) was applied with another text than this program has; restore the program that made this database`,
    );
  }
  const last = applied.at(-1);
  if (last !== undefined) throw newer(last.version, step.version);
  await transaction.unsafe(step.sql).simple();
  await transaction`
    insert into edge_gateway_migrations (version, name, checksum, applied_at)
    values (${step.version}, ${step.name}, ${checksum}, ${new Date()})`;
}

function newer(found: number, known: number): DatabaseUnusable {
  return new DatabaseUnusable(
    `The database has version ${found}, this program knows up to ${known}; start the newer program that made it`,
  );
}
