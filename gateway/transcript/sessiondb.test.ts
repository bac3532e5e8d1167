import { Database } from 'bun:sqlite';
import { beforeEach, describe, expect, test } from 'bun:test';
import { HranaError } from '../../machine/agentfs/hrana.ts';
import type { Conversation } from '../domain.ts';
import type { Locator } from '../ids.ts';
import { Problem } from '../problem.ts';
import { humanMark } from './human-mark.ts';
import { FixtureSessionDb, readerOf } from './local-sessiondb.fixture.ts';
import { decodeLocator, encodeLocator } from './locator.ts';
import { createTranscript, etagOf } from './sessiondb.ts';
import type { Transcript } from './transcript.ts';

const conversation = { session: 's' } as Conversation;
const callJson = JSON.stringify([{ id: 'c1', type: 'function', function: { name: 'terminal', arguments: '{}' } }]);

let db: FixtureSessionDb;
let transcript: Transcript;
beforeEach(() => {
  db = new FixtureSessionDb();
  transcript = createTranscript(db.reader);
});

async function texts(view: 'client' | 'canonical' = 'client'): Promise<string[]> {
  const { turns } = await transcript.read(conversation, view, null, 100);
  return turns.map(({ role, text }) => `${role}: ${text}`);
}
const rowOf = (locator: Locator): number => decodeLocator(locator)?.row ?? 0;

describe('replyAfter', () => {
  test('the last row, when it is an assistant row written after the watermark', async () => {
    db.append({ role: 'user', content: 'old' });
    const watermark = db.append({ role: 'assistant', content: 'old reply' });
    expect(await transcript.watermark()).toBe(watermark);
    expect(await transcript.replyAfter('s', watermark)).toBeNull();
    db.append({ role: 'user', content: 'new' });
    expect(await transcript.replyAfter('s', watermark)).toBeNull();
    db.append({ role: 'assistant', content: '', toolCalls: callJson });
    expect(await transcript.replyAfter('s', watermark)).toMatchObject({
      hasToolCalls: true,
      finishReason: 'tool_calls',
    });
    db.append({ role: 'tool', content: 'ok' });
    expect(await transcript.replyAfter('s', watermark)).toBeNull();
    const reply = db.append({ role: 'assistant', content: 'new reply' });
    const found = await transcript.replyAfter('s', watermark);
    expect(found).toMatchObject({ text: 'new reply', hasToolCalls: false, finishReason: 'stop' });
    expect(rowOf(found?.locator as Locator)).toBe(reply);
  });

  test('rows of other sessions and of human authors are not its reply', async () => {
    db.session('other');
    db.append({ role: 'user', content: 'q' });
    db.append({ role: 'assistant', content: 'not mine', session: 'other' });
    const human = db.append({ role: 'assistant', content: 'from a human' });
    db.database.run('UPDATE messages SET finish_reason = ? WHERE id = ?', [humanMark('key', 'words').whole, human]);
    expect(await transcript.replyAfter('s', 0)).toBeNull();
  });

  test('a copy of an old reply that compaction wrote is not the reply of a failed turn', async () => {
    db.append({ role: 'user', content: 'q1' });
    const watermark = db.append({ role: 'assistant', content: 'a1' });
    db.compact([
      { role: 'assistant', content: '[CONTEXT COMPACTION — REFERENCE ONLY] …', finish: null },
      { role: 'user', content: 'q1' },
      { role: 'assistant', content: 'a1' },
      { role: 'user', content: 'q2' },
    ]);
    expect(await transcript.replyAfter('s', watermark)).toBeNull();
    db.append({ role: 'assistant', content: 'a2' });
    expect(await transcript.replyAfter('s', watermark)).toMatchObject({ text: 'a2' });
    const later = await transcript.watermark();
    db.compact([
      { role: 'user', content: 'q2' },
      { role: 'assistant', content: 'a2' },
    ]);
    expect(await transcript.replyAfter('s', later)).toBeNull();
    db.append({ role: 'assistant', content: 'a2' });
    expect(await transcript.replyAfter('s', watermark)).toMatchObject({ text: 'a2' });
  });

  test('follows the lineage of compression, not branches or delegations', async () => {
    const watermark = db.append({ role: 'user', content: 'q' });
    db.session('child', { parent: 's' });
    db.append({ role: 'assistant', content: 'in the child', session: 'child' });
    expect(await transcript.replyAfter('s', watermark)).toBeNull();
    db.database.run("UPDATE sessions SET end_reason = 'compression' WHERE id = 's'");
    expect(await transcript.replyAfter('s', watermark)).toMatchObject({ text: 'in the child' });
    db.session('delegate', { parent: 's', config: '{"_delegate_from":"s"}' });
    db.session('branch', { parent: 's', config: '{"_branched_from":"s"}' });
    db.session('tool', { parent: 's', source: 'tool' });
    for (const session of ['delegate', 'branch', 'tool']) db.append({ role: 'assistant', content: 'no', session });
    expect(await transcript.replyAfter('s', watermark)).toMatchObject({ text: 'in the child' });
  });
});

