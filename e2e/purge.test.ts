/**
 * The erasure of a conversation through the running executable (ADR-046 §5): also while it is in a turn, and whatever kills
 * the gateway on the way. What is said of the databases is read from their files.
 */
import { Database } from 'bun:sqlite';
import { expect, test } from 'bun:test';
import { copyFileSync, existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { Gateway } from './harness/gateway.ts';
import { hermesProcesses } from './harness/holders.ts';
import { call, ScriptedModel, say } from './harness/model.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';

/** Names of the tables of a database in which a text is, its owner running or not. */
function tablesWith(text: string, path: string, scratch: string): string[] {
  const copy = join(scratch, 'copy.db');
  for (const suffix of ['', '-wal', '-shm']) {
    rmSync(copy + suffix, { force: true });
    if (suffix !== '-shm' && existsSync(path + suffix)) copyFileSync(path + suffix, copy + suffix);
  }
  using database = new Database(copy);
  const tables = database.query<{ name: string }, []>("SELECT name FROM sqlite_schema WHERE type = 'table'").all();
  return tables
    .map(({ name }) => name)
    .filter((name) =>
      database
        .query(`SELECT * FROM "${name}"`)
        .values()
        .some((row) =>
          row.some((value) =>
            (value instanceof Uint8Array ? Buffer.from(value).toString('latin1') : String(value)).includes(text),
          ),
        ),
    );
}

interface Plan {
  readonly confirmation: string;
  readonly counts: Readonly<Record<string, number>>;
}
interface Purge {
  readonly id: string;
  readonly state: string;
  readonly result: { readonly remaining: Readonly<Record<string, number>> } | null;
}

test('a conversation is erased during its turn, its sibling is not touched; cut off, it is gone on with', async () => {
  const scratch = scratchDirectory('purge');
  const data = join(scratch, 'data');
  await using model = ScriptedModel.start();
  const options = {
    dataDirectory: data,
    environment: { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: 'none' },
  };
  const databases = ['authority/agentfs.db', 'authority/sessiondb.db', 'machine/organization.db'] as const;
  const where = (text: string) =>
    databases.flatMap((name) => tablesWith(text, join(data, name), scratch).map((table) => `${name} ${table}`));
  const never = Promise.withResolvers<void>();
  for (const name of ['zanzibar', 'quokka', 'numbat']) {
    model.on(`write ${name}`, call('terminal', { command: `echo ${name} > ${name}.txt` }), say(`wrote ${name}`));
  }
  model.on('slowly', { do: 'say-in-pieces', pieces: ['the ', 'reply'], pause: [1, never.promise] });
  try {
    let sibling: string;
    let second: string;
    {
      await using gateway = await Gateway.start(options);
      const api = gateway.api();
      const admin = gateway.api('superadmin');
      sibling = gateway.conversation;
      const target = await api.createConversation('Eleanora');
      second = await api.createConversation('Eleanora');
      await api.say(sibling, 'write zanzibar');
      await api.say(target, 'write quokka');
      await api.say(second, 'write numbat');
      expect(where('quokka').length).toBeGreaterThan(5);
      const siblingBefore = {
        transcript: (await api.get(`/v1/conversations/${sibling}/transcript`)).text,
        calls: (await admin.get(`/v1/conversations/${sibling}/audit/tool-calls`)).text,
        where: where('zanzibar'),
      };
      const holders = hermesProcesses(gateway.pid).length;
      expect(holders).toBe(3);

      const running = api.post(
        `/v1/conversations/${target}/messages`,
        { text: 'answer slowly' },
        { prefer: 'wait=60' },
      );
      const waiting = api.post(`/v1/conversations/${target}/messages`, { text: 'and then' }, { prefer: 'wait=60' });
      await model.waitForTurn('answer slowly');
      await Bun.sleep(2_000);
      const targets = { conversations: [target] };
      const plan = (await admin.post('/v1/retention/purges', { targets })).json() as Plan;
      expect(plan.counts).toMatchObject({ messages: 3, sessions: 1, toolCalls: expect.any(Number) });
      const answer = await admin.post('/v1/retention/purges', { targets, confirmation: plan.confirmation });
      expect([answer.status, (answer.json() as Purge).state]).toEqual([200, 'done']);
      expect(Object.values((answer.json() as Purge).result!.remaining).every((count) => count === 0)).toBe(true);
      // Both are told that there is no reply; neither waits for ever.
      expect([(await running).status, (await waiting).status].every((status) => status >= 400)).toBe(true);

      expect(hermesProcesses(gateway.pid).length).toBe(holders - 1);
      for (const [method, path] of [
        ['POST', 'messages'],
        ['GET', 'transcript'],
        ['GET', 'events'],
        ['GET', 'audit/diff'],
        ['POST', 'cancel'],
      ] as const) {
        const json = method === 'POST' ? { json: { text: 'hello?' } } : {};
        expect((await admin.request(method, `/v1/conversations/${target}/${path}`, json)).status).toBe(404);
      }
      expect((await admin.get('/v1/conversations?limit=200')).text).not.toContain(target);
      expect(where('quokka').filter((place) => !place.endsWith(' turso_cdc'))).toEqual([]);
      expect((await api.get(`/v1/conversations/${sibling}/transcript`)).text).toBe(siblingBefore.transcript);
      expect((await admin.get(`/v1/conversations/${sibling}/audit/tool-calls`)).text).toBe(siblingBefore.calls);
      expect(where('zanzibar')).toEqual(siblingBefore.where);
      expect((await api.say(sibling, 'are you there?')).reply.text).toBe('ok');

      // The second one: the gateway dies as soon as the erasure is confirmed.
      const next = { conversations: [second] };
      const look = (await admin.post('/v1/retention/purges', { targets: next })).json() as Plan;
      const cut = admin
        .post('/v1/retention/purges', { targets: next, confirmation: look.confirmation })
        .catch(() => null);
      await Bun.sleep(20);
      await gateway.killTree();
      await cut;
    }
    await using gateway = await Gateway.start(options);
    const admin = gateway.api('superadmin');
    const { purges } = (await admin.get('/v1/retention/purges')).json() as { purges: Purge[] };
    // It was killed before the erasure was on record, or behind that: then it is gone on with.
    if (purges.length === 2) {
      const done = await admin.post(`/v1/retention/purges/${purges[0]!.id}/resume`, {});
      expect((done.json() as Purge).state).toBe('done');
      expect((await admin.get(`/v1/conversations/${second}`)).status).toBe(404);
      expect(where('numbat').filter((place) => !place.endsWith(' turso_cdc'))).toEqual([]);
    } else {
      expect((await admin.get(`/v1/conversations/${second}`)).status).toBe(200);
    }
    expect((await gateway.api().say(sibling, 'and now?')).reply.text).toBe('ok');
  } finally {
    removeScratch(scratch);
  }
}, 300_000);
