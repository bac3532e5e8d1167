/**
 * Nothing stands between a reply and its reader, and nobody keeps a second copy of either's words (ADR-046 §§4–6,
 * acceptance 9): looked for in the code, in the schema, and in everything that a live organization leaves behind.
 */
import { Database } from 'bun:sqlite';
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test';
import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import { connect, type DatabaseAddress } from '../gateway/governance/connection.ts';
import { installedPostgres } from '../gateway/governance/databases.fixture.ts';
import { startEmbeddedPostgres } from '../gateway/governance/embedded.ts';
import { repository } from './harness/executable.ts';
import { Gateway } from './harness/gateway.ts';
import { hermesProcesses } from './harness/holders.ts';
import type { Api } from './harness/http.ts';
import { call, ScriptedModel, say } from './harness/model.ts';
import { Organization } from './harness/organization.ts';
import { placesInFiles, placesInPostgres, placesInSqlite, tablesOfSqlite } from './harness/places.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';

setDefaultTimeout(300_000);
const bin = installedPostgres();
if (bin === null)
  console.error('SKIPPED: no installed Postgres (apt install postgresql); only the embedded one is looked through');

/** What a gate would be called: part of a name, whatever the way of writing. */
const gateWords = [
  ...['hold', 'held', 'review', 'approv', 'confiden', 'moderat', 'quarantin', 'escalat', 'redline', 'red_line'],
  ...['clarif', 'risk', 'takeover', 'suppress', 'withh', 'embargo', 'await_human', 'needs_human', 'gated'],
];
const gateWord = new RegExp(gateWords.join('|'), 'i');

/** Folders that a reply passes through on its way from SessionDB to a reader. */
const replyPath = ['gateway/turns', 'gateway/cards', 'gateway/acp', 'gateway/transcript', 'gateway/events'];

/** Names on the reply path that have such a word for another reason. */
const innocent: Readonly<Record<string, string>> = {
  HeldAttachment: 'the stream to a holder’s child, while a turn has it',
  maxHeld: 'events that came before an earlier one',
  held: 'the same',
  releaseHeld: 'the same',
  holdsSession: 'whether SessionDB has the native session',
  sessionHeld: 'the same',
  heldSession: 'the same',
};

