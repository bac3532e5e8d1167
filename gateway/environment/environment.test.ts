import { afterAll, beforeAll, expect, test } from 'bun:test';
import { startAuthority, type TestAuthority } from '../../machine/agentfs/authority.fixture.ts';
import type { Caller, Conversation, Specialist } from '../domain.ts';
import { establishConversation, provisionOrganization } from '../establishment.ts';
import { embeddedDatabase, type TestDatabase } from '../governance/databases.fixture.ts';
import { type OpenedGovernance, openGovernance } from '../governance/postgres.ts';
import { type ConversationId, newConversationId } from '../ids.ts';
import type { HolderControl, HoldersOutcome } from '../machine/holder-calls.ts';
import { createEnvironment, type Environment } from './environment.ts';

let authority: TestAuthority;
let database: TestDatabase;
let governance: OpenedGovernance;
let environment: Environment;
let specialist: Specialist;
let by: Caller;
const replaced: ConversationId[][] = [];
let outcome: ((conversations: readonly ConversationId[]) => HoldersOutcome) | null = null;

const holders: HolderControl = {
  replace: async (conversations) => {
    replaced.push([...conversations]);
    return outcome?.(conversations) ?? { state: 'done', fates: conversations.map(() => 'ended') };
  },
  end: () => Promise.reject(new Error('a reissue ends no turn')),
};

beforeAll(async () => {
  authority = await startAuthority();
  await provisionOrganization(authority.cloud);
  database = await embeddedDatabase();
  governance = await openGovernance({ database: database.address, organizationName: 'x', failedProseDays: 7 });
  environment = createEnvironment({ governance, files: authority.cloud, holders });
  specialist = await governance.createSpecialist('Eleanora', '');
  by = (await governance.createToken('superadmin', 'the operator')).caller;
}, 60_000);
afterAll(async () => {
  await governance?.close();
  await database?.stop();
  await authority?.stop();
});

async function begun(): Promise<Conversation> {
  const id = newConversationId();
  await establishConversation(authority.cloud, id, specialist);
  return governance.createConversation(id, specialist.id);
}

const fileOf = async (conversation: Conversation) =>
  Buffer.from(await authority.cloud.readFile(`/conversations/${conversation.id}/.env`)).toString();
const operations = async () => (await governance.listOperations(null, 50)).items;

test('what is set is for conversations to come; a reissue brings it to those it names, and to no other', async () => {
  expect(await environment.names()).toEqual([]);
  const [one, two] = [await begun(), await begun()];
  expect(await environment.set(by, { KEY: 'first-secret', OTHER: 'second-secret' })).toEqual(['KEY', 'OTHER']);
  expect(await environment.names()).toEqual(['KEY', 'OTHER']);
  const three = await begun();
  const written = "KEY='first-secret'\nOTHER='second-secret'\n";
  expect([await fileOf(one), await fileOf(two), await fileOf(three)]).toEqual(['', '', written]);

  const { conversations } = await environment.reissue(by, [one.id]);
  expect(conversations).toEqual([{ conversation: one.id, environment: 'written', child: 'ended' }]);
  expect([await fileOf(one), await fileOf(two)]).toEqual([written, '']);
  expect(replaced.at(-1)).toEqual([one.id]);

  await environment.set(by, { KEY: 'third-secret', OTHER: null });
  const all = await environment.reissue(by, null);
  expect(new Set(all.conversations.map(({ conversation }) => conversation))).toEqual(
    new Set([one.id, two.id, three.id]),
  );
  const newest = "KEY='third-secret'\nOTHER='second-secret'\n";
  expect([await fileOf(one), await fileOf(two), await fileOf(three)]).toEqual([newest, newest, newest]);

  const record = await operations();
  expect(record.map(({ kind }) => kind)).toEqual([
    'environment.reissue',
    'environment.set',
    'environment.reissue',
    'environment.set',
  ]);
  expect(record[0]).toMatchObject({ token: by.token, result: { conversations: 3, childrenEnded: 3, missing: 0 } });
  expect(record[1]?.subject).toEqual({ names: ['KEY', 'OTHER'], kept: ['OTHER'] });
  expect(JSON.stringify(record)).not.toContain('secret');
  const old = await authority.sql.execute(
    "SELECT count(*) FROM fs_data WHERE instr(CAST(data AS TEXT), 'first-secret')",
  );
  expect(old.rows).toEqual([[0]]);
});

test('a conversation that there is not: nothing is done. One without a file gets none', async () => {
  const known = await begun();
  const before = await fileOf(known);
  const count = (await operations()).length;
  await expect(environment.reissue(by, [known.id, newConversationId()])).rejects.toThrow('There is no conversation');
  expect((await operations()).length).toBe(count);
  expect(await fileOf(known)).toBe(before);
  const bare = await governance.createConversation(newConversationId(), specialist.id);
  const { conversations } = await environment.reissue(by, [bare.id]);
  expect(conversations).toEqual([{ conversation: bare.id, environment: 'missing', child: 'ended' }]);
  expect(await authority.cloud.stat(`/conversations/${bare.id}`)).toBeNull();
});

test('a machine that cannot fetch the files: a failure that says so, and an operation without an end', async () => {
  const known = await begun();
  outcome = () => ({ state: 'failing', reason: 'no cloud' });
  await expect(environment.reissue(by, [known.id])).rejects.toThrow('Repeat the reissue');
  outcome = null;
  expect((await operations())[0]).toMatchObject({ kind: 'environment.reissue', finishedAt: null, result: null });
});

test('a refused variable changes nothing, and calls at once do not lose what each keeps', async () => {
  await environment.set(by, { A: '1', B: '2' });
  await expect(environment.set(by, { A: 'x', B: 'two\nlines' })).rejects.toThrow('B: a value is one line');
  await Promise.all([environment.set(by, { A: null, B: null, C: '3' }), environment.set(by, { A: null, C: null })]);
  const file = Buffer.from(await authority.cloud.readFile('/.env')).toString();
  expect(file).toBe("A='1'\nC='3'\n");
});
