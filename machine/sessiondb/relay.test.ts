/** The relay against the embedded authority, with frames made here in place of Python. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { type RelayOptions, relayLimits, SessionRelay } from './relay.ts';
import { startAuthority, type TestAuthority } from './testing/authority.ts';
import { TestChild } from './testing/child.ts';

let authority: TestAuthority;
const newChild = (options: Partial<RelayOptions> = {}) => new TestChild(authority.address, options);
const schema = [
  'CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, title TEXT UNIQUE, parent_session_id TEXT, started_at REAL)',
  'CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL REFERENCES sessions(id), role TEXT, content TEXT, tool_name TEXT, tool_calls TEXT)',
  'CREATE VIRTUAL TABLE messages_fts USING fts5(content)',
  'CREATE TABLE async_delegations (delegation_id TEXT PRIMARY KEY, parent_session_id TEXT, state TEXT)',
];

const created = 'INSERT INTO sessions (id, source, parent_session_id, started_at) VALUES (?, ?, ?, ?)';
const said = 'INSERT INTO messages (session_id, role) VALUES (?, ?)';
const titled = 'UPDATE sessions SET title = ? WHERE id = ?';
const begin: [string] = ['BEGIN IMMEDIATE'];
const session = (id: string, parent: string | null = null): [string, unknown[]] => [created, [id, 'acp', parent, 1.5]];

beforeAll(async () => {
  authority = await startAuthority();
  const { address } = authority;
  for (const sql of schema) {
    const response = await fetch(`${address.url}/v3/pipeline`, {
      unix: address.socket!,
      method: 'POST',
      headers: { authorization: `Bearer ${address.token}` },
      body: JSON.stringify({ baton: null, requests: [{ type: 'execute', stmt: { sql } }, { type: 'close' }] }),
    });
    if (!(await response.text()).includes('"ok"')) throw new Error('no schema');
  }
});
afterAll(() => authority.stop());

describe('transactions', () => {
  test('one request for many statements, stopped at the first failure', async () => {
    const child = newChild();
    const ok = await child.run(1, begin, session('t1'), [said, ['t1', 'user']], ['COMMIT']);
    expect(ok).toMatchObject({ a: 1, r: [{ w: 0 }, { w: 1, n: 1 }, { w: 1, n: 1, l: expect.any(String) }, { w: 0 }] });
    const failed = await child.run(1, begin, session('t1'), [said, ['t1', 'never']], ['COMMIT']);
    expect(failed).toMatchObject({ a: 0, e: { k: 'IntegrityError', m: 'UNIQUE constraint failed: sessions.id' } });
    expect(failed.r.length).toBe(1);
    expect(await child.run(1, ['ROLLBACK'])).toMatchObject({ a: 1 });
    expect((await child.run(1, ["SELECT role FROM messages WHERE session_id = 't1'"])).r[0]?.d).toEqual([['user']]);
    await child.end();
  });

  test('foreign keys hold on every stream of a connection that asked for them', async () => {
    const child = newChild();
    expect(await child.run(1, ['PRAGMA foreign_keys=ON'])).toEqual({ a: 1, r: [{ n: 0, w: 0 }] });
    expect(await child.run(1, [said, ['nobody', 'user']])).toMatchObject({
      e: { k: 'IntegrityError', m: 'FOREIGN KEY constraint failed' },
    });
    await child.end();
  });

  test('two children that fill the search index at once do not fail each other', async () => {
    const fill: [string] = [
      `INSERT INTO messages_fts(rowid, content) SELECT id, COALESCE(content, '') || ' ' || COALESCE(tool_name, '') || ' ' || COALESCE(tool_calls, '') FROM messages`,
    ];
    const [one, other] = [newChild(), newChild()];
    await one.run(1, session('w1'), [said, ['w1', 'user']]);
    await Promise.all([one.run(1, ['DELETE FROM messages_fts']), other.run(1, ['DELETE FROM messages_fts'])]);
    for (const child of [one, other]) expect((await child.run(1, fill)).e).toBeUndefined();
    const count = 'SELECT (SELECT count(*) FROM messages_fts) = (SELECT count(*) FROM messages)';
    expect((await one.run(1, [count])).r[0]?.d).toEqual([[1]]);
    await Promise.all([one.end(), other.end()]);
  });

  test('the end of a child rolls back and frees the lock', async () => {
    const dying = newChild();
    await dying.run(1, session('t2'));
    expect(await dying.run(1, begin, [titled, ['lost', 't2']])).toMatchObject({ a: 0 });
    expect(await dying.end()).toEqual({ end: 'closed' });
    const next = newChild({ sessions: ['t2'] });
    expect(await next.run(1, begin, [titled, ['kept', 't2']], ['COMMIT'])).toMatchObject({ a: 1 });
    expect((await next.run(1, ["SELECT title FROM sessions WHERE id = 't2'"])).r[0]?.d).toEqual([['kept']]);
    await next.end();
  });

  test('a connection that waits for the lock does not hold up the COMMIT of another', async () => {
    const child = newChild();
    await child.run(1, session('t3'));
    await child.run(1, begin, [titled, ['one', 't3']]);
    const waiting = child.run(2, begin, [titled, ['two', 't3']], ['COMMIT']);
    expect(await child.run(1, ['COMMIT'])).toMatchObject({ a: 1 });
    expect(await waiting).toMatchObject({ a: 1 });
    await child.end();
  });

  test('a connection that is given up mid-transaction is rolled back', async () => {
    const child = newChild();
    await child.run(1, session('t4'));
    await child.run(2, begin, [titled, ['lost', 't4']]);
    child.send({ x: [2, 99] });
    expect(await child.run(1, begin, [titled, ['mine', 't4']], ['COMMIT'])).toMatchObject({ a: 1 });
    await child.end();
  });
});

describe('whose sessions', () => {
  test('what a child created is its own, with its descendants; a fresh relay knows them by their root', async () => {
    const child = newChild();
    await child.run(1, session('root'), session('sub', 'root'), session('subsub', 'sub'));
    expect((await child.run(1, [said, ['subsub', 'user']])).e).toBeUndefined();
    await child.end();
    const respawned = newChild({ sessions: ['root'] });
    expect((await respawned.run(1, [said, ['subsub', 'user']], [titled, ['T', 'sub']])).e).toBeUndefined();
    await respawned.end();
  });

  test.each<[string, [string, unknown[]]]>([
    ['a message', [said, ['theirs', 'user']]],
    ['a title', [titled, ['x', 'theirs']]],
    ['a deletion', ['DELETE FROM messages WHERE session_id IN (?, ?)', ['mine', 'theirs']]],
    ['an upsert', [`${created} ON CONFLICT(id) DO UPDATE SET title = 'x'`, ['theirs', 'acp', null, 1]]],
    ['a child session', session('new', 'theirs')],
    ['a foster parent', ['UPDATE sessions SET parent_session_id = ? WHERE id = ?', ['theirs', 'mine']]],
    ['a session that is no text', [titled, ['x', 5]]],
  ])('%s for another conversation is refused, and says so', async (_, statement) => {
    const other = newChild();
    await other.run(1, [`${created} ON CONFLICT(id) DO NOTHING`, ['theirs', 'acp', null, 1]]);
    await other.end();
    const refused: string[] = [];
    const child = newChild({ sessions: ['mine'], onRefusal: (reason) => refused.push(reason) });
    const before = await child.run(1, begin, [said, ['mine', 'user']], statement);
    expect(before).toMatchObject({
      a: 0,
      r: [{}, {}],
      e: { k: 'OperationalError', m: expect.stringContaining('refused') },
    });
    expect(refused.length).toBe(1);
    await child.end();
  });

  test("another conversation's background delegations are neither seen nor changed", async () => {
    const add = 'INSERT OR REPLACE INTO async_delegations (delegation_id, parent_session_id, state) VALUES (?, ?, ?)';
    const mine = newChild();
    await mine.run(1, session('d1'), [add, ['deleg1', 'd1', 'running']]);
    const theirs = newChild();
    await theirs.run(1, session('d2'), [add, ['deleg2', 'd2', 'running']]);
    const found = await theirs.run(1, ['SELECT delegation_id FROM async_delegations WHERE state = ?', ['running']]);
    expect(found.r[0]?.d).toEqual([['deleg2']]);
    const lost = ['UPDATE async_delegations SET state = ? WHERE state = ?', ['unknown', 'running']] as [
      string,
      unknown[],
    ];
    expect((await theirs.run(1, lost)).r[0]?.n).toBe(1);
    expect((await mine.run(1, ['SELECT state FROM async_delegations'])).r[0]?.d).toEqual([['running']]);
    await Promise.all([mine.end(), theirs.end()]);
  });
});

describe('limits and failures', () => {
  test('connections and requests are bounded', async () => {
    const child = newChild();
    for (let c = 1; c <= relayLimits.connections; c++) expect((await child.run(c, ['SELECT 1'])).e).toBeUndefined();
    expect((await child.run(99, ['SELECT 1'])).e?.m).toContain('too many connections');
    child.send({ x: [1] });
    expect((await child.run(99, ['SELECT 1'])).e).toBeUndefined();
    // The last answer counts until it has been taken, which is a moment after it is here.
    await Bun.sleep(0);
    const many = await Promise.all(
      Array.from({ length: relayLimits.pendingRequests + 5 }, () => child.run(2, ['SELECT 1'])),
    );
    expect(many.filter(({ e }) => e?.m.includes('too many requests')).length).toBe(5);
    await child.end();
  });

  test('a child that goes on asking and takes no answer is cut off, and its answers are not kept without a bound', async () => {
    const child = newChild();
    let held = 0;
    child.write = () => {
      held++;
      return new Promise(() => undefined);
    };
    for (let id = 1; id <= 2 * relayLimits.pendingRequests; id++) child.send({ c: 1, q: [['SELECT 1']] }, id);
    expect(child.cut).toBe(false);
    for (let id = 1; id <= 2; id++) child.send({ c: 1, q: [['SELECT 1']] }, id);
    expect(await child.ended).toMatchObject({ end: 'broken', reason: expect.stringContaining('takes no answer') });
    expect(child.cut).toBe(true);
    expect(held).toBe(1);
  });

  test('what is not a frame cuts the child off', async () => {
    const child = newChild();
    child.raw(Buffer.from([0xff, 0xff, 0xff, 0xff]));
    expect(await child.ended).toEqual({ end: 'broken', reason: expect.stringContaining('bytes') });
    expect(child.cut).toBe(true);
  });

  test('an authority that is gone and comes back, and never a word of the token', async () => {
    const child = newChild();
    await child.run(1, ['PRAGMA foreign_keys=ON'], session('f1'));
    await child.run(1, begin, [titled, ['lost', 'f1']]);
    await authority.kill();
    const gone = await child.run(1, [said, ['f1', 'user']]);
    expect(gone).toMatchObject({
      a: 1,
      e: { k: 'OperationalError', m: expect.stringContaining('sessiondb unreachable') },
    });
    await authority.restart();
    expect((await child.run(1, begin, [titled, ['kept after', 'f1']], ['COMMIT'])).e).toBeUndefined();
    expect((await child.run(1, [said, ['nobody', 'user']])).e?.m).toBe('FOREIGN KEY constraint failed');
    await child.end();
    const stranger = new SessionRelay({ ...authority.address, token: 'another-token-entirely' });
    expect(Buffer.concat(child.written).toString()).not.toContain(authority.address.token);
    expect(JSON.stringify(stranger)).not.toContain('another-token');
  });

  test('an idle connection whose stream the authority forgot goes on, unless a transaction was open', async () => {
    const child = newChild({ sessions: ['f1'] });
    await child.run(1, ['SELECT 1']);
    await child.run(2, begin, [titled, ['lost', 'f1']]);
    await authority.kill();
    await authority.restart();
    expect((await child.run(1, ['SELECT 2'])).r[0]?.d).toEqual([[2]]);
    expect(await child.run(2, ['COMMIT'])).toMatchObject({ a: 1, e: { m: expect.stringContaining('rolled back') } });
    await child.end();
  });
});
