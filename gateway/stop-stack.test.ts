import { expect, test } from 'bun:test';
import { StopStack } from './stop-stack.ts';

test('the last started is stopped first; failures and hangs are reported and hold up nothing', async () => {
  const said: string[] = [];
  const stack = new StopStack();
  const step = (name: string, stop: () => Promise<void> | void) => stack.add({ name, limitMs: 20, stop });
  step('first', () => void said.push('first'));
  step('failing', () => {
    throw new Error('no');
  });
  step('hanging', () => new Promise<void>(() => undefined));
  step('last', async () => void said.push('last'));
  const report = (name: string, error: unknown) => void said.push(`${name}: ${(error as Error).message}`);
  await Promise.all([stack.stop(report), stack.stop(report)]);
  expect(said).toEqual(['last', 'hanging: not stopped within 20 ms', 'failing: no', 'first']);
  await stack.stop(report);
  expect(said).toHaveLength(4);
});
