/**
 * Round trips that are saved must not show: against the embedded authority, with other writers, lost requests and lost
 * answers forced between the steps. The statements are Hermes' own.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'bun:test';
import { HranaDatabase } from '../agentfs/hrana.ts';
import { MessageIds } from './message-ids.ts';
import { startAuthority, type TestAuthority } from './testing/authority.ts';
import { TestChild } from './testing/child.ts';
import { Door } from './testing/door.ts';

let authority: TestAuthority;
let door: Door;
let database: HranaDatabase;
let ids: MessageIds;

const schema = [
  `CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, model TEXT, model_config TEXT, system_prompt TEXT,
    parent_session_id TEXT, title TEXT UNIQUE, message_count INTEGER DEFAULT 0, api_call_count INTEGER DEFAULT 0,
    billing_provider TEXT, input_tokens INTEGER DEFAULT 0, started_at REAL NOT NULL,
    FOREIGN KEY (parent_session_id) REFERENCES sessions(id))`,
  `CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL REFERENCES sessions(id),
    role TEXT NOT NULL, content TEXT)`,
  'CREATE VIRTUAL TABLE messages_fts USING fts5(content)',
  `CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages BEGIN
    INSERT INTO messages_fts(rowid, content) VALUES (new.id, COALESCE(new.content, '')); END`,
  'CREATE TABLE session_model_usage (session_id TEXT, model TEXT, calls INTEGER, PRIMARY KEY (session_id, model))',
];

type Statement = [string, unknown[]?];
const begin: Statement = ['BEGIN IMMEDIATE'];
const commit: Statement = ['COMMIT'];
const insertMessage = 'INSERT INTO messages (session_id, role, content) VALUES (?, ?, ?)';
const count = 'UPDATE sessions SET message_count = message_count + 1 WHERE id = ?';
const ensure = `INSERT INTO sessions (
   id, source, model, model_config, system_prompt, parent_session_id, started_at
)
   VALUES (?, ?, ?, ?, ?, ?, ?)
   ON CONFLICT(id) DO UPDATE SET
       model = COALESCE(sessions.model, excluded.model),
       model_config = COALESCE(sessions.model_config, excluded.model_config),
       system_prompt = COALESCE(sessions.system_prompt, excluded.system_prompt)`;
const route = 'SELECT model, billing_provider, api_call_count FROM sessions WHERE id = ?';
const tokens = `UPDATE sessions SET input_tokens = input_tokens + ?,
   billing_provider = COALESCE(billing_provider, ?), api_call_count = COALESCE(api_call_count, 0) + ? WHERE id = ?`;
const routeAgain = 'SELECT model, billing_provider FROM sessions WHERE id = ?';
const usage = `INSERT INTO session_model_usage (session_id, model, calls) VALUES (?, ?, ?)
   ON CONFLICT(session_id, model) DO UPDATE SET calls = calls + excluded.calls`;
const meta = 'UPDATE sessions SET model_config = ?, model = COALESCE(?, model) WHERE id = ?';
const whole = 'SELECT * FROM sessions WHERE id = ?';

const locked = { a: 1, e: { k: 'OperationalError', m: 'database is locked', n: 'SQLITE_BUSY' } };

const rowsOf = async (session: string) =>
  (await database.execute('SELECT id, content FROM messages WHERE session_id = ? ORDER BY id', [session])).rows;
const outside = (sql: string, args: (string | number)[] = []) => database.execute(sql, args);

/** One conversation's child, with the calls of Hermes' SessionDB as frames. */
class Conversation {
  readonly child = new TestChild(door.address, { messageIds: ids });
  readonly id: string;
  constructor(id: string) {
    this.id = id;
  }

  static async open(id: string): Promise<Conversation> {
    const made = new Conversation(id);
    await made.child.run(1, ['PRAGMA foreign_keys=ON']);
    const fields = [id, 'acp', 'm-1', '{"cwd": "/w"}', 'You are.', null, 1.5];
    expect(await made.child.run(1, begin, [ensure, fields], commit)).toMatchObject({ a: 1 });
    expect((await made.say('first')).e).toBeUndefined();
    return made;
  }

  /** `append_message`: asks for the new id before it goes on. */
  async say(text: string, c = 1) {
    const inserted = await this.insert(text, c);
    return inserted.e ? inserted : this.child.run(c, [count, [this.id]], commit);
  }
  insert(text: string, c = 1) {
    return this.child.run(c, begin, [insertMessage, [this.id, 'user', text]]);
  }
  read(sql: string, c = 1) {
    return this.child.run(c, [sql, [this.id]]);
  }
  async value(sql: string, c = 1) {
    return (await this.read(sql, c)).r[0]?.d?.[0];
  }
  /** `update_token_counts`. */
  async account() {
    const before = await this.child.run(1, begin, [route, [this.id]]);
    if (before.e) return before;
    const between = await this.child.run(1, [tokens, [10, 'custom', 1, this.id]], [routeAgain, [this.id]]);
    return between.e ? between : this.child.run(1, [usage, [this.id, 'm-1', 1]], commit);
  }
}

