/**
 * A Specialist leaves while its conversations are warm and one of them is in a turn (ADR-046 §5): that is routing and nothing
 * else. What there was before, in processes, rows, files and statements, is compared with what there is after.
 */
import { Database } from 'bun:sqlite';
import { expect } from 'bun:test';
import { copyFileSync, existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { hermesProcesses } from '../harness/holders.ts';
import type { Organization } from '../harness/organization.ts';
import { untilQuiet } from '../harness/waiting.ts';

/** How often each row is there, in every table of a database that its owner may be using. */
function rowsOf(organization: Organization, name: 'agentfs' | 'sessiondb'): Map<string, number> {
  const path = join(organization.cloud.dataDirectory, `${name}.db`);
  const copy = join(organization.directory, `copy-${name}.db`);
  for (const suffix of ['', '-wal', '-shm']) {
    rmSync(copy + suffix, { force: true });
    if (suffix !== '-shm' && existsSync(path + suffix)) copyFileSync(path + suffix, copy + suffix);
  }
  using database = new Database(copy);
  const tables = database.query<{ name: string }, []>("SELECT name FROM sqlite_schema WHERE type = 'table'").all();
  const rows = new Map<string, number>();
  for (const { name: table } of tables) {
    for (const row of database.query(`SELECT * FROM "${table}"`).values()) {
      const digest = new Bun.CryptoHasher('sha256').update(JSON.stringify(row, bytesAsText)).digest('hex');
      const key = `${table} ${digest}`;
      rows.set(key, (rows.get(key) ?? 0) + 1);
    }
  }
  return rows;
}

const bytesAsText = (_: string, value: unknown): unknown =>
  value instanceof Uint8Array ? Buffer.from(value).toString('base64') : value;

/** Runs it with `count` warm holders, of which one is in a turn. */
export async function offboard(organization: Organization, count: number): Promise<void> {
  const { api, cloud, gateway, model } = organization;
  const finish = Promise.withResolvers<void>();
  model.on('slowly', { do: 'say-in-pieces', pieces: ['the ', 'reply'], pause: [1, finish.promise] });
  const made = await api.post('/v1/specialists', { name: 'Eleanora', persona: 'Be brief.' });
  expect(made.status).toBe(201);
  const { id: specialist } = made.json() as { id: string };
  const conversations: string[] = [];
  for (let index = 0; index < count; index += 1) {
    const conversation = await api.createConversation('Eleanora');
    await api.say(conversation, `hello from ${index}`);
    conversations.push(conversation);
  }
  const pids = () => hermesProcesses(gateway.pid).map(({ pid }) => pid);
  const holders = pids();
  expect(holders.length).toBe(count);
  const busy = conversations[0]!;
  const running = api.say(busy, 'answer slowly');
  await model.waitForTurn('answer slowly');
  // What a turn writes before its model has answered is written.
  await untilQuiet(() => cloud.requests.all.length + organization.statements.length, 2_000);

  const before = { agentfs: rowsOf(organization, 'agentfs'), sessiondb: rowsOf(organization, 'sessiondb') };
  const listed = (await api.get('/v1/conversations?limit=200')).text;
  const from = { requests: cloud.requests.all.length, statements: organization.statements.length };
  const left = await api.post(`/v1/specialists/${specialist}/offboard`, {});
  expect(left.json()).toMatchObject({ id: specialist, offboardedAt: expect.any(String) });
  const refused = await api.post('/v1/conversations', { specialist: 'Eleanora' });
  expect([refused.status, (refused.json() as { type: string }).type]).toEqual([
    409,
    'urn:edge-gateway:problem:conflict',
  ]);
  const statements = organization.statements.slice(from.statements);
  const requests = cloud.since(from.requests);

  // One row of routing, by one statement without a lock of its own; the other look is that of the refused conversation.
  expect(statements.map((sql) => sql.replace(/\s+/g, ' '))).toEqual([
    expect.stringMatching(/^update specialists set offboarded_at = .* where id = \$2 returning/),
    expect.stringMatching(/^select .* from specialists where/),
  ]);
  expect(statements.join(' ')).not.toMatch(/lock|for update|for share|delete|insert/i);
  expect(requests).toEqual([]);
  expect(pids()).toEqual(holders);
  expect({ agentfs: rowsOf(organization, 'agentfs'), sessiondb: rowsOf(organization, 'sessiondb') }).toEqual(before);
  expect((await api.get('/v1/conversations?limit=200')).text).toBe(listed);

  // The turn that ran ends with its reply, in its own child; the others are as warm as they were.
  finish.resolve();
  expect((await running).reply.text).toBe('the reply');
  const delivered = await api.say(conversations.at(-1)!, 'are you still there?');
  const message = (await api.get(`/v1/conversations/${conversations.at(-1)!}/messages/${delivered.message.id}`)).json();
  expect(JSON.stringify(message)).toContain('"state":"delivered"');
  expect(pids()).toEqual(holders);
  for (const conversation of conversations) {
    const { turns } = (await api.get(`/v1/conversations/${conversation}/transcript`)).json() as { turns: unknown[] };
    expect(turns.length).toBeGreaterThanOrEqual(2);
  }
}
