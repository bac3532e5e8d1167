// On a real authority and a real Postgres; the rows are written as Hermes writes them.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'bun:test';
import { HranaError } from '../../machine/agentfs/hrana.ts';
import type { Caller, Conversation, LoggedEvent } from '../domain.ts';
import { embeddedDatabase, type TestDatabase } from '../governance/databases.fixture.ts';
import { type OpenedGovernance, openGovernance } from '../governance/postgres.ts';
import { type Locator, newConversationId } from '../ids.ts';
import { Problem } from '../problem.ts';
import { type Amendments, createAmendments } from './amendments.ts';
import { HermesSessionDb } from './hermes-sessiondb.fixture.ts';
import { isHuman } from './human-mark.ts';
import { decodeLocator, encodeLocator } from './locator.ts';
import type { SqlWriter } from './row-writer.ts';
import { createTranscript, etagOf } from './sessiondb.ts';
import type { Transcript } from './transcript.ts';

let db: HermesSessionDb;
let postgres: TestDatabase;
let governance: OpenedGovernance;
let transcript: Transcript;
let caller: Caller;
let amendments: Amendments;
let conversation: Conversation;
let session: string;
let events: LoggedEvent[];

beforeAll(async () => {
  [db, postgres] = await Promise.all([HermesSessionDb.start(), embeddedDatabase()]);
  governance = await openGovernance({ database: postgres.address, organizationName: 'Test', failedProseDays: 7 });
  transcript = createTranscript(db.database);
  ({ caller } = await governance.createToken('expert', 'David'));
}, 60_000);
afterAll(async () => {
  await governance?.close();
  await postgres?.stop();
  await db?.stop();
});

beforeEach(async () => {
  const specialist = await governance.createSpecialist(`s-${crypto.randomUUID()}`, '');
  const { id } = await governance.createConversation(newConversationId(), specialist.id);
  session = await db.session(crypto.randomUUID());
  await governance.bindSession(id, session);
  conversation = (await governance.findConversation(id)) as Conversation;
  events = [];
  amendments = make(db.database);
});

function make(database: SqlWriter): Amendments {
  return createAmendments({
    database,
    log: governance.amendments,
    bus: { publish: (event) => void events.push(event) },
    sessionOf: async (id) => (await governance.findConversation(id))?.session ?? null,
    logger: { warn: () => undefined },
  });
}

const say = (role: 'user' | 'assistant', content: string) => db.append(session, { role, content });
const edit = (locator: Locator, basis: string, text: string) =>
  amendments.edit({ conversation, locator, basis: etagOf(basis), text, caller });
const reply = (text: string, idempotencyKey: string = crypto.randomUUID()) =>
  amendments.reply({ conversation, text, idempotencyKey, caller });
const texts = async (view: 'client' | 'canonical' = 'client'): Promise<string[]> =>
  (await transcript.read(conversation, view, null, 100)).turns.map(({ role, text }) => `${role}: ${text}`);
const rowOf = (locator: Locator): number => decodeLocator(locator)?.row ?? 0;
async function refusal(work: Promise<unknown>): Promise<Problem> {
  const error = await work.then(
    () => null,
    (reason: unknown) => reason,
  );
  if (!(error instanceof Problem)) throw new Error(`it should have been refused: ${String(error)}`);
  return error;
}