beforeAll(async () => {
  authority = await startAuthority();
  database = new HranaDatabase(authority.address);
  for (const sql of schema) await outside(sql);
  door = new Door(authority);
});
afterAll(async () => {
  await door.stop();
  await authority.stop();
});
beforeEach(() => {
  door.before = () => 'pass';
  ids = new MessageIds();
});

describe('what a warm turn asks of the authority', () => {
  test('one request for each transaction that changes something, none for what is known', async () => {
    const one = await Conversation.open('r1');
    await one.account();
    expect(await door.counting(() => one.say('hello'))).toBe(1);
    expect(await door.counting(() => one.account())).toBe(1);
    const fields = ['r1', 'unknown', 'm-2', null, null, null, 2.5];
    expect(
      await door.counting(async () => {
        expect(await one.child.run(1, begin, [ensure, fields], commit)).toMatchObject({ r: [{}, { n: 1, w: 1 }, {}] });
        await one.child.run(1, begin, [meta, ['{"cwd": "/w"}', 'm-1', 'r1']], commit);
        expect(await one.value('SELECT parent_session_id FROM sessions WHERE id = ?')).toEqual([null]);
        expect((await one.value(whole))?.slice(0, 5)).toEqual(['r1', 'acp', 'm-1', '{"cwd": "/w"}', 'You are.']);
      }),
    ).toBe(0);
    expect(await one.value(whole)).toEqual((await outside(whole, ['r1'])).rows[0] as never);
    await one.child.end();
  });

  test('what a statement changes is sent, and known afterwards', async () => {
    const one = await Conversation.open('r2');
    await one.child.run(1, begin, [meta, ['{"cwd": "/other"}', null, 'r2']], commit);
    await one.child.run(1, begin, ['UPDATE sessions SET system_prompt = ? WHERE id = ?', ['Now.', 'r2']], commit);
    const expected = (await outside(whole, ['r2'])).rows[0];
    expect(expected?.slice(3, 5)).toEqual(['{"cwd": "/other"}', 'Now.']);
    expect(await door.counting(async () => expect(await one.value(whole)).toEqual(expected as never))).toBe(0);
    await one.child.end();
  });

  test('lastrowid is the id that the row has', async () => {
    const one = await Conversation.open('r3');
    const { r } = await one.insert('told before it is there');
    await one.child.run(1, [count, ['r3']], commit);
    expect((await rowsOf('r3')).at(-1)).toEqual([Number(r[1]?.l), 'told before it is there']);
    // The next statement without a row of its own leaves it in force.
    const fields = ['r3', 'unknown', 'm-1', null, null, null, 2.5];
    expect((await one.child.run(1, begin, [ensure, fields], commit)).r[1]?.l).toBe(r[1]!.l!);
    await one.child.end();
  });
});

