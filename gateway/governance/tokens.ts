/** Bearer tokens: shown once, stored as a digest, answered from memory. */
import { type Caller, type Role, roles, type User } from '../domain.ts';
import { newTokenId, type SpecialistId, type TokenId, type UserId } from '../ids.ts';
import { Problem } from '../problem.ts';
import { reachOf } from '../reach.ts';
import { inserted, repeatable, type Sql, withDeadline } from './connection.ts';

/** `egw_<role>_<43 characters>`: 256 random bits, recognisable by a secret scanner and by its owner. */
const secretPattern = new RegExp(`^egw_(?:${roles.join('|')})_[0-9A-Za-z_-]{43}$`);
/** Callers kept in memory; the oldest is forgotten first and read again when it comes back. */
const maxRemembered = 10_000;

interface TokenRow {
  readonly id: TokenId;
  readonly role: Role;
  readonly name: string;
  readonly user_id: UserId | null;
  /** Ids with commas between them; null for none. */
  readonly specialists: string | null;
  readonly created_at: Date;
}

export class Tokens {
  readonly #sql: Sql;
  readonly #callers = new Map<string, Caller>();
  /** Grows with each change of what a caller is: a lookup that began before one does not fill the memory after it. */
  #changes = 0;

  constructor(sql: Sql) {
    this.#sql = sql;
  }

  /** Of the organization itself when `user` is null. Throws `conflict` when the person was disabled meanwhile. */
  async create(role: Role, name: string, user: User | null): Promise<{ caller: Caller; secret: string }> {
    const secret = `egw_${role}_${Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString('base64url')}`;
    const id = user?.id ?? null;
    const caller: Caller = {
      token: newTokenId(),
      role,
      name,
      user: id,
      reach: reachOf(role, id, user?.specialists ?? []),
    };
    const made = await inserted(
      () => this.#sql`
        insert into tokens (id, role, name, user_id, digest, created_at)
        select ${caller.token}::text, ${role}::text, ${name}::text, ${id}::text, ${digestOf(secret)}::text,
          ${new Date()}::timestamptz
        where ${id}::text is null or exists (select 1 from users where id = ${id}::text and disabled_at is null)
        returning id`,
      'tokens_pkey',
    );
    if (made?.length === 0) throw new Problem('conflict', 'This user is disabled and gets no token');
    return { caller, secret };
  }

  async list(): Promise<readonly (Caller & { createdAt: Date })[]> {
    const rows = await withDeadline(
      this.#sql<TokenRow[]>`${this.#columns()} where t.revoked_at is null order by t.created_at, t.id`,
    );
    return rows.map((row) => ({ ...callerOfRow(row), createdAt: row.created_at }));
  }

  /** False when there is no such token or it was revoked before. */
  async revoke(token: TokenId): Promise<boolean> {
    const rows = await withDeadline(
      this.#sql`update tokens set revoked_at = ${new Date()} where id = ${token} and revoked_at is null returning id`,
    );
    this.#forget((caller) => caller.token === token);
    return rows.length > 0;
  }

  /** Revokes all that a person has. */
  async revokeOf(user: UserId): Promise<readonly TokenId[]> {
    const rows = await repeatable(
      () => this.#sql<{ id: TokenId }[]>`
        update tokens set revoked_at = ${new Date()} where user_id = ${user} and revoked_at is null returning id`,
    );
    this.#forget((caller) => caller.user === user);
    return rows.map(({ id }) => id);
  }

  /** What a person can reach has changed: it is read again. Answers the tokens that the person has. */
  async forgetOf(user: UserId): Promise<readonly TokenId[]> {
    this.#forget((caller) => caller.user === user);
    const rows = await withDeadline(
      this.#sql<{ id: TokenId }[]>`select id from tokens where user_id = ${user} and revoked_at is null`,
    );
    return rows.map(({ id }) => id);
  }

  async authenticate(secret: string): Promise<Caller | null> {
    // Anything else was never issued: no digest, no query.
    if (!secretPattern.test(secret)) return null;
    const digest = digestOf(secret);
    const known = this.#callers.get(digest);
    if (known !== undefined) return known;
    const changes = this.#changes;
    const [row] = await withDeadline(
      // A token that was made while its user was being disabled is none: the revocation has not seen it.
      this.#sql<TokenRow[]>`${this.#columns()}
        where t.digest = ${digest} and t.revoked_at is null
          and not exists (select from users u where u.id = t.user_id and u.disabled_at is not null)`,
    );
    if (row === undefined) return null;
    const caller = callerOfRow(row);
    if (changes === this.#changes) this.#remember(digest, caller);
    return caller;
  }

  #columns() {
    return this.#sql`
      select t.id, t.role, t.name, t.user_id, t.created_at,
        (select string_agg(s.specialist, ',') from user_specialists s where s.user_id = t.user_id) as specialists
      from tokens t`;
  }

  #forget(which: (caller: Caller) => boolean): void {
    this.#changes += 1;
    for (const [digest, caller] of this.#callers) if (which(caller)) this.#callers.delete(digest);
  }

  #remember(digest: string, caller: Caller): void {
    if (this.#callers.size >= maxRemembered) {
      const oldest = this.#callers.keys().next();
      if (!oldest.done) this.#callers.delete(oldest.value);
    }
    this.#callers.set(digest, caller);
  }
}

function callerOfRow(row: TokenRow): Caller {
  const specialists = (row.specialists?.split(',') ?? []) as SpecialistId[];
  return {
    token: row.id,
    role: row.role,
    name: row.name,
    user: row.user_id,
    reach: reachOf(row.role, row.user_id, specialists),
  };
}

function digestOf(secret: string): string {
  return new Bun.CryptoHasher('sha256').update(secret).digest('hex');
}