describe('an edit', () => {
  test('changes the words of one row, what is sent for them, and the index, and nothing else', async () => {
    await say('user', 'question');
    const locator = await say('assistant', 'wrongword');
    await say('assistant', 'wrongword');
    const before = await db.rows(session);
    const turn = await edit(locator, 'wrongword', 'rightword');
    expect(turn).toMatchObject({ locator, text: 'rightword', role: 'assistant', etag: etagOf('rightword') });
    const row = rowOf(locator);
    expect(await db.rows(session)).toEqual(
      before.map((one) => (one.id === row ? { ...one, content: 'rightword' } : one)),
    );
    expect(await db.search('rightword')).toContain(row);
    expect(await db.search('wrongword')).not.toContain(row);
    const { rows } = await db.database.execute('SELECT api_content FROM messages WHERE id = ?', [row]);
    expect(rows[0]?.[0]).toBeNull();
    expect(events).toMatchObject([{ type: 'transcript.edited', locator, conversation: conversation.id }]);
  });

  test('of 100 at once one wins, 99 are told both texts', async () => {
    const locator = await say('assistant', 'first');
    const all = Array.from({ length: 100 }, (_, index) => edit(locator, 'first', `by ${index}`));
    const ends = await Promise.allSettled(all);
    const won = ends.flatMap((end, index) => (end.status === 'fulfilled' ? [index] : []));
    expect(won).toHaveLength(1);
    const words = `by ${won[0]}`;
    expect(await texts()).toEqual([`assistant: ${words}`]);
    const current = { locator, text: words, etag: etagOf(words) };
    for (const [index, end] of ends.entries()) {
      if (end.status === 'fulfilled') continue;
      const { document } = end.reason as Problem;
      expect(document).toMatchObject({ status: 412, current, yours: { text: `by ${index}` } });
    }
    expect(events.map(({ type }) => type)).toEqual(['transcript.edited']);
    expect((await openHere()).map(({ kind, isRecorded }) => [kind, isRecorded])).toEqual([['edit', true]]);
  });

  test("is refused for a client's words, a step with tool calls, and what is not of the conversation", async () => {
    const user = await say('user', 'mine');
    const step = await db.append(session, {
      role: 'assistant',
      content: 'Let me look.',
      toolCalls: '[{"id":"c1","function":{"name":"terminal","arguments":"{}"}}]',
    });
    const other = await db.append(await db.session(crypto.randomUUID()), { role: 'assistant', content: 'other' });
    expect((await refusal(edit(user, 'mine', 'x'))).problem).toBe('conflict');
    expect((await refusal(edit(step, 'Let me look.', 'x'))).problem).toBe('conflict');
    expect((await refusal(edit(other, 'other', 'x'))).problem).toBe('not-found');
    expect((await refusal(edit('nonsense' as Locator, 'other', 'x'))).problem).toBe('not-found');
    for (const text of ['', ' \n', 'a\0b', 'a \ud800 b', '(empty)']) {
      expect((await refusal(edit(user, 'mine', text))).problem).toBe('invalid-request');
    }
    expect(events).toEqual([]);
    expect(await openHere()).toEqual([]);
  });

  test('finds a row whose id was rewritten, by its session and time; more than one is a conflict', async () => {
    const locator = await say('assistant', 'moved');
    await db.database.execute('UPDATE messages SET id = id + 1000 WHERE id = ?', [rowOf(locator)]);
    const turn = await edit(locator, 'moved', 'found');
    expect(rowOf(turn.locator)).toBe(rowOf(locator) + 1000);
    expect(await texts()).toEqual(['assistant: found']);
    const timestamp = 1_786_500_000.25;
    await db.append(session, { role: 'assistant', content: 'one', timestamp });
    await db.append(session, { role: 'assistant', content: 'two', timestamp });
    const lost = encodeLocator({ session, row: 999_999, timestamp });
    expect((await refusal(edit(lost, 'one', 'x'))).problem).toBe('conflict');
  });

  test('to the same words changes nothing and tells nobody', async () => {
    const locator = await say('assistant', 'same');
    expect(await edit(locator, 'same', 'same')).toMatchObject({ text: 'same' });
    expect(events).toEqual([]);
    expect(amendments.unread(conversation.id)).toEqual([]);
  });
});

const openHere = async () => (await governance.amendments.open()).filter((one) => one.conversation === conversation.id);

const summary = { role: 'assistant', content: '[CONTEXT COMPACTION — REFERENCE ONLY] so far …' } as const;

describe('a row that compaction put away', () => {
  test('is edited with its live copy, so that transcript and model have the same words', async () => {
    await say('user', 'q1');
    const first = await say('assistant', 'yes');
    await say('user', 'q2');
    const second = await say('assistant', 'yes');
    await db.compact(session, [summary, { role: 'user', content: 'q2' }, { role: 'assistant', content: 'yes' }]);
    await say('user', 'q3');
    expect(await edit(second, 'yes', 'no')).toMatchObject({ locator: second, text: 'no' });
    expect(await texts()).toEqual(['user: q1', 'assistant: yes', 'user: q2', 'assistant: no', 'user: q3']);
    expect((await db.live(session)).slice(1)).toEqual(['user: q2', 'assistant: no', 'user: q3']);
    // Of the older one there is no live copy: the summary has what the model knows of it.
    await edit(first, 'yes', 'perhaps');
    expect(await texts()).toEqual(['user: q1', 'assistant: perhaps', 'user: q2', 'assistant: no', 'user: q3']);
    expect((await db.live(session)).slice(1)).toEqual(['user: q2', 'assistant: no', 'user: q3']);
  });

  test('is found in copies that have its time, and in copies of copies', async () => {
    const first = await say('assistant', 'yes');
    await say('user', 'q2');
    await say('assistant', 'yes');
    const timestamp = decodeLocator(first)?.timestamp ?? 0;
    await db.compact(session, [
      { role: 'assistant', content: 'yes', timestamp },
      summary,
      { role: 'user', content: 'q2' },
    ]);
    await db.compact(session, [{ role: 'assistant', content: 'yes', timestamp }, summary]);
    await edit(first, 'yes', 'no');
    expect(await db.live(session)).toEqual(['assistant: no', `assistant: ${summary.content}`]);
    expect(await texts()).toEqual(['assistant: no', 'user: q2', 'assistant: yes']);
  });
});