describe('another writer between the steps', () => {
  test('a row that takes the foretold id: the transaction fails as locked, nothing of it stays, and it runs again', async () => {
    const one = await Conversation.open('w1');
    const told = await one.insert('mine');
    await outside(insertMessage, ['w1', 'user', 'theirs']);
    const failed = await one.child.run(1, [count, ['w1']], commit);
    expect(failed).toMatchObject({ ...locked, r: [] });
    expect((await rowsOf('w1')).map(([, text]) => text)).toEqual(['first', 'theirs']);
    expect(await one.value('SELECT message_count FROM sessions WHERE id = ?')).toEqual([1]);
    const again = await one.insert('mine');
    expect(Number(again.r[1]?.l)).toBe(Number(told.r[1]?.l) + 1);
    expect(await one.child.run(1, [count, ['w1']], commit)).toMatchObject({ a: 1 });
    expect((await rowsOf('w1')).at(-1)).toEqual([Number(again.r[1]?.l), 'mine']);
    await one.child.end();
  });

  test.each([
    ['another value', "UPDATE sessions SET api_call_count = 7 WHERE id = 'w2'"],
    ['another type of the same value', "UPDATE sessions SET model = CAST('m-1' AS BLOB) WHERE id = 'w2'"],
    ['the row is gone', "DELETE FROM sessions WHERE id = 'w2'"],
  ])('a read that was foretold in a transaction: %s', async (_, change) => {
    await outside("DELETE FROM messages WHERE session_id = 'w2'");
    await outside("DELETE FROM session_model_usage WHERE session_id = 'w2'");
    await outside("DELETE FROM sessions WHERE id = 'w2'");
    const one = await Conversation.open('w2');
    await one.account();
    await outside("DELETE FROM messages WHERE session_id = 'w2'");
    await outside(change);
    expect(await one.account()).toMatchObject(locked);
    const calls = "SELECT calls FROM session_model_usage WHERE session_id = 'w2'";
    expect((await outside(calls)).rows).toEqual([[1]]);
    // Run again, it reads what there is.
    const read = await one.child.run(1, begin, [route, ['w2']]);
    expect(read.r[1]?.d).toEqual(
      (await outside("SELECT model, billing_provider, api_call_count FROM sessions WHERE id = 'w2'")).rows.map((row) =>
        row.map((value) => (value instanceof Uint8Array ? { b: Buffer.from(value).toString('base64') } : value)),
      ) as never,
    );
    await one.child.end();
  });

  test('three wrong guesses in a row are the last', async () => {
    const one = await Conversation.open('w3');
    for (let wrong = 0; wrong < 3; wrong++) {
      await one.insert('mine');
      await outside(insertMessage, ['w3', 'user', 'theirs']);
      expect(await one.child.run(1, [count, ['w3']], commit)).toMatchObject(locked);
      await one.say('again');
    }
    expect(await door.counting(() => one.say('plain'))).toBe(2);
    await one.child.end();
  });

  test('children of one machine take turns: none is told another’s id', async () => {
    const all = await Promise.all(['c1', 'c2', 'c3', 'c4'].map((id) => Conversation.open(id)));
    const failures: unknown[] = [];
    const requests = await door.counting(() =>
      Promise.all(
        all.map(async (one) => {
          for (let turn = 0; turn < 10; turn++) {
            const { e } = await one.say(`turn ${turn}`);
            if (e) failures.push(e);
          }
        }),
      ),
    );
    expect(failures).toEqual([]);
    for (const { id } of all) expect((await rowsOf(id)).length).toBe(11);
    expect(requests).toBe(40);
    await Promise.all(all.map(({ child }) => child.end()));
  });

  test('a child that stops in the middle holds up no other', async () => {
    const [stopped, other] = [await Conversation.open('s1'), await Conversation.open('s2')];
    await stopped.insert('never finished');
    expect(await other.say('goes on')).toMatchObject({ a: 1 });
    expect((await stopped.child.run(1, [count, ['s1']], commit)).e?.m).toBe('database is locked');
    await Promise.all([stopped.child.end(), other.child.end()]);
  });

  test('the end of a child that was told an id gives the turn on at once', async () => {
    const [ended, other] = [await Conversation.open('s3'), await Conversation.open('s4')];
    await ended.insert('never finished');
    await ended.child.end();
    expect(ids.isFree).toBe(true);
    const { r } = await other.insert('goes on');
    expect(ids.isFree).toBe(false);
    await other.child.run(1, [count, ['s4']], commit);
    expect(ids.isFree).toBe(true);
    expect((await rowsOf('s4')).at(-1)).toEqual([Number(r[1]?.l), 'goes on']);
    expect((await rowsOf('s3')).length).toBe(1);
    await other.child.end();
  });
});

describe('two connections of one child', () => {
  test('each sees what the other has committed', async () => {
    const one = await Conversation.open('k1');
    await one.child.run(2, begin, [meta, ['{"by": 2}', null, 'k1']], commit);
    expect(await one.value('SELECT model_config FROM sessions WHERE id = ?', 1)).toEqual(['{"by": 2}']);
    // Not what is only begun.
    await one.child.run(2, begin, [insertMessage, ['k1', 'user', 'x']], [count, ['k1']]);
    expect(await one.value('SELECT message_count FROM sessions WHERE id = ?', 1)).toEqual([1]);
    await one.child.run(2, ['ROLLBACK']);
    await one.child.end();
  });

  test('a write under way is waited for by nobody, and what it leaves is not mistaken', async () => {
    const one = await Conversation.open('k2');
    const { promise: gate, resolve: open } = Promise.withResolvers<void>();
    const arrived = Promise.withResolvers<void>();
    door.before = async () => {
      door.before = () => 'pass';
      arrived.resolve();
      await gate;
      return 'pass' as const;
    };
    const write = one.child.run(2, begin, [meta, ['{"by": 2}', null, 'k2']], commit);
    await arrived.promise;
    expect(await one.value('SELECT model_config FROM sessions WHERE id = ?')).toEqual(['{"cwd": "/w"}']);
    // Commits while the other is on its way: which of the two came last is not for us to say.
    expect(await one.child.run(1, begin, [meta, ['{"by": 1}', null, 'k2']], commit)).toMatchObject({ a: 1 });
    open();
    expect((await write).e).toBeUndefined();
    expect(await one.value('SELECT model_config FROM sessions WHERE id = ?')).toEqual(
      (await outside("SELECT model_config FROM sessions WHERE id = 'k2'")).rows[0] as never,
    );
    await one.child.end();
  });
});

