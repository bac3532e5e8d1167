/** Governance on Postgres, embedded or remote: opens the database, migrates it and joins its subjects. */
import { newOrganizationId } from '../ids.ts';
import { Problem } from '../problem.ts';
import { AmendmentLog } from './amendments.ts';
import { connect, type DatabaseAddress, type Sql, withDeadline } from './connection.ts';
import { Conversations } from './conversations.ts';
import { EventLog } from './event-log.ts';
import type { Governance } from './governance.ts';
import { Messages } from './messages.ts';
import { migrate } from './migrations.ts';
import { Operations } from './operations.ts';
import { Purges } from './purges.ts';
import { Tokens } from './tokens.ts';
import { Users } from './users.ts';

export interface GovernanceOptions {
  readonly database: DatabaseAddress;
  /** Used when the organization is made, at the first start. */
  readonly organizationName: string;
  /** How long the prose of a failed message is kept, in days. */
  readonly failedProseDays: number;
}

export interface OpenedGovernance extends Governance {
  /** Resolves with the reason when the database can no longer be relied on and the process must end. */
  readonly failed: Promise<Error>;
  /** Resolves when the database answers, within a few seconds. */
  ping(): Promise<void>;
}

const dayMs = 24 * 60 * 60 * 1000;
const closeLimitS = 5;
const pingLimitMs = 3_000;

/**
 * Opens the governance database and brings its schema up to date. Throws `DatabaseUnusable` with what to do when it
 * cannot be used.
 */
export async function openGovernance(options: GovernanceOptions): Promise<OpenedGovernance> {
  const sql = await connect(options.database);
  try {
    await migrate(sql);
    const organization = await ensureOrganization(sql, options.organizationName);
    const log = await EventLog.open(sql);
    const messages = new Messages(sql, log);
    const conversations = new Conversations(sql);
    const tokens = new Tokens(sql);
    const users = new Users(sql);
    const operations = new Operations(sql);
    const purges = new Purges(sql);
    const eraseOld = () => messages.eraseFailedProse(new Date(Date.now() - options.failedProseDays * dayMs));
    await eraseOld();

    return {
      organization: async () => organization,
      createToken: (role, name) => tokens.create(role, name, null),
      createUserToken: async (id, name) => {
        const user = await users.find(id);
        if (user === null) throw new Problem('not-found', 'There is no such user');
        return tokens.create(user.role, name, user);
      },
      listTokens: () => tokens.list(),
      revokeToken: (token) => tokens.revoke(token),
      authenticate: (secret) => tokens.authenticate(secret),
      createUser: (name, role, specialists) => users.create(name, role, specialists),
      findUser: (id) => users.find(id),
      listUsers: (cursor, limit) => users.list(cursor, limit),
      disableUser: async (id) => {
        const user = await users.disable(id);
        return user === null ? null : { user, revoked: await tokens.revokeOf(id) };
      },
      assignSpecialists: async (id, specialists) => {
        const user = await users.assign(id, specialists);
        return user === null ? null : { user, tokens: await tokens.forgetOf(id) };
      },
      beginOperation: (by, kind, subject) => operations.begin(by, kind, subject),
      finishOperation: (id, result) => operations.finish(id, result),
      listOperations: (cursor, limit) => operations.list(cursor, limit),
      findPurgeable: (conversation) => purges.find(conversation),
      countFailedProse: (before) => purges.countFailedProse(before),
      eraseFailedProse: (before) => messages.eraseFailedProse(before),
      beginPurge: async (by, before, found) => {
        try {
          return await purges.begin(by, before, found);
        } finally {
          // Also when the answer was lost: then the next question is for the database.
          conversations.forget([...found.keys()]);
        }
      },
      purgeStopped: (id, conversation) => purges.stopped(id, conversation),
      advancePurge: (id, conversation, step) => purges.advance(id, conversation, step),
      erasePurged: (id, conversation) => purges.erase(id, conversation),
      finishPurge: (id, result) => purges.finish(id, result),
      readPurge: (id) => purges.read(id),
      unfinishedPurges: () => purges.unfinished(),
      listPurges: (cursor, limit) => purges.list(cursor, limit),
      createSpecialist: (name, persona) => conversations.createSpecialist(name, persona),
      listSpecialists: () => conversations.listSpecialists(),
      findSpecialist: (idOrName) => conversations.findSpecialist(idOrName),
      offboardSpecialist: (id) => conversations.offboardSpecialist(id),
      createConversation: (id, specialist, owner) => conversations.create(id, specialist, owner ?? null),
      findConversation: (id) => conversations.find(id),
      listConversations: (reach, cursor, limit) => conversations.list(reach, cursor, limit),
      bindSession: (id, session) => conversations.bindSession(id, session),
      isUntold: (id) => conversations.isUntold(id),
      replaceSession: (id, lost, session) => conversations.replaceSession(id, lost, session),
      accept: (input) => messages.accept(input),
      findKeyed: (conversation, key) => messages.findKeyed(conversation, key),
      findMessage: (conversation, id) => messages.find(conversation, id),
      dispatch: (id, watermark, admission) => messages.dispatch(id, watermark, admission),
      deliver: (id, locator, timings, card) => messages.deliver(id, locator, timings, card),
      fail: async (id, problem, timings) => {
        const event = await messages.fail(id, problem, timings);
        // Here instead of a timer: prose can only grow old where a failure made some. The failure is committed, so an error
        // here is not its error; erasing is repeated with the next failure and at the next start.
        eraseOld().catch(() => undefined);
        return event;
      },
      cancel: (id, timings) => messages.cancel(id, timings),
      cancelWaiting: (conversation, id) => messages.cancelWaiting(conversation, id),
      pending: () => messages.pending(),
      log: (conversation, body) => messages.log(conversation, body),
      eventsAfter: (seq, limit) => log.after(seq, limit),
      lastSeq: () => log.last,
      amendments: new AmendmentLog(sql, log),
      failed: log.failed,
      ping: async () => {
        await withDeadline(sql`select 1`, pingLimitMs);
      },
      close: () => sql.end({ timeout: closeLimitS }),
    };
  } catch (error) {
    await sql.end({ timeout: 1 });
    throw error;
  }
}

async function ensureOrganization(sql: Sql, name: string): Promise<{ readonly id: string; readonly name: string }> {
  const id = newOrganizationId();
  await withDeadline(
    sql`insert into organization (id, name, created_at) values (${id}, ${name}, ${new Date()}) on conflict do nothing`,
  );
  const [row] = await withDeadline(sql<{ id: string; name: string }[]>`select id, name from organization`);
  if (row === undefined) throw new Error('the organization was not made');
  return row;
}
