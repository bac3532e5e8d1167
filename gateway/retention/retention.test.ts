/**
 * A purge on the real databases, with Hermes' own schema: what is left is as if the conversation had never been, whatever
 * was cut off on the way, and everything else is what it was.
 */
import { Database } from 'bun:sqlite';
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startAuthority, type TestAuthority } from '../../machine/agentfs/authority.fixture.ts';
import { HranaDatabase } from '../../machine/agentfs/hrana.ts';
import { dentryId } from '../../machine/agentfs/ids.ts';
import type { Caller, Specialist } from '../domain.ts';
import { establishConversation, provisionOrganization } from '../establishment.ts';
import { connect } from '../governance/connection.ts';
import { embeddedDatabase, type TestDatabase } from '../governance/databases.fixture.ts';
import { type OpenedGovernance, openGovernance } from '../governance/postgres.ts';
import { conversationTables } from '../governance/purges.ts';
import { type ConversationId, type Locator, newConversationId, newMessageId } from '../ids.ts';
import type { HolderControl } from '../machine/holder-calls.ts';
import { Problem } from '../problem.ts';
import { isNothing, noCounts } from './counts.ts';
import { createRetention, type Retention, type RetentionParts } from './retention.ts';
import { sessionColumns } from './session-rows.ts';

const python = process.env.EDGE_TEST_PYTHON ?? '';
if (python === '') console.warn('EDGE_TEST_PYTHON names no Python with hermes-agent: nothing is purged here.');

const marker = 'xylophonic';
const noTimings = { attachMs: 1, admissionMs: null, firstUpdateMs: null, loopMs: null, settleMs: null };

