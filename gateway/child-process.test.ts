/** Children of the gateway: what is told to one that dies. */
import { expect, test } from 'bun:test';
import { startChild } from './child-process.ts';

const deaf = () =>
  startChild({
    name: 'a deaf child',
    command: ['sh', '-c', `echo '{"ready":true}'; exec sleep 60`],
    readyMs: 10_000,
    onLog: () => undefined,
  });

test('a child that dies before it has read what it was told ends, and nothing else does', async () => {
  const failures: unknown[] = [];
  const heard = (error: unknown) => failures.push(error);
  process.on('unhandledRejection', heard);
  try {
    const child = await deaf();
    // More than a pipe takes, so that the rest waits.
    for (let count = 0; count < 50; count++) child.tell('x'.repeat(8_000));
    process.kill(child.pid, 'SIGKILL');
    expect(await child.exited).toBe('ended by SIGKILL');
    child.tell('after its end');
    await Bun.sleep(50);
    expect(failures).toEqual([]);
  } finally {
    process.off('unhandledRejection', heard);
  }
});

test('what is told to a child that is dead already, before anybody knows, harms nobody', async () => {
  const child = await deaf();
  process.kill(child.pid, 'SIGKILL');
  // No turn of the event loop: its end is not known here.
  Bun.sleepSync(200);
  expect(() => child.tell('are you there?')).not.toThrow();
  expect(await child.exited).toBe('ended by SIGKILL');
});
