import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import type { ContentBlock, LoggedEvent, PhaseTimings } from '../domain.ts';
import { type ConversationId, type Locator, newConversationId, newMessageId, type TokenId } from '../ids.ts';
import { Problem } from '../problem.ts';
import { connect } from './connection.ts';
import { embeddedDatabase, installedPostgres, realDatabase, type TestDatabase } from './databases.fixture.ts';
import { migrate, migrations } from './migrations.ts';
import { type OpenedGovernance, openGovernance } from './postgres.ts';

const timings: PhaseTimings = { attachMs: 1.5, admissionMs: null, firstUpdateMs: 150.25, loopMs: 20, settleMs: 3 };
const digest = (letter: string) => letter.repeat(64);
const failure = new Problem('turn-interrupted', 'The gateway stopped').document;

const realBin = installedPostgres();
if (realBin === null)
  console.error('SKIPPED: no installed Postgres (apt install postgresql); only the embedded one is tested');

const databases: readonly (readonly [string, () => Promise<TestDatabase>])[] = [
  ['embedded', embeddedDatabase],
  ...(realBin === null ? [] : ([['real server', () => realDatabase(realBin)]] as const)),
];

describe.each(databases)('governance on the %s', (_, start) => {
  let database: TestDatabase;
  let governance: OpenedGovernance;
  let conversation: ConversationId;

  const open = () =>
    openGovernance({ database: database.address, organizationName: 'Percy & Sons', failedProseDays: 7 });

  beforeAll(async () => {
    database = await start();
    governance = await open();
    const specialist = await governance.createSpecialist('Eleanora', 'Be kind.');
    conversation = (await governance.createConversation(newConversationId(), specialist.id)).id;
  }, 90_000);
  afterAll(async () => {
    await governance?.close();
    await database?.stop();
  });

  async function accept(key: string | null = null, blocks: readonly ContentBlock[] = [{ type: 'text', text: 'hi' }]) {
    const acceptance = await governance.accept({ id: newMessageId(), conversation, blocks, digest: digest('a'), key });
    if (acceptance.outcome !== 'accepted') throw new Error(acceptance.outcome);
    return acceptance;
  }
  const locator = () => `loc_${crypto.randomUUID()}` as Locator;
  const refusal = async (work: Promise<unknown>): Promise<string> => {
    try {
      await work;
    } catch (error) {
      if (error instanceof Problem) return error.problem;
      throw error;
    }
    throw new Error('it was not refused');
  };

  test('the organization is made once and keeps its id', async () => {
    const first = await governance.organization();
    const again = await openGovernance({
      database: database.address,
      organizationName: 'Another',
      failedProseDays: 7,
    }).catch(() => null);
    // The embedded server has room for a second connection only while it changes over, so this may be refused there.
    if (again !== null) {
      expect(await again.organization()).toEqual(first);
      await again.close();
    }
    expect(first.id).toMatch(/^org_[0-9a-z]{26}$/);
    expect(first.name).toBe('Percy & Sons');
  });

  test('blocks come back exactly as they were accepted', async () => {
    const blocks: ContentBlock[] = [
      {
        type: 'text',
        text: 'nul \u0000, lone \ud800, é e\u0301, \r\n\r \u2028 👩‍👩‍👧',
        zebra: 1,
        alpha: { b: [1, null], a: 2 },
      },
      { type: 'resource_link', uri: 'file:///artifacts/inbound/x', name: '' },
    ];
    const { message } = await accept(null, blocks);
    const pending = (await governance.pending()).find((entry) => entry.message.id === message.id);
    expect(JSON.stringify(pending?.blocks)).toBe(JSON.stringify(blocks));
    expect(pending?.watermark).toBeNull();
    await governance.cancel(message.id, null);
  });

  test('a repeated key answers with the first message and logs nothing; with another body it is refused', async () => {
    const first = await accept('key-1');
    const seq = governance.lastSeq();
    const again = { id: newMessageId(), conversation, blocks: [], key: 'key-1' };
    expect(await governance.accept({ ...again, digest: digest('a') })).toEqual({
      outcome: 'known',
      message: first.message,
    });
    expect(await governance.accept({ ...again, digest: digest('b') })).toEqual({ outcome: 'key-reused' });
    expect(governance.lastSeq()).toBe(seq);
    await governance.cancel(first.message.id, null);
    const known = await governance.accept({ ...again, digest: digest('a') });
    expect(known).toMatchObject({ outcome: 'known', message: { state: 'cancelled' } });
  });

  test('the same key at the same time makes one message', async () => {
    const all = await Promise.all(
      Array.from({ length: 20 }, () =>
        governance.accept({ id: newMessageId(), conversation, blocks: [], digest: digest('c'), key: 'race' }),
      ),
    );
    const accepted = all.filter((one) => one.outcome === 'accepted');
    expect(accepted).toHaveLength(1);
    const id = accepted[0]!.message.id;
    expect(all.every((one) => one.outcome !== 'key-reused' && one.message.id === id)).toBe(true);
    await governance.cancel(id, null);
  });

  test('an unknown conversation accepts nothing and uses no number', async () => {
    const seq = governance.lastSeq();
    const input = { id: newMessageId(), conversation: newConversationId(), blocks: [], digest: digest('a'), key: null };
    expect(await refusal(governance.accept(input))).toBe('not-found');
    expect(governance.lastSeq()).toBe(seq);
  });

  test('a turn: dispatched, delivered once, prose erased, each step one event', async () => {
    const { message, event } = await accept();
    const started = await governance.dispatch(message.id, 41, 'cold');
    expect(started).toMatchObject({ seq: event.seq + 1, conversation, type: 'turn.started', admission: 'cold' });
    const pending = (await governance.pending()).find((entry) => entry.message.id === message.id);
    expect(pending).toMatchObject({ watermark: 41, message: { state: 'dispatched' } });
    const reply = locator();
    const [delivered] = await governance.deliver(message.id, reply, timings, null);
    expect(delivered).toMatchObject({
      seq: event.seq + 2,
      type: 'reply.delivered',
      message: message.id,
      locator: reply,
    });
    expect(await governance.findMessage(conversation, message.id)).toEqual({
      ...message,
      state: 'delivered',
      locator: reply,
      timings,
    });
    expect(await refusal(governance.deliver(message.id, locator(), timings, null))).toBe('conflict');
    expect(await refusal(governance.fail(message.id, failure, null))).toBe('conflict');
    expect((await governance.pending()).some((entry) => entry.message.id === message.id)).toBe(false);
    expect(governance.lastSeq()).toBe(event.seq + 2);
    expect(await blocksOf(message.id)).toBeNull();
  });

  test('a locator is delivered for one message only', async () => {
    const [one, two] = [await accept(), await accept()];
    const reply = locator();
    await governance.dispatch(one.message.id, 1, 'warm');
    await governance.dispatch(two.message.id, 1, 'warm');
    await governance.deliver(one.message.id, reply, timings, null);
    const seq = governance.lastSeq();
    expect(await refusal(governance.deliver(two.message.id, reply, timings, null))).toBe('conflict');
    expect(governance.lastSeq()).toBe(seq);
    await governance.fail(two.message.id, failure, null);
  });

  const card = { question: 'Which?', options: [{ id: 'a', label: "A 'quoted' one" }], allowText: true };

  test('a card is opened with the delivery of its reply: two events, one row, which goes with the message', async () => {
    const { message } = await accept();
    const { seq } = await governance.dispatch(message.id, 1, 'warm');
    const reply = locator();
    const [delivered, opened] = await governance.deliver(message.id, reply, timings, card);
    expect(delivered).toMatchObject({ seq: seq + 1, type: 'reply.delivered', message: message.id, locator: reply });
    expect(opened).toEqual({ seq: seq + 2, at: delivered.at, conversation, type: 'card.opened', locator: reply });
    expect(governance.lastSeq()).toBe(seq + 2);
    expect((await governance.eventsAfter(seq, 10)).events).toEqual([delivered, opened!]);
    const cards = () => raw((sql) => sql<{ card: string }[]>`select card from cards where locator = ${reply}`);
    expect((await cards()).map((row) => JSON.parse(row.card))).toEqual([card]);
    expect(await refusal(governance.deliver(message.id, reply, timings, card))).toBe('conflict');
    const next = await accept();
    expect(next.event.seq).toBe(seq + 3);
    await governance.cancel(next.message.id, null);
    await raw((sql) => sql`delete from messages where id = ${message.id}`);
    expect(await cards()).toHaveLength(0);
  });

  test('a card is kept as long as its reply is not edited', async () => {
    const [edited, other] = [locator(), locator()];
    for (const reply of [edited, other]) {
      const { message } = await accept();
      await governance.dispatch(message.id, 1, 'warm');
      await governance.deliver(message.id, reply, timings, card);
    }
    const by = { token: 'tok_x' as TokenId, user: null };
    const { amendments } = governance;
    const id = await amendments.intend({ kind: 'edit', conversation, by, locator: edited, was: '"a"', becomes: '"b"' });
    const kept = async () =>
      (await raw((sql) => sql<{ locator: Locator }[]>`select locator from cards`)).map((row) => row.locator);
    expect(await kept()).toEqual(expect.arrayContaining([edited, other]));
    await amendments.record(id, conversation, 'edit', edited);
    expect(await kept()).toContain(other);
    expect(await kept()).not.toContain(edited);
  });

  test('a card that cannot be kept holds no reply', async () => {
    const { message } = await accept();
    const { seq } = await governance.dispatch(message.id, 1, 'warm');
    await raw((sql) => sql`alter table cards rename to cards_elsewhere`);
    try {
      const events = await governance.deliver(message.id, locator(), timings, card);
      expect(events.map((event) => [event.seq, event.type])).toEqual([[seq + 1, 'reply.delivered']]);
      expect(await governance.findMessage(conversation, message.id)).toMatchObject({ state: 'delivered' });
    } finally {
      await raw((sql) => sql`alter table cards_elsewhere rename to cards`);
    }
    expect((await governance.eventsAfter(seq, 10)).events).toHaveLength(1);
  });

  test('a failed message keeps its prose and its problem, a cancelled one nothing', async () => {
    const [failed, cancelled] = [await accept(), await accept()];
    const event = await governance.fail(failed.message.id, failure, null);
    expect(event).toMatchObject({ type: 'turn.failed', problem: failure });
    expect(await governance.findMessage(conversation, failed.message.id)).toMatchObject({
      state: 'failed',
      problem: failure,
    });
    expect(await blocksOf(failed.message.id)).toBe('[{"type":"text","text":"hi"}]');
    await governance.cancel(cancelled.message.id, null);
    expect(await blocksOf(cancelled.message.id)).toBeNull();
  });

  test('what waits is cancelled or dispatched, whichever is first, and says which', async () => {
    const [waiting, dispatched] = [await accept(), await accept()];
    const cancelled = await governance.cancelWaiting(conversation, waiting.message.id);
    expect(cancelled).toEqual({
      outcome: 'cancelled',
      event: expect.objectContaining({ type: 'turn.cancelled', message: waiting.message.id, conversation }),
    });
    expect(await blocksOf(waiting.message.id)).toBeNull();
    expect(await refusal(governance.dispatch(waiting.message.id, 1, 'warm'))).toBe('conflict');
    expect(await refusal(governance.fail(waiting.message.id, failure, null))).toBe('conflict');
    await governance.dispatch(dispatched.message.id, 1, 'warm');
    const seq = governance.lastSeq();
    for (const [{ message }, state] of [
      [waiting, 'cancelled'],
      [dispatched, 'dispatched'],
    ] as const)
      expect(await governance.cancelWaiting(conversation, message.id)).toEqual({
        outcome: 'too-late',
        message: { ...message, state },
      });
    expect(await governance.cancelWaiting(newConversationId(), dispatched.message.id)).toBeNull();
    expect(governance.lastSeq()).toBe(seq);
    await governance.cancel(dispatched.message.id, null);
  });

  test('a conversation of which everything was cancelled before its dispatch has told nothing', async () => {
    const { specialist } = (await governance.findConversation(conversation))!;
    const { id } = await governance.createConversation(newConversationId(), specialist);
    const send = async () => {
      const input = { id: newMessageId(), conversation: id, blocks: [], digest: digest('a'), key: null };
      await governance.accept(input);
      return input.id;
    };
    await governance.cancelWaiting(id, await send());
    expect(await governance.isUntold(id)).toBe(true);
    const message = await send();
    await governance.dispatch(message, 1, 'warm');
    await governance.cancel(message, null);
    expect(await governance.isUntold(id)).toBe(false);
  });

  test('a key is found with its message, behind what is being accepted', async () => {
    expect(await governance.findKeyed(conversation, 'sought')).toBeNull();
    const accepting = Promise.all([...Array.from({ length: 10 }, () => accept()), accept('sought')]);
    const found = await governance.findKeyed(conversation, 'sought');
    const accepted = await accepting;
    expect(found).toEqual({ message: accepted.at(-1)!.message, digest: digest('a') });
    expect(await governance.findKeyed(newConversationId(), 'sought')).toBeNull();
    for (const { message } of accepted) await governance.cancel(message.id, null);
  });

  test('a delivery needs a dispatch', async () => {
    const { message } = await accept();
    expect(await refusal(governance.deliver(message.id, locator(), timings, null))).toBe('conflict');
    expect(await refusal(governance.dispatch(newMessageId(), 1, 'warm'))).toBe('conflict');
    await governance.cancel(message.id, null);
  });

  test('events are numbered without gaps under load and read back as they were returned', async () => {
    const before = governance.lastSeq();
    const events: LoggedEvent[] = [];
    await Promise.all(
      Array.from({ length: 40 }, async (_, n) => {
        if (n % 4 === 3) {
          await refusal(governance.dispatch(newMessageId(), 0, 'warm'));
          return;
        }
        const { message, event } = await accept();
        events.push(event, await governance.dispatch(message.id, n, 'warm'));
        if (n % 4 === 0) events.push(...(await governance.deliver(message.id, locator(), timings, null)));
        if (n % 4 === 1) events.push(await governance.fail(message.id, failure, timings));
        if (n % 4 === 2) events.push(await governance.cancel(message.id, null));
      }),
    );
    events.push(await governance.log(conversation, { type: 'transcript.edited', locator: locator() }));
    events.push(await governance.log(conversation, { type: 'conversation.updated' }));
    events.sort((a, b) => a.seq - b.seq);
    expect(events.map((event) => event.seq)).toEqual(events.map((_, n) => before + 1 + n));
    expect(governance.lastSeq()).toBe(before + events.length);
    const read = await governance.eventsAfter(before, 1_000);
    expect(read.events).toEqual(events);
    expect(read.oldest).toBe(1);
    expect((await governance.eventsAfter(before, 3)).events).toEqual(events.slice(0, 3));
  });

  test('a message event is logged by its transition only', async () => {
    const { message } = await accept();
    expect(governance.log(conversation, { type: 'turn.cancelled', message: message.id })).rejects.toThrow('transition');
    await governance.cancel(message.id, null);
  });

  test('a restart goes on with the next number and knows what is pending', async () => {
    const { message } = await accept();
    const seq = governance.lastSeq();
    await governance.close();
    governance = await open();
    expect(governance.lastSeq()).toBe(seq);
    expect((await governance.pending()).map((entry) => entry.message.id)).toEqual([message.id]);
    expect((await governance.cancel(message.id, null)).seq).toBe(seq + 1);
  });

  test('tokens: shown once, stored hashed, revoked at once', async () => {
    const { caller, secret } = await governance.createToken('client_admin', 'Ada');
    expect(secret).toMatch(/^egw_client_admin_[0-9A-Za-z_-]{43}$/);
    expect(await governance.authenticate(secret)).toEqual(caller);
    expect(await governance.listTokens()).toContainEqual({ ...caller, createdAt: expect.any(Date) });
    const stored = await raw((sql) => sql`select * from tokens`);
    expect(JSON.stringify(stored)).not.toContain(secret.slice('egw_client_admin_'.length));
    expect(await governance.authenticate(`egw_client_admin_${'A'.repeat(43)}`)).toBeNull();
    expect(await governance.authenticate(secret.replace('client_admin', 'superadmin'))).toBeNull();
    expect(await governance.authenticate('')).toBeNull();
    expect(await governance.revokeToken(caller.token)).toBe(true);
    expect(await governance.revokeToken(caller.token)).toBe(false);
    expect(await governance.authenticate(secret)).toBeNull();
    expect(await governance.listTokens()).not.toContainEqual(expect.objectContaining({ token: caller.token }));
  });

  test('a token that was made beside the disabling of its user is none', async () => {
    const user = await governance.createUser('Eve', 'client', []);
    const { caller, secret } = await governance.createUserToken(user.id, 'late');
    await governance.disableUser(user.id);
    await raw((sql) => sql`update tokens set revoked_at = null where id = ${caller.token}`);
    expect(await governance.authenticate(secret)).toBeNull();
  });

  test('specialists of a user that are said several times at once: one of them holds', async () => {
    const { id } = await governance.createSpecialist(`s-${crypto.randomUUID()}`, '');
    const user = await governance.createUser('Dan', 'expert', []);
    const said = await Promise.all(Array.from({ length: 8 }, () => governance.assignSpecialists(user.id, [id])));
    expect(said.map((one) => one?.user.specialists)).toEqual(said.map(() => [id]));
    expect((await governance.findUser(user.id))?.specialists).toEqual([id]);
  });

  test('a known caller costs no query', async () => {
    const { caller, secret } = await governance.createToken('client', 'Bob');
    await governance.authenticate(secret);
    await raw((sql) => sql`update tokens set revoked_at = now() where id = ${caller.token}`);
    expect(await governance.authenticate(secret)).toEqual(caller);
  });

  test('a known conversation costs no query', async () => {
    await governance.findConversation(conversation);
    await raw((sql) => sql`update conversations set created_at = 'epoch' where id = ${conversation}`);
    expect((await governance.findConversation(conversation))?.createdAt.getTime()).toBeGreaterThan(0);
    expect(await governance.findConversation(newConversationId())).toBeNull();
  });

  test('specialists: by id or name, a name once, offboarding changes routing only', async () => {
    const made = await governance.createSpecialist('Théo', 'Answer in verse.');
    expect(await governance.findSpecialist(made.id)).toEqual(made);
    expect(await governance.findSpecialist('Théo')).toEqual(made);
    expect(await governance.findSpecialist('Theo')).toBeNull();
    expect(await governance.findSpecialist('a\u0000b')).toBeNull();
    expect(await refusal(governance.createSpecialist('Théo', ''))).toBe('conflict');
    expect(await refusal(governance.createSpecialist('a\u0000b', ''))).toBe('invalid-request');
    const held = await governance.createConversation(newConversationId(), made.id);
    const offboarded = await governance.offboardSpecialist(made.id);
    expect(offboarded?.offboardedAt).toBeInstanceOf(Date);
    expect(await governance.offboardSpecialist(made.id)).toEqual(offboarded);
    expect(await governance.findConversation(held.id)).toEqual(held);
  });

  test('a session is bound once', async () => {
    const specialist = (await governance.findSpecialist('Eleanora'))!;
    const [one, two] = [newConversationId(), newConversationId()];
    await governance.createConversation(one, specialist.id);
    await governance.createConversation(two, specialist.id);
    const reads = Promise.all([governance.findConversation(one), governance.findConversation(one)]);
    await governance.bindSession(one, 'session-1');
    await reads;
    await governance.bindSession(one, 'session-1');
    expect((await governance.findConversation(one))?.session).toBe('session-1');
    expect(await refusal(governance.bindSession(one, 'session-2'))).toBe('conflict');
    expect(await refusal(governance.bindSession(two, 'session-1'))).toBe('conflict');
    expect(await refusal(governance.bindSession(newConversationId(), 'session-3'))).toBe('not-found');
    expect(await refusal(governance.createConversation(one, specialist.id))).toBe('conflict');
  });

  test('a session is replaced as long as nothing of it was told', async () => {
    const specialist = (await governance.findSpecialist('Eleanora'))!;
    const [failed, delivered] = [newConversationId(), newConversationId()];
    for (const id of [failed, delivered]) {
      await governance.createConversation(id, specialist.id);
      await governance.bindSession(id, `${id}-1`);
      expect(await governance.isUntold(id)).toBe(true);
    }
    expect(await governance.replaceSession(failed, `${failed}-0`, `${failed}-2`)).toBe(false);
    expect(await governance.replaceSession(failed, `${failed}-1`, `${failed}-2`)).toBe(true);
    // Its answer can be lost, and it is asked for again.
    expect(await governance.replaceSession(failed, `${failed}-1`, `${failed}-2`)).toBe(true);
    expect((await governance.findConversation(failed))?.session).toBe(`${failed}-2`);
    await governance.log(delivered, { type: 'transcript.edited', locator: 'L' as Locator });
    expect(await governance.isUntold(delivered)).toBe(false);
    expect(await governance.replaceSession(delivered, `${delivered}-1`, `${delivered}-2`)).toBe(false);
    expect((await governance.findConversation(delivered))?.session).toBe(`${delivered}-1`);
  });

  test('conversations are paged newest first; a made-up cursor is refused', async () => {
    const specialist = (await governance.findSpecialist('Eleanora'))!;
    const made: ConversationId[] = [];
    for (let n = 0; n < 5; n += 1)
      made.unshift((await governance.createConversation(newConversationId(), specialist.id)).id);
    const seen: ConversationId[] = [];
    let cursor: string | null = null;
    do {
      const page: Awaited<ReturnType<typeof governance.listConversations>> = await governance.listConversations(
        { kind: 'everything' },
        cursor,
        2,
      );
      seen.push(...page.items.map((item) => item.id));
      cursor = page.next;
    } while (cursor !== null);
    expect(seen.slice(0, 5)).toEqual(made);
    expect(seen).toContain(conversation);
    expect(new Set(seen).size).toBe(seen.length);
    for (const bad of ['x', '-1', 'MQ==', Buffer.from('1; drop').toString('base64url')]) {
      expect(await refusal(governance.listConversations({ kind: 'everything' }, bad, 2))).toBe('invalid-request');
    }
  });

  test('failed prose is erased by age', async () => {
    const { message } = await accept();
    await governance.fail(message.id, failure, null);
    await raw((sql) => sql`update messages set settled_at = now() - interval '8 days' where id = ${message.id}`);
    await governance.close();
    governance = await open();
    expect(await blocksOf(message.id)).toBeNull();
    expect(await governance.findMessage(conversation, message.id)).toMatchObject({ state: 'failed', problem: failure });
  });

  test('no column can hold a reply or a review (ADR-046 §4, §5, §9)', async () => {
    const rows = await raw(
      (sql) => sql<{ name: string }[]>`
        select table_name || '.' || column_name as name from information_schema.columns
        where table_schema = 'public' order by 1`,
    );
    const names = rows.map((row) => row.name);
    expect(names.filter((name) => name.startsWith('messages.'))).toEqual(
      [
        'accepted_at',
        'accepted_seq',
        'admission',
        'admission_ms',
        'attach_ms',
        'blocks',
        'conversation',
        'digest',
        'dispatched_at',
        'first_update_ms',
        'id',
        'idempotency_key',
        'locator',
        'loop_ms',
        'problem',
        'settle_ms',
        'settled_at',
        'state',
        'watermark',
      ].map((column) => `messages.${column}`),
    );
    expect(names.filter((name) => name.startsWith('events.'))).toEqual(
      ['admission', 'at', 'conversation', 'locator', 'message', 'seq', 'type'].map((column) => `events.${column}`),
    );
    const forbidden = /review|held|hold|confidence|approv|risk|reply|prose|text|body|citation|lease|fence/;
    expect(names.filter((name) => forbidden.test(name))).toEqual([]);
  });

  test('a second writer on the same database is noticed', async () => {
    const seq = governance.lastSeq() + 1;
    await raw(
      (sql) =>
        sql`insert into events (seq, conversation, at, type) values (${seq}, ${conversation}, now(), 'conversation.updated')`,
    );
    await expect(governance.log(conversation, { type: 'conversation.updated' })).rejects.toThrow('another gateway');
    expect((await governance.failed).message).toContain('another gateway');
    expect(await refusal(governance.log(conversation, { type: 'conversation.updated' }))).toBe('not-ready');
    await governance.close();
    governance = await open();
    expect((await governance.log(conversation, { type: 'conversation.updated' })).seq).toBe(seq + 1);
  });

  test('a newer or rewritten database is refused, a failing migration leaves nothing', async () => {
    const known = migrations.at(-1)?.version ?? 0;
    const newer = { version: known + 1, name: 'later', sql: 'create table later (id integer)' };
    const broken = { version: known + 2, name: 'broken', sql: 'create table half (id integer); select 1/0' };
    await raw(async (sql) => {
      await migrate(sql, [...migrations, newer]);
      await migrate(sql, [...migrations, newer]);
      await expect(migrate(sql, [...migrations, newer, broken])).rejects.toThrow('division by zero');
      expect(await sql`select to_regclass('half') as half`).toEqual([{ half: null }] as never);
    });
    await expect(open()).rejects.toThrow(`The database has version ${known + 1}, this program knows up to ${known}`);
    await raw(async (sql) => {
      await expect(migrate(sql, [...migrations, { ...newer, sql: '-- other' }])).rejects.toThrow('another text');
      await sql`delete from edge_gateway_migrations where version = ${known + 1}`;
    });
  });

  async function raw<T>(work: (sql: Awaited<ReturnType<typeof connect>>) => PromiseLike<T>): Promise<T> {
    // One connection at a time on the embedded server: the governance's own is idle here.
    const sql = await connect(database.address);
    try {
      return await work(sql);
    } finally {
      await sql.end();
    }
  }
  const blocksOf = async (id: string) =>
    (await raw((sql) => sql<{ blocks: string | null }[]>`select blocks from messages where id = ${id}`))[0]?.blocks;
});

test.each([
  'mysql://user:secret-word@localhost/x',
  'not a url secret-word',
  'postgres://user:secret-word@127.0.0.1:1/x',
])('an unusable address is explained without its password: %s', async (url) => {
  const error = await connect({ kind: 'url', url }).then(
    () => null,
    (thrown: unknown) => thrown as Error,
  );
  expect(error?.message).toContain('DATABASE_URL');
  expect(error?.message).not.toContain('secret-word');
});
