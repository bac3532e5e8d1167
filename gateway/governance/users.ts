/** The people of the organization: their role, and the specialists that an expert works for. */
import type { Role, User } from '../domain.ts';
import { newUserId, type SpecialistId, type UserId } from '../ids.ts';
import { Problem } from '../problem.ts';
import { inserted, repeatable, type Sql, violates, withDeadline } from './connection.ts';
import type { Page } from './governance.ts';
import { ordinalOf, pageOf } from './ordinal-cursor.ts';

interface UserRow {
  readonly id: UserId;
  readonly ordinal: string;
  readonly name: string;
  readonly role: Role;
  readonly created_at: Date;
  readonly disabled_at: Date | null;
  /** Ids with commas between them; null for none. */
  readonly specialists: string | null;
}

export class Users {
  readonly #sql: Sql;

  constructor(sql: Sql) {
    this.#sql = sql;
  }

  async create(name: string, role: Role, specialists: readonly SpecialistId[]): Promise<User> {
    const user = { id: newUserId(), name, role, specialists, createdAt: new Date(), disabledAt: null };
    const add = () =>
      this.#sql.begin(async (transaction) => {
        await transaction`
          insert into users (id, name, role, created_at) values (${user.id}, ${name}, ${role}, ${user.createdAt})`;
        for (const specialist of specialists) {
          await transaction`insert into user_specialists (user_id, specialist) values (${user.id}, ${specialist})`;
        }
      });
    await knownSpecialists(inserted(add, 'users_pkey'));
    return user;
  }

  async find(id: UserId): Promise<User | null> {
    const [row] = await withDeadline(this.#sql<UserRow[]>`${this.#columns()} where u.id = ${id}`);
    return row === undefined ? null : userOfRow(row);
  }

  /** Newest first, disabled ones too. */
  async list(cursor: string | null, limit: number): Promise<Page<User>> {
    const before = cursor === null ? null : ordinalOf(cursor);
    const rows = await withDeadline(
      this.#sql<UserRow[]>`${this.#columns()}
        where ${before}::bigint is null or u.ordinal < ${before}::bigint
        order by u.ordinal desc limit ${limit + 1}`,
    );
    const page = pageOf(rows, limit);
    return { items: page.rows.map(userOfRow), next: page.next };
  }

  /** No new token can be made from then on. */
  async disable(id: UserId): Promise<User | null> {
    const at = new Date();
    await repeatable(() => this.#sql`update users set disabled_at = coalesce(disabled_at, ${at}) where id = ${id}`);
    return this.find(id);
  }

  /** Replaces the specialists that an expert works for. Throws `conflict` for another role, `not-found` for a specialist. */
  async assign(id: UserId, specialists: readonly SpecialistId[]): Promise<User | null> {
    const user = await this.find(id);
    if (user === null) return null;
    if (user.role !== 'expert') throw new Problem('conflict', 'Only an expert works for chosen specialists');
    const replace = () =>
      this.#sql.begin(async (transaction) => {
        // Of two at once the later one holds, and neither meets the other's rows.
        await transaction`select from users where id = ${id} for update`;
        await transaction`delete from user_specialists where user_id = ${id}`;
        for (const specialist of specialists) {
          await transaction`insert into user_specialists (user_id, specialist) values (${id}, ${specialist})`;
        }
      });
    await knownSpecialists(repeatable(replace));
    return { ...user, specialists };
  }

  #columns() {
    return this.#sql`
      select u.id, u.ordinal, u.name, u.role, u.created_at, u.disabled_at,
        (select string_agg(s.specialist, ',' order by s.specialist) from user_specialists s where s.user_id = u.id)
          as specialists
      from users u`;
  }
}

async function knownSpecialists(work: Promise<unknown>): Promise<void> {
  try {
    await work;
  } catch (error) {
    if (!violates(error, 'user_specialists_specialist_fkey')) throw error;
    throw new Problem('not-found', 'There is no such specialist');
  }
}

function userOfRow(row: UserRow): User {
  return {
    id: row.id,
    name: row.name,
    role: row.role,
    specialists: (row.specialists?.split(',') ?? []) as SpecialistId[],
    createdAt: row.created_at,
    disabledAt: row.disabled_at,
  };
}