describe('a child that works meanwhile', () => {
  test('compacts with the old words: they do not come back', async () => {
    await say('user', 'q1');
    const locator = await say('assistant', 'old');
    await edit(locator, 'old', 'new');
    const unread = amendments.unread(conversation.id);
    // It remembers what it read before the edit.
    await db.compact(session, [summary, { role: 'user', content: 'q1' }, { role: 'assistant', content: 'old' }]);
    await say('user', 'q2');
    expect(await texts()).toEqual(['user: q1', 'assistant: new', 'user: q2']);
    await amendments.mend(session, unread);
    expect((await db.live(session)).slice(1)).toEqual(['user: q1', 'assistant: new', 'user: q2']);
    expect(await texts()).toEqual(['user: q1', 'assistant: new', 'user: q2']);
  });

  test('the same with a copy that has the time of its row', async () => {
    const locator = await say('assistant', 'old');
    await edit(locator, 'old', 'newer');
    const timestamp = decodeLocator(locator)?.timestamp ?? 0;
    await db.compact(session, [{ role: 'assistant', content: 'old', timestamp }, summary]);
    expect(await texts()).toEqual(['assistant: newer']);
    await amendments.mend(session, amendments.unread(conversation.id));
    expect((await db.live(session))[0]).toBe('assistant: newer');
  });

  test('compacts without a reply that it does not know: the next child reads it', async () => {
    await say('user', 'q1');
    const { locator } = await reply('a human here');
    await db.compact(session, [summary, { role: 'user', content: 'q1' }]);
    await say('assistant', 'a1');
    expect(await db.live(session)).not.toContain('assistant: a human here');
    await amendments.mend(session, amendments.unread(conversation.id));
    expect((await db.live(session)).at(-1)).toBe('assistant: a human here');
    await amendments.mend(session, amendments.unread(conversation.id));
    expect((await db.live(session)).filter((row) => row.endsWith('a human here'))).toHaveLength(1);
    expect(await texts()).toEqual(['user: q1', 'assistant: a human here', 'assistant: a1']);
    expect(await transcript.turn(conversation, locator, 'client')).toMatchObject({ text: 'a human here' });
    expect(await db.messageCount(session)).toBe(4);
  });

  test('gets results of tools around a reply: the results stay with their calls', async () => {
    await say('user', 'q1');
    await db.append(session, { role: 'assistant', content: '', toolCalls: '[{"id":"a"},{"id":"b"}]' });
    await db.append(session, { role: 'tool', content: 'of a' });
    await reply('a human here');
    await db.append(session, { role: 'tool', content: 'of b' });
    await say('assistant', 'a1');
    await amendments.mend(session, amendments.unread(conversation.id));
    expect(await db.live(session)).toEqual([
      ...['user: q1', 'assistant: ', 'tool: of a', 'tool: of b', 'assistant: a1'],
      'assistant: a human here',
    ]);
    expect(await texts()).toEqual(['user: q1', 'assistant: a human here', 'assistant: a1']);
  });
});