describe('resolve', () => {
  test('by row and timestamp, by timestamp alone once ids were rewritten, and nothing when it is gone', async () => {
    const row = db.append({ role: 'assistant', content: 'words', timestamp: 1_786_000_000.123_456_7 });
    const locator = encodeLocator({ session: 's', row, timestamp: 1_786_000_000.123_456_7 });
    expect(await transcript.resolve(locator)).toEqual({ locator, text: 'words' });
    db.database.run('UPDATE messages SET id = 900 WHERE id = ?', [row]);
    const moved = await transcript.resolve(locator);
    expect(moved?.text).toBe('words');
    expect(rowOf(moved?.locator as Locator)).toBe(900);
    db.database.run('UPDATE messages SET active = 0 WHERE id = 900');
    expect(await transcript.resolve(locator)).toBeNull();
    expect(await transcript.resolve('nonsense' as Locator)).toBeNull();
  });

  test('two rows of one timestamp are told apart by row, and are a conflict without it', async () => {
    const timestamp = 1_786_000_001.5;
    const first = db.append({ role: 'assistant', content: 'one', timestamp });
    const second = db.append({ role: 'assistant', content: 'two', timestamp });
    expect((await transcript.resolve(encodeLocator({ session: 's', row: first, timestamp })))?.text).toBe('one');
    expect((await transcript.resolve(encodeLocator({ session: 's', row: second, timestamp })))?.text).toBe('two');
    const lost = transcript.resolve(encodeLocator({ session: 's', row: 777, timestamp }));
    await expect(lost).rejects.toMatchObject({ problem: 'conflict' });
  });
});

