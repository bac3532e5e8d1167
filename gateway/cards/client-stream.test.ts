import { expect, test } from 'bun:test';
import { ClientStream } from './client-stream.ts';
import { block } from './samples.fixture.ts';

const chunk = (text: string) => ({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } });
const toolCall = { sessionUpdate: 'tool_call', toolCallId: 't', title: 'terminal' };

/** What each view gets of these updates: texts joined, everything else by its kind. */
function seen(updates: readonly Record<string, unknown>[], ended = true) {
  const views: Record<'verbatim' | 'client', string> = { verbatim: '', client: '' };
  const stream = new ClientStream((update, view) => {
    const { content, sessionUpdate } = update as { content?: { text?: string }; sessionUpdate: string };
    for (const each of view === undefined ? (['verbatim', 'client'] as const) : [view]) {
      views[each] += content?.text ?? `[${sessionUpdate}]`;
    }
  });
  for (const update of updates) stream.take(update);
  if (ended) stream.end();
  return views;
}

test('experts get what the agent sent, clients never a part of a card', () => {
  const reply = `Well.\n${block()}\nSo?`;
  for (let at = 0; at <= reply.length; at += 1) {
    expect(seen([chunk(reply.slice(0, at)), chunk(reply.slice(at))])).toEqual({
      verbatim: reply,
      client: 'Well.\nSo?',
    });
  }
});

test('an update that shows no card goes to everyone as it came, the very object', () => {
  const updates = [chunk('a'), toolCall, { sessionUpdate: 'plan', entries: [] }, chunk('')];
  const got: unknown[] = [];
  const stream = new ClientStream((update, view) => got.push(view ?? update));
  for (const update of updates) stream.take(update);
  expect(got).toEqual(updates);
  expect(got[0]).toBe(updates[0]);
});

test('what turned out to be no card is shown in its place, before the call that ended it', () => {
  const unclosed = '<<<HW_QUESTION {"question"';
  const shown = seen([chunk(`a ${unclosed}`), toolCall, chunk('b <')]);
  expect(shown).toEqual({ verbatim: `a ${unclosed}[tool_call]b <`, client: `a ${unclosed}[tool_call]b <` });
});

test('a reply after a tool call has a card of its own', () => {
  const shown = seen([chunk(block()), chunk('\nlet me see'), toolCall, chunk('so\n'), chunk(block())]);
  expect(shown.client).toBe('let me see[tool_call]so\n');
});

test('of a turn that broke off, what may have been a card is not shown', () => {
  expect(seen([chunk('a <<<HW_QUESTION {')], false).client).toBe('a ');
});