describe('a reply', () => {
  test('asked for 50 times at once is one row, with one event and one answer', async () => {
    await say('user', 'q');
    const all = await Promise.all(Array.from({ length: 50 }, () => reply('from a human', 'key')));
    expect(new Set(all.map(({ locator }) => locator)).size).toBe(1);
    expect((await db.rows(session)).map(({ role, content }) => `${role}: ${content}`)).toEqual([
      'user: q',
      'assistant: from a human',
    ]);
    expect(await db.messageCount(session)).toBe(2);
    expect(await db.search('human')).toContain(rowOf(all[0]?.locator as Locator));
    expect(events).toMatchObject([{ type: 'transcript.appended', locator: all[0]?.locator }]);
    const row = (await db.rows(session))[1];
    expect(isHuman(row?.finish ?? null)).toBe(true);
    expect(JSON.stringify(row?.finish)).not.toContain('key');
  });

  test('with a key that was used for other words is refused, also after the row was edited', async () => {
    await say('user', 'q');
    const { locator } = await reply('words', 'key');
    expect((await refusal(reply('other words', 'key'))).problem).toBe('idempotency-key-reused');
    await edit(locator, 'words', 'better words');
    expect(await reply('words', 'key')).toMatchObject({ locator, text: 'better words' });
    expect(await texts()).toEqual(['user: q', 'assistant: better words']);
    expect((await openHere()).map(({ kind }) => kind)).toEqual(['reply', 'edit']);
  });

  test('needs a session', async () => {
    const none = { ...conversation, session: null };
    const work = amendments.reply({ conversation: none, text: 'x', idempotencyKey: 'k', caller });
    expect((await refusal(work)).problem).toBe('conflict');
    const gone = { ...conversation, session: 'never-made' };
    const lost = amendments.reply({ conversation: gone, text: 'x', idempotencyKey: 'k', caller });
    expect((await refusal(lost)).problem).toBe('conflict');
    expect(await openHere()).toEqual([]);
    expect(amendments.unread(conversation.id)).toEqual([]);
  });

  test('is not the reply of a turn', async () => {
    const watermark = rowOf(await say('user', 'q'));
    await reply('from a human');
    expect(await transcript.replyAfter(session, watermark)).toBeNull();
    await say('assistant', 'from the agent');
    await reply('once more');
    expect(await transcript.replyAfter(session, watermark)).toMatchObject({ text: 'from the agent' });
  });
});

describe('what a child has not read', () => {
  test('is known until a turn began with a child that was new; not what came to its end since', async () => {
    const locator = await say('assistant', 'one');
    await edit(locator, 'one', 'two');
    const unread = amendments.unread(conversation.id);
    expect(unread).toHaveLength(1);
    await edit(locator, 'two', 'three');
    amendments.read(conversation.id, unread);
    expect(amendments.unread(conversation.id)).toHaveLength(1);
    amendments.read(conversation.id, amendments.unread(conversation.id));
    expect(amendments.unread(conversation.id)).toEqual([]);
  });

  test('is not read by a child that began while it was being written', async () => {
    const locator = await say('assistant', 'one');
    const held = Promise.withResolvers<void>();
    const writes = Promise.withResolvers<void>();
    amendments = make({
      batch: (...args) => db.database.batch(...args),
      execute: async (sql, args) => {
        if (sql.includes('UPDATE messages')) {
          writes.resolve();
          await held.promise;
        }
        return db.database.execute(sql, args);
      },
    });
    const editing = edit(locator, 'one', 'two');
    await writes.promise;
    const early = amendments.unread(conversation.id);
    expect(early).toHaveLength(1);
    amendments.read(conversation.id, early);
    held.resolve();
    await editing;
    amendments.read(conversation.id, early);
    expect(amendments.unread(conversation.id)).toHaveLength(1);
  });

  test('is found again by the next process, with what the last one did not come to record', async () => {
    const locator = await say('assistant', 'one');
    await edit(locator, 'one', 'two');
    // Carries out a change and answers nothing any more.
    let isSilent = false;
    const answer = <T>(result: T, changes: boolean): T => {
      isSilent ||= changes;
      if (isSilent) throw new HranaError('timeout', 'TIMEOUT', 'no answer');
      return result;
    };
    const cut = make({
      batch: async (...args) => answer(isSilent ? [] : await db.database.batch(...args), true),
      execute: async (sql, args) =>
        answer(isSilent ? { rows: [] } : await db.database.execute(sql, args), sql.includes('UPDATE messages')),
    });
    const unknown = cut.edit({ conversation, locator, basis: etagOf('two'), text: 'three', caller });
    const unavailable = {
      problem: 'sessiondb-unavailable',
      document: { detail: expect.stringContaining('Whether it was changed is not known') },
    };
    expect(await refusal(unknown)).toMatchObject(unavailable);
    isSilent = false;
    const lost = cut.reply({ conversation, text: 'hello', idempotencyKey: 'k', caller });
    expect(await refusal(lost)).toMatchObject(unavailable);
    // Intended and never done.
    const intent = { conversation: conversation.id, by: caller } as const;
    await governance.amendments.intend({ ...intent, kind: 'edit', locator, was: etagOf('x'), becomes: etagOf('y') });
    await governance.amendments.intend({ ...intent, kind: 'reply', mark: 'edge-human:0:0' });
    expect(cut.unread(conversation.id)).toHaveLength(2);
    events = [];
    const next = make(db.database);
    await next.start();
    expect(events.map(({ type }) => type)).toEqual(['transcript.edited', 'transcript.appended']);
    expect(next.unread(conversation.id)).toHaveLength(3);
    expect(await openHere()).toHaveLength(3);
    expect(await texts()).toEqual(['assistant: three', 'assistant: hello']);
    next.read(conversation.id, next.unread(conversation.id));
    await Bun.sleep(100);
    const third = make(db.database);
    await third.start();
    expect(third.unread(conversation.id)).toEqual([]);
  });
});

