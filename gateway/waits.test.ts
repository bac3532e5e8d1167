import { expect, test } from 'bun:test';
import { unlessAborted, WaitedTooLong, within } from './waits.ts';

const never = new Promise<never>(() => undefined);

test('settles as the work does, or when the time is over', async () => {
  expect(await within(1_000, 'it', Promise.resolve(7))).toBe(7);
  await expect(within(1_000, 'it', Promise.reject(new Error('work')))).rejects.toThrow('work');
  await expect(within(5, 'the thing', never)).rejects.toBeInstanceOf(WaitedTooLong);
});

test('an abort ends the wait with its reason, before or during it, and a failure nobody waits for is no crash', async () => {
  const abort = new AbortController();
  const late = Promise.withResolvers<never>();
  const waiting = within(1_000, 'it', late.promise, abort.signal);
  abort.abort(new Error('enough'));
  await expect(waiting).rejects.toThrow('enough');
  await expect(unlessAborted(never, abort.signal)).rejects.toThrow('enough');
  late.reject(new Error('nobody listens'));
  await Bun.sleep(0);
});
