/** Bearer tokens: shown once, stored as a digest, answered from memory. */
import { type Caller, type Role, roles } from '../domain.ts';
import { newTokenId, type TokenId } from '../ids.ts';
import { type Sql, withDeadline } from './connection.ts';

/** `egw_<role>_<43 characters>`: 256 random bits, recognisable by a secret scanner and by its owner. */
const secretPattern = new RegExp(`^egw_(?:${roles.join('|')})_[0-9A-Za-z_-]{43}$`);
/** Callers kept in memory; the oldest is forgotten first and read again when it comes back. */
const maxRemembered = 10_000;

interface TokenRow {
  readonly id: TokenId;
  readonly role: Role;
  readonly name: string;
  readonly created_at: Date;
}

export class Tokens {
  readonly #sql: Sql;
  readonly #callers = new Map<string, Caller>();
  /** Grows with each revocation: a lookup that began before one does not fill the memory after it. */
  #revocations = 0;

  constructor(sql: Sql) {
    this.#sql = sql;
  }

  async create(role: Role, name: string): Promise<{ caller: Caller; secret: string }> {
    const secret = `egw_${role}_${Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString('base64url')}`;
    const caller: Caller = { token: newTokenId(), role, name };
    await withDeadline(
      this.#sql`
        insert into tokens (id, role, name, digest, created_at)
        values (${caller.token}, ${role}, ${name}, ${digestOf(secret)}, ${new Date()})`,
    );
    return { caller, secret };
  }

  async list(): Promise<readonly (Caller & { createdAt: Date })[]> {
    const rows = await withDeadline(
      this.#sql<TokenRow[]>`
        select id, role, name, created_at from tokens where revoked_at is null order by created_at, id`,
    );
    return rows.map((row) => ({ token: row.id, role: row.role, name: row.name, createdAt: row.created_at }));
  }

  /** False when there is no such token or it was revoked before. */
  async revoke(token: TokenId): Promise<boolean> {
    const rows = await withDeadline(
      this.#sql`update tokens set revoked_at = ${new Date()} where id = ${token} and revoked_at is null returning id`,
    );
    this.#revocations += 1;
    for (const [digest, caller] of this.#callers) if (caller.token === token) this.#callers.delete(digest);
    return rows.length > 0;
  }

  async authenticate(secret: string): Promise<Caller | null> {
    // Anything else was never issued: no digest, no query.
    if (!secretPattern.test(secret)) return null;
    const digest = digestOf(secret);
    const known = this.#callers.get(digest);
    if (known !== undefined) return known;
    const revocations = this.#revocations;
    const [row] = await withDeadline(
      this.#sql<TokenRow[]>`
        select id, role, name, created_at from tokens where digest = ${digest} and revoked_at is null`,
    );
    if (row === undefined) return null;
    const caller: Caller = { token: row.id, role: row.role, name: row.name };
    if (revocations === this.#revocations) this.#remember(digest, caller);
    return caller;
  }

  #remember(digest: string, caller: Caller): void {
    if (this.#callers.size >= maxRemembered) {
      const oldest = this.#callers.keys().next();
      if (!oldest.done) this.#callers.delete(oldest.value);
    }
    this.#callers.set(digest, caller);
  }
}

function digestOf(secret: string): string {
  return new Bun.CryptoHasher('sha256').update(secret).digest('hex');
}