describe('failures', () => {
  test('a statement that was answered and then fails: all of its transaction is rolled back, and the error is its own', async () => {
    const one = await Conversation.open('f1');
    await outside("INSERT INTO sessions (id, source, title, started_at) VALUES ('f0', 'acp', 'taken', 1)");
    const titled = 'UPDATE sessions SET title = ? WHERE id = ?';
    expect(await one.child.run(1, begin, [titled, ['taken', 'f1']])).toMatchObject({ a: 0, r: [{}, { n: 1 }] });
    expect(await one.child.run(1, [insertMessage, ['f1', 'user', 'never']], commit)).toMatchObject({
      a: 1,
      e: { k: 'IntegrityError', m: 'UNIQUE constraint failed: sessions.title' },
    });
    expect((await rowsOf('f1')).length).toBe(1);
    expect(await one.say('goes on')).toMatchObject({ a: 1 });
    await one.child.end();
  });

  test('what fails in the last part leaves the transaction open, as SQLite does', async () => {
    const one = await Conversation.open('f2');
    await one.insert('first part');
    const failed = await one.child.run(1, ['UPDATE sessions SET source = NULL WHERE id = ?', ['f2']], commit);
    expect(failed).toMatchObject({ a: 0, e: { k: 'IntegrityError' } });
    expect(await one.child.run(1, ['ROLLBACK'])).toMatchObject({ a: 1 });
    expect((await rowsOf('f2')).length).toBe(1);
    await one.child.end();
  });

  test('rolled back before anything was sent: nothing is', async () => {
    const one = await Conversation.open('f3');
    const requests = await door.counting(async () => {
      expect(await one.insert('never')).toMatchObject({ a: 0 });
      expect(await one.child.run(1, ['ROLLBACK'])).toMatchObject({ a: 1 });
    });
    expect(requests).toBe(0);
    expect(await one.say('second')).toMatchObject({ a: 1 });
    expect((await rowsOf('f3')).map(([, text]) => text)).toEqual(['first', 'second']);
    await one.child.end();
  });

  test('a request that is lost on the way: said so, nothing is there, and the same again is there once', async () => {
    const one = await Conversation.open('f4');
    door.before = () => 'lose-request';
    const lost = await one.say('lost');
    expect(lost).toMatchObject({ a: 1, r: [], e: { k: 'OperationalError' } });
    expect(lost.e?.m).toContain('whether its transaction was committed is not known');
    door.before = () => 'pass';
    expect((await rowsOf('f4')).length).toBe(1);
    expect(await one.say('lost')).toMatchObject({ a: 1 });
    expect((await rowsOf('f4')).map(([, text]) => text)).toEqual(['first', 'lost']);
    await one.child.end();
  });

  test('an answer that is lost: said so, nothing is sent again by itself, and nothing is believed to be known', async () => {
    const one = await Conversation.open('f5');
    door.before = () => 'lose-answer';
    expect((await one.say('kept')).e?.m).toContain('is not known');
    door.before = () => 'pass';
    expect((await rowsOf('f5')).map(([, text]) => text)).toEqual(['first', 'kept']);
    const requests = await door.counting(async () =>
      expect(await one.value('SELECT message_count FROM sessions WHERE id = ?')).toEqual([2]),
    );
    expect(requests).toBe(1);
    expect((await one.say('next')).e).toBeUndefined();
    await one.child.end();
  });

  test('a transaction that began at the authority and loses it is rolled back, and that is said', async () => {
    const one = await Conversation.open('f6');
    await one.child.run(1, begin, ['SELECT count(*) FROM messages']);
    door.before = () => 'lose-request';
    const lost = await one.child.run(1, [insertMessage, ['f6', 'user', 'never']]);
    expect(lost).toMatchObject({ a: 1, r: [], e: { k: 'OperationalError' } });
    expect(lost.e?.m).toContain('its transaction is rolled back');
    door.before = () => 'pass';
    // At once, not when the authority gives up an idle transaction.
    const from = performance.now();
    expect(await one.say('next')).toMatchObject({ a: 1 });
    expect(performance.now() - from).toBeLessThan(4_000);
    expect((await rowsOf('f6')).map(([, text]) => text)).toEqual(['first', 'next']);
    await one.child.end();
  });
});
