import { describe, expect, test } from 'bun:test';
import type { Locator } from '../ids.ts';
import type { ClosingRow } from '../transcript/transcript.ts';
import { childStaysWarm, type Settlement, settle, type TurnEnd, type TurnFacts } from './settle.ts';

const row = (more: Partial<ClosingRow> = {}): ClosingRow => ({
  locator: 'L' as Locator,
  text: 'the reply',
  hasToolCalls: false,
  finishReason: 'stop',
  ...more,
});
const ended: TurnEnd = { kind: 'stopped', stopReason: 'end_turn' };
const facts = (more: Partial<TurnFacts>): TurnFacts => ({
  end: ended,
  stopped: null,
  closing: null,
  sessionHeld: true,
  streamed: '',
  sessiondbFailed: false,
  ...more,
});
const delivered = { outcome: 'delivered', reply: { locator: 'L' as Locator, text: 'the reply' } } as const;
const problemOf = (more: Partial<TurnFacts>): string => {
  const settlement = settle(facts(more));
  return settlement.outcome === 'failed' ? (settlement.problem.type.split(':').at(-1) ?? '') : settlement.outcome;
};

const ends: TurnEnd[] = [
  ended,
  { kind: 'stopped', stopReason: 'refusal' },
  { kind: 'stopped', stopReason: 'cancelled' },
  { kind: 'error', code: -32603, message: 'x' },
  { kind: 'gone', child: null },
  { kind: 'overdue' },
  { kind: 'unknown' },
];

test('a complete reply is delivered however the prompt ended', () => {
  for (const end of ends) {
    for (const stopped of [null, 'by-client', 'deadline'] as const) {
      expect(settle(facts({ end, stopped, closing: row() }))).toEqual(delivered);
    }
  }
});

test('without a row every end is a failure with its own name', () => {
  expect(ends.map((end) => problemOf({ end }))).toEqual([
    'turn-no-reply',
    'turn-refused',
    'turn-no-reply',
    'agent-failed',
    'agent-failed',
    'agent-failed',
    'turn-interrupted',
  ]);
});

test('a refusal of a session that SessionDB does not have is no refusal of the message', () => {
  expect(problemOf({ end: { kind: 'stopped', stopReason: 'refusal' }, sessionHeld: false })).toBe('session-lost');
});

describe('rows that are no reply', () => {
  test('a step, a cut-off part, an empty answer', () => {
    for (const closing of [
      row({ hasToolCalls: true, finishReason: 'tool_calls' }),
      row({ finishReason: 'content_filter' }),
      row({ finishReason: null, text: '(empty)' }),
      row({ text: ' \u0085' }),
    ]) {
      expect(problemOf({ closing })).toBe('turn-no-reply');
    }
  });

  test('a text without a finish reason is an answer of a turn that ended, a fragment of one that did not', () => {
    const closing = row({ finishReason: null });
    expect(settle(facts({ closing }))).toEqual(delivered);
    for (const end of ends.slice(1)) expect(problemOf({ end, closing })).not.toBe('delivered');
    expect(problemOf({ end: { kind: 'stopped', stopReason: 'cancelled' }, stopped: 'by-client', closing })).toBe(
      'cancelled',
    );
  });
});

test('a cancelled turn is cancelled, one stopped at its deadline is not', () => {
  for (const end of ends) {
    expect(problemOf({ end, stopped: 'by-client' })).toBe('cancelled');
    expect(problemOf({ end, stopped: 'deadline' })).toBe('turn-deadline');
  }
});

test('what the agent said about its failure is quoted, what the model said is not', () => {
  const stated = settle(facts({ streamed: 'API call failed after 3 retries: Connection error.' }));
  expect(stated).toMatchObject({
    problem: {
      type: expect.stringMatching(/:model-unreachable$/),
      detail: expect.stringContaining('Connection error'),
    },
  });
  const prose = settle(facts({ streamed: 'My dear friend, the answer is' }));
  expect(JSON.stringify(prose)).not.toContain('friend');
});

test('a child that ended during the turn is named by its signal or exit code', () => {
  const child = { generation: 3, code: null, signal: 'SIGSEGV', report: '', outOfMemory: false };
  expect(settle(facts({ end: { kind: 'gone', child } }))).toMatchObject({
    problem: { detail: expect.stringContaining('(SIGSEGV)'), signal: 'SIGSEGV' },
  });
  const exit = {
    generation: 3,
    code: 126,
    signal: null,
    report: 'confined-exec holder: the relay ended: EPIPE',
    outOfMemory: false,
  };
  expect(settle(facts({ end: { kind: 'gone', child: exit } }))).toMatchObject({
    problem: { detail: expect.stringContaining('exit code 126: confined-exec holder: the relay'), exitCode: 126 },
  });
});

test.each<[string, string, object]>([
  ['HTTP 401: no such key', 'model-refused', { modelStatus: 401 }],
  ['API call failed after 3 retries: HTTP 404: no such model', 'model-refused', { modelStatus: 404 }],
  ['API call failed after 3 retries: HTTP 429: slow down', 'model-overloaded', { modelStatus: 429, retryAfter: 30 }],
  ['API call failed after 3 retries: HTTP 500: x', 'model-failed', { modelStatus: 500 }],
  ['Error: it broke', 'agent-failed', { stopReason: 'end_turn' }],
])('%s is %s', (streamed, name, members) => {
  expect(settle(facts({ streamed }))).toMatchObject({
    outcome: 'failed',
    problem: { type: `urn:edge-gateway:problem:${name}`, ...members },
  });
});

test('a reply that reached the output limit, and an agent that ran out of memory, have names of their own', () => {
  expect(problemOf({ closing: row({ finishReason: 'length' }) })).toBe('turn-output-limit');
  const child = { generation: 3, code: null, signal: 'SIGKILL', report: '', outOfMemory: true };
  expect(problemOf({ end: { kind: 'gone', child } })).toBe('agent-out-of-memory');
  expect(problemOf({ end: { kind: 'gone', child }, sessiondbFailed: true })).toBe('sessiondb-unavailable');
});

test('only a child that ended its turn by itself, and whose rows are known, takes the next one', () => {
  const warm = (end: TurnEnd, cancelSent: boolean, settlement: Settlement = delivered) =>
    childStaysWarm(end, cancelSent, settlement);
  expect(ends.map((end) => warm(end, false))).toEqual([true, false, false, false, false, false, false]);
  expect(ends.some((end) => warm(end, true))).toBe(false);
  expect(warm(ended, false, settle(facts({ streamed: 'HTTP 401: no such key' })))).toBe(true);
  expect(warm(ended, false, settle(facts({ streamed: 'My dear friend' })))).toBe(false);
  expect(warm(ended, false, { outcome: 'cancelled' })).toBe(false);
});
