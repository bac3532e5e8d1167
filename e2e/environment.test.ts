/**
 * Keys are rotated by an explicit reissue (ADR-046 §5): new variables reach a conversation by that alone, a running turn is
 * not harmed, and no value is anywhere but in the organization's AgentFS.
 */
import { expect, test } from 'bun:test';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { Gateway } from './harness/gateway.ts';
import { hermesProcesses } from './harness/holders.ts';
import { ScriptedModel } from './harness/model.ts';
import { readProcess } from './harness/processes.ts';

const oldKey = 'sk-old-0123456789';
const newKey = 'sk-new-9876543210';
const marker = 'a-value-that-is-nowhere-else';

/** Every regular file below a directory. */
function filesBelow(directory: string): string[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
}

test('a reissue: new keys with the next turn, the running one ends in its own child, others keep theirs', async () => {
  await using model = ScriptedModel.start();
  const finish = Promise.withResolvers<void>();
  model.on('slowly', { do: 'say-in-pieces', pieces: ['the ', 'reply'], pause: [1, finish.promise] });
  await using gateway = await Gateway.start({
    environment: { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: oldKey },
  });
  const api = gateway.api();
  const admin = gateway.api('superadmin');
  const pids = () => new Set(hermesProcesses(gateway.pid).map(({ pid }) => pid));
  const keyOf = (text: string) => model.turns.find(({ raw }) => raw.includes(text))?.authorization;
  const idle = gateway.conversation;
  const busy = await api.createConversation('Eleanora');
  const apart = await api.createConversation('Eleanora');
  for (const [index, conversation] of [idle, busy, apart].entries()) await api.say(conversation, `first of ${index}`);
  const before = pids();
  expect(before.size).toBe(3);
  expect(keyOf('first of 0')).toBe(`Bearer ${oldKey}`);

  const variables = { EDGE_MODEL_KEY: newKey, SERVICE_PASSWORD: marker };
  const put = await admin.request('PUT', '/v1/organization/environment', { json: { variables } });
  expect([put.status, put.json()]).toEqual([200, { names: ['EDGE_MODEL_KEY', 'SERVICE_PASSWORD'] }]);
  // Of itself it changes no conversation.
  await api.say(apart, 'still the old key');
  expect(keyOf('still the old key')).toBe(`Bearer ${oldKey}`);

  const running = api.say(busy, 'answer slowly');
  await model.waitForTurn('answer slowly');
  const answer = await admin.post('/v1/organization/environment/reissue', { conversations: [idle, busy] });
  expect(answer.json()).toMatchObject({
    conversations: [
      { id: idle, environment: 'written', child: 'ended' },
      { id: busy, environment: 'written', child: 'after-turn' },
    ],
  });
  finish.resolve();
  expect((await running).reply.text).toBe('the reply');

  await api.say(idle, 'second of idle');
  await api.say(busy, 'second of busy');
  await api.say(apart, 'second of apart');
  expect([keyOf('second of idle'), keyOf('second of busy')]).toEqual([`Bearer ${newKey}`, `Bearer ${newKey}`]);
  expect(keyOf('second of apart')).toBe(`Bearer ${oldKey}`);
  const after = pids();
  expect(after.size).toBe(3);
  expect([...after].filter((pid) => before.has(pid)).length).toBe(1);
  // The first turns are still known: it is the same session in a new child.
  expect(model.turns.find(({ raw }) => raw.includes('second of busy'))?.raw).toContain('answer slowly');

  const all = await admin.post('/v1/organization/environment/reissue', { all: true });
  expect((all.json() as { conversations: unknown[] }).conversations.length).toBe(3);
  await api.say(apart, 'third of apart');
  expect(keyOf('third of apart')).toBe(`Bearer ${newKey}`);

  const record = await admin.get('/v1/organization/operations');
  expect((record.json() as { operations: unknown[] }).operations.length).toBe(3);
  for (const text of [record.text, answer.text, all.text, put.text, gateway.log]) expect(text).not.toContain(marker);
  for (const { pid, argv } of [readProcess(gateway.pid)!, ...gateway.tree()]) {
    expect(argv.join(' ')).not.toContain(marker);
    expect(pid).toBeGreaterThan(0);
  }
  expect(await gateway.stop()).toBe(0);
  const holding = filesBelow(gateway.dataDirectory).filter(
    (path) => statSync(path).size > 0 && readFileSync(path).includes(marker),
  );
  const homes = holding.map((path) =>
    path.slice(gateway.dataDirectory.length + 1).replace(/-(wal|changes|info|wal-revert)$/, ''),
  );
  expect([...new Set(homes)].toSorted()).toEqual(['authority/agentfs.db', 'machine/organization.db']);
}, 240_000);