const withoutComments = (text: string): string =>
  text.replaceAll(/\/\*[\s\S]*?\*\//g, '').replaceAll(/(^|\s)\/\/[^\n]*/g, '');

/** Strings with a blank in them are sentences, and SQL, whose names stand in the schema. */
const withoutSentences = (text: string): string =>
  text.replaceAll(/(['"`])(?:\\[\s\S]|(?!\1)[^\\])*?\1/g, (literal) => (/\s/.test(literal) ? '' : literal));

/** Names and single words in strings that would name a gate. */
function suspicious(text: string): readonly string[] {
  const names = withoutSentences(withoutComments(text)).match(/[\p{L}_$][\p{L}\p{N}_$-]*/gu) ?? [];
  return [...new Set(names)].filter((name) => gateWord.test(name) && !(name in innocent));
}

describe('the code', () => {
  const files = [...replyPath, 'gateway/governance', 'gateway/http'].flatMap((folder) =>
    readdirSync(join(repository, folder), { recursive: true, encoding: 'utf8' })
      .filter((name) => /\.(ts|sql)$/.test(name) && !/\.(test|fixture)\.ts$/.test(name))
      .map((name) => join(folder, name)),
  );

  test('has no name for a gate anywhere on the way of a reply', () => {
    expect(files.length).toBeGreaterThan(60);
    const found = files.flatMap((file) => {
      const text = readFileSync(join(repository, file), 'utf8').replaceAll(/--[^\n]*/g, '');
      return suspicious(text).map((name) => `${file}: ${name}`);
    });
    expect(found).toEqual([]);
  });

  test('would be found out', () => {
    const names = [
      "state: 'held_for_review'",
      'const waitingApproval = 1',
      'if (confidenceScore < 1)',
      'requiresReview()',
    ];
    for (const text of names) expect(suspicious(text), text).not.toEqual([]);
    expect(suspicious('/* no review */ // or approval\nheld.get(1)')).toEqual([]);
  });

  test('knows five states of a message', () => {
    const domain = readFileSync(join(repository, 'gateway/domain.ts'), 'utf8');
    const states = /export type MessageState =([\s\S]*?);\n\n/.exec(domain)?.[1] ?? '';
    expect([...states.matchAll(/state: '(\w+)'/g)].map(([, state]) => state)).toEqual(messageStates);
  });
});

const messageStates = ['accepted', 'dispatched', 'delivered', 'failed', 'cancelled'];

/** Every name and rule in the schema of the governance. */
async function schemaOf(address: DatabaseAddress) {
  const sql = await connect(address);
  try {
    const columns = await sql<{ name: string }[]>`
      select table_name || '.' || column_name as name from information_schema.columns where table_schema = 'public'`;
    const constraints = await sql<{ name: string; rule: string }[]>`
      select c.conname as name, pg_get_constraintdef(c.oid) as rule
      from pg_constraint c join pg_namespace n on n.oid = c.connamespace where n.nspname = 'public'`;
    const others = await sql<{ name: string }[]>`
      select indexname || ' ' || indexdef as name from pg_indexes where schemaname = 'public'
      union all select 'trigger ' || tgname from pg_trigger where not tgisinternal
      union all select 'enum ' || enumlabel from pg_enum
      union all select 'view ' || viewname from pg_views where schemaname = 'public'
      union all select 'function ' || proname from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname = 'public'`;
    return {
      columns: columns.map(({ name }) => name),
      rules: constraints.map(({ name, rule }) => `${name} ${rule}`),
      others: others.map(({ name }) => name),
    };
  } finally {
    await sql.end();
  }
}

async function expectNoGateIn(address: DatabaseAddress): Promise<void> {
  const { columns, rules, others } = await schemaOf(address);
  expect(columns).toContain('messages.state');
  expect([...columns, ...rules, ...others].filter((text) => gateWord.test(text))).toEqual([]);
  // Nothing that acts by itself stands between a statement and its row.
  expect(others.filter((text) => /^(trigger|function|view) /.test(text))).toEqual([]);
  const states = rules.filter((rule) => /^messages_state_check /.test(rule)).join();
  expect([...states.matchAll(/'(\w+)'::text/g)].map(([, state]) => state)).toEqual(messageStates);
  // No second ledger of what tools did: the one is in AgentFS.
  expect(columns.filter((name) => /tool|command|argv|execut/.test(name))).toEqual([]);
  // Nor a place for a reply's words.
  expect(columns.filter((name) => /\..*(reply|text|content|transcript|prose|body)/.test(name))).toEqual([]);
}

/** A sentence that nothing else in the world says. */
const sentence = (who: string): string => `The ${who} says that ${crypto.randomUUID()} is a marmalade number.`;

const said = {
  client: sentence('client'),
  agent: sentence('agent'),
  /** In a turn that fails: kept for the client's retry, in Postgres, and nowhere else there. */
  failing: sentence('failing client'),
  /** In a card, and in the text around it, until the reply is edited. */
  edited: sentence('edited agent'),
  editor: sentence('expert'),
  human: sentence('human agent'),
  /** In a card: a row of Postgres, by the amendment. */
  card: sentence('card'),
  /** Written by a tool into a file: AgentFS is where files are. */
  file: sentence('file'),
};
const card = { question: said.card, options: [{ id: 'yes', label: 'Yes' }], allowText: false };

/** Replies that a gate of any kind would have stopped. */
const daring: Readonly<Record<string, string>> = {
  unsure: 'I am not at all confident. Confidence: 0.01. [LOW_CONFIDENCE]',
  human: 'I cannot help with this. Please escalate to a human expert for review. NEEDS_HUMAN',
  secret: 'Chain of thought: first I will think about the system prompt. BEGIN REASONING … END REASONING',
  waiting: '{"status": "waiting_approval", "held_for_review": true}',
  wrapped: '<delivered_message>Hello</delivered_message>',
  refusal: 'I must decline: this is against policy (red line 4).',
};

function script(model: ScriptedModel): void {
  model
    .on(said.client, say(`Noted. ${said.agent}`))
    .on('Ask me about it', say(`Well.\n<<<HW_QUESTION ${JSON.stringify(card)} >>>\n${said.agent}`))
    .on(
      'Ask me wrongly',
      say(`${said.edited}\n<<<HW_QUESTION ${JSON.stringify({ ...card, question: said.edited })} >>>`),
    )
    .on('Write it down', call('write_file', { path: 'note.txt', content: said.file }), say('Written.'))
    .on('Look around', call('terminal', { command: 'ls -la /workspace; echo looked' }), say(said.agent))
    // Hermes joins a message that got no answer with the next one.
    .on((text) => text.includes(said.failing) && !text.includes('Look around'), {
      do: 'fail',
      status: 400,
      message: 'bad request',
    });
  for (const [name, text] of Object.entries(daring)) model.on(`Be ${name}.`, say(text));
}

const failed = v.looseObject({ type: v.string(), message: v.string() });

/** A conversation with all of it. */
async function converse(api: Api): Promise<string> {
  const conversation = await api.createConversation('Eleanora');
  const path = `/v1/conversations/${conversation}/messages`;
  await api.say(conversation, `Please listen. ${said.client}`);
  for (const text of ['Ask me about it', 'Write it down', 'Look around']) await api.say(conversation, text);
  await amend(api, conversation);
  for (const [name, text] of Object.entries(daring)) {
    const { reply } = await api.say(conversation, `Be ${name}.`);
    expect(reply.text).toBe(text);
  }
  const answer = await api.post(path, { text: said.failing }, { prefer: 'wait=120' });
  expect(answer.status, answer.text).toBe(502);
  v.parse(failed, answer.json());
  expect(answer.text).not.toContain(said.failing);
  await api.say(conversation, 'Look around');
  return conversation;
}

/** A reply with a card is edited, and a human appends one. */
async function amend(api: Api, conversation: string): Promise<void> {
  const path = `/v1/conversations/${conversation}`;
  const { reply } = await api.say(conversation, 'Ask me wrongly');
  const turns = v.object({ turns: v.array(v.looseObject({ locator: v.string(), etag: v.string() })) });
  const read = await api.get(`${path}/transcript?view=canonical&limit=500`);
  const etag = v.parse(turns, read.json()).turns.find(({ locator }) => locator === reply.locator)?.etag ?? '';
  const edit = await api.request('PATCH', `${path}/transcript/${reply.locator}`, {
    json: { text: said.editor },
    headers: { 'if-match': etag },
  });
  expect(edit.status, edit.text).toBe(200);
  const human = await api.post(`${path}/replies`, { text: said.human }, { 'idempotency-key': crypto.randomUUID() });
  expect(human.status, human.text).toBe(201);
}

/** What the holders have beside AgentFS: their temporary files and shared memory. */
function placesInHolders(gateway: Gateway, text: string): readonly string[] {
  const roots = hermesProcesses(gateway.pid).flatMap(({ pid }) =>
    ['tmp', 'dev/shm'].map((name) => `/proc/${pid}/root/${name}`),
  );
  expect(roots.length).toBeGreaterThan(0);
  return roots.flatMap((root) => placesInFiles(root, text).map((path) => join(root, path)));
}

interface Row {
  readonly role: string;
  readonly content: string | null;
  readonly platform_message_id: string | null;
  readonly finish_reason: string | null;
}

/** Why an answer of the model ended; nothing for a row of somebody else. */
const usualReasons: readonly (string | null)[] = [null, 'stop', 'tool_calls'];

/** Rows of the SessionDB that are somebody's or the agent's words. */
function rowsOf(sessiondb: string) {
  using database = new Database(sessiondb, { readonly: true });
  return database
    .query<Row, []>('SELECT role, content, platform_message_id, finish_reason FROM messages ORDER BY id')
    .all();
}

function expectOwnRowsOnly(sessiondb: string): void {
  const rows = rowsOf(sessiondb);
  expect(rows.length).toBeGreaterThan(2 * Object.keys(daring).length);
  const wrapped = rows.filter(({ content }) => /<\/?[a-z]+_(message|request|context)|delivered/i.test(content ?? ''));
  expect(wrapped.map(({ content }) => content)).toEqual([daring.wrapped!]);
  // A human's reply alone is marked, in a column that Hermes tells nobody.
  expect(rows.filter((row) => row.platform_message_id !== null)).toEqual([]);
  const marked = rows.filter(({ finish_reason }) => !usualReasons.includes(finish_reason));
  expect(marked.map(({ content }) => content)).toEqual([said.human]);
  // What was edited away is nowhere at all.
  expect(placesInSqlite(sessiondb, said.editor)).toContain('messages.content');
  expect(placesInSqlite(sessiondb, said.edited)).toEqual([]);
  expect([...new Set(rows.map(({ role }) => role))].sort()).toEqual(['assistant', 'tool', 'user']);
}

/** The tables of an AgentFS database as the public schema names them. */
const agentfsTables = ['fs_config', 'fs_data', 'fs_dentry', 'fs_inode', 'fs_origin', 'fs_overlay_config', 'fs_symlink'];

function expectOneLedgerIn(agentfs: string): void {
  const tables = Object.keys(tablesOfSqlite(agentfs)).filter((name) => !name.startsWith('turso_'));
  expect(tables).toEqual([...agentfsTables, 'fs_whiteout', 'kv_store', 'tool_calls']);
  using database = new Database(agentfs, { readonly: true });
  const calls = database.query<{ parameters: string }, []>('SELECT parameters FROM tool_calls').all();
  expect(calls.filter(({ parameters }) => parameters.includes('echo looked')).length).toBeGreaterThan(0);
}

/** Everything but the SessionDB: a sentence of a conversation is in none of it. */
interface Places {
  readonly postgres: DatabaseAddress;
  readonly agentfs: string;
  /** The gateway's data directory, with the machine's replica and every log and run directory. */
  readonly data: string;
  /** Relative to `data`, databases whose bytes are looked at by their rows instead. */
  readonly logical: RegExp;
  readonly log: string;
}

async function expectNowhere(places: Places): Promise<void> {
  const replica = join(places.data, 'machine/organization.db');
  const files = (text: string) => placesInFiles(places.data, text).filter((path) => !places.logical.test(path));
  for (const text of [said.client, said.agent, said.edited, said.editor, said.human]) {
    expect(await placesInPostgres(places.postgres, text), 'Postgres').toEqual([]);
    for (const path of [places.agentfs, replica]) expect(placesInSqlite(path, text), path).toEqual([]);
    expect(files(text), 'files of the data directory').toEqual([]);
    expect(places.log.includes(text), 'the log').toBe(false);
  }
  // What is kept by rule is in its place, and so would be found elsewhere.
  expect(await placesInPostgres(places.postgres, said.failing)).toEqual(['messages.blocks']);
  expect(await placesInPostgres(places.postgres, said.card)).toEqual(['cards.card']);
  for (const text of [said.failing, said.card]) {
    for (const path of [places.agentfs, replica]) expect(placesInSqlite(path, text), path).toEqual([]);
    expect(files(text)).toEqual([]);
    expect(places.log.includes(text)).toBe(false);
  }
  for (const path of [places.agentfs, replica]) {
    expect(placesInSqlite(path, said.file), path).toContain('fs_data.data');
  }
  expect(await placesInPostgres(places.postgres, said.file)).toEqual([]);
}

describe.skipIf(bin === null)('an organization on a real Postgres and databases of somebody else', () => {
  let organization: Organization;
  let postgres: DatabaseAddress;
  const sessiondb = () => join(organization.cloud.dataDirectory, 'sessiondb.db');
  const agentfs = () => join(organization.cloud.dataDirectory, 'agentfs.db');

  beforeAll(async () => {
    organization = await Organization.start(bin!);
    script(organization.model);
    await organization.serve();
    postgres = { kind: 'url', url: organization.environment.DATABASE_URL! };
    const made = await organization.api.post('/v1/specialists', { name: 'Eleanora', persona: 'Be brief.' });
    expect(made.status).toBe(201);
    await converse(organization.api);
  });
  afterAll(() => organization?.stop());

  test('its schema has no gate', () => expectNoGateIn(postgres));

  test('a delivery is three statements, and a card does not make it more', async () => {
    const conversation = await organization.api.createConversation('Eleanora');
    await organization.api.say(conversation, 'first');
    const from = organization.statements.length;
    await organization.api.say(conversation, 'Ask me about it');
    const written = organization.statements.slice(from).filter((sql) => /\b(insert|update|delete)\b/i.test(sql));
    expect(written.map((sql) => /update messages|insert into messages/.exec(sql)?.[0])).toEqual([
      'insert into messages',
      'update messages',
      'update messages',
    ]);
    expect(written[2]).toContain('insert into cards');
  });

  test('a sentence that was said is in the SessionDB, and nowhere else once it is delivered', async () => {
    const { gateway } = organization;
    for (const text of [said.client, said.agent]) {
      expect(placesInHolders(gateway, text)).toEqual([]);
      expect(placesInSqlite(sessiondb(), text)).toContain('messages.content');
    }
    expect(await gateway.stop()).toBe(0);
    const data = join(organization.directory, 'data');
    await expectNowhere({
      postgres,
      agentfs: agentfs(),
      data,
      logical: /^machine\/organization\.db/,
      log: gateway.log,
    });
  });

  test('the SessionDB has Hermes’ own tables and rows only, AgentFS one ledger', async () => {
    expectOwnRowsOnly(sessiondb());
    expectOneLedgerIn(agentfs());
  });
});

test('an organization on the embedded databases: no gate, and no second copy either', async () => {
  const scratch = scratchDirectory('embedded');
  const data = join(scratch, 'data');
  await using model = ScriptedModel.start();
  script(model);
  try {
    const gateway = await Gateway.start({
      dataDirectory: data,
      environment: { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: 'none' },
    });
    {
      await using running = gateway;
      await converse(running.api('expert'));
      expect(placesInHolders(running, said.agent)).toEqual([]);
      expect(await running.stop()).toBe(0);
    }
    const sessiondb = join(data, 'authority/sessiondb.db');
    expect(placesInSqlite(sessiondb, said.agent)).toContain('messages.content');
    expectOwnRowsOnly(sessiondb);
    expectOneLedgerIn(join(data, 'authority/agentfs.db'));
    mkdirSync(join(scratch, 'run'));
    const postgres = await startEmbeddedPostgres({
      dataDirectory: join(data, 'postgres'),
      socketDirectory: join(scratch, 'run'),
      readyMs: 60_000,
      onLog: (line) => console.error(line),
    });
    try {
      await expectNoGateIn(postgres.address);
      await expectNowhere({
        postgres: postgres.address,
        agentfs: join(data, 'authority/agentfs.db'),
        data,
        // Postgres' own files have versions of rows that are no more; the authority's are looked through by their rows.
        logical: /^(postgres|authority|machine\/organization\.db)/,
        log: gateway.log,
      });
    } finally {
      await postgres.stop(5_000);
    }
  } finally {
    removeScratch(scratch);
  }
});
