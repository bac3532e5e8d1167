import { expect, test } from 'bun:test';
import { readFileSync } from 'node:fs';
import { HolderChild } from './child.ts';

const start = (script: string) =>
  new HolderChild(Bun.spawn(['sh', '-c', script], { stdin: 'pipe', stdout: 'pipe', stderr: 'pipe' }), 1);

async function rest(child: HolderChild): Promise<string> {
  const chunks: Uint8Array[] = [];
  for (let next = await child.peek(); next; next = await child.peek()) {
    chunks.push(next);
    child.take();
  }
  return Buffer.concat(chunks).toString();
}

test('the end is seen although nobody has taken what was said before it, and nothing of that is lost', async () => {
  const child = start('echo one; sleep 0.1; echo two');
  await child.silent;
  expect(await rest(child)).toBe('one\ntwo\n');
  expect(await child.peek()).toBeNull();
});

test('what is peeked stays until it is taken', async () => {
  const child = start('echo one; read x; echo two');
  expect(await child.peek()).toEqual((await child.peek()) as Uint8Array);
  child.take();
  const next = child.peek();
  await child.write(Buffer.from('go\n'));
  expect(Buffer.from((await next) as Uint8Array).toString()).toBe('two\n');
});

test('a child that says a lot while nobody listens waits', async () => {
  const child = start('exec yes');
  const written = () => Number(/^wchar: (\d+)$/m.exec(readFileSync(`/proc/${child.pid}/io`, 'utf8'))?.[1]);
  let before = 0;
  // It has begun, and goes no further.
  while (before < 4096 || written() !== before) {
    before = written();
    expect(before).toBeLessThan(4 * 1024 * 1024);
    await Bun.sleep(200);
  }
  for (let taken = 0; taken < 8 * 1024 * 1024; child.take()) taken += (await child.peek())?.length ?? 0;
  expect(written()).toBeGreaterThan(before);
  child.kill();
});

test('only what confined-exec says of itself is reported', async () => {
  const child = start('echo "prose of a user" >&2; echo "confined-exec holder: mount /workspace: EPERM" >&2; exit 126');
  expect(await child.exited).toEqual({ code: 126, signal: null });
  while (child.report === '') await Bun.sleep(5);
  expect(child.report).toBe('confined-exec holder: mount /workspace: EPERM\n');
});