describe('an answer that is lost', () => {
  /** The next change loses its answer, or is lost itself on its way; what is asked for behind it is answered. */
  function losing(what: 'answer' | 'request'): void {
    let left = 1;
    const once = async <T>(changes: boolean, work: () => Promise<T>): Promise<T> => {
      const isIt = changes && left-- > 0;
      const result = isIt && what === 'request' ? null : await work();
      if (isIt || result === null) throw new HranaError('unreachable', 'UNREACHABLE', 'the connection was cut');
      return result;
    };
    amendments = make({
      batch: (...args) => once(true, () => db.database.batch(...args)),
      execute: (sql, args) => once(sql.includes('UPDATE messages'), () => db.database.execute(sql, args)),
    });
  }
  const kinds: ('answer' | 'request')[] = ['answer', 'request'];

  test.each(kinds)('an edit is done once and says so (%s)', async (what) => {
    const locator = await say('assistant', 'one');
    losing(what);
    expect(await edit(locator, 'one', 'two')).toMatchObject({ locator, text: 'two', etag: etagOf('two') });
    expect(await texts()).toEqual(['assistant: two']);
    expect(events).toMatchObject([{ type: 'transcript.edited', locator }]);
    expect(await db.search('two')).toContain(rowOf(locator));
  });

  test('an edit that somebody else overwrote meanwhile is lost, and says so', async () => {
    const locator = await say('assistant', 'one');
    const other = make(db.database);
    amendments = make({
      batch: (...args) => db.database.batch(...args),
      execute: async (sql, args) => {
        if (!sql.includes('UPDATE messages')) return db.database.execute(sql, args);
        await other.edit({ conversation, locator, basis: etagOf('one'), text: 'theirs', caller });
        throw new HranaError('unreachable', 'UNREACHABLE', 'the connection was cut');
      },
    });
    expect((await refusal(edit(locator, 'one', 'two'))).problem).toBe('precondition-failed');
    expect(await texts()).toEqual(['assistant: theirs']);
  });

  test.each(kinds)('a human reply is one row, counted once (%s)', async (what) => {
    await say('user', 'q');
    losing(what);
    const { locator } = await reply('from a human', 'key');
    expect(await texts()).toEqual(['user: q', 'assistant: from a human']);
    expect(await db.messageCount(session)).toBe(2);
    expect(events).toMatchObject([{ type: 'transcript.appended', locator }]);
    expect((await reply('from a human', 'key')).locator).toBe(locator);
    expect(await texts()).toHaveLength(2);
  });

  test.each(kinds)('a duplicate is taken out once and says so (%s)', async (what) => {
    await say('user', 'q');
    await say('assistant', 'twice');
    const locator = await say('assistant', 'twice');
    losing(what);
    expect(await amendments.removeDuplicate(conversation, locator, caller)).toMatchObject({ locator });
    expect(await texts()).toEqual(['user: q', 'assistant: twice']);
    expect(events).toMatchObject([{ type: 'transcript.edited', locator }]);
  });
});

describe('duplicates', () => {
  const listed = () => amendments.duplicates(conversation);

  test('are neither the copies of compaction, nor what a human or a client said twice', async () => {
    await say('user', 'yes');
    await say('user', 'yes');
    await say('assistant', 'yes');
    await reply('yes', 'one');
    await reply('yes', 'two');
    const known = await listed();
    await db.compact(session, [summary, { role: 'user', content: 'yes' }, { role: 'assistant', content: 'yes' }]);
    await say('user', 'go on');
    await say('assistant', 'gone on');
    expect([known, await listed()]).toEqual([[], []]);
  });

  test('are found among rows that compaction put away, too', async () => {
    await say('user', 'q');
    const original = await say('assistant', 'twice');
    const locator = await say('assistant', 'twice');
    await db.compact(session, [summary, { role: 'user', content: 'q' }]);
    expect(await listed()).toMatchObject([{ locator, original, kind: 'same' }]);
    await amendments.removeDuplicate(conversation, locator, caller);
    expect(await listed()).toEqual([]);
    expect(await texts()).toEqual(['user: q', 'assistant: twice']);
    expect(amendments.unread(conversation.id)).toHaveLength(1);
  });
});