describe.skipIf(python === '')('a purge', () => {
  let authority: TestAuthority;
  let sessiondb: HranaDatabase;
  let database: TestDatabase;
  let governance: OpenedGovernance;
  let specialist: Specialist;
  let by: Caller;
  let number = 0;
  const calls: string[] = [];

  beforeAll(async () => {
    authority = await startAuthority();
    await provisionOrganization(authority.cloud);
    sessiondb = new HranaDatabase({ ...authority.address, url: 'http://localhost/sessiondb' });
    for (const sql of hermesSchema()) await sessiondb.execute(sql);
    database = await embeddedDatabase();
    await open();
    specialist = await governance.createSpecialist('Eleanora', '');
    by = (await governance.createToken('superadmin', 'the operator')).caller;
    // The sibling, with the same words.
    await conversation('sibling');
  }, 60_000);
  afterAll(async () => {
    await governance?.close();
    await database?.stop();
    await authority?.stop();
  });

  async function open(): Promise<void> {
    governance = await openGovernance({ database: database.address, organizationName: 'x', failedProseDays: 3_650 });
  }

  const holders: HolderControl = {
    replace: async (conversations) => {
      calls.push('pull');
      return { state: 'done', fates: conversations.map(() => 'none') };
    },
    end: async (conversations) => {
      calls.push('end');
      return { state: 'done', fates: conversations.map(() => 'ended') };
    },
  };

  function retention(parts: Partial<RetentionParts> = {}): Retention {
    return createRetention({
      governance,
      sessiondb,
      agentfs: authority.sql,
      holders,
      endTurns: async () => void calls.push('turns'),
      requestsEnded: async () => void calls.push('requests'),
      report: (what, error) => calls.push(`${what}: ${String(error)}`),
      ...parts,
    });
  }

  /** With something of everything that a conversation can leave, the marker in all that has words. */
  async function conversation(name: string): Promise<ConversationId> {
    number += 1;
    const id = newConversationId();
    await establishConversation(authority.cloud, id, specialist);
    await governance.createConversation(id, specialist.id);
    const session = `session-${name}-${number}`;
    await governance.bindSession(id, session);
    const words = `${marker} of ${name} ${number}`;

    const insert = (sql: string, args: (string | number | null)[]) => sessiondb.execute(sql, args);
    for (const [own, parent, config] of [
      [session, null, null],
      [`${session}-compressed`, session, null],
      [`${session}-delegated`, `${session}-compressed`, JSON.stringify({ _delegate_from: session })],
    ] as const) {
      await insert(
        "INSERT INTO sessions (id, source, parent_session_id, model_config, started_at, title) VALUES (?, 'acp', ?, ?, 1, ?)",
        [own, parent, config, `${words} ${own}`],
      );
      await insert('INSERT INTO session_model_usage (session_id, model) VALUES (?, ?)', [own, 'm']);
      for (let row = 0; row < 3; row += 1) {
        await insert('INSERT INTO messages (session_id, role, content, tool_calls, timestamp) VALUES (?, ?, ?, ?, ?)', [
          own,
          'user',
          `${words} ${row}`,
          `[{"name": "${words}"}]`,
          number * 100 + row,
        ]);
      }
    }
    await insert(
      "INSERT INTO async_delegations (delegation_id, origin_session, parent_session_id, state, dispatched_at, updated_at, task_json) VALUES (?, '', ?, 'done', 1, 1, ?)",
      [`delegation-${number}`, session, words],
    );

    const home = `/conversations/${id}`;
    await authority.cloud.writeFileOnce(`${home}/work/notes/${marker}.txt`, Buffer.from(words));
    await authority.cloud.writeFileOnce(`${home}/work/large`, new Uint8Array(300_000).fill(number));
    const shared = await authority.cloud.writeFileOnce(`${home}/work/shared`, Buffer.from(`kept ${number}`));
    await authority.sql.execute(
      "INSERT INTO tool_calls (id, name, parameters, status, started_at) VALUES (?, 'shell', ?, 'success', 1)",
      [1_000 + number, JSON.stringify({ conversation: id, argv: [words] })],
    );
    // Somebody has a name for one of its files elsewhere.
    if (name === 'linked') {
      const memory = (await authority.cloud.stat('/memory'))!.ino;
      await authority.sql.execute('INSERT INTO fs_dentry (id, name, parent_ino, ino) VALUES (?, ?, ?, ?)', [
        dentryId(memory, `shared-${number}`),
        `shared-${number}`,
        memory,
        shared.inode.ino,
      ]);
      await authority.sql.execute('UPDATE fs_inode SET nlink = 2 WHERE ino = ?', [shared.inode.ino]);
    }

    const amendment = { kind: 'edit', locator: `edited-${number}` as Locator, was: 'a', becomes: 'b' } as const;
    const intended = await governance.amendments.intend({ conversation: id, by, ...amendment });
    await governance.amendments.record(intended, id, 'edit', amendment.locator);
    for (const end of ['delivered', 'failed', 'accepted'] as const) {
      const message = newMessageId();
      const blocks = [{ type: 'text', text: words }];
      await governance.accept({ id: message, conversation: id, blocks, digest: '0'.repeat(64), key: null });
      if (end === 'accepted') continue;
      await governance.dispatch(message, 0, 'warm');
      const card = { question: words, options: [], allowText: true };
      const locator = `locator-${number}` as Locator;
      if (end === 'delivered') await governance.deliver(message, locator, noTimings, card as never);
      else await governance.fail(message, new Problem('agent-failed', 'It failed').document, noTimings);
    }
    return id;
  }

  /** Every row of every table, but for what counts or dates the work itself, and for the insides of the indexes. */
  async function everything(): Promise<Record<string, unknown>> {
    const all: Record<string, unknown> = {};
    for (const [name, sql] of [
      ['agentfs', authority.sql],
      ['sessiondb', sessiondb],
    ] as const) {
      const tables = await sql.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name");
      for (const [table] of tables.rows) {
        if (/^sqlite_|^turso_|_fts.*_(data|idx|config)$/.test(String(table))) continue;
        const columns = String(table) === 'fs_inode' ? 'ino, mode, nlink, size' : '*';
        const { rows } = await sql.execute(`SELECT ${columns} FROM "${String(table)}"`);
        all[`${name}.${String(table)}`] = rows.map((row) => JSON.stringify(row)).toSorted();
      }
    }
    const sql = await connect(database.address);
    for (const table of ['conversations', 'messages', 'events', 'cards', 'amendments', 'specialists', 'tokens']) {
      all[`governance.${table}`] = await sql.unsafe(`select * from ${table} order by 1`);
    }
    await sql.end();
    return all;
  }

  const only = (id: ConversationId) => ({ conversations: [id], failedProseBefore: null });
  const refusalOf = (work: Promise<unknown>) =>
    work.then(
      () => 'done',
      (error: unknown) => (error instanceof Problem ? error.problem : String(error)),
    );

  test('what was confirmed is gone from all three places, and everything else is what it was', async () => {
    const before = await everything();
    const id = await conversation('target');
    const plan = await retention()
      .plan(only(id))
      .catch((error) => error);
    expect(plan.counts).toEqual({
      messages: 3,
      events: 9,
      cards: 1,
      amendments: 1,
      sessions: 3,
      rows: 9,
      indexed: 18,
      usage: 3,
      delegations: 1,
      names: 13,
      files: 13,
      bytes: expect.any(Number),
      toolCalls: 1,
    });
    // A look is a look.
    const seen = await everything();
    const one = retention();
    const { confirmation } = await one.plan(only(id));
    expect(await everything()).toEqual(seen);

    calls.length = 0;
    const purge = await one.purge(by, only(id), confirmation);
    expect(purge).toMatchObject({ token: by.token, finishedAt: expect.any(Date) });
    expect(purge.result).toEqual({ erased: plan.counts, remaining: noCounts, failedProse: 0 });
    expect(calls).toEqual(['turns', 'end', 'requests', 'end', 'pull']);
    expect(await everything()).toEqual(before);
    expect(await governance.findConversation(id)).toBeNull();
    const inIndexes = await sessiondb.execute(
      `SELECT (SELECT count(*) FROM messages_fts WHERE messages_fts MATCH 'target'),
        (SELECT count(*) FROM messages_fts_trigram WHERE messages_fts_trigram MATCH 'target'),
        (SELECT count(*) FROM messages_fts WHERE messages_fts MATCH 'sibling')`,
    );
    expect(inIndexes.rows).toEqual([[0, 0, 9]]);
    // Nor does a word of it stay inside of the indexes.
    for (const index of ['messages_fts', 'messages_fts_trigram']) {
      const { rows } = await sessiondb.execute(
        `SELECT count(*) FROM ${index}_data WHERE instr(CAST(block AS TEXT), 'target') OR instr(block, CAST('target' AS BLOB))`,
      );
      expect(rows).toEqual([[0]]);
    }
    const record = (await governance.listPurges(null, 10)).items[0]!;
    expect(record.targets).toEqual([{ conversation: id, session: null, step: 'erased', found: plan.counts }]);
    expect(JSON.stringify(record)).not.toContain(marker);
  }, 60_000);

  test('a file that has a name elsewhere stays there', async () => {
    const id = await conversation('linked');
    const one = retention();
    await one.purge(by, only(id), (await one.plan(only(id))).confirmation);
    const path = `/memory/shared-${number}`;
    expect(Buffer.from(await authority.cloud.readFile(path)).toString()).toBe(`kept ${number}`);
    expect((await authority.cloud.stat(path))?.nlink).toBe(1);
    expect(await authority.cloud.stat(`/conversations/${id}`)).toBeNull();
  }, 60_000);

  test('a confirmation is of these targets as they are, of this process and for a while', async () => {
    const [id, other] = [await conversation('one'), await conversation('other')];
    const one = retention();
    const { confirmation } = await one.plan(only(id));
    const count = (await governance.listPurges(null, 200)).items.length;
    expect(await refusalOf(one.purge(by, only(other), confirmation))).toBe('conflict');
    expect(await refusalOf(one.purge(by, { conversations: [id, other], failedProseBefore: null }, confirmation))).toBe(
      'conflict',
    );
    expect(await refusalOf(one.purge(by, only(id), `${confirmation.slice(0, -1)}!`))).toBe('conflict');
    expect(await refusalOf(one.purge(by, only(id), ''))).toBe('conflict');
    expect(await refusalOf(retention().purge(by, only(id), confirmation))).toBe('conflict');
    await authority.cloud.writeFileOnce(`/conversations/${id}/work/new`, Buffer.from('new'));
    expect(await refusalOf(one.purge(by, only(id), confirmation))).toBe('conflict');
    expect(await refusalOf(one.plan(only(newConversationId())))).toBe('not-found');
    expect((await governance.listPurges(null, 200)).items.length).toBe(count);
    expect(await governance.findConversation(id)).not.toBeNull();
    const again = await one.plan(only(id));
    expect((await one.purge(by, only(id), again.confirmation)).finishedAt).not.toBeNull();
    const two = await one.plan(only(other));
    await one.purge(by, only(other), two.confirmation);
    expect(await refusalOf(one.purge(by, only(other), two.confirmation))).toBe('not-found');
  }, 60_000);

  test('the texts of old failures go, the messages stay', async () => {
    const id = await conversation('failures');
    const one = retention();
    const old = { conversations: [], failedProseBefore: new Date(Date.now() - 60_000) };
    expect((await one.plan(old)).failedProse).toBe(0);
    const now = { conversations: [], failedProseBefore: new Date(Date.now() + 1_000) };
    const plan = await one.plan(now);
    expect(plan.failedProse).toBe(2);
    const purge = await one.purge(by, now, plan.confirmation);
    expect(purge.result).toEqual({ erased: noCounts, remaining: noCounts, failedProse: 2 });
    expect((await governance.findPurgeable(id)).counts.messages).toBe(3);
    await one.purge(by, only(id), (await one.plan(only(id))).confirmation);
  }, 60_000);

  test('cut off at any call, before or behind it: closed to all, seen to be open, and gone on with to the same end', async () => {
    const before = await everything();
    const steps = new Set<string>();
    for (const when of ['before', 'behind'] as const) {
      for (let at = 1, isCut = true; isCut; at += 1) {
        const id = await conversation('target');
        const whole = retention();
        let count = 0;
        isCut = false;
        /** Throws at the call of that number, once the purge has begun. */
        const cut = <T extends object>(target: T): T =>
          new Proxy(target, {
            get(_, name) {
              const value = Reflect.get(target, name) as unknown;
              if (typeof value !== 'function') return value;
              return async (...args: unknown[]) => {
                count += 1;
                const isHere = count === at;
                isCut ||= isHere;
                if (isHere && when === 'before') throw new Problem('not-ready', 'cut off');
                const result: unknown = await Reflect.apply(value, target, args);
                if (isHere) throw new Problem('not-ready', 'cut off');
                return result;
              };
            },
          });
        const looked = await whole.plan(only(id));
        const purge = await governance.beginPurge(by, null, new Map([[id, looked.counts]]));
        const broken = retention({
          governance: cut(governance),
          sessiondb: cut(sessiondb),
          agentfs: cut(authority.sql),
          holders: cut(holders),
        });
        expect(await refusalOf(broken.resume(purge))).toBe(isCut ? 'not-ready' : 'done');
        expect(await governance.findConversation(id)).toBeNull();
        expect((await governance.pending()).some(({ message }) => message.conversation === id)).toBe(false);
        if (isCut) {
          const [open] = await governance.unfinishedPurges();
          if (open !== undefined) steps.add(open.targets[0]!.step);
          await retention().resumeAll();
        }
        const done = (await governance.readPurge(purge))!;
        expect(done.finishedAt).not.toBeNull();
        expect(isNothing(done.result!.remaining)).toBe(true);
        expect(done.result!.erased).toEqual(looked.counts);
      }
    }
    expect(await everything()).toEqual(before);
    expect([...steps].toSorted()).toEqual(['confirmed', 'erased', 'files', 'sessions', 'stopped']);
  }, 240_000);

  test('sequence numbers are not given out again when the newest events were erased', async () => {
    const id = await conversation('last');
    const one = retention();
    const newest = governance.lastSeq();
    await one.purge(by, only(id), (await one.plan(only(id))).confirmation);
    await governance.close();
    await open();
    expect(governance.lastSeq()).toBe(newest);
  }, 60_000);

  test('no table with something of a conversation or of a session is forgotten', async () => {
    const sql = await connect(database.address);
    const named = await sql<{ table_name: string }[]>`
      select distinct table_name from information_schema.columns
      where table_schema = 'public' and (column_name = 'conversation' or column_name = 'locator')`;
    await sql.end();
    const known = new Set([...Object.keys(conversationTables), 'purge_targets']);
    expect(named.map(({ table_name }) => table_name).filter((table) => !known.has(table))).toEqual([]);

    const tables = await sessiondb.execute(
      `SELECT t.name || '.' || c.name FROM sqlite_schema t, pragma_table_info(t.name) c
       WHERE t.type = 'table' AND c.name LIKE '%session%' AND c.name NOT IN ('session_key')`,
    );
    const columns = new Set([
      ...sessionColumns.map(([table, column]) => `${table}.${column}`),
      'sessions.parent_session_id',
    ]);
    expect(tables.rows.map(([name]) => String(name)).filter((name) => !columns.has(name))).toEqual([]);
  });
});

/** The statements with which the installed Hermes has made its database. */
function hermesSchema(): string[] {
  const directory = mkdtempSync(join(tmpdir(), 'purge-schema-'));
  try {
    const path = join(directory, 'state.db');
    const script = 'import sys, pathlib; from hermes_state import SessionDB; SessionDB(pathlib.Path(sys.argv[1]))';
    const made = Bun.spawnSync([python, '-c', script, path], {
      env: { PATH: process.env.PATH ?? '', HOME: directory },
    });
    if (!made.success) throw new Error(made.stderr.toString());
    using schema = new Database(path);
    return schema
      .query<{ sql: string }, []>(
        `SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'
         AND name NOT LIKE 'messages_fts%\\_%' ESCAPE '\\' OR name IN ('messages_fts', 'messages_fts_trigram') OR type = 'trigger'
         ORDER BY type = 'trigger', rowid`,
      )
      .all()
      .map(({ sql }) => sql);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}