describe('read', () => {
  test('the client sees prose, the canonical view the tool calls too', async () => {
    db.append({ role: 'user', content: '  kept as it is  ' });
    db.append({ role: 'assistant', content: 'Let me look.', toolCalls: callJson });
    db.append({ role: 'tool', content: 'secret output' });
    db.append({ role: 'assistant', content: 'Done.' });
    expect(await texts()).toEqual(['user:   kept as it is  ', 'assistant: Done.']);
    const { turns } = await transcript.read(conversation, 'canonical', null, 10);
    expect(turns.map(({ text, toolCalls }) => [text, toolCalls?.length])).toEqual([
      ['  kept as it is  ', 0],
      ['Let me look.', 1],
      ['Done.', 0],
    ]);
    expect(turns[1]?.toolCalls).toEqual(JSON.parse(callJson));
    expect(turns[0]?.etag).toBe(etagOf('  kept as it is  '));
    expect(turns[0]?.etag).toMatch(/^"[0-9a-f]{32}"$/);
  });

  test('pages join to the whole', async () => {
    for (let index = 0; index < 7; index += 1) {
      db.append({ role: 'user', content: `q${index}` });
      db.append({ role: 'assistant', content: '', toolCalls: callJson });
      db.append({ role: 'assistant', content: `a${index}` });
    }
    const whole = await texts();
    const joined: string[] = [];
    let after: string | null = null;
    do {
      const page = await transcript.read(conversation, 'client', after, 4);
      joined.push(...page.turns.map(({ role, text }) => `${role}: ${text}`));
      after = page.next;
    } while (after !== null);
    expect(whole).toHaveLength(14);
    expect(joined).toEqual(whole);
    await expect(transcript.read(conversation, 'client', 'nonsense', 4)).rejects.toBeInstanceOf(Problem);
  });

  test('compaction shows nothing twice and hides nothing that was said', async () => {
    db.append({ role: 'user', content: 'q1' });
    db.append({ role: 'assistant', content: 'a1' });
    db.append({ role: 'user', content: 'yes' });
    db.append({ role: 'assistant', content: 'a2' });
    const summary = { role: 'assistant', content: '[CONTEXT COMPACTION — REFERENCE ONLY] x', finish: null } as const;
    db.compact([
      summary,
      { role: 'user', content: 'yes' },
      { role: 'assistant', content: 'a2' },
      { role: 'user', content: '[Your active task list was preserved across context compression]\n- [ ] 1. x' },
      { role: 'user', content: 'q3' },
    ]);
    db.append({ role: 'assistant', content: 'a3' });
    // The same words again, by the user himself.
    db.append({ role: 'user', content: 'yes' });
    db.append({ role: 'assistant', content: 'a2' });
    db.compact([
      { ...summary, content: `${summary.content} more` },
      { role: 'user', content: 'q3' },
      { role: 'user', content: 'q4' },
    ]);
    db.append({ role: 'assistant', content: 'a4' });
    const said = ['q1', 'a1', 'yes', 'a2', 'q3', 'a3', 'yes', 'a2', 'q4', 'a4'];
    const expected = said.map((text) => (text.startsWith('a') ? `assistant: ${text}` : `user: ${text}`));
    expect(await texts()).toEqual(expected);
    expect(await texts('canonical')).toEqual(expected);
  });

  test('compaction into a child session, too', async () => {
    db.append({ role: 'user', content: 'q1' });
    db.append({ role: 'assistant', content: 'a1' });
    db.database.run("UPDATE sessions SET end_reason = 'compression' WHERE id = 's'");
    db.session('child', { parent: 's' });
    db.batch([
      { role: 'assistant', content: '[CONTEXT COMPACTION — REFERENCE ONLY] x', finish: null, session: 'child' },
      { role: 'user', content: 'q1', session: 'child' },
      { role: 'assistant', content: 'a1', session: 'child' },
    ]);
    db.append({ role: 'user', content: 'q2', session: 'child' });
    db.append({ role: 'assistant', content: 'a2', session: 'child' });
    expect(await texts()).toEqual(['user: q1', 'assistant: a1', 'user: q2', 'assistant: a2']);
  });

  test('nudges, empty answers and rows taken back are no turns; the same words of a user are', async () => {
    db.append({ role: 'user', content: '[System: I mean it]' });
    db.append({ role: 'assistant', content: 'part one', finish: 'length' });
    db.append({ role: 'user', content: '[System: Your previous response was truncated …]' });
    db.append({ role: 'assistant', content: 'part two' });
    db.append({ role: 'user', content: '[System: again]' });
    db.append({ role: 'assistant', content: '(empty)', finish: null });
    const undone = db.append({ role: 'user', content: 'taken back' });
    db.database.run('UPDATE messages SET active = 0 WHERE id = ?', [undone]);
    expect(await texts()).toEqual([
      'user: [System: I mean it]',
      'assistant: part one',
      'assistant: part two',
      'user: [System: again]',
    ]);
  });

  test('a conversation without a session, and an authority without Hermes tables, are empty', async () => {
    const nothing = { turns: [], next: null };
    expect(await transcript.read({ ...conversation, session: null }, 'client', null, 5)).toEqual(nothing);
    const bare = createTranscript(readerOf(new Database(':memory:')));
    expect(await bare.read(conversation, 'client', null, 5)).toEqual(nothing);
    expect(await bare.watermark()).toBe(0);
    expect(await bare.replyAfter('s', 0)).toBeNull();
  });
});

test('an authority that cannot be reached is a problem of its own', async () => {
  const failing = createTranscript({
    execute: () => Promise.reject(new HranaError('unreachable', 'UNREACHABLE', 'the database cannot be reached')),
  });
  await expect(failing.watermark()).rejects.toMatchObject({ problem: 'sessiondb-unavailable' });
});
