/** The record of what was done to the organization as a whole: who, what, and what came of it. */
import type { Caller, Operation, OperationKind } from '../domain.ts';
import { newOperationId, type OperationId, type TokenId, type UserId } from '../ids.ts';
import { inserted, repeatable, type Sql, withDeadline } from './connection.ts';
import type { Page } from './governance.ts';
import { ordinalOf, pageOf } from './ordinal-cursor.ts';

type Detail = Readonly<Record<string, unknown>>;

interface OperationRow {
  readonly id: OperationId;
  readonly ordinal: string;
  readonly kind: OperationKind;
  readonly token: TokenId;
  readonly user_id: UserId | null;
  readonly subject: string;
  readonly begun_at: Date;
  readonly finished_at: Date | null;
  readonly result: string | null;
}

export class Operations {
  readonly #sql: Sql;

  constructor(sql: Sql) {
    this.#sql = sql;
  }

  /** Before anything is done: what is cut off in the middle can be seen. */
  async begin(by: Caller, kind: OperationKind, subject: Detail): Promise<OperationId> {
    const id = newOperationId();
    const at = new Date();
    await inserted(
      () => this.#sql`
        insert into operations (id, kind, token, user_id, subject, begun_at)
        values (${id}, ${kind}, ${by.token}, ${by.user}, ${JSON.stringify(subject)}, ${at})`,
      'operations_pkey',
    );
    return id;
  }

  async finish(id: OperationId, result: Detail): Promise<void> {
    const at = new Date();
    await repeatable(
      () => this.#sql`
        update operations set finished_at = ${at}, result = ${JSON.stringify(result)}
        where id = ${id} and finished_at is null`,
    );
  }

  /** Newest first. */
  async list(cursor: string | null, limit: number): Promise<Page<Operation>> {
    const before = cursor === null ? null : ordinalOf(cursor);
    const rows = await withDeadline(
      this.#sql<OperationRow[]>`
        select id, ordinal, kind, token, user_id, subject, begun_at, finished_at, result from operations
        where ${before}::bigint is null or ordinal < ${before}::bigint
        order by ordinal desc limit ${limit + 1}`,
    );
    const page = pageOf(rows, limit);
    return { items: page.rows.map(operationOfRow), next: page.next };
  }
}

function operationOfRow(row: OperationRow): Operation {
  return {
    id: row.id,
    kind: row.kind,
    token: row.token,
    user: row.user_id,
    subject: JSON.parse(row.subject) as Detail,
    begunAt: row.begun_at,
    finishedAt: row.finished_at,
    result: row.result === null ? null : (JSON.parse(row.result) as Detail),
  };
}
