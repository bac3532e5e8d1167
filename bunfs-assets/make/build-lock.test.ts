import { expect, test } from 'bun:test';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { takeBuildLock } from './build-lock.ts';

/** A process that takes the lock, says so, and holds it until its input ends. */
function contender(lock: string) {
  const code = `
    import { takeBuildLock } from ${JSON.stringify(join(import.meta.dir, 'build-lock.ts'))};
    takeBuildLock(${JSON.stringify(lock)}, () => console.log('waits'));
    console.log('holds');
    for await (const _ of Bun.stdin.stream());
  `;
  const child = Bun.spawn([process.execPath, '-e', code], { stdin: 'pipe', stdout: 'pipe', stderr: 'inherit' });
  const reader = child.stdout.getReader();
  const said = async () => new TextDecoder().decode((await reader.read()).value).trim();
  return { child, said };
}

test('a second build waits for the first, also when that is killed', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'lock-'));
  const lock = join(directory, 'lock');
  const release = takeBuildLock(lock, () => {});
  const second = contender(lock);
  expect(await second.said()).toBe('waits');
  release();
  expect(await second.said()).toBe('holds');
  const third = contender(lock);
  expect(await third.said()).toBe('waits');
  second.child.kill('SIGKILL');
  expect(await third.said()).toBe('holds');
  third.child.stdin.end();
  expect(await third.child.exited).toBe(0);
  rmSync(directory, { recursive: true });
}, 30_000);
