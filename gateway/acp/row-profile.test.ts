import { describe, expect, test } from 'bun:test';
import { isReply, type PlacedRow, rowKind, rowText } from './row-profile.ts';

const row = (more: Partial<PlacedRow> = {}): PlacedRow => ({
  role: 'assistant',
  text: 'words',
  hasToolCalls: false,
  finishReason: 'stop',
  batched: false,
  repeats: false,
  followsUnfinished: false,
  ...more,
});

test('a reply is a closing text of the assistant', () => {
  expect(isReply(row(), 'cut-off')).toBe(true);
  expect(isReply(row({ finishReason: 'verification_required' }), 'ended')).toBe(true);
  expect(isReply(row({ finishReason: null }), 'ended')).toBe(true);
  expect(isReply(row({ finishReason: null }), 'cut-off')).toBe(false);
  for (const no of [
    row({ role: 'user' }),
    row({ role: 'tool' }),
    row({ hasToolCalls: true }),
    row({ finishReason: 'length' }),
    row({ finishReason: 'tool_calls' }),
    row({ text: '(empty)', finishReason: null }),
    row({ text: '' }),
  ]) {
    expect(isReply(no, 'ended')).toBe(false);
  }
});

test('the text of structured content; what cannot be decoded stays', () => {
  expect(rowText(null)).toBe('');
  expect(rowText('plain json: {"a":1}')).toBe('plain json: {"a":1}');
  const parts = [
    { type: 'text', text: 'one' },
    { type: 'image_url', image_url: {} },
    null,
    { type: 'text', text: 'two' },
  ];
  expect(rowText(`\0json:${JSON.stringify(parts)}`)).toBe('one\ntwo');
  expect(rowText('\0json:{')).toBe('\0json:{');
  expect(rowText('\0json:{"a":1}')).toBe('\0json:{"a":1}');
});

describe('what a row is to a reader', () => {
  const user = (more: Partial<PlacedRow> = {}): PlacedRow => row({ role: 'user', finishReason: null, ...more });

  test('turns and steps', () => {
    expect(rowKind(user())).toBe('turn');
    expect(rowKind(row())).toBe('turn');
    expect(rowKind(row({ finishReason: 'length' }))).toBe('turn');
    expect(rowKind(row({ hasToolCalls: true }))).toBe('step');
  });

  test("machinery is Hermes' own only where its place says so", () => {
    const summary = '[CONTEXT COMPACTION — REFERENCE ONLY] x';
    expect(rowKind(row({ text: summary, batched: true }))).toBe('machinery');
    expect(rowKind(user({ text: summary, batched: true }))).toBe('machinery');
    expect(rowKind(user({ text: summary }))).toBe('turn');
    expect(rowKind(user({ batched: true }))).toBe('turn');
    expect(rowKind(user({ batched: true, repeats: true }))).toBe('machinery');
    expect(rowKind(user({ text: '[System: go on]' }))).toBe('turn');
    expect(rowKind(user({ text: '[System: go on]', followsUnfinished: true }))).toBe('machinery');
    expect(rowKind(user({ text: 'go on', followsUnfinished: true }))).toBe('turn');
    expect(rowKind(row({ role: 'tool' }))).toBe('machinery');
    expect(rowKind(row({ text: '(empty)' }))).toBe('machinery');
  });
});
