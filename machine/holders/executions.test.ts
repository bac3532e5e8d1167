import { beforeEach, expect, test } from 'bun:test';
import type { LedgerCall } from '../agentfs/ledger.ts';
import { Executions } from './executions.ts';

let recorded: LedgerCall[];
let lost: number;
let executions: Executions;

beforeEach(() => {
  recorded = [];
  lost = 0;
  const ledger = {
    record: async (call: LedgerCall) => void recorded.push(call),
    lost: (_: string, count: number) => {
      lost += count;
    },
  };
  executions = new Executions(ledger, 'conv_a', ['/usr/bin/git']);
});

const started = (i: number) => ({ i, a: ['bash', '-c', 'exit 3'], f: '/bin/bash', d: '/workspace', t: 1_000 });

test('one row a program, at its end', () => {
  executions.heard([started(1), started(2), { i: 2, c: 0, t: 1_500 }]);
  expect(recorded).toEqual([
    {
      name: 'shell',
      conversation: 'conv_a',
      parameters: { argv: ['bash', '-c', 'exit 3'], program: '/bin/bash', cwd: '/workspace' },
      result: { exitCode: 0 },
      error: null,
      startedAt: 1_000,
      endedAt: 1_500,
    },
  ]);
  executions.heard([{ i: 1, c: 3, t: 2_000 }]);
  expect(recorded[1]).toMatchObject({ result: { exitCode: 3 }, error: 'exit code 3' });
  executions.heard([{ i: 1, c: 3, t: 2_000 }]);
  expect(recorded.length).toBe(2);
});

test('a signal has its name', () => {
  executions.heard([started(1), { i: 1, s: 9, t: 2_000 }, started(2), { i: 2, s: 40, t: 2_000 }]);
  expect(recorded.map(({ result, error }) => [result, error])).toEqual([
    [{ signal: 'SIGKILL' }, 'ended by SIGKILL'],
    [{ signal: 'signal 40' }, 'ended by signal 40'],
  ]);
});

test('what could not be executed is no row; what outlives its holder ends with it', async () => {
  executions.heard([started(1), { i: 1, x: 1 }, started(2)]);
  await executions.holderEnded();
  await executions.holderEnded();
  expect(recorded).toEqual([expect.objectContaining({ result: null, error: 'ended with its holder' })]);
});

test('what could not be told is counted, and an end without its start is no row', () => {
  executions.heard([{ l: 3 }, { i: 7, c: 0, t: 1 }]);
  executions.heard(Array.from({ length: 4_100 }, (_, at) => started(at + 1)));
  expect(lost).toBe(3 + 4);
  expect(recorded).toEqual([]);
});

test('git has a row by itself; passwords in addresses are in no row', () => {
  executions.heard([
    { ...started(1), f: '/usr/bin/git', a: ['git', 'status'] },
    { i: 1, c: 0, t: 2_000 },
  ]);
  executions.heard([
    { ...started(2), a: ['bash', '-c', 'curl https://me:secret@host/x; git clone ssh://me@host/y'] },
    { i: 2, c: 0, t: 2_000 },
  ]);
  expect(recorded.map(({ parameters }) => parameters.argv)).toEqual([
    ['bash', '-c', 'curl https://***@host/x; git clone ssh://***@host/y'],
  ]);
});
