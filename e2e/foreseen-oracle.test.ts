/**
 * The relay's foreseen transactions on sqld, the server that defined Hrana, and on the embedded authority: guards hold and
 * fail alike, and nothing of a transaction that failed stays.
 */
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test';
import { rmSync } from 'node:fs';
import { type ServedAuthority, serveAuthority, TOKENS } from '../gateway/authority/authority.fixture.ts';
import { HranaDatabase } from '../machine/agentfs/hrana.ts';
import type { AuthorityAddress } from '../machine/launch.ts';
import { TestChild } from '../machine/sessiondb/testing/child.ts';
import { type Oracle, oraclesRun, startSqld } from './oracles/servers.ts';

setDefaultTimeout(120_000);

const schema = [
  'CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, model TEXT, count INTEGER DEFAULT 0, started_at REAL NOT NULL)',
  'CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL REFERENCES sessions(id), content TEXT)',
  'CREATE VIRTUAL TABLE messages_fts USING fts5(content)',
  `CREATE TRIGGER fill AFTER INSERT ON messages BEGIN
    INSERT INTO messages_fts(rowid, content) VALUES (new.id, new.content); END`,
];
const message = 'INSERT INTO messages (session_id, content) VALUES (?, ?)';
const counted = 'UPDATE sessions SET count = count + 1 WHERE id = ?';
const read = 'SELECT model, count FROM sessions WHERE id = ?';
const begin: [string] = ['BEGIN IMMEDIATE'];
const commit: [string] = ['COMMIT'];

/** What a child is told, in order, while another writer comes between. */
async function told(address: AuthorityAddress): Promise<unknown[]> {
  const database = new HranaDatabase(address);
  for (const sql of schema) await database.execute(sql);
  const answers: unknown[] = [];
  const child = new TestChild(address, { sessions: ['s'] });
  const run = async (...q: [string, unknown[]?][]) => answers.push(await child.run(1, ...q));
  const say = async (text: string, between: () => Promise<unknown> = async () => undefined) => {
    await run(begin, [message, ['s', text]]);
    await between();
    await run([counted, ['s']], commit);
  };
  await database.execute("INSERT INTO sessions (id, source, model, started_at) VALUES ('s', 'acp', 'm', 1.5)");
  await run(['PRAGMA foreign_keys=ON']);
  await say('first');
  await say('foretold');
  // A guard of each kind that fails, and the same again without a guess.
  await say('taken', () => database.execute(message, ['s', 'from outside']));
  await say('taken');
  await run(begin, [read, ['s']]);
  await run([counted, ['s']], commit);
  await run(begin, [read, ['s']]);
  await database.execute("UPDATE sessions SET model = 'another' WHERE id = 's'");
  await run([counted, ['s']], commit);
  await say('last');
  await run(begin, [message, ['s', 'never']]);
  await run(['ROLLBACK']);
  for (const sql of ['SELECT id, content FROM messages ORDER BY id', 'SELECT * FROM sessions'])
    answers.push((await database.execute(sql)).rows);
  answers.push((await database.execute("SELECT rowid FROM messages_fts WHERE messages_fts MATCH 'taken'")).rows);
  await child.end();
  return answers;
}

describe.skipIf(!oraclesRun)('beside sqld', () => {
  let ours: ServedAuthority;
  let oracle: Oracle;
  beforeAll(async () => {
    ours = serveAuthority();
    oracle = await startSqld();
  });
  afterAll(async () => {
    await oracle?.stop();
    await ours.stop();
    rmSync(ours.directory, { recursive: true, force: true });
  });

  test('a child is told the same, and the same is there afterwards', async () => {
    const here = await told({ url: 'http://authority/sessiondb', token: TOKENS.sessiondb, socket: ours.socket });
    const there = await told({ url: oracle.url, token: 'none', socket: null });
    expect(there).toEqual(here);
    expect(here.filter((answer) => JSON.stringify(answer).includes('database is locked'))).toHaveLength(2);
    expect(here.at(-3)).toEqual([
      [1, 'first'],
      [2, 'foretold'],
      [3, 'from outside'],
      [4, 'taken'],
      [5, 'last'],
    ]);
    expect(here.at(-2)).toEqual([['s', 'acp', 'another', 5, 1.5]]);
  });
});
